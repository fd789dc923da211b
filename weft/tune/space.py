"""The search space of one kernel: sketches with knobs, points, and the steps from point to point.

A *sketch* is a family of schedules that differ in the decisions of their sampling instructions. A *knob* is one of
these decisions with its candidates. A *point* chooses a sketch and, for each of its knobs, the position of a candidate.
All strategies work on points alone; what a point means is asked of its sketch, which gives a trace.

Three kinds of sketches share this: the trace of the default rules, templates (:mod:`weft.tune.template`), and traces
that are generated from the computation (:mod:`weft.tune.sketches`).

    Space ── sketches ─┬─ knobs ── values
                       └─ trace(positions) ── Trace ── measured
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any, Final, Protocol

from weft.schedule.trace import Decision, Trace
from weft.support.errors import ScheduleError, UserError

MAX_NEIGHBOURS: Final = 64
"""Limit on the neighbours along a knob whose candidates are in no order."""


@dataclass(frozen=True)
class Knob:
    """One decision that a sketch leaves open.

    ``values`` are what the candidates mean: numbers, texts, or tuples of numbers (factors of a loop, or an order).
    ``default`` is the position of the candidate to start from. ``is_place``: whether the numbers are places in the
    program, which say where something is done and not how much of it.
    """

    name: str
    values: tuple[Any, ...]
    default: int
    is_place: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.default < len(self.values):
            raise UserError(
                f"knob '{self.name}' has {len(self.values)} candidates and no default {self.default}",
                code="U030",
                hint="the default is the position of a candidate",
            )

    @cached_property
    def ordered(self) -> bool:
        """Whether the candidates are numbers in ascending order."""
        values = self.values
        return all(type(v) is int for v in values) and all(a < b for a, b in itertools.pairwise(values))

    @cached_property
    def numeric(self) -> bool:
        """Whether the candidates are numbers, of which none is negative, and no places."""
        return not self.is_place and all(type(v) is int and v >= 0 for v in self.values)

    @cached_property
    def is_order(self) -> bool:
        """Whether the candidates are orders of loops."""
        first = self.values[0]
        return isinstance(first, tuple) and sorted(first) == list(range(len(first)))

    @cached_property
    def factors(self) -> bool:
        """Whether the candidates are lists of positive numbers, all of one product: the factors of a loop."""
        lists = [v for v in self.values if isinstance(v, tuple) and all(type(n) is int and n > 0 for n in v)]
        return len(lists) == len(self.values) and len({math.prod(v) for v in lists}) == 1 and not self.is_order

    def neighbours(self, position: int) -> tuple[int, ...]:
        """The positions of the candidates next to one: the numbers before and after; factors of which a prime moves
        from one place to another; orders that differ by a swap; any other candidate otherwise. Neighbours are mutual,
        but for an order that no swap leads to."""
        if position not in self._near:
            self._near[position] = self._neighbours(position)
        return self._near[position]

    @cached_property
    def _near(self) -> dict[int, tuple[int, ...]]:
        return {}

    def _neighbours(self, position: int) -> tuple[int, ...]:
        if self.ordered:
            return tuple(p for p in (position - 1, position + 1) if 0 <= p < len(self.values))
        value = self.values[position]
        if isinstance(value, tuple) and all(type(v) is int for v in value):
            near = [p for p, other in enumerate(self.values) if p != position and _is_near(value, other)]
            if near:
                return tuple(near)
        n = len(self.values)  # of too many, those nearest in a circle
        return tuple(
            p for p in range(n) if p != position and 2 * min((p - position) % n, (position - p) % n) <= MAX_NEIGHBOURS
        )


def _is_near(a: tuple[int, ...], b: Any) -> bool:
    """Whether two lists of factors, or two orders, differ in two places only, factors by a prime number."""
    if not isinstance(b, tuple) or len(a) != len(b):
        return False
    changed = [(x, y) for x, y in zip(a, b, strict=True) if x != y]
    if len(changed) != 2:
        return False
    (x0, y0), (x1, y1) = changed
    if (x0, x1) == (y1, y0) and sorted(a) == list(range(len(a))):
        return True  # an order
    more, less = max(x0, y0), min(x0, y0)
    return less > 0 and more % less == 0 and _is_prime(more // less) and x0 * x1 == y0 * y1


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


class Sketch(Protocol):
    """A family of schedules of one kernel."""

    @property
    def name(self) -> str:
        """Which sketch of the space it is, for people and for the database."""

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """The decisions that are open, in a fixed order; each has two candidates at least."""

    def trace(self, positions: Sequence[int]) -> Trace:
        """The schedule for the position of a candidate of each knob. Raises ScheduleError where the combination is
        refused; a trace that is returned may still be refused when it is replayed."""

    def positions(self, trace: Trace) -> tuple[int, ...] | None:
        """The positions for which :meth:`trace` gives ``trace``, or None for a schedule of another family. Of a
        schedule of a similar kernel (with other extents) they are the nearest candidates."""


@dataclass(frozen=True)
class TraceSketch:
    """The schedules that differ from ``base`` in the decisions of its sampling instructions."""

    name: str
    base: Trace

    @cached_property
    def _open(self) -> tuple[Decision, ...]:
        return tuple(_with_own(d) for d in self.base.decisions if len(d.candidates) > 1)

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        """A knob for each sampling instruction that has a choice, named after it and its place in the trace."""
        return tuple(
            Knob(
                f"{d.position}:{d.name.removeprefix('sample_')}",
                d.values,
                d.candidates.index(d.decision),
                d.name == "sample_location",
            )
            for d in self._open
        )

    def trace(self, positions: Sequence[int]) -> Trace:
        """``base`` with other decisions."""
        made = self.base
        for d, knob, position in zip(self._open, self.knobs, positions, strict=True):
            if position != knob.default:
                made = made.with_decision(d.position, d.candidates[position])
        return made

    def positions(self, trace: Trace) -> tuple[int, ...] | None:
        """Those of the decisions of ``trace``, if its instructions are the same otherwise."""
        return positions_of(self.base, [d.position for d in self._open], self.knobs, trace)


def positions_of(base: Trace, places: Sequence[int], knobs: Sequence[Knob], trace: Trace) -> tuple[int, ...] | None:
    """The candidates of ``knobs``, which are decided at ``places`` of ``base``, that are nearest to the decisions of
    ``trace``; None if the two consist of other instructions."""
    if not same_instructions(base, trace):
        return None
    decisions = {d.position: d for d in trace.decisions}
    if any(place not in decisions for place in places):
        return None
    found = []
    for place, knob in zip(places, knobs, strict=True):
        d = _with_own(decisions[place])
        at = d.candidates.index(d.decision)
        found.append(at if d.values == knob.values else nearest(knob, d.values[at]))
    return tuple(found)


def same_instructions(a: Trace, b: Trace) -> bool:
    """Whether two traces consist of the same primitives with the same results; arguments and decisions may differ."""
    return [(i.name, i.outputs) for i in a.instructions] == [(i.name, i.outputs) for i in b.instructions]


def _with_own(d: Decision) -> Decision:
    """A decision whose candidates include the one that was taken: of many loops not every order is a candidate."""
    if d.decision in d.candidates:
        return d
    return replace(d, candidates=(*d.candidates, d.decision), values=(*d.values, d.decision))


def nearest(knob: Knob, value: Any) -> int:
    """The position of a value among the candidates, or of the candidate that is nearest in proportion."""
    if value in knob.values:
        return knob.values.index(value)
    if knob.ordered and type(value) is int:
        return min(range(len(knob.values)), key=lambda i: abs(math.log(max(knob.values[i], 0.5) / max(value, 0.5))))
    if isinstance(value, tuple) and value and all(type(v) is int and v > 0 for v in value):
        same = [i for i, v in enumerate(knob.values) if isinstance(v, tuple) and len(v) == len(value) and min(v) > 0]
        if same:  # the inner factors say how the kernel is made; the outermost one only how often
            return min(same, key=lambda i: _ratio(knob.values[i][1:], value[1:]))
    return knob.default


def _ratio(a: Sequence[int], b: Sequence[int]) -> float:
    return sum(abs(math.log(x / y)) for x, y in zip(a, b, strict=True))


@dataclass(frozen=True, slots=True)
class Point:
    """A sketch of a space, by number, and for each of its knobs the position of the candidate."""

    sketch: int
    positions: tuple[int, ...]

    def changed(self, knob: int, position: int) -> Point:
        """The point with another candidate of one knob."""
        return Point(self.sketch, (*self.positions[:knob], position, *self.positions[knob + 1 :]))


class Space:
    """The sketches of one kernel. The first one is where a search starts: its default point is the default schedule,
    where the rules made it.

    ``more`` makes the sketches after the given ones when they are first asked for, as that may take as long as several
    trials: a model has dozens of kernels whose turn never comes.
    """

    def __init__(self, sketches: Sequence[Sketch], more: Callable[[], Iterable[Sketch]] | None = None) -> None:
        if not sketches:
            raise UserError("a search space needs a sketch", code="U031", hint="give a template or a trace")
        self._given, self._more = tuple(sketches), more

    @cached_property
    def sketches(self) -> tuple[Sketch, ...]:
        """All sketches."""
        return (*self._given, *(self._more() if self._more is not None else ()))

    @property
    def has_choice(self) -> bool:
        """Whether there is more than one point."""
        return any(s.knobs for s in self._given) or self.size > 1

    def sketch(self, number: int) -> Sketch:
        """One of the sketches."""
        return self._given[number] if number < len(self._given) else self.sketches[number]

    def knobs(self, point: Point) -> tuple[Knob, ...]:
        """The knobs of the sketch of a point."""
        return self.sketch(point.sketch).knobs

    def trace(self, point: Point) -> Trace:
        """The schedule of a point. Raises ScheduleError where the sketch refuses the combination."""
        return self.sketch(point.sketch).trace(point.positions)

    def point(self, trace: Trace) -> Point | None:
        """The point of a schedule, or the nearest one of a schedule of a similar kernel; None if no sketch has it."""
        found = [(n, p) for n, s in enumerate(self.sketches) if (p := s.positions(trace)) is not None]
        if len(found) > 1:  # sketches may differ in the arguments of their instructions alone
            found.sort(key=lambda f: self._differences(Point(*f), trace))
        return Point(*found[0]) if found else None

    def _differences(self, point: Point, trace: Trace) -> int:
        """How many instructions of a point's schedule are not those of ``trace``."""
        try:
            made = self.trace(point).instructions
        except ScheduleError:
            return len(trace)
        return sum(a != b for a, b in zip(made, trace.instructions, strict=False))

    def default(self, sketch: int = 0) -> Point:
        """The default point of a sketch."""
        return Point(sketch, tuple(k.default for k in self.sketch(sketch).knobs))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of points of each sketch."""
        return tuple(math.prod(len(k.values) for k in s.knobs) for s in self.sketches)

    @property
    def size(self) -> int:
        """The number of points."""
        return sum(self.sizes)

    def sample(self, rng: Random, sketch: int | None = None) -> Point:
        """A random point: every sketch is as likely as the others (``sketch``: of this one), and so is every candidate
        of a knob."""
        number = rng.randrange(len(self.sketches)) if sketch is None else sketch
        return Point(number, tuple(rng.randrange(len(k.values)) for k in self.sketches[number].knobs))

    def points(self) -> Iterator[Point]:
        """Every point once. The last knob changes fastest."""
        for number, sketch in enumerate(self.sketches):
            positions = [0] * len(sketch.knobs)
            while True:
                yield Point(number, tuple(positions))
                at = len(positions) - 1
                while at >= 0 and positions[at] == len(sketch.knobs[at].values) - 1:
                    positions[at] = 0
                    at -= 1
                if at < 0:
                    break
                positions[at] += 1

    def neighbours(self, point: Point) -> tuple[Point, ...]:
        """The points that differ in one knob by one step (:meth:`Knob.neighbours`)."""
        knobs = self.knobs(point)
        return tuple(point.changed(i, p) for i, k in enumerate(knobs) for p in k.neighbours(point.positions[i]))

    def mutated(self, rng: Random, point: Point, far: float = 0.3) -> Point:
        """The point with one knob changed: to a neighbour, or (with probability ``far``) to any other candidate. A
        point without knobs is returned as it is."""
        knobs = self.knobs(point)
        if not knobs:
            return point
        at = rng.randrange(len(knobs))
        knob, position = knobs[at], point.positions[at]
        near = knob.neighbours(position)
        if not near:  # a single candidate
            return point
        if rng.random() >= far:
            return point.changed(at, rng.choice(near))
        other = rng.randrange(len(knob.values) - 1)
        return point.changed(at, other + (other >= position))

    def near_default(self, rng: Random, point: Point) -> Point:
        """The point with about half of its decisions replaced by the default ones: of all combinations, few are
        good."""
        pairs = zip(point.positions, self.knobs(point), strict=True)
        return Point(point.sketch, tuple(k.default if rng.random() < 0.5 else p for p, k in pairs))

    def crossed(self, rng: Random, a: Point, b: Point) -> Point:
        """A point whose knobs come from either parent, at random; ``a`` if the parents are of different sketches."""
        if a.sketch != b.sketch:
            return a
        pairs = zip(a.positions, b.positions, strict=True)
        return Point(a.sketch, tuple(x if rng.random() < 0.5 else y for x, y in pairs))
