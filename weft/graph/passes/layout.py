"""Chooses the layouts of a whole graph, and puts conversions where they cost least.

Every call has alternatives: those that its operator lists (trait ``layout``) and those in which it follows a layout
that a neighbour may have (trait ``follows``). The sum of the alternatives' costs and of the conversions between them is
minimized as a partitioned Boolean quadratic problem. Conversions of constants are free: they are folded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.cost import REFERENCE, Rates
from weft.cost.assumed import GRAPH_SIZE
from weft.cost.movement import conversion_seconds
from weft.graph import dims
from weft.graph.layout import Layout, letters_of, parse, plain
from weft.graph.nodes import Call, Constant, Function, GraphExpr, Module, Project, Tuple, call
from weft.graph.operator import Attrs, LayoutChoice, Operator
from weft.graph.pbqp import Pbqp
from weft.graph.types import TensorType, TupleType, tensors_in
from weft.graph.visit import children, map_functions, post_order, rebuild
from weft.support.errors import InternalError

Key = tuple[GraphExpr, int]


@dataclass(frozen=True, slots=True)
class SelectLayouts:
    """Run calls in the layouts that cost least in all.

    ``block``: lanes of a vector, handed to the operators. ``convert``: the operator that converts layouts, with
    attributes ``src_layout``, ``dst_layout`` and ``sizes`` (the logical sizes in the order of the source's capitals, or
    None where nothing is padded). ``rates``: what costs are estimated with. ``max_choices`` bounds the alternatives of
    a call. ``tile``: numbers of half precision that a matrix unit sums up at a time (0: none).
    """

    block: int
    convert: Operator
    max_choices: int = 6
    tile: int = 0
    rates: Rates = REFERENCE
    name: str = "select_layouts"

    def run(self, module: Module) -> Module:
        return map_functions(module, lambda f: f if f.is_primitive else _Selection(self, f).run())


@dataclass(frozen=True, slots=True)
class _Choice:
    """A parsed :class:`LayoutChoice`; ``letters`` name the dimensions of each operand and output."""

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    letters: tuple[str | None, ...]
    attrs: Attrs
    cost: float


class _Selection:
    """The work on one function."""

    def __init__(self, options: SelectLayouts, function: Function) -> None:
        self.options, self.function = options, function
        self.order = list(post_order(function))
        self.choices: dict[Call, list[_Choice]] = {}
        self.zero_kept: dict[Any, bool] = {}
        self.users: dict[GraphExpr, list[GraphExpr]] = {e: [] for e in self.order}
        inside = {
            e for f in self.order if isinstance(f, Function) and f.is_primitive for e in post_order(f) if e is not f
        }
        self.order = [e for e in self.order if e not in inside]
        self.tile = options.tile if any(_is_half(e) for e in self.order) else 0
        for e in self.order:
            for c in children(e) if not (isinstance(e, Function) and e.is_primitive) else ():
                self.users[c].append(e)

    def run(self) -> Function:
        for e in self.order:
            if isinstance(e, Call) and isinstance(e.target, Operator) and _tensors_only(e):
                self.choices[e] = self._listed(e, e.target)
        self._spread(self.order, self._from_operands)
        self._spread(self.order[::-1], self._from_users)
        self._spread(self.order, self._from_operands)
        if all(len(c) == 1 for c in self.choices.values()):
            return self.function
        chosen = self._solve()
        return _Rebuild(self, {e: self.choices[e][i] for e, i in chosen.items()}).run()

    # -- alternatives --------------------------------------------------------------------------------------------

    def _listed(self, e: Call, op: Operator) -> list[_Choice]:
        types = _types(e)
        listed: list[LayoutChoice] = []
        if op.layout is not None:
            listed = op.layout(e.attrs, types, self.options.block, self.tile, self.options.rates)
        listed = listed or [LayoutChoice((None,) * len(types), (None,) * len(tensors_in(e.type)), e.attrs)]
        first = listed[0]
        return [_parsed(e, c, (*first.inputs, *first.outputs)) for c in listed]

    def _spread(
        self, order: list[GraphExpr], candidates: Callable[[Call], set[tuple[int, Layout, str | None]]]
    ) -> None:
        """Add the alternatives in which calls follow their neighbours."""
        for e in order:
            if not isinstance(e, Call) or e not in self.choices:
                continue
            assert isinstance(e.target, Operator)
            if e.target.follows is None:
                continue
            known = self.choices[e]
            for operand, layout, letters in sorted(candidates(e), key=lambda c: (c[0], str(c[1]))):
                if len(known) >= self.options.max_choices:
                    break
                text = layout.text(letters) if letters else layout.text()
                made = e.target.follows(e.attrs, _types(e), operand, text)
                if made is None:
                    continue
                choice = _parsed(e, made, (*made.inputs, *made.outputs))
                if self._keeps_zeros(e, choice) and not any(c.inputs == choice.inputs for c in known):
                    known.append(choice)

    def _from_operands(self, e: Call) -> set[tuple[int, Layout, str | None]]:
        found: set[tuple[int, Layout, str | None]] = set()
        for i, a in enumerate(e.args):
            maker, output = _key(a)
            for c in self.choices.get(maker, ()) if isinstance(maker, Call) else ():
                if not c.outputs[output].is_plain:
                    found.add((i, c.outputs[output], c.letters[len(c.inputs) + output]))
        return found

    def _from_users(self, e: Call) -> set[tuple[int, Layout, str | None]]:
        found: set[tuple[int, Layout, str | None]] = set()
        if not isinstance(e.type, TensorType):
            return found
        leads = [i for i, a in enumerate(e.args) if a.tensor.rank == e.type.rank]
        for u in self.users[e]:
            for c in self.choices.get(u, ()) if isinstance(u, Call) else ():
                for i, a in enumerate(u.args):  # type: ignore[attr-defined]  # Call
                    if a is e and not c.inputs[i].is_plain:
                        found.update((k, c.inputs[i], c.letters[i]) for k in leads)
        return found

    def _keeps_zeros(self, e: Call, choice: _Choice) -> bool:
        """Whether padded lanes stay zero: evaluates the reference on zeros (other operands: on several values)."""
        if not any(c.pads(t.shape) for c, t in zip(choice.outputs, tensors_in(e.type), strict=True)):
            return True
        if dims.is_symbolic(e.attrs):
            return False
        assert isinstance(e.target, Operator)
        padded = tuple(not c.is_plain for c in choice.inputs)
        key = (e.target, e.attrs, padded, tuple(t.dtype for t in _types(e)))
        if key not in self.zero_kept:
            self.zero_kept[key] = _maps_zeros(e.target, e.attrs, _types(e), padded)
        return self.zero_kept[key]

    # -- costs ---------------------------------------------------------------------------------------------------

    def _solve(self) -> dict[Call, int]:
        problem: Pbqp[Call] = Pbqp()
        for e, choices in self.choices.items():
            problem.node(e, [c.cost for c in choices])
        for e, choices in self.choices.items():
            for i, a in enumerate(e.args):
                maker, output = _key(a)
                if isinstance(maker, Call) and maker in self.choices:
                    light = isinstance(e.type, TensorType) and e.type.shape == a.tensor.shape
                    matrix = [
                        [self._cost(a.tensor, p.outputs[output], c.inputs[i], light) for c in choices]
                        for p in self.choices[maker]
                    ]
                    problem.edge(maker, e, matrix)
                elif not isinstance(maker, Constant):
                    start = plain(a.tensor.rank)
                    problem.costs[e] += [self._cost(a.tensor, start, c.inputs[i]) for c in choices]
            leaving = self._leaving(e)
            problem.costs[e] += [sum(self._cost(t, c.outputs[i], plain(t.rank)) for i, t in leaving) for c in choices]
        return problem.solve()

    def _leaving(self, e: Call) -> list[tuple[int, TensorType]]:
        """The results that are wanted plain by some user, each with its number."""
        takers: dict[int, list[GraphExpr]] = {0: self.users[e]}
        if isinstance(e.type, TupleType):
            takers = {}
            for p in self.users[e]:
                if isinstance(p, Project):
                    takers.setdefault(p.index, []).extend(self.users[p])
        plainly = {i for i, users in takers.items() if any(u not in self.choices for u in users)}
        return [(i, t) for i, t in enumerate(tensors_in(e.type)) if i in plainly]

    def _cost(self, t: TensorType, source: Layout, target: Layout, light: bool = False) -> float:
        """Seconds of a conversion before a reader that keeps the shape (``light``) or does not."""
        if source == target:
            return 0.0
        moved = sum(
            math.prod(d if isinstance(d, int) else GRAPH_SIZE for d in layout.shape(t.shape))
            for layout in (source, target)
        )
        return conversion_seconds(self.options.rates, moved * t.dtype.nbytes, light)


class _Rebuild:
    """Builds the function in which every call has the chosen layout."""

    def __init__(self, selection: _Selection, chosen: dict[Call, _Choice]) -> None:
        self.selection, self.chosen = selection, chosen
        self.made: dict[GraphExpr, GraphExpr] = {}
        self.converted: dict[tuple[Key, Layout], GraphExpr] = {}

    def run(self) -> Function:
        for e in self.selection.order:
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
        result = self.made[self.selection.function]
        assert isinstance(result, Function)
        return result

    def _call(self, e: Call, choice: _Choice) -> GraphExpr:
        args = [
            self._value(a, wanted, letters)
            for a, wanted, letters in zip(e.args, choice.inputs, choice.letters, strict=False)
        ]
        if choice.attrs == e.attrs and all(a is b for a, b in zip(args, e.args, strict=True)):
            return e
        assert isinstance(e.target, Operator)
        new = call(e.target, args, choice.attrs, origin=e.origin)
        for t, got, layout in zip(tensors_in(e.type), tensors_in(new.type), choice.outputs, strict=True):
            if layout.type(t) != got:
                raise InternalError(f"{e.target.name} in layout {layout} gives {got}, not {layout.type(t)}")
        return new

    def _plain(self, value: GraphExpr) -> GraphExpr:
        if isinstance(value.type, TensorType) and _key(value)[0] in self.chosen:
            return self._value(value, plain(value.type.rank), None)
        choice = self.chosen.get(value) if isinstance(value, Call) else None
        if choice is not None and not all(c.is_plain for c in choice.outputs):  # a whole tuple is wanted
            return Tuple(tuple(self._plain(Project(value, i)) for i in range(len(choice.outputs))))
        return self.made[value]

    def _value(self, value: GraphExpr, wanted: Layout, letters: str | None) -> GraphExpr:
        """``value`` in the layout ``wanted``."""
        maker, output = key = _key(value)
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
            base = self._convert(base, value.tensor, have, wanted, names)
        self.converted[key, wanted] = base
        return base

    def _convert(self, base: GraphExpr, t: TensorType, have: Layout, wanted: Layout, names: str | None) -> GraphExpr:
        letters = names or plain(t.rank).text()
        sizes = tuple(t.shape[letters.index(c)] for c in letters_of(have.text(letters))) if have.pads(t.shape) else None
        attrs = {"src_layout": have.text(letters), "dst_layout": wanted.text(letters), "sizes": sizes}
        made = call(self.selection.options.convert, [base], attrs, origin=base.origin)
        if made.type != wanted.type(t):
            raise InternalError(f"converting {have} to {wanted} gives {made.type}, not {wanted.type(t)}")
        return made


def _key(value: GraphExpr) -> Key:
    if isinstance(value, Project) and isinstance(value.value, Call):
        return (value.value, value.index) if isinstance(value.value.target, Operator) else (value, 0)
    return value, 0


def _is_half(e: GraphExpr) -> bool:
    return isinstance(e.type, TensorType) and e.type.dtype.is_float and e.type.dtype.bits == 16


def _types(e: Call) -> tuple[TensorType, ...]:
    return tuple(a.tensor for a in e.args)


def _tensors_only(e: Call) -> bool:
    parts = e.type.fields if isinstance(e.type, TupleType) else (e.type,)
    return all(isinstance(t, TensorType) for t in (*parts, *(a.type for a in e.args)))


def _parsed(e: Call, choice: LayoutChoice, first: tuple[str | None, ...]) -> _Choice:
    """``choice`` with its layouts read; ``first`` is the plain choice, which tells the logical order of letters."""
    types = (*_types(e), *tensors_in(e.type))
    texts = (*choice.inputs, *choice.outputs)
    layouts: list[Layout] = []
    names: list[str | None] = []
    for t, text, base in zip(types, texts, first, strict=True):
        letters = letters_of(base) if base else letters_of(text) if text else None
        layouts.append(parse(text, letters) if text else plain(t.rank))
        names.append(letters or None)
        if layouts[-1].rank != t.rank:
            raise InternalError(f"the layout '{text}' given for {t} has {layouts[-1].rank} dimensions")
    n = len(e.args)
    return _Choice(tuple(layouts[:n]), tuple(layouts[n:]), tuple(names), choice.attrs, choice.cost)


def _maps_zeros(op: Operator, attrs: Attrs, types: tuple[TensorType, ...], padded: tuple[bool, ...]) -> bool:
    """Whether the reference gives zeros where ``padded`` operands are zero.

    Tried on the smallest operands that the reference accepts: a single element, a single channel (dimension 1) of the
    real size in space, the real sizes.
    """
    single = [(1,) * t.rank for t in types]
    real = [tuple(d if isinstance(d, int) else 1 for d in t.shape) for t in types]
    channel = [tuple(1 if k < 2 else n for k, n in enumerate(shape)) for shape in real]
    for shapes in (single, channel, real):
        kept = _zeros_kept(op, attrs, types, padded, shapes)
        if kept is not None:
            return kept
    return False


def _zeros_kept(
    op: Operator,
    attrs: Attrs,
    types: tuple[TensorType, ...],
    padded: tuple[bool, ...],
    shapes: Sequence[tuple[int, ...]],
) -> bool | None:
    """The answer for operands of these shapes; None where the reference does not accept them."""
    for value in (-1.5, 0.5, 2.0):
        args = [
            np.full(shape, 0 if zero else value).astype(t.dtype.numpy)
            for t, zero, shape in zip(types, padded, shapes, strict=True)
        ]
        try:
            with np.errstate(all="ignore"):
                got = op.reference(attrs, *args)
        except Exception:  # whatever a reference raises on shapes that it was not made for
            return None
        for part in got if isinstance(got, tuple) else (got,):
            if not np.array_equal(np.asarray(part).astype(np.float64), np.zeros(np.shape(part))):
                return False
    return True
