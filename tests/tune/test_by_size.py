"""Which schedule serves which sizes, from times of each on each."""

from __future__ import annotations

import itertools
import math
from random import Random

import pytest
from synthetic import choice

from weft.schedule.dispatch import Dispatch, RecordedSchedule
from weft.schedule.trace import Trace
from weft.tune.by_size import BEYOND, NOT_SLOWER, anchors_of, dispatch_of, ladder

A, B, C = (Trace((choice(1, 2, 3, at=i),)) for i in range(3))
SIZES = [(1,), (2,), (4,), (8,), (16,), (32,)]


def chosen(schedule: RecordedSchedule | None, *sizes: int) -> Trace | None:
    return schedule.chosen(sizes) if isinstance(schedule, Dispatch) else schedule


def test_each_schedule_serves_the_sizes_on_which_it_is_best() -> None:
    found = dispatch_of(SIZES, {A: [0.5, 0.5, 0.5, 1.0, 1.5, 2.0], B: [2.0, 1.5, 1.0, 0.6, 0.6, 0.6]})
    assert [chosen(found, n) for (n,) in SIZES] == [A, A, A, B, B, B]
    assert chosen(found, 5) == A and chosen(found, 6) == B, "the geometric mean of 4 and 8 divides them"


def test_sizes_far_from_all_that_were_measured_have_the_default_schedule() -> None:
    found = dispatch_of([(8,), (64,)], {A: [0.5, 0.5]})
    assert [chosen(found, n) for n in (0, 1, 3, 4, 8, 30, 64, BEYOND * 64)] == [None, None, None, A, A, A, A, A]
    assert chosen(found, BEYOND * 64 + 1) is None and chosen(found, 10**12) is None
    assert chosen(dispatch_of([(1,)], {A: [0.5]}), 0) == A


def test_no_schedule_serves_sizes_on_which_it_is_slower() -> None:
    found = dispatch_of([(1,), (64,)], {A: [0.1, 1.2]}, versions=1)
    assert found is None, "one version would have to serve both"
    found = dispatch_of([(1,), (64,)], {A: [0.1, 1.2]})
    assert chosen(found, 1) == A and chosen(found, 64) is None


@pytest.mark.parametrize("broken", [math.inf, math.nan, 0.0, -1.0])
def test_failures_serve_nothing(broken: float) -> None:
    found = dispatch_of([(1,), (64,)], {A: [broken, 0.5]})
    assert chosen(found, 1) is None and chosen(found, 64) == A
    assert dispatch_of([(1,)], {A: [broken]}) is None and dispatch_of([(1,)], {}) is None


def test_another_version_must_be_worth_its_code() -> None:
    little = dispatch_of(SIZES, {A: [0.5] * 6, B: [0.495] * 3 + [0.52] * 3})
    assert {chosen(little, n) for (n,) in SIZES} == {A}
    much = dispatch_of(SIZES, {A: [0.5] * 6, B: [0.3] * 3 + [0.7] * 3})
    assert [chosen(much, n) for (n,) in SIZES] == [B, B, B, A, A, A]


def test_versions_are_limited() -> None:
    times = {t: [0.1 if i % 3 == at else 0.9 for i in range(6)] for at, t in enumerate((A, B, C))}
    for versions in (1, 2, 3, 6):
        found = dispatch_of(SIZES, times, versions)
        runs = [k for k, _ in itertools.groupby(chosen(found, n) for (n,) in SIZES)]
        assert len(runs) == versions


def test_two_sizes_choose_together() -> None:
    sizes = [(1, 64), (64, 1), (64, 64)]
    found = dispatch_of(sizes, {A: [0.2, 1.0, 1.0], B: [1.0, 0.2, 1.0], C: [1.0, 1.0, 0.2]})
    assert [chosen(found, *s) for s in sizes] == [A, B, C]
    assert chosen(found, 1, 1000) is None and chosen(found, 1000, 1) is None


@pytest.mark.parametrize("seed", range(20))
def test_the_tree_is_the_best_one(seed: int) -> None:
    """Compared with all ways to cut a line of sizes into ranges."""
    rng = Random(seed)
    times = {t: [rng.choice((0.3, 0.6, 0.9, 1.0, 1.01, 1.3)) for _ in SIZES] for t in (A, B, C)}
    rows = {None: [1.0] * 6, **times}

    def cost(cuts: tuple[int, ...]) -> float:
        total = 0.0
        for a, b in itertools.pairwise((0, *cuts, 6)):
            fit = (r[a:b] for r in rows.values() if max(r[a:b]) <= NOT_SLOWER)
            total += min(sum(map(math.log, part)) for part in fit)
        return total - math.log(1 - 0.02) * 6 * len(cuts)

    best = min(cost(cuts) for k in range(4) for cuts in itertools.combinations(range(1, 6), k))
    found = dispatch_of(SIZES, times)
    picked = [chosen(found, n) for (n,) in SIZES]
    cuts = tuple(i for i in range(1, 6) if picked[i] != picked[i - 1])
    assert sum(math.log(rows[p][i]) for i, p in enumerate(picked)) - math.log(0.98) * 6 * len(cuts) <= best + 1e-9


def test_ladders_and_anchors() -> None:
    assert ladder(1, 512) == (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    assert ladder(3, 3) == (3,) and ladder(5, 6) == (5, 6) and ladder(3, 20) == (3, 4, 8, 16, 20)
    assert anchors_of(ladder(1, 512), 4) == (1, 8, 64, 512)
    assert anchors_of((1, 2), 4) == (1, 2) and anchors_of((1, 2, 3), 1) == (3,) and anchors_of((), 3) == ()
