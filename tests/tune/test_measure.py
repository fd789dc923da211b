"""Measuring: times beside one another, results that are checked, and processes that may end at any moment."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tuned_kernels import product, split_by
from unruly_worker import TROUBLE, sum_of

from weft.graph.text import parse as parse_graph
from weft.kernels.machine_code import MachineCode, machine_code
from weft.kernels.task import KernelTask
from weft.ops.catalogue import OPERATORS
from weft.runtime import _native
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Instruction, Trace
from weft.support.differences import difference, errors
from weft.support.errors import UserError
from weft.support.processes import receive_within
from weft.target import Target
from weft.tir.text import parse
from weft.tune.measure import bench as bench_module
from weft.tune.measure import local, process_bench, timing
from weft.tune.measure.bench import Bench, BenchCase, Guarded, Loaded
from weft.tune.measure.builder import Built
from weft.tune.measure.inputs import index_limits, inputs_of
from weft.tune.measure.local import LocalRunner
from weft.tune.measure.process_bench import MIN_PATIENCE, TIMES_OPENING, ProcessBench
from weft.tune.measure.runner import Workload
from weft.tune.measure.timing import Limits, Run, compared, evicted_bytes
from weft.tune.record import Outcome, TrialRecord
from weft.tune.sketches import space_of
from weft.tune.workloads import kernels_of_model

QUICK = Limits(seconds=0.002)
TASK = product(12, 16, 10, target="cpu")


# -- times ----------------------------------------------------------------------------------------------------------


class Machine:
    """Runs of kernels on a machine whose clock is counted, not awaited: it gets slower or faster while it runs, and its
    times have noise."""

    def __init__(self, noise: float = 0.02, drift: float = 0.0, seed: int = 0) -> None:
        self.noise, self.drift, self.now, self.runs = noise, drift, 0.0, 0
        self.random = Random(seed)

    def kernel(self, seconds: float) -> Run:
        def run(count: int) -> list[float]:
            return [self._one(seconds) for _ in range(count)]

        return run

    def _one(self, seconds: float) -> float:
        made = seconds * (1 + self.drift * self.now) * (1 + abs(self.random.gauss(0, self.noise)))
        self.now += made
        self.runs += 1
        return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Machine], Machine]:
    def set_clock(machine: Machine) -> Machine:
        monkeypatch.setattr(timing.time, "perf_counter", lambda: machine.now)
        return machine

    return set_clock


@pytest.mark.parametrize("ratio", [0.25, 0.8, 0.97, 1.0])
def test_the_ratio_of_two_kernels_is_found(clock: Callable[[Machine], Machine], ratio: float) -> None:
    machine = clock(Machine())
    found = compared(machine.kernel(2e-4 * ratio), machine.kernel(2e-4), 2e-4, Limits())
    assert found.relative == pytest.approx(ratio, rel=0.015)
    assert found.seconds == pytest.approx(2e-4 * ratio, rel=0.03)
    assert not found.slow


def test_drift_of_the_machine_cancels(clock: Callable[[Machine], Machine]) -> None:
    machine = clock(Machine(noise=0.05, drift=8.0))
    found = compared(machine.kernel(0.9e-3), machine.kernel(1e-3), 1e-3, Limits())
    assert found.samples[-1] > 1.2 * found.samples[0]  # much slower by then
    assert found.relative == pytest.approx(0.9, rel=0.03)


def test_a_kernel_that_is_far_too_slow_runs_twice_only(clock: Callable[[Machine], Machine]) -> None:
    machine = clock(Machine())
    found = compared(machine.kernel(5e-3), machine.kernel(1e-3), 1e-3, Limits(abort=3.0))
    assert found.slow
    assert found.relative is None
    assert machine.runs == 2
    assert found.seconds == pytest.approx(5e-3, rel=0.1)


def test_one_slow_first_run_is_forgiven(clock: Callable[[Machine], Machine]) -> None:
    machine = clock(Machine())
    kernel, first = machine.kernel(1e-3), [True]

    def cold(count: int) -> list[float]:
        return [9e-3] if first and first.pop() else kernel(count)

    assert not compared(cold, machine.kernel(1e-3), 1e-3, Limits(abort=3.0)).slow


def test_a_certainly_slower_kernel_ends_early(clock: Callable[[Machine], Machine]) -> None:
    machine = clock(Machine(noise=0.1))
    slower = compared(machine.kernel(1.5e-3), machine.kernel(1e-3), 1e-3, Limits(seconds=10))
    assert len(slower.samples) == timing.EARLY_ROUNDS
    machine = clock(Machine(noise=0.1))
    close = compared(machine.kernel(1.002e-3), machine.kernel(1e-3), 1e-3, Limits(seconds=10))
    assert len(close.samples) > 3 * timing.EARLY_ROUNDS


def test_rounds_have_limits(clock: Callable[[Machine], Machine]) -> None:
    machine = clock(Machine(noise=2.0))
    assert len(compared(machine.kernel(1e-4), machine.kernel(1e-4), None, Limits(seconds=1e9)).samples) == (
        timing.MAX_ROUNDS
    )
    machine = clock(Machine(noise=2.0))
    found = compared(machine.kernel(1e-2), machine.kernel(1e-2), None, Limits(seconds=0.0))
    assert len(found.samples) == timing.EARLY_ROUNDS
    assert machine.runs == 1 + 2 * timing.EARLY_ROUNDS


def test_short_kernels_run_often_in_a_round(clock: Callable[[Machine], Machine]) -> None:
    machine = clock(Machine())
    found = compared(machine.kernel(1e-7), None, None, Limits())
    assert machine.runs > len(found.samples) * 300
    assert found.relative is None
    machine = clock(Machine())
    compared(machine.kernel(0.0), machine.kernel(0.0), 0.0, Limits())
    assert machine.runs <= 2 * timing.MAX_CALLS * timing.MAX_ROUNDS + 1


# -- the bench ------------------------------------------------------------------------------------------------------


def kernels(text: str, sizes: dict[str, list[int]] | None = None) -> list[Workload]:
    names = f"<{', '.join(sizes)}>" if sizes else ""
    module = parse_graph(f"def @main{names}({text}\n}}\n", OPERATORS)
    return [k.workload for k in kernels_of_model(module, Target("cpu"), sizes=sizes)]


GRAPHS = {
    "two outputs": "%x: f32[3, 8]) -> (f32[3, 4], f32[3, 4]) {\n  %0 = split(%x, axis=1, sizes=(4, 4))\n  return %0",
    "workspace": "%x: f32[5, 70]) -> f32[5, 70] {\n  %0 = softmax(%x)\n  return %0",
    "bool": "%x: f32[3, 70], %y: f32[70]) -> bool[3, 70] {\n  %0 = greater(%x, %y)\n  return %0",
    "int8": "%x: i8[8, 24], %y: i8[24, 16]) -> i8[8, 16] {\n  %0 = matmul(%x, %y)\n  return %0",
    "float16": "%x: f16[8, 24], %y: f16[24, 16]) -> f16[8, 16] {\n  %0 = matmul(%x, %y)\n  %1 = relu(%0)\n  return %1",
    "roots": "%x: f32[40]) -> f32[40] {\n  %0 = log(%x)\n  %1 = sqrt(%0)\n  return %1",
    "gather": "%x: f32[5, 6], %i: i64[4]) -> f32[4, 6] {\n  %0 = gather(%x, %i, axis=0)\n  return %0",
    "twice gathered": "%x: f32[5], %i: i64[4]) -> f32[4] {\n  %1 = add(%i, %i)\n  %0 = gather(%x, %1)\n  return %0",
    "scatter": "%x: f32[5], %i: i64[3, 1], %u: f32[3]) -> f32[5] {\n  %0 = scatter_nd(%x, %i, %u)\n  return %0",
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_kernels_of_many_kinds_are_measured(name: str) -> None:
    for workload in kernels(GRAPHS[name]):
        bench = Bench(workload.task, limits=QUICK)
        space, rng = space_of(workload.task), Random(0)
        records = [bench.baseline(), *(bench.trial(space.trace(space.sample(rng)), None, 1.0) for _ in range(2))]
        for record in records:
            assert record.outcome in (Outcome.OK, Outcome.SLOW), record.message
            assert record.message == ""
            assert record.seconds is not None
            assert record.seconds > 0


def test_open_sizes_are_measured_for_every_assignment() -> None:
    text = "%x: f32[n, 24]) -> f32[n, 24] {\n  %0 = softmax(%x)\n  return %0"
    (workload,) = kernels(text, {"n": [3, 40]})
    assert workload.sizes == ((3,), (40,))
    bench = Bench(workload.task, sizes=workload.sizes, limits=QUICK)
    assert [c.shapes for c in bench.cases] == [[(3, 24)], [(40, 24)]]
    record = bench.trial(None, None, 1.0)
    assert record.ok
    assert record.relative is not None
    assert record.seconds == pytest.approx(sum(record.samples))
    assert Bench(workload.task, limits=QUICK).cases[0].shapes == [(64, 24)]


def test_sizes_without_values_count_as_one() -> None:
    (workload,) = kernels("%x: f32[n, m]) -> f32[n, m] {\n  %0 = relu(%x)\n  return %0", {"n": [1], "m": [7, 9]})
    names = [v.name for v in workload.task.program.sizes]
    assert [dict(zip(names, s, strict=True)) for s in workload.sizes] == [{"n": 1, "m": 7}, {"n": 1, "m": 9}]


def test_indices_stay_inside() -> None:
    (workload,) = kernels(GRAPHS["gather"])
    program = workload.task.program
    arrays = [inputs_of(program, {}, seed=s)[1] for s in range(20)]
    assert {int(n) for a in arrays for n in a.flat} == set(range(5))


COPIED = """program "taken"(x: f32[3], index: i64[4]) -> (out: f32[4]):
  alloc place: i64[4]
  for i in serial(0, 4):
    block "place"(a: spatial 4 = i):
      reads index[a]
      writes place[a]
      body:
        place[a] = VALUE
  for i in serial(0, 4):
    block "out"(a: spatial 4 = i):
      reads x[0:+3], place[a]
      writes out[a]
      body:
        out[a] = x[place[a]]
"""


@pytest.mark.parametrize(("value", "limit"), [("index[a]", 3), ("index[a] + 1", 1)])
def test_indices_that_are_stored_in_between_stay_inside(value: str, limit: int) -> None:
    program = parse(COPIED.replace("VALUE", value))
    limits = {b.name: n for b, n in index_limits(program, {}).items()}  # type: ignore[attr-defined]  # buffers
    assert limits == {"place": 3, "index": limit}
    assert max(int(inputs_of(program, {}, seed=s)[1].max()) for s in range(9)) == limit - 1


def test_inputs_are_those_of_their_seed() -> None:
    first, again, other = (inputs_of(TASK.program, {}, seed=s) for s in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert not (first[0] == other[0]).all()
    assert inputs_of(TASK.program, {}, positive=True)[0].min() >= 0.1


def test_a_candidate_is_measured_beside_the_best() -> None:
    bench = Bench(TASK, limits=QUICK)
    best = split_by(TASK, 4)
    alone, beside = bench.trial(split_by(TASK, 8), None, None), bench.trial(split_by(TASK, 8), best, 1e-5)
    assert alone.ok
    assert alone.relative is None
    assert beside.ok
    assert beside.relative == pytest.approx(1.0, abs=0.9)
    slow = bench.trial(split_by(TASK, 8), best, 1e-12)
    assert slow.outcome is Outcome.SLOW
    assert slow.seconds


def test_a_best_schedule_that_cannot_be_built_any_more_is_left_out() -> None:
    record = Bench(TASK, limits=QUICK).trial(split_by(TASK, 8), Trace((Instruction("slice_and_dice", ()),)), 1e-3)
    assert (record.outcome, record.relative) == (Outcome.OK, None)


def test_refused_schedules() -> None:
    record = Bench(TASK, limits=QUICK).trial(Trace((Instruction("slice_and_dice", ()),)), None, None)
    assert record.outcome is Outcome.REFUSED
    assert "slice_and_dice" in record.message


def returning(task: Callable[[KernelTask], KernelTask]) -> Callable[[KernelTask], MachineCode]:
    return lambda asked: machine_code(asked if asked.trace is None else task(asked))


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TrialRecord]:
    """Measures a schedule whose machine code is that of another program."""

    def measured(task: KernelTask, other: str) -> TrialRecord:
        made = KernelTask(parse(other), task.target)
        monkeypatch.setattr(bench_module, "machine_code", returning(lambda _: made))
        return Bench(task, limits=QUICK).trial(Trace(), None, None)

    return measured


def test_another_result_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    other = returning(lambda asked: KernelTask(sum_of(asked.program), asked.target))
    monkeypatch.setattr(bench_module, "machine_code", other)
    bench = Bench(TASK, limits=QUICK)
    record = bench.trial(Trace(), None, None)
    assert record.outcome is Outcome.WRONG
    assert "differ" in record.message
    assert record.seconds is None
    assert bench.baseline().ok


ROWS = """program "rows"(x: TYPE[40]) -> (out: TYPE[40]):
  for i in serial(0, 40):
    block "out"(a: spatial 40 = i):
      reads x[a]
      writes out[a]
      body:
        out[a] = VALUE
"""
HALF = ROWS.replace("serial(0, 40)", "serial(0, 20)").replace("spatial 40", "spatial 20")
BEYOND = ROWS.replace("[40]", "[44]").replace("0, 40", "0, 44").replace("spatial 40", "spatial 44")


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("f32", "0.0"), ("f32", "x[a]"), ("f16", "f16(0.0)"), ("f64", "f64(0.0)"), ("i8", "x[a]"), ("i32", "i32(0)"),
     ("bool", "true")],
)  # fmt: skip
def test_elements_that_are_never_written_are_wrong(wrong: Callable[..., TrialRecord], dtype: str, value: str) -> None:
    """Also where the right ones are zero, as after a relu or in padding."""
    text = ROWS.replace("TYPE", dtype).replace("VALUE", value)
    record = wrong(KernelTask(parse(text), Target("cpu")), HALF.replace("TYPE", dtype).replace("VALUE", value))
    assert record.outcome is Outcome.WRONG


def test_elements_beyond_the_results_are_wrong(wrong: Callable[..., TrialRecord]) -> None:
    text = ROWS.replace("TYPE", "f32").replace("VALUE", "1.0")
    record = wrong(KernelTask(parse(text), Target("cpu")), BEYOND.replace("TYPE", "f32").replace("VALUE", "1.0"))
    assert record.outcome is Outcome.WRONG
    assert "outside of its results" in record.message


SUMS = """program "sums"(x: f32[N]) -> (out: f32[N]):
  alloc kept: f32[N]
  for i in serial(0, N):
    block "kept"(a: spatial N = i):
      reads x[a]
      writes kept[a]
      body:
        kept[a] = x[a] + x[a]
  for i in serial(0, N):
    block "out"(a: spatial N = i):
      reads kept[a]
      writes out[a]
      body:
        out[a] = kept[a]
""".replace("N", "60000")


def test_workspaces_have_guards_and_no_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    task = KernelTask(parse(SUMS), Target("cpu"))
    whole = machine_code(replace(task, trace=Trace()))
    assert whole.workspace == (240_000,)
    bench = Bench(task, limits=QUICK)
    assert bench.trial(Trace(), None, None).ok
    assert (Loaded(whole, 1).workspace(bench.cases[0]).bytes == 0xFF).all()  # type: ignore[union-attr]  # it has one
    monkeypatch.setattr(bench_module, "machine_code", lambda _: replace(whole, workspace=(240_000 - 32,)))
    record = bench.trial(split_by_eight(task), None, None)
    assert (record.outcome, record.message) == (Outcome.WRONG, "it writes outside of its workspace")


def split_by_eight(task: KernelTask) -> Trace:
    s = Schedule(task.program)
    s.split(s.get_loops("out")[0], factors=(None, 8))
    return s.trace


def test_guards_see_every_byte_around() -> None:
    memory = Guarded(10)
    assert memory.intact
    memory.bytes[:] = 0
    assert memory.intact
    for at in (63, 74):
        memory.clear()
        memory._whole[at] = 0
        assert not memory.intact


def test_differences() -> None:
    one = np.array([1.0, -4.0, np.nan, np.inf], np.float32)
    assert difference([one], [one]) == 0
    assert difference([one + np.float32(0.4)], [one]) == pytest.approx(0.1)
    assert difference([one, one], [one]) == np.inf
    assert difference([one[:2]], [one]) == np.inf
    assert difference([one.astype(np.float64)], [one]) == np.inf
    assert difference([], []) == 0
    assert errors(np.array([1, 2]), np.array([1, 3])).tolist() == [0, np.inf]
    assert errors(np.array([np.nan, 1.0]), np.array([1.0, np.nan])).tolist() == [np.inf, np.inf]
    assert errors(np.array([1e-9]), np.array([0.0])).tolist() == [np.inf]
    assert errors(np.array([2, 1], np.uint8).view(bool), np.array([True, True])).tolist() == [np.inf, 0]


# -- processes ------------------------------------------------------------------------------------------------------


def test_patience_follows_the_kernel() -> None:
    """What takes many times as long as the default schedule is hung, long before the limits say so."""
    bench = ProcessBench(Limits(build=30.0, run=10.0))
    bench._opening = 0.5
    assert bench.patience == MIN_PATIENCE + TIMES_OPENING * 0.5 < 10
    bench._opening = 60.0
    assert bench.patience == 40.0


FAST = Limits(abort=200.0, seconds=0.002, build=20.0, run=5.0)  # nothing is too slow: other work may run beside


def asking(trouble: str) -> Trace:
    """A schedule of the product that asks :mod:`unruly_worker` for trouble."""
    asked = Instruction("sample_choice", (("candidates", TROUBLE), ("weights", None)), ("v99",), TROUBLE.index(trouble))
    return Trace((asked, *split_by(TASK, 4).instructions))


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    """A runner with a worker that does what schedules ask for."""
    before = process_bench.start_python
    process_bench.start_python = lambda module, stderr: before("unruly_worker", stderr)  # type: ignore[assignment]
    with LocalRunner(FAST, builders=0) as made:
        assert made.open(Workload(TASK)).ok
        yield made
    process_bench.start_python = before


def trials(runner: LocalRunner, *traces: Trace, seconds: float = 1.0) -> list[TrialRecord]:
    return list(runner.measure(traces, TrialRecord(None, Outcome.OK, seconds)))


def test_a_worker_that_crashes_costs_one_trial(runner: LocalRunner) -> None:
    starts = runner.bench.starts
    records = trials(runner, asking("none"), asking("crash"), asking("none"))
    assert [r.outcome for r in records] == [Outcome.OK, Outcome.CRASHED, Outcome.OK]
    assert records[1].message == "the measuring process ended by SIGSEGV: last words"
    assert runner.bench.starts == starts + 1


def test_a_kernel_that_hangs_costs_one_trial(runner: LocalRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    trials(runner, asking("none"))
    monkeypatch.setattr(runner.bench, "limits", Limits(seconds=0.002, build=0.2, run=0.2))
    begin = time.monotonic()
    (record,) = trials(runner, asking("hang"))
    assert record.outcome is Outcome.TIMEOUT
    assert 0.4 <= time.monotonic() - begin < 5
    assert "0.4 s" in record.message


def test_a_worker_that_is_killed_between_trials_costs_none(runner: LocalRunner) -> None:
    trials(runner, asking("none"))
    assert runner.bench._process is not None
    os.kill(runner.bench._process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, runner.bench._process.pid, os.WEXITED | os.WNOWAIT)
    assert trials(runner, asking("none"))[0].ok


def test_noise_does_not_disturb(runner: LocalRunner) -> None:
    starts = runner.bench.starts
    assert [r.outcome for r in trials(runner, asking("noise"), asking("none"))] == [Outcome.OK, Outcome.OK]
    assert runner.bench.starts - starts <= 1


def test_what_cannot_be_built_keeps_the_worker(runner: LocalRunner) -> None:
    trials(runner, asking("none"))
    starts = runner.bench.starts
    refused = Trace((Instruction("slice_and_dice", ()),))
    records = trials(runner, refused, asking("unbuildable"), asking("none"))
    assert [r.outcome for r in records] == [Outcome.REFUSED, Outcome.FAILED, Outcome.OK]
    assert "this cannot be built" in records[1].message
    assert [r.trace for r in records] == [refused, asking("unbuildable"), asking("none")]
    assert runner.bench.starts == starts


def test_a_wrong_kernel_gets_no_second_chance_in_its_process(runner: LocalRunner) -> None:
    records = trials(runner, asking("wrong"), asking("none"))
    assert [r.outcome for r in records] == [Outcome.WRONG, Outcome.OK]


def test_an_interruption_loses_no_answers(runner: LocalRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    trials(runner, asking("none"))

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(process_bench, "receive_within", interrupted)
    process = runner.bench._process
    with pytest.raises(KeyboardInterrupt):
        trials(runner, asking("none"))
    assert process is not None
    assert process.returncode is not None
    monkeypatch.undo()
    (record,) = trials(runner, Trace((Instruction("slice_and_dice", ()),)))
    assert record.outcome is Outcome.REFUSED  # not the answer to the question before


def test_all_candidates_of_a_batch_run_beside_the_same_schedule(
    runner: LocalRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the luckiest were what the next one runs beside, errors would multiply."""
    asked: list[object] = []
    times = iter([2.0, 0.5, 0.9, 0.8])

    def measured(trace: Trace, best: TrialRecord, made: object) -> TrialRecord:
        asked.append(best.trace)
        relative = next(times)
        return TrialRecord(trace, Outcome.OK, relative, relative=relative)

    monkeypatch.setattr(runner.bench, "trial", measured)
    trials(runner, *map(asking, TROUBLE[:4]))
    assert asked == [None] * 4


def test_other_kernels_take_turns(runner: LocalRunner) -> None:
    mine = runner._workload
    assert mine is not None
    other = Workload(product(6, 8, 4, target="cpu"))
    baseline = runner.open(other)
    assert baseline.ok
    runner.resume(mine)
    assert trials(runner, asking("none"))[0].ok
    runner.resume(other)
    assert trials(runner, split_by(other.task, 4), seconds=baseline.seconds or 0.0)[0].outcome in (
        Outcome.OK,
        Outcome.SLOW,
    )
    runner.resume(mine)


def test_a_worker_that_never_starts_loses_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_bench, "start_python", lambda module, stderr: None)
    with LocalRunner(FAST, builders=0) as made:
        made.resume(Workload(TASK))
        assert [r.outcome for r in trials(made, asking("none"))] == [Outcome.LOST]
        with pytest.raises(UserError, match="cannot be measured") as error:
            made.open(Workload(TASK))
    assert error.value.code == "U040"


def test_kernels_that_cannot_be_measured(runner: LocalRunner) -> None:
    class Plugin:
        origin = "a plugin"

    plugin = replace(TASK, backend=Plugin())  # type: ignore[arg-type]
    with pytest.raises(UserError, match="a plugin makes the code of 'dense'") as first:
        runner.open(Workload(plugin))
    unknown = Workload(TASK, sizes=((1, 2, 3),))  # the program has no sizes
    with pytest.raises(UserError, match="kernel 'dense' cannot be measured") as second:
        runner.open(unknown)
    assert first.value.code == second.value.code == "U040"
    assert first.value.hint
    assert second.value.hint
    assert "(1, 2, 3) are no sizes" in second.value.message
    runner.resume(Workload(TASK))


def test_messages_are_awaited_for_so_long_only() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as end, os.fdopen(writing, "wb", buffering=0) as start:
        start.write((3).to_bytes(8, "little") + b"ab")
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            receive_within(end, begin + 0.05)
        assert time.monotonic() - begin < 2
        start.write((3).to_bytes(8, "little") + b"abc")
        assert receive_within(end, time.monotonic() - 1) == b"abc"  # it is there already
        start.write((3).to_bytes(8, "little") + b"ab")
        start.close()
        with pytest.raises(EOFError):
            receive_within(end, time.monotonic() + 5)


def test_samples_are_the_rounds_of_the_median(runner: LocalRunner) -> None:
    (record,) = trials(runner, asking("none"))
    assert record.seconds == pytest.approx(statistics.median(record.samples))
    assert len(record.samples) >= timing.EARLY_ROUNDS


def test_cores_that_are_left_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates are built by other processes, and what these say of them is in the records."""
    with LocalRunner(FAST, builders=2) as made:
        baseline = made.open(Workload(TASK))
        refused = Trace((Instruction("slice_and_dice", ()),))
        traces = [split_by(TASK, 4), refused, split_by(TASK, 8), split_by(TASK, 16)]
        records = list(made.measure(traces, baseline))
        assert [r.trace for r in records] == traces
        assert [r.outcome for r in records] == [Outcome.OK, Outcome.REFUSED, Outcome.OK, Outcome.OK]
        assert records[1].message
        process = made.bench._process
        first = next(iter(made.measure(traces[2:], baseline)))  # nobody asks for the second one
        assert first.ok and made.bench._process is process
    assert process is not None and process.returncode is not None
    assert made._codes is not None and made._codes._builder is None


def test_builders_follow_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "usable_cores", lambda: 6)
    runner = LocalRunner(FAST)
    assert [runner._builders(n) for n in (1, 2, 4, 6, 9)] == [4, 4, 2, 4, 4]
    assert LocalRunner(FAST, builders=1)._builders(6) == 1


def test_nothing_is_built_beside_a_kernel_that_needs_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "usable_cores", lambda: 1)
    pending: list[int] = []
    with LocalRunner(FAST) as made:
        baseline = made.open(Workload(TASK))
        trial = made.bench.trial

        def noted(trace: Trace, best: TrialRecord, code: MachineCode | None = None) -> TrialRecord:
            assert made._codes is not None
            pending.append(sum(not f.done() for f in futures))
            return trial(trace, best, code)

        begun = made._begun
        futures: list[Future[Built]] = []
        monkeypatch.setattr(made, "_begun", lambda traces: futures.extend(begun(traces)) or futures)
        monkeypatch.setattr(made.bench, "trial", noted)
        assert all(r.ok for r in made.measure([split_by(TASK, n) for n in (2, 4, 8)], baseline))
    assert pending == [0, 0, 0]


def test_cold_runs_are_single_runs_after_other_memory() -> None:
    """The kernel is called once after each time that other memory was brought into the caches."""
    bench = Bench(TASK, limits=replace(QUICK, evict=1 << 20))
    asked: list[tuple[int, int]] = []
    call = Loaded.bound

    def bound(self: Loaded, case: BenchCase, workspace: Guarded | None = None, evict: int = 0) -> Run:
        run = call(self, case, workspace, evict)

        def noted(count: int) -> list[float]:
            asked.append((count, evict))
            return run(count)

        return noted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loaded, "bound", bound)
        record = bench.trial(split_by(TASK, 4), None, 1.0)
    assert record.ok
    assert asked[0] == (1, 0)  # its results are compared
    assert len(asked) > 5 and set(asked[1:]) == {(1, 1 << 20)}


def test_memory_for_emptying_caches_is_no_part_of_a_call() -> None:
    made = machine_code(TASK)
    code = _native.Code(made.code.data)
    x, w = np.ones((12, 10), np.float32), np.ones((10, 16), np.float32)
    y = np.zeros((12, 16), np.float32)
    status, times = code.call(made.code.entry, [x, w, y], [], 2, 3, 1 << 18)
    assert status == 0 and len(times) == 3
    np.testing.assert_allclose(y, 10.0)
    for bytes_, error in ((-1, ValueError), (1 << 62, MemoryError)):
        with pytest.raises(error):
            code.call(made.code.entry, [x, w, y], [], 1, 1, bytes_)
    cpu = Target("cpu").cpu
    assert evicted_bytes(cpu) >= 2 * max(cpu.l2, cpu.l3) and evicted_bytes(cpu) % 65536 == 0
    assert evicted_bytes(replace(cpu, l1=0, l2=0, l3=0)) == 128 << 20


def test_closing_leaves_no_process(runner: LocalRunner) -> None:
    trials(runner, asking("none"))
    assert runner.bench._process is not None
    process = runner.bench._process
    runner.close()
    assert process.returncode is not None
    with suppress(ProcessLookupError):
        os.kill(process.pid, 0)
        pytest.fail("the worker still runs")
    runner.close()
