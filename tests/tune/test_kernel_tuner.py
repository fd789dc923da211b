"""The search for the schedule of one kernel: what it measures, remembers and trusts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from fake_runners import FakeRunner, Remembered
from synthetic import BASELINE, Known, choice, space, terraces, tile
from tuned_kernels import product

from weft.schedule.trace import Trace
from weft.support.errors import ScheduleError
from weft.tune.database import Database
from weft.tune.kernel_tuner import BATCH, CONFIRMED, GAIN, SETTLED, KernelTuner
from weft.tune.measure.runner import Workload
from weft.tune.record import Outcome, TrialRecord
from weft.tune.search import STRATEGIES
from weft.tune.search.strategy import Strategy
from weft.tune.space import Point, Space, TraceSketch

WORK = Workload(product(8, 8, 8))
SPACE, SPEED = terraces()


def tuner(
    runner: FakeRunner, memory: object = None, *, name: str = "random", made: Space = SPACE, seed: int = 0,
    work: Workload = WORK, run: str = "run", guide: Known | None = None,
) -> KernelTuner:  # fmt: skip
    if work.task.identity not in runner.formulas:
        runner.know(work, made, SPEED)
    kind: type[Strategy] = STRATEGIES[name]
    return KernelTuner(work, made, runner, kind, memory=memory, seed=seed, run=run, guide=guide)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_finds_something_faster(name: str) -> None:
    runner = FakeRunner()
    made = tuner(runner, name=name, guide=Known(SPEED, noise=0.3))
    assert made.open().seconds == BASELINE
    for _ in range(8):
        assert len(made.step()) == BATCH
    assert made.speedup > (1.2 if name == "grid" else 1.8)
    assert made.best.seconds == pytest.approx(BASELINE / made.speedup)
    assert len(made.progress.best) == len(runner.tried) == 8 * BATCH
    assert made.progress.best == sorted(made.progress.best)
    assert made.progress.best[-1] == made.speedup
    assert SPACE.trace(SPACE.default()) not in runner.measured  # the baseline measures it


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_search_goes_on_where_another_ended(name: str) -> None:
    memory, first, second = Remembered(), FakeRunner(), FakeRunner()
    before = tuner(first, memory, name=name)
    before.open()
    for _ in range(3):
        before.step()
    again = tuner(second, memory, name=name)
    again.open()
    assert again.speedup == pytest.approx(before.speedup)
    assert len(again.history.trials) == len(before.history.trials)
    assert again.progress.best == []
    for _ in range(3):
        again.step()
    assert not set(first.measured) & set(second.measured)
    assert len(second.tried) == 3 * BATCH


def test_searches_go_on_from_a_database(tmp_path: Path) -> None:
    with Database(tmp_path / "tuning.db", create=True) as database:
        first, second = FakeRunner(), FakeRunner()
        before = tuner(first, database, name="refine")
        before.open()
        before.step()
        again = tuner(second, database, name="refine")
        again.open()
        again.step()
    assert again.speedup >= before.speedup * 0.999
    assert not set(first.measured) & set(second.measured)


def test_a_search_with_cold_caches_goes_on_from_trials_with_cold_caches_only(tmp_path: Path) -> None:
    with Database(tmp_path / "tuning.db", create=True) as database:
        counts = []
        for cold in (False, True, True, False):
            runner = FakeRunner()
            runner.cold = cold
            made = tuner(runner, database)
            made.open()
            counts.append(len(made.history.trials))
            made.step()
            made.confirm()
        kept = [t.cold for t in database.trials(WORK.task)]
    assert counts[:2] == [0, 0] and counts[2] >= BATCH and counts[3] >= BATCH, "failures and confirmations, too"
    assert kept.count(True) == kept.count(False)


def test_schedules_of_similar_kernels_come_first() -> None:
    good = Point(0, (3, 4, 0, 1, 11, 1))
    foreign = Trace((choice(1, 2),))
    runner = FakeRunner()
    made = tuner(runner, Remembered([foreign, SPACE.trace(good), SPACE.trace(good.changed(0, 2))]))
    made.open()
    trials = made.step()
    assert [t.point for t in trials] == [good, good.changed(0, 2)]
    assert made.speedup == pytest.approx(8.0)
    assert good not in {t.point for t in made.step()}


def test_a_similar_schedule_that_was_tried_is_not_measured_again() -> None:
    good = [Point(0, (3, 4, 0, 1, e, 1)) for e in (11, 12, 9)]
    memory = Remembered([SPACE.trace(p) for p in good])
    first = tuner(FakeRunner(), memory)
    first.open()
    first.step()
    runner = FakeRunner()
    again = tuner(runner, memory)
    again.open()
    again.step()
    assert len(runner.measured) == BATCH
    assert not {SPACE.trace(p) for p in good} & set(runner.measured)


def test_times_of_other_schedules_are_not_taken_for_those_of_the_nearest_point() -> None:
    other = space(choice(1, 2, 3, 4, 16), *(i for i in SPACE.sketches[0].base.instructions[1:]))  # type: ignore[attr-defined]
    trace = other.trace(other.default().changed(0, 2))
    memory = Remembered()
    memory.add(WORK.task, [TrialRecord(trace, Outcome.OK, BASELINE / 100)])
    made = tuner(FakeRunner(), memory)
    made.open()
    assert made.speedup == 1.0
    assert made.history.trials == []


def test_confirming_refuses_lucky_candidates() -> None:
    runner, memory = FakeRunner(), Remembered()
    runner.know(WORK, SPACE, lambda p: 0.9)
    runner.lucky = lambda trace: 0.5
    made = tuner(runner, memory)
    made.open()
    made.step()
    assert made.speedup == 1.0 and made.best is made.history.baseline, "they were measured again"
    assert len(runner.measured) == BATCH + SETTLED
    assert made.confirm() == []
    assert len(runner.measured) == BATCH + SETTLED + CONFIRMED


def test_confirming_keeps_what_is_faster_again() -> None:
    runner, memory = FakeRunner(), Remembered()
    made = tuner(runner, memory)
    made.open()
    made.step()
    best = made.best
    runner.lucky = lambda trace: 1.0
    found = made.confirm()
    record = found[0]
    assert record.trace == best.trace
    assert len(found) <= CONFIRMED and [r.relative for r in found] == sorted(r.relative or 0 for r in found)
    assert all(r.relative is not None and r.relative <= GAIN for r in found)
    assert record.relative == pytest.approx(1 / made.speedup)
    confirmed = [(r, k) for _, r, run, k in memory.rows if run == "run confirmed"]
    assert all(beside is made.history.baseline for _, beside in confirmed)
    assert record in [r for r, _ in confirmed]


def test_confirming_without_anything_faster_measures_nothing() -> None:
    runner = FakeRunner()
    runner.know(WORK, SPACE, lambda p: 0.0)
    made = tuner(runner, Remembered())
    made.open()
    made.step()
    before = len(runner.measured)
    assert made.confirm() == []
    assert len(runner.measured) == before


def test_what_was_lost_is_not_remembered() -> None:
    runner, memory = FakeRunner(), Remembered()
    made = tuner(runner, memory)
    made.open()
    made.step(3)
    runner.lost = True
    trials = made.step(4)
    assert {t.record.outcome for t in trials} == {Outcome.LOST}
    assert [r.outcome for _, r, run, _ in memory.rows if run == "run"] == [Outcome.OK] * 4  # with the baseline
    assert {r.outcome for _, r, _, _ in memory.rows} == {Outcome.OK}
    again = tuner(FakeRunner(), memory)
    again.open()
    assert not any(again.history.tried(t.point) for t in trials)


def test_failures_are_remembered() -> None:
    runner, memory = FakeRunner(), Remembered()
    runner.know(WORK, SPACE, lambda p: 0.0)
    made = tuner(runner, memory)
    made.open()
    made.step()
    assert [r.outcome for _, r, _, _ in memory.rows[1:]] == [Outcome.CRASHED] * BATCH
    again = tuner(FakeRunner(), memory)
    again.open()
    assert len(again.history.trials) == BATCH


def test_an_interruption_keeps_what_was_measured() -> None:
    runner, memory = FakeRunner(), Remembered()
    made = tuner(runner, memory)
    made.open()
    made.step()
    runner.interrupted_after = len(runner.measured) + 5
    with pytest.raises(KeyboardInterrupt):
        made.step()
    assert len([r for _, r, run, _ in memory.rows if run == "run"]) == 1 + BATCH + 5
    assert len(made.history.trials) == len(made.progress.best) == BATCH + 5
    runner.interrupted_after = None
    assert len(made.step()) == BATCH
    assert len(runner.tried) == 2 * BATCH + 5


class Refusing(TraceSketch):
    """A sketch that refuses every other candidate of its first knob."""

    def trace(self, positions: object) -> Trace:
        if positions[0] % 2:  # type: ignore[index]
            raise ScheduleError("not with an odd number", code="S004")
        return super().trace(positions)  # type: ignore[arg-type]


def test_points_that_a_sketch_refuses_are_not_measured() -> None:
    made = Space((Refusing("odd", Trace((choice(1, 2, 3, 4), tile(4, 2)))),))
    runner, memory = FakeRunner(), Remembered()
    runner.know(WORK, made, lambda p: 1.0 + p.positions[0])
    search = tuner(runner, memory, made=made)
    search.open()
    while not search.exhausted:
        search.step()
    refused = [t for t in search.history.trials if t.record.outcome is Outcome.REFUSED]
    assert len(refused) == 6
    assert "not with an odd number" in refused[0].record.message
    assert len(runner.tried) == 5
    assert len([r for _, r, run, _ in memory.rows if run == "run"]) == 6
    assert search.speedup == 3.0
    assert {t.record.sketch for t in search.history.trials} == {"odd"}


def test_a_space_that_is_exhausted_says_so() -> None:
    made = space(choice(1, 2, 3))
    runner = FakeRunner()
    runner.know(WORK, made, lambda p: 1.0)
    search = tuner(runner, made=made)
    search.open()
    assert len(search.step()) == 2
    assert not search.exhausted
    assert search.step() == []
    assert search.exhausted


def test_opening_again_measures_nothing() -> None:
    runner = FakeRunner()
    made = tuner(runner)
    first = made.open()
    runner.workload = None
    assert made.open() is first
    assert runner.opened == ["dense"]
    assert runner.workload is WORK


def test_the_same_seed_takes_the_same_way() -> None:
    def way(seed: int) -> list[Trace]:
        runner = FakeRunner()
        made = tuner(runner, name="refine", seed=seed)
        made.open()
        made.step()
        made.step()
        return runner.measured

    assert way(3) == way(3)
    assert way(3) != way(4)


def test_confirmations_before_an_interruption_are_kept() -> None:
    memory, runner = Remembered(), FakeRunner()
    made = tuner(runner, memory)
    made.open()
    for _ in range(3):
        made.step()
    runner.interrupted_after = len(runner.measured) + 2
    with pytest.raises(KeyboardInterrupt):
        made.confirm()
    kept = [(r.trace, beside) for _, r, run, beside in memory.rows if run == "run confirmed"]
    assert kept[-2:] == [(t, made.history.baseline) for t in runner.measured[-2:]]


class NoisyRunner(FakeRunner):
    """Measures with errors of a tenth."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = Random(5)

    def _record(self, trace: Trace, best: TrialRecord) -> TrialRecord:
        record = super()._record(trace, best)
        return replace(record, relative=(record.relative or 1.0) * math.exp(self.rng.gauss(0.0, 0.1)))


def test_errors_of_many_candidates_do_not_multiply() -> None:
    """All are as fast as the default schedule. The luckiest may look faster, but not faster with each batch."""
    runner = NoisyRunner()
    runner.know(WORK, SPACE, lambda p: 1.0)
    made = tuner(runner)
    made.open()
    for _ in range(50):
        made.step()
    assert made.speedup < 1.4, "the luckiest of some hundred is three times the error off"
    assert len(runner.measured) < 2 * 50 * BATCH
