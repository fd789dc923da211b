"""Chooses the layouts of a whole graph, and puts conversions where they cost least.

The alternatives of the calls, and the assignment that costs least, are those of a
:class:`~weft.graph.passes.layout_problem.LayoutProblem`. Conversions of constants are free: they are folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft.cost import REFERENCE, Rates
from weft.graph.layout import Layout, letters_of, plain
from weft.graph.nodes import Call, Function, GraphExpr, Module, Origin, Project, Tuple, call
from weft.graph.operator import Operator
from weft.graph.passes.layout_problem import (
    Alternative,
    EstimatedCosts,
    Key,
    LayoutConversion,
    LayoutDecider,
    LayoutProblem,
    value_key,
)
from weft.graph.types import TensorType, TupleType, tensors_in
from weft.graph.visit import children, map_functions, rebuild
from weft.support.errors import InternalError

MARK: Final = "layouts of "
"""How the names begin by which marked calls are found again."""


@dataclass(frozen=True, slots=True)
class SelectLayouts:
    """Run calls in the layouts that cost least in all.

    ``block``: lanes of a vector, handed to the operators. ``convert``: the operator that converts layouts, with
    attributes ``src_layout``, ``dst_layout`` and ``sizes`` (the logical sizes in the order of the source's capitals, or
    None where nothing is padded). ``rates``: what costs are estimated with. ``max_choices`` bounds the alternatives of
    a call. ``tile``: numbers of half precision that a matrix unit sums up at a time (0: none). ``decider`` may decide
    instead of estimates; ``context`` is part of the key by which it knows a function. ``marked``: each call is named
    in its origin (:func:`mark`), so that one finds it in a fused group.
    """

    block: int
    convert: Operator
    max_choices: int = 6
    tile: int = 0
    rates: Rates = REFERENCE
    decider: LayoutDecider | None = None
    context: str = ""
    marked: bool = False
    name: str = "select_layouts"

    def run(self, module: Module) -> Module:
        return map_functions(module, lambda f: f if f.is_primitive else self._selected(f))

    def _selected(self, function: Function) -> Function:
        problem = LayoutProblem(function, self.block, self.tile, self.rates, self.max_choices, self.context)
        if not problem.is_open:
            return function
        chosen = self.decider.decide(problem) if self.decider is not None else None
        if chosen is None:
            chosen = problem.solve(EstimatedCosts(problem, self.rates))
        return _Rebuild(problem, self.convert, chosen, self.marked).run()


def mark(problem: LayoutProblem, number: int) -> str:
    """The name by which a call of the problem is found again."""
    return f"{MARK}{problem.key}: {number}"


def marked_calls(origin: Origin) -> list[tuple[str, int]]:
    """The calls that an origin was marked with: the key of the problem and the number there."""
    found = []
    for name in origin.names:
        if name.startswith(MARK):
            key, _, number = name.removeprefix(MARK).rpartition(": ")
            found.append((key, int(number)))
    return found


def converted(convert: Operator, value: GraphExpr, wanted: LayoutConversion) -> GraphExpr:
    """``value``, which is in the source layout of the conversion ``wanted``, in the target layout."""
    t, have = wanted.type, wanted.source
    letters = wanted.letters or plain(t.rank).text()
    sizes = tuple(t.shape[letters.index(c)] for c in letters_of(have.text(letters))) if have.pads(t.shape) else None
    attrs = {"src_layout": have.text(letters), "dst_layout": wanted.target.text(letters), "sizes": sizes}
    made = call(convert, [value], attrs, origin=value.origin)
    if made.type != wanted.target.type(t):
        raise InternalError(f"converting {have} to {wanted.target} gives {made.type}, not {wanted.target.type(t)}")
    return made


class _Rebuild:
    """Builds the function in which every call has the chosen layout."""

    def __init__(self, problem: LayoutProblem, convert: Operator, chosen: Sequence[int], marked: bool) -> None:
        self.problem, self.convert = problem, convert
        self.chosen = {e: problem.choices[e][a] for e, a in zip(problem.calls, chosen, strict=True)}
        self.marks = {e: mark(problem, i) for i, e in enumerate(problem.calls)} if marked else {}
        self.made: dict[GraphExpr, GraphExpr] = {}
        self.converted: dict[tuple[Key, Layout], GraphExpr] = {}

    def run(self) -> Function:
        for e in self.problem.order:
            if isinstance(e, Project) and e.value in self.chosen:
                continue  # its users ask for the layout they want
            choice = self.chosen.get(e) if isinstance(e, Call) else None
            if choice is not None:
                assert isinstance(e, Call)
                self.made[e] = self._call(e, choice)
            elif isinstance(e, Function) and e.is_primitive:
                self.made[e] = e
            else:
                self.made[e] = rebuild(e, [self._plain(c) for c in children(e)])
        result = self.made[self.problem.function]
        assert isinstance(result, Function)
        return result

    def _call(self, e: Call, choice: Alternative) -> GraphExpr:
        args = [
            self._value(a, wanted, letters)
            for a, wanted, letters in zip(e.args, choice.inputs, choice.letters, strict=False)
        ]
        same = choice.attrs == e.attrs and all(a is b for a, b in zip(args, e.args, strict=True))
        if same and not self.marks:
            return e
        assert isinstance(e.target, Operator)
        origin = Origin((self.marks[e], *e.origin.names)) if self.marks else e.origin
        new = call(e.target, args, choice.attrs, origin=origin)
        for t, got, layout in zip(tensors_in(e.type), tensors_in(new.type), choice.outputs, strict=True):
            if layout.type(t) != got:
                raise InternalError(f"{e.target.name} in layout {layout} gives {got}, not {layout.type(t)}")
        return new

    def _plain(self, value: GraphExpr) -> GraphExpr:
        if isinstance(value.type, TensorType) and value_key(value)[0] in self.chosen:
            return self._value(value, plain(value.type.rank), None)
        choice = self.chosen.get(value) if isinstance(value, Call) else None
        if choice is not None and not all(c.is_plain for c in choice.outputs):  # a whole tuple is wanted
            return Tuple(tuple(self._plain(Project(value, i)) for i in range(len(choice.outputs))))
        return self.made[value]

    def _value(self, value: GraphExpr, wanted: Layout, letters: str | None) -> GraphExpr:
        """``value`` in the layout ``wanted``."""
        maker, output = key = value_key(value)
        known = self.converted.get((key, wanted))
        if known is not None:
            return known
        choice = self.chosen.get(maker) if isinstance(maker, Call) else None
        have = choice.outputs[output] if choice is not None else plain(value.tensor.rank)
        if choice is not None and isinstance(maker.type, TupleType):
            base: GraphExpr = Project(self.made[maker], output, value.origin)
        else:
            base = self.made[maker]
        if have != wanted:
            names = letters or (choice.letters[len(choice.inputs) + output] if choice is not None else None)
            base = converted(self.convert, base, LayoutConversion(value.tensor, have, wanted, letters=names))
        self.converted[key, wanted] = base
        return base
