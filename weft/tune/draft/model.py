"""The draft model: estimates of the points of a space, from a few probes of each structure.

Points whose decisions differ in numbers only have programs of the same structure (:mod:`weft.tune.draft.nests`). Every
number of such a program is, up to rounding, a product of powers of the decisions: an extent is that of an axis divided
by the factors of its split. So a structure is scheduled for a few points, the powers are solved for, and all other
points are estimated without a program. An order of loops permutes the places of the loops that it names; one probe
shows which these are. What primitives refuse in every probe is refused for the whole structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weft.schedule.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.tir.nodes import Program
from weft.tune.draft.estimate import UNROLLED, DraftMachine, Order, estimate
from weft.tune.draft.nests import Derived, Nest, Nests, Structure, limited_places, nests_of, resolved, with_unrolled
from weft.tune.draft.powers import Powers, powers_of, rounded_up
from weft.tune.draft.rows import NEST_COLUMNS, nest_rows
from weft.tune.encoding import ZERO_COUNTS_AS
from weft.tune.space import Knob, Point, Space

Array = NDArray[np.float64]

LEAST_SECONDS: Final = 1e-12
"""No estimate is less."""
REFUSED_PROBES: Final = 3
"""A structure is taken as refused when so many probes are, and none is not."""
MORE_PROBES: Final = 2
"""Probes beyond the number of unknown powers."""
MAX_PROBES: Final = 24
FIRST_PROBES: Final = 24
"""Probes of a kernel before its first trial, apart from those of the first structure of each sketch."""
MAX_OVER: Final = 1.5
"""First structures of sketches may take so many times the limit on probes; the sketches that are left wait for it to
rise. A kernel of several products has dozens of sketches, whose programs take a twelfth of a second each."""
FEW_PROBES: Final = 4
"""Probes of a structure after the first one of its sketch, if that one's powers explain all its numbers, or when half
of the probes are spent."""
MAX_DECISIVE: Final = 24
"""Orders of a knob up to which each may have a structure of its own."""


@dataclass(frozen=True)
class _Fit:
    """Numbers of a structure as ``base`` times powers of the decisions, but ``most`` at most; those that are ``whole``
    are rounded up, as extents are; ``derived`` are places of numbers that follow from others. ``moved``: for each knob
    that orders loops, and each nest, the places of these loops in their default order. ``fixed``: nests in which the
    limits of loops stay where they are when these are ordered."""

    structure: Structure
    base: Array
    powers: Array
    whole: NDArray[np.bool_]
    most: Array
    derived: Mapping[int, Derived]
    moved: dict[int, list[tuple[int, ...]]]
    fixed: frozenset[int]

    def numbers(self, decisions: Array) -> Array:
        """For rows of decisions (logarithms), rows of numbers."""
        found = np.minimum(self.base * np.exp(decisions @ self.powers), self.most)
        found = np.where(self.whole[None], rounded_up(found), found)
        for place, derived in self.derived.items():
            found[:, place] = derived.of(found)
        return found


class DraftModel:
    """Estimates for the points of ``space``, whose program is ``program``.

    ``scheduled`` makes the schedule of a point, or raises ScheduleError; by default it replays the trace. ``sizes`` are
    values of the open sizes to estimate for, in their order.
    """

    def __init__(
        self,
        space: Space,
        program: Program,
        machine: DraftMachine,
        seed: int = 0,
        scheduled: Callable[[Point], Schedule] | None = None,
        sizes: Sequence[int] = (),
    ) -> None:
        self.space, self.program, self.machine = space, program, machine
        self._rng, self._sizes = Random(seed), tuple(sizes)
        self._scheduled = scheduled or self._replayed
        self._fits: dict[tuple[Any, ...], _Fit | None] = {}
        self._logs: dict[int, list[list[Array] | None]] = {}
        self._decisive: dict[tuple[Any, ...], frozenset[int]] = {}
        self._powers: dict[int, dict[str, Powers]] = {}
        self._named: dict[int, dict[int, dict[str, tuple[str, ...]]]] = {}
        self._staying: dict[int, set[str]] = {}
        self._probes: dict[Point, Nests | None] = {}
        self.most_probes = FIRST_PROBES
        """Limit on :attr:`probes`: points of structures beyond it count as refused until it is raised. A probe takes
        as long as a tenth of a trial, and there may be thousands of structures."""

    def seconds(self, points: Sequence[Point]) -> Array:
        """The estimated seconds of each point; infinite for those whose structure is refused, or not known yet
        (:attr:`most_probes`)."""
        found = np.full(len(points), np.inf)
        for structure, members, numbers, orders in self._fitted(points):
            found[members] = estimate(structure, numbers, self.machine, orders)
        return found

    def speeds_of_sketches(self) -> Array:
        """The logarithm of the estimated speed of the default point of each sketch, relative to that of the first; each
        from one program. Minus infinity where it is refused."""
        seconds = []
        for sketch in range(len(self.space.sketches)):
            nests = self._nests(self.space.default(sketch))
            own = np.inf if nests is None else estimate(resolved(nests), nests.numbers[None], self.machine)[0]
            seconds.append(max(float(own), LEAST_SECONDS))
        return np.asarray(np.log(seconds[0]) - np.log(seconds))

    def rows(self, points: Sequence[Point]) -> tuple[NDArray[np.float32], Array]:
        """What the estimates follow from, as rows of :data:`~weft.tune.draft.rows.NEST_COLUMNS`, and the estimated
        seconds of each point. Rows of zeros where these are infinite."""
        rows, found = np.zeros((len(points), len(NEST_COLUMNS)), np.float32), np.full(len(points), np.inf)
        for structure, members, numbers, orders in self._fitted(points):
            rows[members], found[members] = nest_rows(structure, numbers, self.machine, orders)
        return rows, found

    def rows_of_measured(self, points: Sequence[Point]) -> tuple[NDArray[np.float32], Array]:
        """As :meth:`rows`, for few points: those of structures that are not known are scheduled, each by itself."""
        rows, found = np.zeros((len(points), len(NEST_COLUMNS)), np.float32), np.full(len(points), np.inf)
        known = [i for i, p in enumerate(points) if self._fits.get(self._class(p)) is not None]
        rows[known], found[known] = self.rows([points[i] for i in known])
        for i in sorted(set(range(len(points))) - set(known)):
            nests = self._nests(points[i])
            if nests is not None:
                made, seconds = nest_rows(resolved(nests), nests.numbers[None], self.machine)
                rows[i], found[i] = made[0], seconds[0]
        return rows, found

    def _fitted(self, points: Sequence[Point]) -> Iterator[tuple[Structure, list[int], Array, list[Order | None]]]:
        """The structures of the points that are known and not refused: the places of their points, the numbers of each,
        and the orders of its loops. Limited loops are either unrolled or serial in each."""
        classes: dict[tuple[Any, ...], list[int]] = {}
        for i, p in enumerate(points):
            classes.setdefault(self._class(p), []).append(i)
        for key, members in classes.items():
            fit = self._fit(key, points[members[0]])
            if fit is not None:
                own = [points[i] for i in members]
                numbers, orders = fit.numbers(self._decisions(key[0], own)), self._orders(fit, own)
                for structure, rows in _by_unrolled(fit, numbers, orders):
                    kept = [o if o is None else o[rows] for o in orders]
                    yield structure, [members[r] for r in rows], numbers[rows], kept

    @property
    def probes(self) -> int:
        """Programs that were scheduled so far."""
        return len(self._probes)

    def _replayed(self, point: Point) -> Schedule:
        return Schedule(self.program).replay(self.space.trace(point))

    # -- decisions as numbers -----------------------------------------------------------------------------------

    def _tables(self, sketch: int) -> list[list[Array] | None]:
        """For each knob the logarithms of its candidates, or None where they are no numbers."""
        if sketch not in self._logs:
            self._logs[sketch] = [_logarithms(k) for k in self.space.sketches[sketch].knobs]
        return self._logs[sketch]

    def _class(self, point: Point) -> tuple[Any, ...]:
        """What the structure depends on: the decisions that are neither numbers nor orders that only move loops."""
        others = self._others(point)
        decisive = self._decisive_orders(point.sketch, others)
        pairs = enumerate(zip(point.positions, others, strict=True))
        return point.sketch, tuple(p if i in decisive else other for i, (p, other) in pairs)

    def _decisive_orders(self, sketch: int, others: tuple[int | None, ...]) -> frozenset[int]:
        """The knobs whose orders make other structures, because their loops are fused or of different kinds; where the
        ``others`` that are no numbers are decided so. When no more probes are left, as for the default decisions."""
        key = (sketch, others)
        if key not in self._decisive:
            default = self._others(self.space.default(sketch))
            if self.probes >= self.most_probes and others != default:
                return self._decisive_orders(sketch, default)
            knobs = self.space.sketches[sketch].knobs
            orders = [i for i, k in enumerate(knobs) if k.is_order and len(k.values) <= MAX_DECISIVE]
            point = Point(sketch, tuple(k.default if o is None else o for k, o in zip(knobs, others, strict=True)))
            shown = self._nests(point) if orders else None
            found = [i for i in orders if shown and not _only_moves(shown, self._reversed(point, i))]
            self._decisive[key] = frozenset(found)
        return self._decisive[key]

    def _others(self, point: Point) -> tuple[int | None, ...]:
        """The decisions that are neither numbers nor orders."""
        knobs, tables = self.space.sketches[point.sketch].knobs, self._tables(point.sketch)
        rows = zip(point.positions, knobs, tables, strict=True)
        return tuple(None if t is not None or k.is_order else p for p, k, t in rows)

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
            most = self.most_probes if key[0] in self._powers else MAX_OVER * self.most_probes
            if self.probes >= most and self._powers:
                return None
            self._fits[key] = self._made(key, point)
        return self._fits[key]

    def _made(self, key: tuple[Any, ...], point: Point) -> _Fit | None:
        """The fit of a structure. Of the probes, the one with most numbers shows the structure: where a loop has a
        single turn, its numbers are missing."""
        known = self._powers.get(key[0], {})
        scarce = 2 * self.probes > self.most_probes
        wanted = min(MAX_PROBES, self._width(key[0]) + 1 + MORE_PROBES)
        probes = iter(self._probed(key, point, 3 * wanted))
        found = self._first_of(probes, min(FEW_PROBES, wanted) if known else wanted)
        if not found:
            return None
        found_powers, new = self._powers_of(key[0], found, known)
        if new and not scarce and len(found) < wanted:
            found += self._first_of(probes, wanted - len(found))
            found_powers, _ = self._powers_of(key[0], found, known)
        at, shown = max(found, key=lambda f: (len(f[1].labels), len(set(f[1].numbers.tolist()))))
        self._powers.setdefault(key[0], found_powers)
        of_labels = [found_powers[label] for label in shown.labels]
        powers = np.array([p.powers for p in of_labels]).reshape(len(of_labels), -1).T
        base, most = np.array([p.base for p in of_labels]), np.array([p.most for p in of_labels])
        whole = np.array([p.whole for p in of_labels], bool)
        return _Fit(shown.structure, base, powers, whole, most, shown.derived, *self._moved(key, at, shown))

    def _first_of(self, probes: Iterator[Point], count: int) -> list[tuple[Point, Nests]]:
        """The first probes that are not refused; none if the first :data:`REFUSED_PROBES` are."""
        found: list[tuple[Point, Nests]] = []
        for at, probe in enumerate(probes):
            nests = self._nests(probe)
            if nests is not None:
                found.append((probe, nests))
            if len(found) >= count or (not found and at + 1 >= REFUSED_PROBES):
                break
        return found

    def _powers_of(
        self, sketch: int, found: Sequence[tuple[Point, Nests]], known: Mapping[str, Powers]
    ) -> tuple[dict[str, Powers], set[str]]:
        return powers_of(self._decisions(sketch, [p for p, _ in found]), [n for _, n in found], known)

    def _nests(self, point: Point) -> Nests | None:
        if point not in self._probes:
            try:
                made = self._scheduled(point)
                self._probes[point] = nests_of(made.program, self._sizes, made.state)
            except ScheduleError:
                self._probes[point] = None
        return self._probes[point]

    def _reversed(self, point: Point, knob: int) -> Nests | None:
        """The nests of a point with the opposite order of the loops that a knob orders, if there are any."""
        values = self.space.knobs(point)[knob].values
        opposite = tuple(reversed(values[point.positions[knob]]))
        return self._nests(point.changed(knob, values.index(opposite))) if opposite in values else None

    def _moved(
        self, key: tuple[Any, ...], point: Point, shown: Nests
    ) -> tuple[dict[int, list[tuple[int, ...]]], frozenset[int]]:
        """For each knob that orders loops, and does not make another structure, the places of its loops in each nest;
        and the nests in which limits stay at these places."""
        named, staying = self._named.setdefault(key[0], {}), self._staying.setdefault(key[0], set())
        found: dict[int, list[tuple[int, ...]]] = {}
        for at, knob in enumerate(self.space.knobs(point)):
            if not knob.is_order or key[1][at] is not None:
                continue
            if at not in named:
                probe = self._reversed(point, at)
                same = probe is not None and len(probe.structure) == len(shown.structure)
                pairs = zip(shown.structure, probe.structure, strict=True) if probe is not None and same else ()
                named[at] = {a.block: _moved_loops(a, b) for a, b in pairs}
                if probe is not None and same:
                    staying.update(n.block for i, n in enumerate(shown.structure) if _limits_stay(shown, probe, i))
            found[at] = [_places(nest, named[at].get(nest.block, ())) for nest in shown.structure]
        return found, frozenset(i for i, n in enumerate(shown.structure) if n.block in staying)

    def _probed(self, key: tuple[Any, ...], point: Point, count: int) -> list[Point]:
        """Points of a structure: the default numbers, the point asked for, and random ones, all with default orders."""
        knobs, sketch = self.space.sketches[key[0]].knobs, key[0]

        def point_of(choose: Callable[[int, Knob], int]) -> Point:
            fixed = enumerate(zip(knobs, key[1], strict=True))
            chosen = (f if f is not None else k.default if k.is_order else choose(i, k) for i, (k, f) in fixed)
            return Point(sketch, tuple(chosen))

        found = {point_of(lambda i, k: k.default): None, point_of(lambda i, k: point.positions[i]): None}
        for _ in range(4 * count):
            found[point_of(lambda i, k: self._rng.randrange(len(k.values)))] = None
            if len(found) >= count:
                break
        return list(found)


def _by_unrolled(fit: _Fit, numbers: Array, orders: Sequence[Order | None]) -> Iterator[tuple[Structure, list[int]]]:
    """The structure with each limited loop unrolled or not, and the rows of ``numbers`` for which this is so."""
    limited = limited_places(fit.structure)
    if not limited:
        yield fit.structure, list(range(len(numbers)))
        return
    columns, every = [], np.arange(len(numbers))
    for nest, place in limited:
        loops, order = fit.structure[nest].loops, orders[nest]
        here = np.full(len(numbers), place) if order is None else order[:, place]
        extents = numbers[every, np.array([o.extent for o in loops])[here]]
        limits = numbers[every, np.array([o.limit for o in loops])[place if nest in fit.fixed else here]]
        columns.append(extents <= limits * (1 + 1e-9))
    _only_innermost(fit.structure, limited, columns)
    patterns, of_row = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        yield with_unrolled(fit.structure, limited, pattern.tolist()), np.flatnonzero(of_row.ravel() == i).tolist()


def _only_innermost(
    structure: Structure, limited: Sequence[tuple[int, int]], columns: Sequence[NDArray[np.bool_]]
) -> None:
    """Forget in ``columns`` that a loop is unrolled around one that is not: the estimate would be the same."""
    at = {key: i for i, key in enumerate(limited)}
    for number, nest in enumerate(structure):
        inside = np.ones(len(columns[0]), bool)
        for place in reversed(range(len(nest.loops))):
            if (number, place) in at:
                inside &= columns[at[number, place]]
                columns[at[number, place]][:] = inside
            elif nest.loops[place].kind not in UNROLLED:
                inside[:] = False


def _limits_stay(a: Nests, b: Nests, nest: int) -> bool:
    """Whether the limits of the loops of a nest are the same at each place when loops are reordered, and not for each
    loop."""
    before, after = _limits(a, nest), _limits(b, nest)
    return [n for _, n in before] == [n for _, n in after] and sorted(before) != sorted(after)


def _limits(nests: Nests, nest: int) -> list[tuple[str, float]]:
    """The limited loops of a nest in their order, and their limits."""
    loops = [loop for loop in nests.structure[nest].loops if loop.limit >= 0]
    return [(loop.name, float(nests.numbers[loop.limit])) for loop in loops]


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


def _only_moves(a: Nests, b: Nests | None) -> bool:
    """Whether two programs differ only in the places of loops, and places have loops of the same kind in both."""
    if b is None or len(a.structure) != len(b.structure):
        return b is None
    return all(
        [x.kind for x in m.loops] == [y.kind for y in n.loops]
        and sorted(x.name for x in m.loops) == sorted(y.name for y in n.loops)
        for m, n in zip(a.structure, b.structure, strict=True)
    )


def _logarithms(knob: Knob) -> list[Array] | None:
    """Logarithms of the numbers of each candidate; None for candidates that are orders or no numbers."""
    if knob.numeric:
        return [np.array([np.log(max(v, ZERO_COUNTS_AS))]) for v in knob.values]
    if knob.factors:
        return [np.log(np.array(v[1:], np.float64)) for v in knob.values]  # the outermost one follows
    return None
