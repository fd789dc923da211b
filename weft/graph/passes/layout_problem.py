"""The choice of layouts for the calls of a function, as a problem: alternatives, costs, and the assignment that costs
least.

Every call has alternatives: those that its operator lists (trait ``layout``) and those in which it follows a layout
that a neighbour may have (trait ``follows``). The sum of the alternatives' costs and of the conversions between them is
minimized as a partitioned Boolean quadratic problem. Where costs come from is a parameter (:class:`LayoutCosts`): they
are estimated, or measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from weft.cost import Rates
from weft.cost.assumed import GRAPH_SIZE
from weft.cost.movement import conversion_seconds
from weft.graph import dims
from weft.graph.hashes import function_hash
from weft.graph.layout import Layout, letters_of, parse, plain
from weft.graph.nodes import Call, Constant, Function, GraphExpr, Project
from weft.graph.operator import Attrs, LayoutChoice, Operator
from weft.graph.pbqp import Pbqp
from weft.graph.types import TensorType, TupleType, tensors_in
from weft.graph.visit import children, post_order
from weft.support.errors import InternalError

Key = tuple[GraphExpr, int]
"""A value: the call or other expression that makes it, and which of its results it is."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A parsed :class:`LayoutChoice`; ``letters`` name the dimensions of each operand and output."""

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    letters: tuple[str | None, ...]
    attrs: Attrs
    cost: float

    @property
    def text(self) -> str:
        """The layouts, as people write them: ``NCHW16c OIHW16i16o -> NCHW16c``."""
        made = [
            layout.text(letters) if letters else layout.text()
            for layout, letters in zip((*self.inputs, *self.outputs), self.letters, strict=True)
        ]
        return f"{' '.join(made[: len(self.inputs)])} -> {' '.join(made[len(self.inputs) :])}"


@dataclass(frozen=True, slots=True)
class LayoutConversion:
    """A tensor of logical ``type`` that is converted from ``source`` to ``target``. ``light``: its reader keeps the
    shape. ``letters`` name the dimensions, where they have names."""

    type: TensorType
    source: Layout
    target: Layout
    light: bool = False
    letters: str | None = None


class LayoutCosts(Protocol):
    """Where the costs of a problem come from. All are in seconds of a run."""

    def call(self, number: int, alternative: int) -> float:
        """The cost of a call of the problem, by its number there, in one of its alternatives."""

    def conversion(self, conversion: LayoutConversion) -> float:
        """The cost of a conversion."""


class LayoutDecider(Protocol):
    """Decides the layouts of functions instead of estimates."""

    def decide(self, problem: LayoutProblem) -> Sequence[int] | None:
        """The alternative of each call of the problem, in order; None: estimates decide."""


@dataclass(frozen=True, slots=True)
class EstimatedCosts:
    """Costs by the estimates of operators, and by the ``rates`` of the machine for conversions."""

    problem: LayoutProblem
    rates: Rates

    def call(self, number: int, alternative: int) -> float:
        """As the operator says."""
        return self.problem.alternatives(number)[alternative].cost

    def conversion(self, conversion: LayoutConversion) -> float:
        """By the bytes that are read and written."""
        moved = sum(
            math.prod(d if isinstance(d, int) else GRAPH_SIZE for d in layout.shape(conversion.type.shape))
            for layout in (conversion.source, conversion.target)
        )
        return conversion_seconds(self.rates, moved * conversion.type.dtype.nbytes, conversion.light)


class LayoutProblem:
    """The problem of one function. ``block``, ``tile``, ``rates`` and ``max_choices`` are those of
    :class:`~weft.graph.passes.layout.SelectLayouts`; ``context`` is what else decides how the graph goes on after
    layouts are chosen."""

    def __init__(
        self, function: Function, block: int, tile: int, rates: Rates, max_choices: int, context: str = ""
    ) -> None:
        self.function, self.block, self.rates, self.context = function, block, rates, context
        self._max_choices = max_choices
        self.order = list(post_order(function))
        """All expressions of the function outside of primitive functions, operands first."""
        self.choices: dict[Call, list[Alternative]] = {}
        """The alternatives of each call."""
        self._zero_kept: dict[Any, bool] = {}
        self._users: dict[GraphExpr, list[GraphExpr]] = {e: [] for e in self.order}
        inside = {
            e for f in self.order if isinstance(f, Function) and f.is_primitive for e in post_order(f) if e is not f
        }
        self.order = [e for e in self.order if e not in inside]
        self._tile = tile if any(_is_half(e) for e in self.order) else 0
        for e in self.order:
            for c in children(e) if not (isinstance(e, Function) and e.is_primitive) else ():
                self._users[c].append(e)
        self._listed_counts: dict[Call, int] = {}
        for e in self.order:
            if isinstance(e, Call) and isinstance(e.target, Operator) and _tensors_only(e):
                self.choices[e] = self._listed(e, e.target)
                self._listed_counts[e] = len(self.choices[e])
        self._spread(self.order, self._from_operands)
        self._spread(self.order[::-1], self._from_users)
        self._spread(self.order, self._from_operands)

    @cached_property
    def calls(self) -> list[Call]:
        """The calls, in an order that functions of one :attr:`key` share."""
        return list(self.choices)

    @property
    def is_open(self) -> bool:
        """Whether some call has several alternatives."""
        return any(len(c) > 1 for c in self.choices.values())

    @cached_property
    def key(self) -> str:
        """A hash of the function and of what decides its alternatives and what follows: choices are found by it."""
        return f"{function_hash(self.function)} {self.block} {self._tile} {self._max_choices} {self.context}".strip()

    def alternatives(self, number: int) -> list[Alternative]:
        """The alternatives of a call, by its number."""
        return self.choices[self.calls[number]]

    @property
    def leading(self) -> list[int]:
        """The numbers of the calls for which their operators list several alternatives; others only follow."""
        return [i for i, e in enumerate(self.calls) if self._listed_counts[e] > 1]

    def listed(self, number: int) -> int:
        """How many alternatives the operator of a call lists; they come first."""
        return self._listed_counts[self.calls[number]]

    # -- alternatives --------------------------------------------------------------------------------------------

    def _listed(self, e: Call, op: Operator) -> list[Alternative]:
        types = _types(e)
        listed: list[LayoutChoice] = []
        if op.layout is not None:
            listed = op.layout(e.attrs, types, self.block, self._tile, self.rates)
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
                if len(known) >= self._max_choices:
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
            maker, output = value_key(a)
            for c in self.choices.get(maker, ()) if isinstance(maker, Call) else ():
                if not c.outputs[output].is_plain:
                    found.add((i, c.outputs[output], c.letters[len(c.inputs) + output]))
        return found

    def _from_users(self, e: Call) -> set[tuple[int, Layout, str | None]]:
        found: set[tuple[int, Layout, str | None]] = set()
        if not isinstance(e.type, TensorType):
            return found
        leads = [i for i, a in enumerate(e.args) if a.tensor.rank == e.type.rank]
        for u in self._users[e]:
            for c in self.choices.get(u, ()) if isinstance(u, Call) else ():
                for i, a in enumerate(u.args):  # type: ignore[attr-defined]  # Call
                    if a is e and not c.inputs[i].is_plain:
                        found.update((k, c.inputs[i], c.letters[i]) for k in leads)
        return found

    def _keeps_zeros(self, e: Call, choice: Alternative) -> bool:
        """Whether padded lanes stay zero: evaluates the reference on zeros (other operands: on several values)."""
        if not any(c.pads(t.shape) for c, t in zip(choice.outputs, tensors_in(e.type), strict=True)):
            return True
        if dims.is_symbolic(e.attrs):
            return False
        assert isinstance(e.target, Operator)
        padded = tuple(not c.is_plain for c in choice.inputs)
        key = (e.target, e.attrs, padded, tuple(t.dtype for t in _types(e)))
        if key not in self._zero_kept:
            self._zero_kept[key] = _maps_zeros(e.target, e.attrs, _types(e), padded)
        return self._zero_kept[key]

    # -- costs ---------------------------------------------------------------------------------------------------

    def solve(self, costs: LayoutCosts, fixed: Mapping[int, int] | None = None) -> list[int]:
        """The alternative of each call that together cost least. ``fixed`` are those that are given, by the numbers of
        their calls."""
        given = fixed or {}
        open_to = [[given[i]] if i in given else range(len(self.choices[e])) for i, e in enumerate(self.calls)]
        numbers = {e: i for i, e in enumerate(self.calls)}
        problem: Pbqp[int] = Pbqp()
        for i, alternatives in enumerate(open_to):
            problem.node(i, [costs.call(i, a) for a in alternatives])
        for reader, maker, between in self._readings():
            i = numbers[reader]
            if isinstance(maker, Call) and maker in numbers:
                j = numbers[maker]
                matrix = [[_cost(costs, between(p, c)) for c in open_to[i]] for p in open_to[j]]
                problem.edge(j, i, matrix)
            else:
                problem.costs[i] += [_cost(costs, between(0, c)) for c in open_to[i]]
        for i, e in enumerate(self.calls):
            leaving = self._leaving(e)
            problem.costs[i] += [sum(_cost(costs, self._to_plain(e, a, k, t)) for k, t in leaving) for a in open_to[i]]
        solved = problem.solve()
        return [open_to[i][solved[i]] for i in range(len(self.calls))]

    def conversions(self, assignment: Sequence[int]) -> list[LayoutConversion]:
        """The conversions that an assignment needs, one for each reader."""
        numbers = {e: i for i, e in enumerate(self.calls)}
        found = []
        for reader, maker, between in self._readings():
            made = assignment[numbers[maker]] if isinstance(maker, Call) and maker in numbers else 0
            found.append(between(made, assignment[numbers[reader]]))
        for i, e in enumerate(self.calls):
            found += [self._to_plain(e, assignment[i], k, t) for k, t in self._leaving(e)]
        return [c for c in found if c.source != c.target]

    def _readings(self) -> Iterator[tuple[Call, GraphExpr, Callable[[int, int], LayoutConversion]]]:
        """Each operand of each call, but constants: the call, what makes the operand, and the conversion between an
        alternative of that and one of the call."""
        for e, choices in self.choices.items():
            for i, a in enumerate(e.args):
                maker, output = value_key(a)
                known = isinstance(maker, Call) and maker in self.choices
                if isinstance(maker, Constant) and not known:
                    continue  # it is folded
                light = known and isinstance(e.type, TensorType) and e.type.shape == a.tensor.shape
                makers = self.choices[maker] if isinstance(maker, Call) and known else []

                def between(
                    made: int, read: int, i: int = i, t: TensorType = a.tensor, output: int = output,
                    makers: list[Alternative] = makers, choices: list[Alternative] = choices, light: bool = light,
                ) -> LayoutConversion:  # fmt: skip
                    wanted = choices[read]
                    source = makers[made].outputs[output] if makers else plain(t.rank)
                    return LayoutConversion(t, source, wanted.inputs[i], light, wanted.letters[i])

                yield e, maker, between

    def _to_plain(self, e: Call, alternative: int, output: int, t: TensorType) -> LayoutConversion:
        a = self.choices[e][alternative]
        letters = a.letters[len(a.inputs) + output]
        return LayoutConversion(t, a.outputs[output], plain(t.rank), letters=letters)

    def _leaving(self, e: Call) -> list[tuple[int, TensorType]]:
        """The results that are wanted plain by some user, each with its number."""
        takers: dict[int, list[GraphExpr]] = {0: self._users[e]}
        if isinstance(e.type, TupleType):
            takers = {}
            for p in self._users[e]:
                if isinstance(p, Project):
                    takers.setdefault(p.index, []).extend(self._users[p])
        plainly = {i for i, users in takers.items() if any(u not in self.choices for u in users)}
        return [(i, t) for i, t in enumerate(tensors_in(e.type)) if i in plainly]


def _cost(costs: LayoutCosts, conversion: LayoutConversion) -> float:
    return 0.0 if conversion.source == conversion.target else costs.conversion(conversion)


def value_key(value: GraphExpr) -> Key:
    """What makes ``value``, and which of its results it is."""
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


def _parsed(e: Call, choice: LayoutChoice, first: tuple[str | None, ...]) -> Alternative:
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
    return Alternative(tuple(layouts[:n]), tuple(layouts[n:]), tuple(names), choice.attrs, choice.cost)


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
