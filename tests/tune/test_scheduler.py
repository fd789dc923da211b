"""The shares of a model's kernels in the time of tuning."""

from __future__ import annotations

import pytest
from fake_runners import FakeRunner, Remembered
from synthetic import BASELINE, Speed, choice, space, terraces
from tuned_kernels import product

from weft.support.errors import UserError
from weft.tune import scheduler as scheduler_module
from weft.tune.kernel_tuner import BATCH, KernelTuner
from weft.tune.measure.runner import Workload
from weft.tune.scheduler import Budget, TaskScheduler, TaskState
from weft.tune.search import STRATEGIES
from weft.tune.space import Space

SPACE, SPEED = terraces()


def flat(point: object) -> float:
    """No schedule is better than the default."""
    return 0.98


class Model:
    """Kernels that are measured by formula. ``rows``: for each its calls, its seconds by default, its speeds and the
    least time possible."""

    def __init__(self, *rows: tuple[int, float, Speed, float], made: Space = SPACE, strategy: str = "random") -> None:
        self.runner, self.memory = FakeRunner(), Remembered()
        self.tasks = []
        for i, (calls, seconds, speed, bound) in enumerate(rows):
            work = Workload(product(8, 8, 8 + i, name=f"k{i}"))
            self.runner.know(work, made, speed, seconds)
            tuner = KernelTuner(work, made, self.runner, STRATEGIES[strategy], memory=self.memory, seed=i)
            self.tasks.append(TaskState(f"k{i}", tuner, calls, bound))

    def run(self, budget: Budget, policy: str = "gain") -> TaskScheduler:
        made = TaskScheduler(self.tasks, budget, policy)
        made.run()
        return made


def mixed(strategy: str = "random") -> Model:
    """One kernel of many can gain, and takes most of the time."""
    return Model(
        (1, 1 * BASELINE, flat, 0.0), (2, 1 * BASELINE, flat, 0.0), (9, 4 * BASELINE, SPEED, 0.0),
        (1, 2 * BASELINE, flat, 0.0), (1, 0.1 * BASELINE, SPEED, 0.0),
        strategy=strategy,
    )  # fmt: skip


def test_trials_go_where_the_model_gains_most() -> None:
    found = mixed().run(Budget(trials=160))
    trials = [t.trials for t in found.tasks]
    assert trials[2] == max(trials)
    assert trials[2] > 2 * max(n for i, n in enumerate(trials) if i != 2)
    assert trials[4] < trials[2] / 4  # it gains as much, of a hundredth of the time


def test_the_gain_policy_beats_taking_turns() -> None:
    gained = mixed("descent").run(Budget(trials=80))
    turns = mixed("descent").run(Budget(trials=80), "round-robin")
    assert gained.trials == turns.trials == 80
    assert gained.total < 0.9 * turns.total
    assert {t.trials for t in turns.tasks} == {16}


@pytest.mark.parametrize("policy", ["gain", "round-robin"])
@pytest.mark.parametrize("trials", [0, 1, 8, 45])
def test_no_more_trials_than_the_budget(policy: str, trials: int) -> None:
    model = mixed()
    found = model.run(Budget(trials=trials), policy)
    assert found.trials == len(model.runner.tried) == trials
    assert found.ended == "all trials are spent"
    assert len(model.runner.opened) == 5


def test_the_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(10_000))
    monkeypatch.setattr(scheduler_module.time, "monotonic", lambda: float(next(now)))
    found = mixed().run(Budget(seconds=60.0))
    assert found.ended == "the time is spent"
    assert 0 < found.trials < 30 * BATCH


def test_tuning_ends_where_little_is_promised() -> None:
    model = Model((1, BASELINE, flat, 0.999 * BASELINE), (3, BASELINE, flat, BASELINE))
    found = model.run(Budget())
    assert found.ended == "more trials promise little"
    assert found.trials < 60 * BATCH


def test_hope_fades_with_trials() -> None:
    model = Model((1, BASELINE, flat, 0.0))
    (task,) = model.tasks
    task.baseline = task.tuner.open().seconds or 0.0
    promises = [task.promise]
    for _ in range(4):
        task.step(BATCH)
        promises.append(task.promise)
    assert promises == sorted(promises, reverse=True)
    assert len(set(promises)) == 5
    task.gains.append(0.5)
    assert task.promise == pytest.approx(0.5 * BASELINE)  # what was gained just now may be gained again
    task.bound = 0.9 * BASELINE
    assert task.promise == pytest.approx(0.1 * BASELINE)  # but there is no more room
    task.bound = 2 * BASELINE  # bounds are estimates, too
    assert task.promise == pytest.approx(scheduler_module.MIN_ROOM * BASELINE)


def test_every_schedule_may_have_been_tried() -> None:
    found = Model((1, BASELINE, flat, 0.0), (2, BASELINE, rising, 0.0), made=space(choice(1, 2, 3))).run(Budget())
    assert found.ended == "every schedule was tried"
    assert found.trials == 4
    assert found.total == pytest.approx(BASELINE * (1 + 2 / 3))


def rising(point: object) -> float:
    return 1.0 + max(point.positions)  # type: ignore[attr-defined]


def test_kernels_that_fail_are_skipped_with_the_reason() -> None:
    model = mixed()
    model.runner.failing.add(model.tasks[2].tuner.workload.task.identity)
    found = model.run(Budget(trials=40))
    assert found.tasks[2].failed == "kernel cannot be measured: it fails"
    assert found.tasks[2].trials == 0
    assert found.trials == 40
    assert all(not t.failed for i, t in enumerate(found.tasks) if i != 2)


def test_a_model_whose_kernels_all_fail() -> None:
    model = mixed()
    model.runner.failing.update(t.tuner.workload.task.identity for t in model.tasks)
    found = model.run(Budget(trials=5))
    assert (found.ended, found.trials, found.total) == ("nothing can be tuned", 0, 0.0)


@pytest.mark.parametrize("after", [0, 3, 21])
def test_an_interruption_keeps_all_trials(after: int) -> None:
    model = mixed()
    model.runner.interrupted_after = after
    seen = []
    made = TaskScheduler(model.tasks, Budget(trials=100), observer=lambda s: seen.append((s.ended, s.current)))
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert made.ended == "interrupted"
    assert seen[-1] == ("interrupted", None)
    rows = [r for _, r, run, _ in model.memory.rows if r.trace is not None and not run.endswith("confirmed")]
    assert len(rows) == made.trials == len(model.runner.tried) and len(model.runner.measured) == after


def test_observers_see_every_batch() -> None:
    model = mixed()
    names = []
    made = TaskScheduler(model.tasks, Budget(trials=24), observer=lambda s: names.append(s.current and s.current.name))
    made.run()
    assert names[:5] == ["k0", "k1", "k2", "k3", "k4"]
    assert names[-1] is None
    assert len(names) == 5 + 3 + 1
    totals = [total for _, total in made.curve]
    assert len(totals) == 8
    assert totals[4] == pytest.approx((1 + 2 + 36 + 2 + 0.1) * BASELINE)
    assert totals[4:] == sorted(totals[4:], reverse=True)
    assert made.total == totals[-1] < totals[4]


def test_kernels_are_resumed_when_their_turn_comes() -> None:
    model = mixed()
    model.run(Budget(trials=80), "round-robin")  # the runner checks that each schedule is of the kernel at hand
    assert [t.trials for t in model.tasks] == [16] * 5
    assert model.runner.opened == ["k0", "k1", "k2", "k3", "k4"]


def test_unknown_policies() -> None:
    with pytest.raises(UserError, match="no policy 'gains'") as error:
        TaskScheduler([], Budget(), "gains")
    assert error.value.code == "U034"
    assert "gain" in (error.value.hint or "")
