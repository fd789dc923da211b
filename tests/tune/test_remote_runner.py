"""Searches on one board: what the runner records, and what it does when the board fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from boards_kit import KEY, LONG, QUICK, eventually, kill, server_of, task_for, traces_of, tuner_of
from tuned_kernels import product, timed

from weft.kernels.machine_code import MachineCode
from weft.kernels.one_program import one_program
from weft.kernels.task import KernelTask
from weft.rpc.kernel import RemoteKernel
from weft.rpc.local import LocalServer
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Trace
from weft.support.errors import UserError
from weft.tir.text import parse
from weft.tune.database import Database
from weft.tune.kernel_tuner import KernelTuner
from weft.tune.measure import building
from weft.tune.measure.batch import Batch
from weft.tune.measure.boards import AddressedBoards
from weft.tune.measure.builder import Built
from weft.tune.measure.building import Builders
from weft.tune.measure.farm import Farm, Opened, TrialJob, _rescaled
from weft.tune.measure.local import LocalRunner
from weft.tune.measure.reference import Reference
from weft.tune.measure.remote import RemoteRunner, runner_for
from weft.tune.measure.runner import RunnerGone, RunsModels, Workload
from weft.tune.record import Outcome, TrialRecord
from weft.tune.scheduler import Budget, TaskScheduler, TaskState
from weft.tune.search import strategy_named
from weft.tune.search.history import Trial
from weft.tune.sketches import space_of
from weft.tune.turns import ModelElsewhere, in_turns, times_kernels


@pytest.fixture(scope="module")
def runner(server: LocalServer) -> Iterator[RemoteRunner]:
    with runner_for(board=server.address, secret=KEY, limits=QUICK, patience=LONG) as made:
        yield made


# ---- a board that is well --------------------------------------------------------------------------------------------


def test_a_search_on_a_board(runner: RemoteRunner, task: KernelTask) -> None:
    tuner = tuner_of(task, runner)
    baseline = tuner.open()
    assert baseline.ok and baseline.trace is None and baseline.message == "on desk"
    trials = tuner.step(8)
    assert len(trials) == 8
    for t in trials:
        assert t.record.outcome in (Outcome.OK, Outcome.SLOW, Outcome.REFUSED), t.record
        if t.record.outcome is Outcome.OK:
            assert t.record.relative and t.record.seconds and t.record.message == "on desk"
    assert any(t.record.ok for t in trials)
    assert all(r.ok and r.trace is not None for r in tuner.confirm())


def test_records_are_in_the_order_of_the_schedules(runner: RemoteRunner, task: KernelTask) -> None:
    runner.open(Workload(task))
    traces = traces_of(task, 6)
    found = list(runner.measure(traces, timed(None, 1e-6)))
    assert [r.trace for r in found] == traces


def test_several_kernels_take_turns(runner: RemoteRunner, server: LocalServer, task: KernelTask) -> None:
    other = Workload(task_for(server, 12, "other"))
    mine = Workload(task)
    first, second = runner.open(mine), runner.open(other)
    runner.resume(mine)
    (found,) = list(runner.measure(traces_of(mine.task, 1), first))
    assert found.ok
    runner.resume(other)
    (found,) = list(runner.measure(traces_of(other.task, 1), second))
    assert found.ok


def test_the_runner_goes_on_after_close(runner: RemoteRunner, task: KernelTask) -> None:
    baseline = runner.open(Workload(task))
    runner.close()
    (found,) = list(runner.measure(traces_of(task, 1), baseline))
    assert found.ok


def misfit() -> Trace:
    """A schedule of another program: its block is not there."""
    text = """program "copy"(x: f32[8]) -> (out: f32[8]):
  for i in serial(0, 8):
    block "elsewhere"(y: spatial 8 = i):
      reads x[y]
      writes out[y]
      body:
        out[y] = x[y]
"""
    s = Schedule(parse(text))
    s.split(s.get_loops("elsewhere")[0], factors=(None, 2))
    return s.trace


def test_a_candidate_that_cannot_be_built_is_one_record(runner: RemoteRunner, task: KernelTask) -> None:
    baseline = runner.open(Workload(task))
    found = list(runner.measure([misfit(), *traces_of(task, 1)], baseline))
    assert [r.outcome for r in found] == [Outcome.REFUSED, Outcome.OK]
    assert found[0].message


def test_models_run_on_the_board(runner: RemoteRunner, task: KernelTask) -> None:
    assert isinstance(runner, RunsModels) and not isinstance(LocalRunner(), RunsModels)
    machine = runner.machine()
    assert machine.name == "desk" and machine.target() == str(task.target)
    models = [runner.executable(one_program(task.program, task.target), 1) for _ in range(2)]
    x = np.ones((8, 8), np.float32)
    for model in models:
        np.testing.assert_allclose(model(x, x), 8 * x)
        assert isinstance(model, ModelElsewhere) and not times_kernels(model)
    assert all(seconds > 0 for seconds in in_turns(models, [x, x]))
    (found,) = _opened(runner, task)
    assert found.ok


def _opened(runner: RemoteRunner, task: KernelTask) -> list[TrialRecord]:
    return list(runner.measure(traces_of(task, 1), runner.open(Workload(task))))


# ---- records ---------------------------------------------------------------------------------------------------------


def test_seconds_are_those_of_the_first_board(task: KernelTask) -> None:
    nothing = MachineCode.__new__(MachineCode)
    opened = Opened(Workload(task), nothing, Reference(Workload(task), nothing, lambda t: None), 2e-6)
    bench = SimpleNamespace(baseline=timed(None, 8e-6))
    found = _rescaled(timed(None, 4e-6, 0.5), opened, bench)  # type: ignore[arg-type]
    assert found.seconds == pytest.approx(1e-6) and found.samples == pytest.approx((1e-6, 1e-6))
    assert found.relative == 0.5


# ---- building --------------------------------------------------------------------------------------------------------


def built_by(builders: Builders, task: KernelTask) -> Built:
    return builders.build(task).result(LONG)


def test_a_builder_that_dies_costs_one_kernel(task: KernelTask) -> None:
    with Builders(1, LONG) as builders:
        assert isinstance(built_by(builders, task), MachineCode)
        for process in list(builders._processes):
            kill(process.pid)
            process.wait()
        lost = built_by(builders, task)
        assert isinstance(lost, tuple) and lost[0] is Outcome.FAILED and "ended" in lost[1]
        assert isinstance(built_by(builders, task), MachineCode)
    assert not builders._processes


def test_building_has_a_time_limit(task: KernelTask) -> None:
    with Builders(1, 0.0) as builders:
        late = built_by(builders, task)
    assert isinstance(late, tuple) and late[0] is Outcome.TIMEOUT


def test_nothing_is_built_after_the_end(task: KernelTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end comes while a process is being started: the kernel is not built in this one instead."""
    built: list[object] = []
    builders = Builders(1, LONG)
    monkeypatch.setattr(building, "start_python", lambda module: builders._closed.set())
    monkeypatch.setattr(building, "built_here", built.append)
    first, second = builders.build(task), builders.build(task)
    eventually(builders._closed.is_set)
    builders.close()
    assert first.result(LONG) == building.ENDED and second.cancelled()
    assert not built


def test_what_nobody_waits_for_is_not_built(task: KernelTask) -> None:
    with Builders(1, LONG) as builders:
        first, second, third = (builders.build(task) for _ in range(3))
        assert second.cancel() or second.done()
        assert isinstance(first.result(LONG), MachineCode) and isinstance(third.result(LONG), MachineCode)


def test_no_job_outlives_its_batch() -> None:
    farm = Farm(AddressedBoards("127.0.0.1:1", KEY), 0, QUICK)
    batch, job = Batch(farm, 1), TrialJob(lambda record: None)
    batch.add(0, job)
    assert list(farm.state.jobs) == [job]
    batch.end()
    batch.add(1, job)  # it was being built
    assert not farm.state.jobs


# ---- a board that fails ----------------------------------------------------------------------------------------------


def test_a_killed_server_costs_a_trial(program: Path, task: KernelTask) -> None:
    server = server_of([str(program)], "--name", "first")
    port = server.address.rpartition(":")[2]
    with runner_for(board=server.address, secret=KEY, limits=QUICK, patience=LONG) as runner:
        baseline = runner.open(Workload(task))
        kill(server.pid)
        eventually(lambda: server.exit_status is not None)
        found: list[TrialRecord] = []
        measuring = threading.Thread(target=lambda: found.extend(runner.measure(traces_of(task, 4), baseline)))
        measuring.start()
        with server_of([str(program)], "--port", port, "--name", "second"):
            measuring.join(LONG)
            assert len(found) == 4
    lost = [r for r in found if r.outcome is Outcome.LOST]  # none, if no job was sent before the link had ended
    assert len(lost) <= 1 and all("first" in r.message for r in lost)
    assert [(r.outcome, r.message) for r in found if r not in lost] == [(Outcome.OK, "on second")] * (4 - len(lost))
    server.stop()


def test_no_board_ends_the_search_and_keeps_what_is_known(program: Path, task: KernelTask) -> None:
    server = server_of([str(program)])
    with runner_for(board=server.address, secret=KEY, limits=QUICK, patience=0.5) as runner:
        baseline = runner.open(Workload(task))
        (before,) = list(runner.measure(traces_of(task, 1), baseline))
        assert before.ok
        server.stop()
        found = list(runner.measure(traces_of(task, 3), baseline))
        assert [r.outcome for r in found] == [Outcome.LOST] * 3
        with pytest.raises(RunnerGone, match="no board measures any more") as gone:
            list(runner.measure(traces_of(task, 3), baseline))
    assert gone.value.code == "U041" and gone.value.hint and "goes on" in gone.value.hint


def test_a_search_without_any_board(task: KernelTask) -> None:
    began = time.monotonic()
    with runner_for(board="127.0.0.1:1", secret=KEY, patience=0.5) as runner:
        with pytest.raises(RunnerGone, match="cannot connect"):
            runner.open(Workload(task))
        with pytest.raises(RunnerGone):
            runner.machine()
    assert time.monotonic() - began < LONG


def test_a_board_that_only_lies_is_no_board(
    server: LocalServer, task: KernelTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RemoteKernel, "time", lambda self, *a, repeat=1, **k: (0.0,) * repeat)
    with (
        runner_for(board=server.address, secret=KEY, limits=QUICK, patience=1.0) as runner,
        pytest.raises(RunnerGone, match="it states that a call takes 0 seconds"),
    ):
        runner.open(Workload(task))


def test_a_wrong_key_is_said_at_once(server: LocalServer, task: KernelTask) -> None:
    with runner_for(board=server.address, secret=b"another key of 16 bytes or more", patience=LONG) as runner:
        for ask in (lambda: runner.open(Workload(task)), runner.machine):
            with pytest.raises(UserError) as wrong:
                ask()
            assert wrong.value.code == "N004"


def test_a_kernel_for_another_machine_cannot_be_measured(runner: RemoteRunner) -> None:
    foreign = product(8, 8, 8, target="llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=cortex-a72")
    with pytest.raises(UserError, match="cannot be measured") as error:
        runner.open(Workload(foreign))
    assert error.value.code == "U040"


class LosingRunner:
    """Loses every candidate, or what is measured again."""

    def __init__(self, loses: bool = True) -> None:
        self.loses, self.calls = loses, 0

    def open(self, workload: Workload) -> TrialRecord:
        return timed(None, 1e-3)

    def measure(self, traces: list[Trace], best: TrialRecord) -> list[TrialRecord]:
        self.calls += 1
        lost = self.loses or self.calls > 1
        return [TrialRecord(t, Outcome.LOST) if lost else timed(t, 5e-4, relative=0.5) for t in traces]


class NotingGuide:
    """Notes what it is to learn from."""

    ready = True

    def __init__(self) -> None:
        self.learned: list[Outcome] = []

    def learn(self, trials: list[Trial]) -> None:
        self.learned += [t.record.outcome for t in trials]


@pytest.mark.parametrize("loses", [True, False])
def test_nothing_is_learned_from_what_is_lost(task: KernelTask, tmp_path: Path, loses: bool) -> None:
    guide = NotingGuide()
    with Database(tmp_path / "tuned.db", create=True) as database:
        space, runner = space_of(task), LosingRunner(loses)
        strategy = strategy_named("random")
        tuner = KernelTuner(Workload(task), space, runner, strategy, guide=guide, memory=database)  # type: ignore[arg-type]
        tuner.open()
        trials = tuner.step(4)
        assert tuner.confirm() == []
        outcomes = [t.outcome for t in database.trials(task)]
    assert len(trials) == 4 and Outcome.LOST not in guide.learned and Outcome.LOST not in outcomes
    assert (Outcome.OK in guide.learned) != loses


class GoneRunner:
    """Has no machine."""

    def open(self, workload: Workload) -> TrialRecord:
        raise RunnerGone("all boards are gone")


def test_the_scheduler_does_not_take_it_for_the_fault_of_a_kernel(task: KernelTask) -> None:
    states = [TaskState("a", tuner_of(task, GoneRunner()))]  # type: ignore[arg-type]
    with pytest.raises(RunnerGone):
        TaskScheduler(states, Budget(8)).run()
    assert not states[0].failed


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "U042"),
        ({"board": "a:1", "tracker": "b:1", "key": "k"}, "U042"),
        ({"board": "a:1", "key": "k"}, "U042"),
        ({"board": "a:1", "boards": 2}, "U042"),
        ({"tracker": "a:1"}, "U042"),
        ({"tracker": "a:1", "key": "k", "boards": 0}, "U042"),
        ({"tracker": "a:1", "key": "k", "tls": "/no/such/file"}, "N020"),
        ({"tracker": "nowhere", "key": "k"}, "N031"),
        ({"board": "nowhere"}, "N018"),
        ({"board": "a:1", "secret": "/no/such/file"}, "N003"),
    ],
)
def test_arguments_that_do_not_go_together(given: dict[str, object], code: str) -> None:
    with pytest.raises(UserError) as error:
        runner_for(**({"secret": KEY} | given))  # type: ignore[arg-type]
    assert error.value.code == code and error.value.hint
