"""Candidates in a session with a board: what is checked, what is believed, and whose fault a failure is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from boards_kit import LONG, QUICK, SIDE, made_in_c, server_of
from tuned_kernels import product, split_by

from weft.kernels.machine_code import MachineCode, machine_code
from weft.kernels.task import KernelTask
from weft.rpc.errors import LinkError
from weft.rpc.kernel import RemoteKernel
from weft.rpc.local import LocalServer
from weft.rpc.session import Session, connect
from weft.target import Target
from weft.tir.text import parse
from weft.tune.measure.remote_bench import LEAST_SECONDS, BoardFault, Failed, RemoteBench, least_seconds
from weft.tune.measure.runner import Workload
from weft.tune.record import Outcome, TrialRecord


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], MachineCode]:
    return made_in_c(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def session(server: LocalServer) -> Iterator[Session]:
    with server.connect() as made:
        yield made


Try = Callable[[str], TrialRecord | Failed]


@pytest.fixture
def attempt(session: Session, task: KernelTask, in_c: Callable[[str], MachineCode]) -> Try:
    """What comes of a kernel in C beside the default schedule."""
    default = machine_code(task)
    bench = RemoteBench(session, Workload(task), default, QUICK)
    return lambda name: bench.trial(split_by(task, 2 + sum(map(ord, name)) % 97), in_c(name), None, default)


def test_a_right_kernel_is_timed(attempt: Try) -> None:
    record = attempt("right")
    assert isinstance(record, TrialRecord) and record.ok
    assert record.seconds is not None and 0 < record.seconds < 1e-3
    assert record.relative is not None and 0.01 < record.relative < 1000
    assert len(record.samples) >= 3


@pytest.mark.parametrize(
    ("name", "said"),
    [("wrong", "its results differ"), ("beyond", "writes outside of its results"), ("reports", "reported error 7")],
)
def test_wrong_kernels(attempt: Try, name: str, said: str) -> None:
    found = attempt(name)
    assert isinstance(found, Failed) and found.outcome is Outcome.WRONG
    assert said in found.message and not found.blame and not found.over
    assert isinstance(attempt("right"), TrialRecord), "the session goes on"


def test_a_kernel_that_is_not_there(attempt: Try) -> None:
    found = attempt("nowhere")
    assert isinstance(found, Failed) and found.outcome is Outcome.FAILED and not found.over


def test_a_crash_is_the_fault_of_the_candidate(attempt: Try) -> None:
    found = attempt("crashes")
    assert isinstance(found, Failed) and found.outcome is Outcome.CRASHED
    assert found.over and not found.blame


def test_a_kernel_that_does_not_end(program: Path, task: KernelTask, in_c: Callable[[str], MachineCode]) -> None:
    default = machine_code(task)
    with server_of([str(program)], "--request-seconds", "1") as server, server.connect() as session:
        bench = RemoteBench(session, Workload(task), default, QUICK)
        found = bench.trial(split_by(task, 4), in_c("hangs"), None, default)
    assert isinstance(found, Failed) and found.outcome is Outcome.TIMEOUT and found.over and not found.blame


def test_the_limit_is_the_client_s_where_it_is_less(
    server: LocalServer, task: KernelTask, in_c: Callable[[str], MachineCode]
) -> None:
    with connect(server.address, server._key, timeout=1, code_seconds=1) as session:
        assert session.machine.request_seconds == 1
        kernel = session.kernel(in_c("hangs"))
        with pytest.raises(LinkError) as late:
            kernel.run()
    assert late.value.code == "N007"


def test_a_slow_kernel_is_not_measured_further(attempt: Try) -> None:
    found = attempt("slow")
    assert isinstance(found, TrialRecord) and found.outcome is Outcome.SLOW
    assert len(found.samples) == 1 and found.relative is None


@pytest.mark.parametrize("seconds", [0.0, -1e-6, 1e-12, math.nan, math.inf])
def test_times_that_cannot_be_are_not_believed(attempt: Try, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(RemoteKernel, "time", lambda self, *a, repeat=1, **k: (seconds,) * repeat)
    found = attempt("right")
    assert isinstance(found, Failed) and found.outcome is Outcome.LOST
    assert found.over and "cannot be" in found.blame


def test_times_that_are_not_repeatable(attempt: Try, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(10**6))  # of the candidate and of the default schedule in turns
    monkeypatch.setattr(
        RemoteKernel, "time", lambda self, *a, repeat=1, **k: (1e-6 * 50 ** (next(calls) // 4 % 2),) * repeat
    )
    found = attempt("right")
    assert isinstance(found, Failed) and found.outcome is Outcome.LOST and "repeatable" in found.blame


def test_a_board_that_lies_of_the_default_schedule(
    session: Session, task: KernelTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RemoteKernel, "time", lambda self, *a, repeat=1, **k: (0.0,) * repeat)
    with pytest.raises(BoardFault, match="cannot be"):
        RemoteBench(session, Workload(task), machine_code(task), QUICK)


def test_no_call_is_faster_than_the_cores_can_compute() -> None:
    small, large = (least_seconds(Workload(product(n, n, n))) for n in (4, 512))
    assert small == LEAST_SECONDS
    assert 1e-5 < large < 2 * 512**3 / 1e11, "128 million products in less than a hundredth of a second per core"
    several = least_seconds(Workload(product(512, 512, 512), threads=4))
    assert several == pytest.approx(large / 4)


def test_open_sizes_are_measured_with_their_values(session: Session) -> None:
    text = f"""program "twice"[n](x: f32[n, {SIDE}]) -> (out: f32[n, {SIDE}]):
  for i in serial(0, n):
    for j in serial(0, {SIDE}):
      block "out"(y: spatial n = i, z: spatial {SIDE} = j):
        reads x[y, z]
        writes out[y, z]
        body:
          out[y, z] = x[y, z] + x[y, z]
"""
    task = KernelTask(parse(text), Target(session.target()))
    bench = RemoteBench(session, Workload(task, 1, ((3,), (1000,))), machine_code(task), QUICK)
    assert bench.baseline.ok and bench.baseline.samples[1] > bench.baseline.samples[0]
    assert len(bench.baseline.samples) == 2


def test_a_server_that_is_gone_is_at_fault(program: Path, task: KernelTask, in_c: Callable[[str], Any]) -> None:
    default = machine_code(task)
    with server_of([str(program)]) as server, server.connect(timeout=LONG) as session:
        bench = RemoteBench(session, Workload(task), default, QUICK)
        server.stop()
        found = bench.trial(split_by(task, 4), in_c("right"), None, default)
    assert isinstance(found, Failed) and found.outcome is Outcome.LOST and found.over and found.blame
