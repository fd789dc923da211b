"""The draft model: estimates of the points of a space, from a few probes of each structure.

Points whose decisions differ in numbers only have programs of the same structure (:mod:`weft.tune.draft.nests`). Every
number of such a program is, up to rounding, a product of powers of the decisions: an extent is that of an axis divided
by the factors of its split. So a structure is scheduled for a few points, the powers are solved for, and all other
points are estimated without a program. Structures that differ in the order of loops alone share the powers: each of
them is scheduled once. What primitives refuse in every probe is refused for the whole structure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weft.schedule.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.tir.nodes import Program
from weft.tune.draft.estimate import Machine, estimate
from weft.tune.draft.nests import Nests, Structure, nests_of
from weft.tune.space import Knob, Point, Space

Array = NDArray[np.float64]

REFUSED_PROBES: Final = 3
"""A structure is taken as refused when so many probes are, and none is not."""
MORE_PROBES: Final = 2
"""Probes beyond the number of unknown powers."""
MAX_PROBES: Final = 24
SMALLEST: Final = 0.5
"""What a decision of 0 counts as, since its logarithm is taken."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """Numbers of a structure as ``base`` times powers of the decisions relative to those of ``origin``."""

    structure: Structure
    base: Array
    origin: Array
    powers: Array

    def numbers(self, decisions: Array) -> Array:
        """For rows of decisions (logarithms), rows of numbers: at least 1, rounded up as extents are."""
        found = self.base[None] * np.exp((decisions - self.origin[None]) @ self.powers)
        return np.where(self.base[None] > 0, np.maximum(np.ceil(found - 1e-6), 0.0), 0.0)


@dataclass(frozen=True, slots=True)
class _Family:
    """What structures share that differ in the order of loops: the point whose program shows most numbers, and the
    powers by label."""

    like: Point
    powers: dict[str, Array]


class DraftModel:
    """Estimates for the points of ``space``, whose program is ``program``.

    ``scheduled`` makes the schedule of a point's trace, or raises ScheduleError; by default it replays it.
    """

    def __init__(
        self,
        space: Space,
        program: Program,
        machine: Machine,
        seed: int = 0,
        scheduled: Callable[[Point], Program] | None = None,
    ) -> None:
        self.space, self.program, self.machine = space, program, machine
        self._rng = Random(seed)
        self._scheduled = scheduled or self._replayed
        self._families: dict[tuple[Any, ...], _Family] = {}
        self._fits: dict[tuple[Any, ...], _Fit | None] = {}
        self._logs: dict[int, list[list[Array] | None]] = {}
        self.probes = 0
        """Programs that were scheduled so far."""

    def seconds(self, points: Sequence[Point]) -> Array:
        """The estimated seconds of each point; infinite for those whose structure is refused."""
        found = np.full(len(points), np.inf)
        classes: dict[tuple[Any, ...], list[int]] = {}
        for i, p in enumerate(points):
            classes.setdefault(self._class(p), []).append(i)
        for key, members in classes.items():
            fit = self._fit(key, points[members[0]])
            if fit is not None:
                rows = self._decisions(key[0], [points[i] for i in members])
                found[members] = estimate(fit.structure, fit.numbers(rows), self.machine)
        return found

    def _replayed(self, point: Point) -> Program:
        return Schedule(self.program).replay(self.space.trace(point)).program

    # -- decisions as numbers -----------------------------------------------------------------------------------

    def _tables(self, sketch: int) -> list[list[Array] | None]:
        """For each knob the logarithms of its candidates, or None where they are no numbers."""
        if sketch not in self._logs:
            self._logs[sketch] = [_logarithms(k) for k in self.space.sketches[sketch].knobs]
        return self._logs[sketch]

    def _class(self, point: Point) -> tuple[Any, ...]:
        tables = self._tables(point.sketch)
        return point.sketch, tuple(p if t is None else None for p, t in zip(point.positions, tables, strict=True))

    def _decisions(self, sketch: int, points: Sequence[Point]) -> Array:
        """A row of logarithms for each point."""
        columns = []
        for at, table in enumerate(self._tables(sketch)):
            if table is not None:
                columns.append(np.array(table)[[p.positions[at] for p in points]])
        return np.concatenate(columns, axis=1) if columns else np.zeros((len(points), 0))

    # -- fits ---------------------------------------------------------------------------------------------------

    def _fit(self, key: tuple[Any, ...], point: Point) -> _Fit | None:
        if key not in self._fits:
            self._fits[key] = self._made(key, point)
        return self._fits[key]

    def _made(self, key: tuple[Any, ...], point: Point) -> _Fit | None:
        """The fit of a structure. Of the probes, the one with most numbers shows the structure: where a loop has a
        single turn, its numbers are missing."""
        family = self._family(key)
        known = self._families.get(family)
        wanted = 1 if known is not None else min(MAX_PROBES, self._width(key[0]) + 1 + MORE_PROBES)
        found: list[tuple[Point, Nests]] = []
        refused = 0
        for probe in self._probed(key, point, 3 * wanted, known.like if known else None):
            self.probes += 1
            try:
                found.append((probe, nests_of(self._scheduled(probe))))
            except ScheduleError:
                refused += 1
            if len(found) >= wanted or (not found and refused >= REFUSED_PROBES):
                break
        if not found:
            return None
        at, shown = max(found, key=lambda f: len(f[1].labels))
        if known is None:
            rows = self._decisions(key[0], [p for p, _ in found])
            known = self._families[family] = _Family(at, _solved(rows, [n for _, n in found]))
        nothing = np.zeros(self._width(key[0]))
        powers = np.array([known.powers.get(label, nothing) for label in shown.labels]).T
        return _Fit(shown.structure, shown.numbers, self._decisions(key[0], [at])[0], powers)

    def _width(self, sketch: int) -> int:
        return int(self._decisions(sketch, [self.space.default(sketch)]).shape[1])

    def _family(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """What structures share that differ in the order of loops alone."""
        knobs = self.space.sketches[key[0]].knobs
        return key[0], tuple(None if _is_order(k) else p for k, p in zip(knobs, key[1], strict=True))

    def _probed(self, key: tuple[Any, ...], point: Point, count: int, like: Point | None) -> list[Point]:
        """Points of a structure: with the numbers of ``like``, the default numbers, the point asked for, and random
        ones."""
        knobs, sketch = self.space.sketches[key[0]].knobs, key[0]

        def point_of(choose: Callable[[int, Knob], int]) -> Point:
            fixed = zip(knobs, key[1], strict=True)
            return Point(sketch, tuple(choose(i, k) if f is None else f for i, (k, f) in enumerate(fixed)))

        found: dict[Point, None] = {}
        if like is not None:
            found[point_of(lambda i, k: like.positions[i])] = None
        found[point_of(lambda i, k: k.default)] = None
        found[point] = None
        for _ in range(4 * count):
            found[point_of(lambda i, k: self._rng.randrange(len(k.values)))] = None
            if len(found) >= count:
                break
        return list(found)


def _solved(rows: Array, found: Sequence[Nests]) -> dict[str, Array]:
    """For each label the powers of the decisions that explain its numbers best, in the probes that have it."""
    places = [{label: i for i, label in enumerate(n.labels)} for n in found]
    made = {}
    for label in dict.fromkeys(label for n in found for label in n.labels):
        at = [i for i, p in enumerate(places) if label in p]
        numbers = np.array([found[i].numbers[places[i][label]] for i in at])
        if rows.shape[1] and len(at) > 1 and (numbers > 0).all() and (numbers != numbers[0]).any():
            x, y = rows[at] - rows[at].mean(axis=0), np.log(numbers)
            made[label] = np.linalg.lstsq(x, y - y.mean(), rcond=None)[0]
    return made


def _is_order(knob: Knob) -> bool:
    first = knob.values[0]
    return isinstance(first, tuple) and sorted(first) == list(range(len(first)))


def _logarithms(knob: Knob) -> list[Array] | None:
    """Logarithms of the numbers of each candidate; None for candidates that are orders or no numbers."""
    if all(type(v) is int and v >= 0 for v in knob.values):
        return [np.array([np.log(max(v, SMALLEST))]) for v in knob.values]
    first = knob.values[0]
    if isinstance(first, tuple) and all(isinstance(v, tuple) and all(n > 0 for n in v) for v in knob.values):
        products = {int(np.prod(v)) for v in knob.values}
        if len(products) == 1 and not _is_order(knob):
            return [np.log(np.array(v, np.float64)) for v in knob.values]
    return None
