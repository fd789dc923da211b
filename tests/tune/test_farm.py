"""Searches on several boards at a tracker, some of which fail: emulated AArch64, ARMv7 and RISC-V, and this machine."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from boards_kit import (
    KEY,
    LONG,
    QUICK,
    TRACKING,
    emulated_program,
    eventually,
    kill,
    server_of,
    traces_of,
    tuner_of,
)
from tuned_kernels import product

import weft
import weft.rpc
from weft.kernels.task import KernelTask
from weft.rpc.auth import KEY_VARIABLE
from weft.rpc.kernel import RemoteKernel
from weft.rpc.local import LocalServer
from weft.rpc.session import split_address
from weft.rpc.tracker.running import RunningTracker, running_tracker
from weft.target import Target
from weft.tune import turns
from weft.tune.database import Database
from weft.tune.kernel_tuner import KernelTuner
from weft.tune.measure import boards
from weft.tune.measure.inputs import inputs_of
from weft.tune.measure.remote import RemoteRunner, runner_for
from weft.tune.measure.runner import Workload
from weft.tune.model_tuner import ModelTuner
from weft.tune.record import Outcome
from weft.tune.scheduler import Budget
from weft.tune.search import strategy_named
from weft.tune.sketches import space_of

KINDS = {
    "aarch64": ("llvm -mcpu=cortex-a72", ("qemu-aarch64-static", "-cpu", "cortex-a72")),
    "armv7": ("llvm -mcpu=cortex-a7", ("qemu-arm-static", "-cpu", "cortex-a7")),
    "riscv64": ("llvm -mcpu=generic-rv64", ("qemu-riscv64-static", "-cpu", "rv64,v=true,vlen=128,vext_spec=v1.0")),
}
SIDE = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture
def tracker() -> Iterator[RunningTracker]:
    with running_tracker(KEY, limits=TRACKING) as running:
        yield running


class BadNetwork:
    """Passes connections on to a board, and breaks them: ``loss`` is the share of the pieces that the board sends after
    which the connection ends; while ``hangs``, nothing passes any more."""

    def __init__(self, loss: float = 0.0, seed: int = 1) -> None:
        self.loss, self.hangs, self.behind = loss, False, ("", 0)
        self.broken = 0
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                front = self._listener.accept()[0]
                back = socket.create_connection(self.behind, LONG)
            except OSError:
                return
            for one in (front, back):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pass_on, args=(front, back, False), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(back, front, True), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if is_answer and self._random.random() < self.loss:
                    self.broken += 1
                    break
                while self.hangs:
                    time.sleep(0.05)
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


Board = Callable[..., LocalServer]


@pytest.fixture
def board(tracker: RunningTracker) -> Iterator[Board]:
    """``board(command, key, name, network)``: a server that registers at the tracker."""
    servers: list[LocalServer] = []
    networks: list[BadNetwork] = []

    def start(command: list[str], key: str, name: str, network: BadNetwork | None = None) -> LocalServer:
        words = ["--tracker", tracker.address, "--board-key", key, "--name", name]
        if network is not None:
            words += ["--public-port", str(network.port)]
            networks.append(network)
        servers.append(server_of(command, *words))
        if network is not None:
            network.behind = split_address(servers[-1].address)
        eventually(lambda: [b for b in tracker.status.boards if b.name == name and b.state == "ready"])
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
    for network in networks:
        network.close()


def task_of(tracker: RunningTracker, key: str) -> KernelTask:
    """A product for the boards of a key."""
    with runner_for(tracker=tracker.address, key=key, secret=KEY, patience=LONG) as runner:
        return product(SIDE, SIDE, SIDE, target=runner.machine().target())


def runner_at(tracker: RunningTracker, key: str, boards: int, patience: float = LONG, name: str = "t") -> RemoteRunner:
    return runner_for(
        tracker=tracker.address, key=key, boards=boards, secret=KEY, limits=QUICK, patience=patience, name=name
    )


# ---- boards of three kinds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_survives_a_board_that_loses_jobs(
    kind: str, tracker: RunningTracker, board: Board, folder: Path, tmp_path: Path
) -> None:
    """Two boards of a kind, of which one breaks a part of its connections."""
    command = emulated_program(folder, kind, *KINDS[kind])
    board(command, kind, "good")
    task = task_of(tracker, kind)
    network = BadNetwork()
    board(command, kind, "bad", network)
    network.loss = 0.02  # of answers: a job has about ten
    with Database(tmp_path / "tuned.db", create=True) as database, runner_at(tracker, kind, 2) as runner:
        tuner = tuner_of(task, runner, database)
        tuner.open()
        trials = tuner.step(8)
        while not network.broken and len(trials) < 80:
            trials += tuner.step(8)
        lost = [t.record for t in trials if t.record.outcome is Outcome.LOST]
        stored = [r for r in database.trials(task) if r.trace_text is not None]
        kept = [r for r in stored if not r.run.endswith("confirmed")]  # what looks best is measured again
        measured = [t for t in trials if t.record.trace is not None and t.record.outcome is not Outcome.LOST]
    assert network.broken, "the board lost nothing"
    assert len(kept) == len(measured) >= len(trials) // 2
    assert all("(on bad)" in r.message for r in lost)
    assert sum(t.record.ok for t in trials) >= 4
    good, bad = (next(b for b in tracker.status.boards if b.name == n) for n in ("good", "bad"))
    assert good.lost == 0
    assert bad.lost >= len(lost)


def test_boards_share_the_candidates(tracker: RunningTracker, board: Board, program: Path) -> None:
    for name in ("one", "two", "three"):
        board([str(program)], "this", name)
    task = task_of(tracker, "this")
    with runner_at(tracker, "this", 3) as runner:
        tuner = tuner_of(task, runner)
        tuner.open()
        told = {t.record.message for _ in range(3) for t in tuner.step(8) if t.record.ok}
        assert {b.state for b in tracker.status.boards} == {"in use"}
    assert len(told) >= 2
    eventually(lambda: all(b.done and not b.in_use for b in tracker.status.boards))


def test_a_board_that_hangs_costs_what_it_has(
    tracker: RunningTracker, board: Board, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = BadNetwork()
    board([str(program)], "this", "hanging", network)
    board([str(program)], "this", "well")
    task = task_of(tracker, "this")
    monkeypatch.setattr(boards, "ANSWER_SECONDS", 0.5)
    with runner_at(tracker, "this", 2) as runner:
        baseline = runner.open(Workload(task))
        list(runner.measure(traces_of(task, 4), baseline))
        network.hangs = True
        found = list(runner.measure(traces_of(task, 6), baseline))
        network.hangs = False
    late = [r for r in found if not r.ok]
    assert len(late) <= 1 and all(r.outcome in (Outcome.LOST, Outcome.TIMEOUT) for r in late)
    assert all("hanging" in r.message for r in late)


def test_a_board_that_lies_gives_no_times(
    tracker: RunningTracker, board: Board, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("liar", "honest"):
        board([str(program)], "this", name)
    task = task_of(tracker, "this")
    honest = RemoteKernel.time

    def stated(self: RemoteKernel, *buffers: Any, repeat: int = 1, **given: Any) -> tuple[float, ...]:
        if self._machine.name == "liar":
            return (-1e-9,) * repeat
        return honest(self, *buffers, repeat=repeat, **given)

    monkeypatch.setattr(RemoteKernel, "time", stated)
    with runner_at(tracker, "this", 2) as runner:
        baseline = runner.open(Workload(task))
        found = list(runner.measure(traces_of(task, 6), baseline))
        eventually(lambda: next(b for b in tracker.status.boards if b.name == "liar").lost)
    assert [r.outcome for r in found] == [Outcome.OK] * 6
    assert {r.message for r in (baseline, *found)} == {"on honest"}


def test_a_board_that_computes_wrongly_measures_nothing(
    tracker: RunningTracker, board: Board, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Always alike: its results for all schedules agree, and are not those of this machine."""
    for name in ("wrong", "right"):
        board([str(program)], "this", name)
    task = task_of(tracker, "this")
    honest = RemoteKernel.run

    def computed(self: RemoteKernel, *buffers: Any, **given: Any) -> None:
        honest(self, *buffers, **given)
        if self._machine.name == "wrong":
            honest(self, buffers[-1], buffers[1], buffers[-1], **given)

    monkeypatch.setattr(RemoteKernel, "run", computed)
    with runner_at(tracker, "this", 2) as runner:
        baseline = runner.open(Workload(task))
        found = list(runner.measure(traces_of(task, 6), baseline))
        eventually(lambda: next(b for b in tracker.status.boards if b.name == "wrong").lost)
    assert {r.message for r in (baseline, *found)} == {"on right"}
    assert next(b for b in tracker.status.boards if b.name == "right").lost == 0


def test_the_queue_explains_itself(tracker: RunningTracker, board: Board, program: Path) -> None:
    """Two searches and one board: the second waits, with a reason, and gets it when the first ends."""
    board([str(program)], "this", "only")
    task = task_of(tracker, "this")
    ended: list[Outcome] = []

    def second() -> None:
        with runner_at(tracker, "this", 1, name="second") as runner:
            ended.append(runner.open(Workload(task)).outcome)

    with runner_at(tracker, "this", 1, name="first") as runner:
        runner.open(Workload(task))
        waiting = threading.Thread(target=second)
        waiting.start()
        (row,) = eventually(lambda: tracker.status.queue)
        assert row.name == "second" and "1 in use: only (first for" in row.reason
    waiting.join(LONG)
    assert ended == [Outcome.OK]


# ---- a whole model ---------------------------------------------------------------------------------------------------


def convolution() -> onnx.ModelProto:
    """A convolution with constant weights."""
    weights = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32)
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    sides = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 8, 6, 6]) for n in "xy"]
    graph = onnx.helper.make_graph([node], "conv", sides[:1], sides[1:], [onnx.numpy_helper.from_array(weights, "w")])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


def test_a_model_is_tuned_and_checked_on_a_board(
    tracker: RunningTracker, board: Board, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Emulated time must not be longer; it says little, but the models are compared by it."""
    monkeypatch.setattr(turns, "TURNS", 3)
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.02)
    board(emulated_program(folder, "aarch64", *KINDS["aarch64"]), "pi", "pi")
    with Database(tmp_path / "tuned.db", create=True) as database, runner_at(tracker, "pi", 1) as runner:
        target = Target(runner.machine().target())
        options = weft.Options(winograd=False)
        model = ModelTuner(weft.load(convolution()), target, runner, database, Budget(4), options=options)
        tuned = model.search()
        verdicts = model.check(tuned, [[np.ones((1, 8, 6, 6), np.float32)]])
        kernels = [s for s in model.scheduler.tasks if not s.failed]
        assert len(kernels) == len(model.kernels) and sum(s.trials for s in kernels) == 4
        assert set(verdicts.accepted) | set(verdicts.refused) == set(tuned.best)
    assert verdicts.after > 0
    assert not verdicts.accepted or verdicts.after <= verdicts.before
    assert tracker.status.boards[0].lost == 0


def test_a_convolution_tuned_for_a_board_executes_fewer_instructions(
    tracker: RunningTracker, board: Board, folder: Path
) -> None:
    """The search counts, since emulated time is that of the arithmetic, which all schedules share. Both schedules run
    on the board and agree."""
    pytest.importorskip("unicorn")
    from benchmarks.instructions import InstructionRunner, convolution

    board(emulated_program(folder, "aarch64", *KINDS["aarch64"]), "pi", "pi")
    with weft.rpc.request(tracker.address, "pi", secret=KEY, timeout=LONG) as lease:
        session = lease.connect()
        task = convolution(8, 8, 6, 3, 1, 1, session.target())
        tuner = KernelTuner(Workload(task), space_of(task), InstructionRunner(), strategy_named("random"))
        tuner.open()
        while tuner.speedup < 1.1 and len(tuner.history.trials) < 60:  # a fifth of all schedules are so good
            tuner.step(4)
        assert tuner.speedup >= 1.1 and tuner.best.trace is not None
        inputs = inputs_of(task.program, {})
        results = []
        for chosen in (task, task.with_trace(tuner.best.trace)):
            result = np.zeros([int(d) for d in task.program.params[-1].shape], np.float32)
            session.kernel(chosen).run(*inputs, result)
            results.append(result)
        np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-4)
        assert np.abs(results[0]).max() > 1


# ---- kill -9 ---------------------------------------------------------------------------------------------------------

TUNER = """
import sys
sys.path[:0] = {path!r}
from boards_kit import KEY, QUICK, tuner_of
from weft.kernels.task import KernelTask
from weft.tune.database import Database
from weft.tune.measure.remote import runner_for
task = KernelTask.from_text({task!r})
with Database({file!r}, create=True) as database, runner_for(
    tracker={tracker!r}, key="this", boards=2, secret=KEY, limits=QUICK, patience=60.0
) as runner:
    tuner = tuner_of(task, runner, database, seed=int(sys.argv[1]))
    tuner.open()
    print("begins", len(tuner.history.trials), flush=True)
    for _ in range(int(sys.argv[2])):
        tuner.step(4)
        print("step", flush=True)
    print("done", flush=True)
"""


def start_tuner(task: KernelTask, tracker: str, file: Path, seed: int, steps: int) -> subprocess.Popen[str]:
    """A search in a process of its own."""
    code = TUNER.format(path=sys.path, task=task.to_text(), file=str(file), tracker=tracker)
    words = [sys.executable, "-c", code, str(seed), str(steps)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, KEY_VARIABLE: KEY.decode()})


def line_of(process: subprocess.Popen[str], word: str) -> str:
    """The next line that begins with ``word``."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return line
    raise AssertionError(f"the search ended before it said '{word}'")


def start_tracker(port: int) -> subprocess.Popen[str]:
    code = "import sys; from weft.cli.main import main; main(sys.argv[1:])"
    limits = ["--settle-seconds", "0.5", "--heartbeat-seconds", "0.5", "--rest-seconds", "0.2"]
    words = [sys.executable, "-c", code, "rpc-tracker", "--no-page", "--port", str(port), *limits]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, KEY_VARIABLE: KEY.decode()},
    )
    line_of(process, "")
    return process


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_everything_is_killed(program: Path, tmp_path: Path) -> None:
    """A tracker, a server and the tuner itself end without a word; the search ends, and its database is whole."""
    port, file, chance = free_port(), tmp_path / "tuned.db", random.Random(3)
    address = f"127.0.0.1:{port}"
    tracker = start_tracker(port)
    running: list[LocalServer] = []
    processes: list[subprocess.Popen[str]] = [tracker]
    try:
        words = ("--tracker", address, "--board-key", "this", "--name")
        running += [server_of([str(program)], *words, name) for name in ("a", "b")]
        with weft.rpc.request(address, "this", secret=KEY, timeout=LONG) as lease:
            task = product(SIDE, SIDE, SIDE, target=lease.connect().target())

        first = start_tuner(task, address, file, 0, 1000)
        processes.append(first)
        line_of(first, "step")
        time.sleep(chance.uniform(0.0, 0.3))
        kill(first.pid)
        first.wait()
        with Database(file) as database:
            before = len(database.trials(task))
        assert before >= 4

        second = start_tuner(task, address, file, 1, 6)
        processes.append(second)
        assert int(line_of(second, "begins").split()[1]) > 0, "it goes on where the first one was"
        line_of(second, "step")
        time.sleep(chance.uniform(0.0, 0.3))
        kill(running[0].pid)
        line_of(second, "step")
        time.sleep(chance.uniform(0.0, 0.3))
        kill(tracker.pid)
        tracker.wait()
        running.append(server_of([str(program)], *words, "c"))
        processes.append(start_tracker(port))
        line_of(second, "done")
        assert second.wait(LONG) == 0
        with Database(file) as database:
            after = database.trials(task)
        assert len(after) > before
        assert {t.outcome for t in after} <= set(Outcome) - {Outcome.LOST}
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        for server in running:
            server.stop()
