"""The search for the schedules of a kernel with open sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from fake_runners import Remembered
from synthetic import BASELINE, choice, space

from weft.kernels.task import KernelTask
from weft.schedule.dispatch import Dispatch, RecordedSchedule
from weft.schedule.trace import Trace
from weft.target import Target
from weft.tir.text import parse
from weft.tune.database import Database
from weft.tune.kernel_tuner import KernelTuner
from weft.tune.measure.runner import Workload
from weft.tune.range_tuner import MAX_ANCHORS, RangeTuner
from weft.tune.record import Outcome, TrialRecord
from weft.tune.search import STRATEGIES

PROGRAM = """program "rows"[n](x: f32[n, 8]) -> (y: f32[n, 8]):
  for i in serial(0, n):
    for j in serial(0, 8):
      block "y"(a: spatial n = i, b: spatial 8 = j):
        reads x[a, b]
        writes y[a, b]
        body:
          y[a, b] = x[a, b] + 1.0
"""
SIZES = tuple((2**i,) for i in range(10))
WORK = Workload(KernelTask(parse(PROGRAM), Target("zen4")), 1, SIZES)
MADE = space(choice(*range(16)), choice(*range(8)))


def ratio(trace: Trace, n: int) -> float:
    """Times relative to the default schedule: small sizes like a first decision of 3, large ones of 12; the second one
    must be 5."""
    point = MADE.point(trace)
    assert point is not None
    wanted = 3 if n < 32 else 12
    return 0.4 + 0.1 * abs(point.positions[0] - wanted) + 0.05 * abs(point.positions[1] - 5)


class SizedRunner:
    """Measures by a formula of schedule and size."""

    def __init__(self) -> None:
        self.workload: Workload | None = None
        self.measured: list[tuple[RecordedSchedule, tuple[tuple[int, ...], ...]]] = []
        self.broken: set[int] = set()
        self.slower_together = 1.0
        self.interrupted_at: int | None = None

    def open(self, workload: Workload) -> TrialRecord:
        self.workload = workload
        return TrialRecord(None, Outcome.OK, BASELINE * len(workload.sizes))

    def resume(self, workload: Workload) -> None:
        self.workload = workload

    def measure(self, traces: Sequence[RecordedSchedule], best: TrialRecord) -> Iterator[TrialRecord]:
        assert self.workload is not None
        sizes = self.workload.sizes
        for trace in traces:
            if self.interrupted_at is not None and len(self.measured) >= self.interrupted_at:
                raise KeyboardInterrupt
            self.measured.append((trace, sizes))
            found = []
            for (n,) in sizes:
                chosen = trace.chosen((n,)) if isinstance(trace, Dispatch) else trace
                found.append(1.0 if chosen is None else ratio(chosen, n))
            if isinstance(trace, Dispatch):
                found = [r * self.slower_together for r in found]
            if self.broken & {n for (n,) in sizes}:
                yield TrialRecord(trace, Outcome.CRASHED, message="it crashed")
                continue
            seconds = sum(BASELINE * r for r in found)
            relative = seconds / (best.seconds or seconds)
            yield TrialRecord(trace, Outcome.OK, seconds, (seconds,), relative, relatives=tuple(found))

    def close(self) -> None:
        pass


def tuner(runner: SizedRunner, memory: object = None, seed: int = 0, work: Workload = WORK) -> RangeTuner:
    def made(part: Workload, run: str) -> KernelTuner:
        kind = STRATEGIES["random"]
        return KernelTuner(part, MADE, runner, kind, memory=memory, seed=seed, run=run)  # type: ignore[arg-type]

    return RangeTuner(work, MADE, runner, made, memory=memory, seed=seed, run="run")  # type: ignore[arg-type]


def searched(made: RangeTuner, steps: int = 12) -> RangeTuner:
    made.open()
    for _ in range(steps):
        made.step()
    return made


def test_a_few_sizes_are_searched_and_all_are_served() -> None:
    runner = SizedRunner()
    made = searched(tuner(runner))
    assert {s for _, s in runner.measured} == {((n,),) for n in (1, 8, 64, 512)}
    assert made.speedup > 1.5 and len(made.progress.best) == len(made.history.trials) == len(set(runner.measured))
    found = made.confirm()[0]
    assert isinstance(found.trace, Dispatch) and found.sizes == SIZES and found.sketch == "by size"
    small, large = found.trace.chosen((4,)), found.trace.chosen((256,))
    assert small is not None and large is not None and small != large
    assert ratio(small, 4) < 0.7 and ratio(large, 256) < 0.7
    assert found.trace.chosen((5000,)) is None
    assert found.relative is not None and found.relative < 0.7 and made.best is found


def test_what_is_good_for_one_size_is_tried_for_the_others() -> None:
    runner = SizedRunner()
    made = searched(tuner(runner), 6)
    best = made.tuners[0].best.trace
    assert all((best, t.workload.sizes) in runner.measured for t in made.tuners)


def test_a_dispatch_that_is_slower_than_its_parts_is_not_taken() -> None:
    runner = SizedRunner()
    runner.slower_together = 3.0
    made = searched(tuner(runner))
    assert made.confirm() == [] and made.best.trace is None


def test_one_size_gives_one_schedule_near_it() -> None:
    runner = SizedRunner()
    made = searched(tuner(runner, work=Workload(WORK.task, 1, ((64,),))), 4)
    found = made.confirm()[0].trace
    assert isinstance(found, Dispatch) and found.chosen((64,)) is not None
    assert found.chosen((129,)) is None and found.chosen((31,)) is None


def test_failures_on_some_sizes_cost_those_sizes_only() -> None:
    runner = SizedRunner()
    runner.broken = {8}
    made = searched(tuner(runner))
    assert made.tuners[1].speedup == 1.0 and made.tuners[0].speedup > 1
    assert made.confirm() == [], "nothing could be measured on all sizes"


def test_a_search_goes_on_where_another_ended() -> None:
    memory, first, second = Remembered(), SizedRunner(), SizedRunner()
    before = searched(tuner(first, memory))
    again = tuner(second, memory)
    again.open()
    assert again.speedup == pytest.approx(before.speedup) and not second.measured
    again.step()
    assert not set(first.measured) & set(second.measured)
    assert isinstance(again.confirm()[0].trace, Dispatch)


def test_an_interruption_keeps_what_was_measured() -> None:
    memory, runner = Remembered(), SizedRunner()
    made = searched(tuner(runner, memory))
    runner.interrupted_at = len(runner.measured) + 3
    with pytest.raises(KeyboardInterrupt):
        made.confirm()
    assert sum(r.sizes == SIZES and r.trace is not None for _, r, _, _ in memory.rows) == 3


def test_a_database_answers_with_the_dispatch(tmp_path: object) -> None:
    with Database(f"{tmp_path}/tuned.db", create=True) as database:
        made = searched(tuner(SizedRunner(), database))
        assert database.find(WORK.task) is None, "trials on single sizes decide nothing"
        found = made.confirm()[0]
        assert database.find(WORK.task, 1) == found.trace
        assert database.best(WORK.task, 1).sizes == SIZES  # type: ignore[union-attr]
        database.prune(0)
        assert database.find(WORK.task, 1) == found.trace
        with Database(f"{tmp_path}/other.db", create=True) as other:
            other.import_json(database.export_json())
            assert other.find(WORK.task, 1) == found.trace


def test_anchors_are_few() -> None:
    assert len(tuner(SizedRunner()).tuners) == MAX_ANCHORS
