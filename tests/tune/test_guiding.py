"""Guides by the features that they learn from, and how many programs are lowered for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import BASELINE, Known
from tuned_kernels import product
from tuning_runner import InventingRunner

from weft.support.errors import UserError
from weft.tune.draft.estimate import DraftMachine
from weft.tune.draft.model import DraftModel
from weft.tune.guiding import FEATURES, check_features, guide_of
from weft.tune.kernel_tuner import KernelTuner
from weft.tune.measure.runner import Workload
from weft.tune.model import pretrained as shipped
from weft.tune.model.boosted import BoostedTrees
from weft.tune.model.pretrained import LEARNING_ON, write_model
from weft.tune.model.sets import FEATURE_SETS
from weft.tune.record import Outcome, TrialRecord
from weft.tune.search import refine, strategy_named
from weft.tune.search.history import Trial
from weft.tune.search.lowered import LOWERING_SECONDS, MAX_SHARE, TRIAL_SECONDS, LoweredGuide
from weft.tune.sketches import space_of
from weft.tune.space import Point, Space

TASK = product(8, 16, 8, target="x86-64-v3")


@pytest.fixture(scope="module")
def space() -> Space:
    return space_of(TASK)


def drawn(space: Space, count: int) -> list[Point]:
    rng = random.Random(0)
    return list(dict.fromkeys(space.near_default(rng, space.sample(rng)) for _ in range(count)))


def trials(points: list[Point], seconds: float = BASELINE) -> list[Trial]:
    return [Trial(p, TrialRecord(None, Outcome.OK, seconds * (1 + n)), 1 / (1 + n)) for n, p in enumerate(points)]


@pytest.mark.parametrize("features", FEATURES)
def test_every_kind_of_features_guides_a_search(features: str, space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "POPULATION", 64)
    guide = guide_of(space, Workload(TASK), features)
    tuner = KernelTuner(Workload(TASK), space, InventingRunner(), strategy_named("refine"), guide=guide)
    tuner.open()
    counts = [len(tuner.step(4)) for _ in range(3)]
    assert 1 <= counts[0] <= 4 and counts[1:] == [4, 4]  # it begins with the default points of good sketches only
    assert guide.ready and len(tuner.history.trials) == sum(counts)
    assert np.isfinite(guide.score(drawn(space, 20))).all()


def test_unknown_features_are_refused() -> None:
    with pytest.raises(UserError, match="no features 'nest'") as error:
        check_features("nest")
    assert error.value.code == "U056" and "nests" in str(error.value)


def test_a_shipped_model_guides_from_the_first_trial(
    space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that learned that bodies of few stores are fast prefers them before anything is measured."""
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    points = drawn(space, 60)
    known = DraftModel(space, TASK.program, DraftMachine.of(TASK.target, 1)).seconds(points)
    points = [p for p, n in zip(points, known, strict=True) if np.isfinite(n)]
    empty = guide_of(space, Workload(TASK), "nests")
    before = empty.score(points)
    rows, seconds = empty._described.of(points)  # type: ignore[attr-defined]  # of a learned guide
    column = FEATURE_SETS["nests"].columns.index("main_body_stores")
    slow = np.where(rows[:, column] > np.median(rows[:, column]), 4.0, 1.0)
    model = BoostedTrees(FEATURE_SETS["nests"].model_columns, LEARNING_ON, feature_set="nests", version=_version())
    model.update("other", rows, slow.tolist(), seconds)
    write_model(model, shipped.shipped("nests"), LEARNING_ON)
    after = guide_of(space, Workload(TASK), "nests").score(points)
    assert (slow == 4).any() and (slow == 1).any()
    gaps = [float(scores[slow == 1].mean() - scores[slow == 4].mean()) for scores in (before, after)]
    assert gaps[1] > LEARNING_ON.analytic_weight * gaps[0] + 0.3


def _version() -> int:
    return FEATURE_SETS["nests"].version


class Clock:
    """Gives seconds: each lowering takes ``lowering``, which a counted candidate tells it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def timed(space: Space, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LoweredGuide, Clock, list[float]]]:
    """A guide whose clock is this test's: a lowered program takes as long as the last number of the list."""
    clock, cost = Clock(), [0.01]
    columns = FEATURE_SETS["nests"].model_columns
    guide = LoweredGuide(
        Known(lambda p: 1.0 + sum(p.positions)), space, Workload(TASK), FEATURE_SETS["nests"],
        BoostedTrees(columns, LEARNING_ON), clock,
    )  # fmt: skip
    look = guide._look_at

    def looked(point: Point) -> None:
        look(point)
        clock.now += cost[-1]

    monkeypatch.setattr(guide, "_look_at", looked)
    yield guide, clock, cost


def test_programs_are_lowered_as_long_as_it_is_worth_it(timed: Any, space: Space) -> None:
    guide, clock, cost = timed
    points = drawn(space, 60)[:40]
    scores = guide.closely(points, 8)
    first = guide.lowered
    assert 0 < first <= MAX_SHARE * 8 * TRIAL_SECONDS / min(cost[0], LOWERING_SECONDS) + 1
    assert scores.shape == (len(points),) and np.isfinite(scores).all()
    best = sorted(points, key=lambda p: -sum(p.positions))[:first]
    assert set(guide._known) == set(best), "the best of the first guide"
    clock.now += 80.0  # eight trials of ten seconds: there is time for many more
    guide.learn(trials(best[:8]))
    guide.closely(points, 8)
    assert guide.lowered == len(points)
    more = [p for p in drawn(space, 90) if p not in points]
    cost.append(1e3)  # programs that take very long are lowered at most once more
    guide.closely(more, 8)
    assert guide.lowered <= len(points) + 1
    guide.closely(more, 8)
    assert guide.lowered <= len(points) + 1, "the time for it is spent"


def test_a_model_of_lowered_programs_changes_the_order(timed: Any, space: Space) -> None:
    guide, clock, _ = timed
    points = drawn(space, 60)[:40]
    guide.closely(points, 8)
    clock.now += 1e3
    guide.learn([])
    before = guide.closely(points, 8)
    known = [p for p in points if guide._known[p] is not None]
    assert len(known) > 10
    sums = np.array([sum(p.positions) for p in known])
    guide.learn([t for n in np.argsort(sums) for t in trials([known[n]], BASELINE * (1 + 0.2 * float(sums[n])))])
    after = guide.closely(points, 8)
    at = [points.index(p) for p in known]
    assert np.corrcoef(before[at], sums)[0, 1] > 0.9 and np.corrcoef(after[at], sums)[0, 1] < -0.3
    refused = [n for n, p in enumerate(points) if guide._known[p] is None]
    assert all(after[n] < after[at].min() for n in refused)
