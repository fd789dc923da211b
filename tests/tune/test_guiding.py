"""Guides by the features that they learn from, and how many programs are lowered for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import BASELINE, Known
from tuned_kernels import product
from tuning_runner import InventingRunner

from weft.support.errors import UserError
from weft.tune.guiding import FEATURES, check_features, guide_of
from weft.tune.kernel_tuner import KernelTuner
from weft.tune.measure.local import Workload
from weft.tune.model import pretrained as shipped
from weft.tune.model.boosted import BoostedTrees
from weft.tune.model.pretrained import LEARNING_ON, write_model
from weft.tune.model.sets import FEATURE_SETS
from weft.tune.record import Outcome, TrialRecord
from weft.tune.search import strategy_named
from weft.tune.search.history import Trial
from weft.tune.search.lowered import LOWERING_SECONDS, MAX_SHARE, TRIAL_SECONDS, LoweredGuide
from weft.tune.sketches import space_of
from weft.tune.space import Point, Space

TASK = product(16, 32, 16, target="x86-64-v3")


@pytest.fixture(scope="module")
def space() -> Space:
    return space_of(TASK)


def drawn(space: Space, count: int) -> list[Point]:
    rng = random.Random(0)
    return list(dict.fromkeys(space.near_default(rng, space.sample(rng)) for _ in range(count)))


def trials(points: list[Point], seconds: float = BASELINE) -> list[Trial]:
    return [Trial(p, TrialRecord(None, Outcome.OK, seconds * (1 + n)), 1 / (1 + n)) for n, p in enumerate(points)]


@pytest.mark.parametrize("features", FEATURES)
def test_every_kind_of_features_guides_a_search(features: str, space: Space) -> None:
    if features != "none":
        pytest.importorskip("lightgbm")
    guide = guide_of(space, Workload(TASK), features)
    tuner = KernelTuner(Workload(TASK), space, InventingRunner(), strategy_named("refine"), guide=guide)
    tuner.open()
    for _ in range(3):
        tuner.step()
    assert guide.ready and len(tuner.history.trials) == 24
    assert np.isfinite(guide.score(drawn(space, 20))).all()


def test_unknown_features_are_refused() -> None:
    with pytest.raises(UserError, match="no features 'nest'") as error:
        check_features("nest")
    assert error.value.code == "U056" and "nests" in str(error.value)


def test_a_shipped_model_guides_from_the_first_trial(
    space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that learned that vectors of few lanes are fast prefers them before anything is measured."""
    pytest.importorskip("lightgbm")
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    points = drawn(space, 60)
    empty = guide_of(space, Workload(TASK), "nests")
    before = empty.score(points)
    rows, seconds = empty._described.of(points)  # type: ignore[attr-defined]  # of a learned guide
    column = FEATURE_SETS["nests"].columns.index("main_body_filled")
    slow = np.where(rows[:, column] > np.median(rows[:, column]), 4.0, 1.0)
    model = BoostedTrees(FEATURE_SETS["nests"].model_columns, LEARNING_ON, feature_set="nests", version=_version())
    model.update("other", rows, slow.tolist(), seconds)
    write_model(model, shipped.shipped("nests"), LEARNING_ON)
    after = guide_of(space, Workload(TASK), "nests").score(points)
    assert 1 < (slow == 4).sum() < len(points) - 1
    assert after[slow == 1].mean() - after[slow == 4].mean() > before[slow == 1].mean() - before[slow == 4].mean() + 0.2


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
    pytest.importorskip("lightgbm")
    clock, cost = Clock(), [0.01]
    columns = FEATURE_SETS["stores"].model_columns
    guide = LoweredGuide(
        Known(lambda p: 1.0 + sum(p.positions)), space, Workload(TASK), FEATURE_SETS["stores"],
        BoostedTrees(columns, replace(LEARNING_ON, trees=5)), clock,
    )  # fmt: skip
    look = guide._look_at

    def looked(point: Point) -> None:
        look(point)
        clock.now += cost[-1]

    monkeypatch.setattr(guide, "_look_at", looked)
    yield guide, clock, cost


def test_programs_are_lowered_as_long_as_it_is_worth_it(timed: Any, space: Space) -> None:
    guide, clock, cost = timed
    points = drawn(space, 80)
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
    more = drawn(space, 400)[80:]
    cost.append(1e3)  # programs that take very long are lowered at most once more
    guide.closely(more, 8)
    assert guide.lowered <= len(points) + 1
    guide.closely(more, 8)
    assert guide.lowered <= len(points) + 1, "the time for it is spent"


def test_a_model_of_lowered_programs_changes_the_order(timed: Any, space: Space) -> None:
    guide, clock, _ = timed
    points = drawn(space, 60)
    guide.closely(points, 8)
    clock.now += 1e3
    before = guide.closely(points, 8)
    known = [p for p in points if guide._known[p] is not None]
    assert 10 < len(known)
    guide.learn(trials(known[::-1]))  # the last ones are the fastest
    after = guide.closely(points, 8)
    at = [points.index(p) for p in known]
    order = np.arange(len(at))
    assert np.corrcoef(after[at], order)[0, 1] > max(0.3, np.corrcoef(before[at], order)[0, 1])
    refused = [n for n, p in enumerate(points) if guide._known[p] is None]
    assert all(after[n] < after[at].min() for n in refused)
