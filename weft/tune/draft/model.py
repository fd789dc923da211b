"""The draft model: estimates of the points of a space, from a few probes of each structure.

Points whose decisions differ in numbers only have programs of the same structure (:mod:`weft.tune.draft.nests`). Every
number of such a program is, up to rounding, a product of powers of the decisions: an extent is that of an axis divided
by the factors of its split. So a structure is scheduled for a few points, the powers are solved for, and all other
points are estimated without a program. An order of loops permutes the places of the loops that it names; one probe
shows which these are. What primitives refuse in every probe is refused for the whole structure.
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
from weft.tune.draft.estimate import DraftMachine, Order, estimate
from weft.tune.draft.nests import Nest, Nests, Structure, nests_of
from weft.tune.encoding import ZERO_COUNTS_AS
from weft.tune.space import Knob, Point, Space

Array = NDArray[np.float64]

REFUSED_PROBES: Final = 3
"""A structure is taken as refused when so many probes are, and none is not."""
MORE_PROBES: Final = 2
"""Probes beyond the number of unknown powers."""
MAX_PROBES: Final = 24
FIRST_PROBES: Final = 60
"""Probes of a kernel before its first trial, apart from those of the first structure of each sketch."""
FEW_PROBES: Final = 3
"""Probes of a structure after the first one of a sketch: what has the same name mostly follows the same rule there."""


@dataclass(frozen=True)
class _Fit:
    """Numbers of a structure as ``base`` times powers of the decisions relative to those of ``origin``. ``moved``: for
    each knob that orders loops, and each nest, the places of these loops in their default order."""

    structure: Structure
    base: Array
    origin: Array
    powers: Array
    moved: dict[int, list[tuple[int, ...]]]

    def numbers(self, decisions: Array) -> Array:
        """For rows of decisions (logarithms), rows of numbers: rounded up as extents are."""
        found = self.base[None] * np.exp((decisions - self.origin[None]) @ self.powers)
        return np.where(self.base[None] > 0, np.maximum(np.ceil(found - 1e-6), 0.0), 0.0)


class DraftModel:
    """Estimates for the points of ``space``, whose program is ``program``.

    ``scheduled`` makes the program of a point, or raises ScheduleError; by default it replays the trace.
    """

    def __init__(
        self,
        space: Space,
        program: Program,
        machine: DraftMachine,
        seed: int = 0,
        scheduled: Callable[[Point], Program] | None = None,
    ) -> None:
        self.space, self.program, self.machine = space, program, machine
        self._rng = Random(seed)
        self._scheduled = scheduled or self._replayed
        self._powers: dict[int, dict[str, Array]] = {}
        self._named: dict[int, dict[int, dict[str, tuple[str, ...]]]] = {}
        self._fits: dict[tuple[Any, ...], _Fit | None] = {}
        self._logs: dict[int, list[list[Array] | None]] = {}
        self.probes = 0
        """Programs that were scheduled so far."""
        self.most_probes = FIRST_PROBES
        """Limit on :attr:`probes`: points of structures beyond it count as refused until it is raised. A probe takes
        as long as a tenth of a trial, and there may be thousands of structures."""

    def seconds(self, points: Sequence[Point]) -> Array:
        """The estimated seconds of each point; infinite for those whose structure is refused, or not known yet
        (:attr:`most_probes`)."""
        found = np.full(len(points), np.inf)
        classes: dict[tuple[Any, ...], list[int]] = {}
        for i, p in enumerate(points):
            classes.setdefault(self._class(p), []).append(i)
        for key, members in classes.items():
            fit = self._fit(key, points[members[0]])
            if fit is not None:
                own = [points[i] for i in members]
                numbers = fit.numbers(self._decisions(key[0], own))
                found[members] = estimate(fit.structure, numbers, self.machine, self._orders(fit, own))
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
        """What the structure depends on: the decisions that are neither numbers nor orders of loops."""
        knobs, tables = self.space.sketches[point.sketch].knobs, self._tables(point.sketch)
        rows = zip(point.positions, knobs, tables, strict=True)
        return point.sketch, tuple(None if t is not None or _is_order(k) else p for p, k, t in rows)

    def _decisions(self, sketch: int, points: Sequence[Point]) -> Array:
        """A row of logarithms for each point."""
        columns = []
        for at, table in enumerate(self._tables(sketch)):
            if table is not None:
                columns.append(np.array(table)[[p.positions[at] for p in points]])
        return np.concatenate(columns, axis=1) if columns else np.zeros((len(points), 0))

    def _width(self, sketch: int) -> int:
        return int(self._decisions(sketch, [self.space.default(sketch)]).shape[1])

    def _orders(self, fit: _Fit, points: Sequence[Point]) -> list[Order | None]:
        """The order of the loops of each nest, for each point."""
        knobs = self.space.knobs(points[0])
        found: list[Order | None] = [None] * len(fit.structure)
        for knob, by_nest in fit.moved.items():
            default = knobs[knob].values[knobs[knob].default]
            values = np.array([knobs[knob].values[p.positions[knob]] for p in points])
            rank = np.argsort(np.array(default))  # where each of the loops is by default
            for nest, places in enumerate(by_nest):
                if len(places) != len(default):
                    continue
                order = found[nest]
                if order is None:
                    order = np.tile(np.arange(len(fit.structure[nest].loops)), (len(points), 1))
                before = order[:, list(places)]
                order[:, list(places)] = np.take_along_axis(before, rank[values], axis=1)
                found[nest] = order
        return found

    # -- fits ---------------------------------------------------------------------------------------------------

    def _fit(self, key: tuple[Any, ...], point: Point) -> _Fit | None:
        if key not in self._fits:
            if self.probes >= self.most_probes and key[0] in self._powers:
                return None
            self._fits[key] = self._made(key, point)
        return self._fits[key]

    def _made(self, key: tuple[Any, ...], point: Point) -> _Fit | None:
        """The fit of a structure. Of the probes, the one with most numbers shows the structure: where a loop has a
        single turn, its numbers are missing."""
        known = self._powers.get(key[0])
        wanted = FEW_PROBES if known is not None else min(MAX_PROBES, self._width(key[0]) + 1 + MORE_PROBES)
        found: list[tuple[Point, Nests]] = []
        refused = 0
        for probe in self._probed(key, point, 3 * wanted):
            nests = self._nests(probe)
            if nests is None:
                refused += 1
            else:
                found.append((probe, nests))
            if len(found) >= wanted or (not found and refused >= REFUSED_PROBES):
                break
        if not found:
            return None
        at, shown = max(found, key=lambda f: len(f[1].labels))
        solved = _solved(self._decisions(key[0], [p for p, _ in found]), [n for _, n in found])
        solved = {**solved, **(known or {})}
        self._powers.setdefault(key[0], solved)
        nothing = np.zeros(self._width(key[0]))
        powers = np.array([solved.get(label, nothing) for label in shown.labels]).T
        return _Fit(shown.structure, shown.numbers, self._decisions(key[0], [at])[0], powers, self._moved(at, shown))

    def _nests(self, point: Point) -> Nests | None:
        self.probes += 1
        try:
            return nests_of(self._scheduled(point))
        except ScheduleError:
            return None

    def _moved(self, point: Point, shown: Nests) -> dict[int, list[tuple[int, ...]]]:
        """For each knob that orders loops the places of these loops in each nest."""
        if point.sketch not in self._named:
            self._named[point.sketch] = self._named_loops(point, shown)
        return {
            at: [_places(nest, names.get(nest.block, ())) for nest in shown.structure]
            for at, names in self._named[point.sketch].items()
        }

    def _named_loops(self, point: Point, shown: Nests) -> dict[int, dict[str, tuple[str, ...]]]:
        """Which loops each order moves, by block, from a probe with the opposite order."""
        found: dict[int, dict[str, tuple[str, ...]]] = {}
        for at, knob in enumerate(self.space.knobs(point)):
            if not _is_order(knob):
                continue
            opposite = tuple(reversed(knob.values[point.positions[at]]))
            probe = self._nests(point.changed(at, knob.values.index(opposite))) if opposite in knob.values else None
            if probe is not None and len(probe.structure) == len(shown.structure):
                pairs = zip(shown.structure, probe.structure, strict=True)
                found[at] = {a.block: _moved_loops(a, b) for a, b in pairs}
        return found

    def _probed(self, key: tuple[Any, ...], point: Point, count: int) -> list[Point]:
        """Points of a structure: the default numbers, the point asked for, and random ones, all with default orders."""
        knobs, sketch = self.space.sketches[key[0]].knobs, key[0]

        def point_of(choose: Callable[[int, Knob], int]) -> Point:
            fixed = enumerate(zip(knobs, key[1], strict=True))
            chosen = (k.default if _is_order(k) else choose(i, k) if f is None else f for i, (k, f) in fixed)
            return Point(sketch, tuple(chosen))

        found = {point_of(lambda i, k: k.default): None, point_of(lambda i, k: point.positions[i]): None}
        for _ in range(4 * count):
            found[point_of(lambda i, k: self._rng.randrange(len(k.values)))] = None
            if len(found) >= count:
                break
        return list(found)


def _places(nest: Nest, names: Sequence[str]) -> tuple[int, ...]:
    """The places of the loops of these names; none if the nest lacks one of them."""
    found = tuple(i for i, loop in enumerate(nest.loops) if loop.name in names)
    return found if len(found) == len(names) else ()


def _moved_loops(a: Nest, b: Nest) -> tuple[str, ...]:
    """The loops that stand elsewhere in ``b``."""
    before, after = [loop.name for loop in a.loops], [loop.name for loop in b.loops]
    if sorted(before) != sorted(after):
        return ()
    pairs = enumerate(zip(before, after, strict=True))
    return tuple(x for i, (x, y) in pairs if x != y or _in_middle(i, before, after))


def _in_middle(at: int, before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether a loop stays where it is because an odd number of loops around it are reversed."""
    moved = [i for i, (x, y) in enumerate(zip(before, after, strict=True)) if x != y]
    return (
        bool(moved)
        and len(moved) % 2 == 0
        and moved[0] < at < moved[-1]
        and at == (moved[0] + moved[-1]) // 2
        and (moved[0] + moved[-1]) % 2 == 0
    )


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
        return [np.array([np.log(max(v, ZERO_COUNTS_AS))]) for v in knob.values]
    first = knob.values[0]
    if isinstance(first, tuple) and all(isinstance(v, tuple) and all(n > 0 for n in v) for v in knob.values):
        products = {int(np.prod(v)) for v in knob.values}
        if len(products) == 1 and not _is_order(knob):
            return [np.log(np.array(v, np.float64)) for v in knob.values]
    return None
