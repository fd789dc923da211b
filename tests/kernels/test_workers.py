"""Kernels built by several processes are those that one process builds, whatever happens to the workers."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weft.graph.nodes import Call, Function, Module
from weft.graph.parser import parse
from weft.graph.visit import post_order
from weft.ir.frozen import FrozenMap
from weft.kernels import workers as kernel_workers
from weft.kernels.machine_code import MachineCode, machine_code
from weft.kernels.task import KernelTask
from weft.kernels.workers import Workers
from weft.ops.catalogue import OPERATORS
from weft.pipeline import Options, compile_module, optimize, unscheduled
from weft.schedule.trace import Instruction, Trace
from weft.support.errors import InputError, InternalError, ScheduleError, TargetError
from weft.support.processes import end, start_python
from weft.target import Target

TARGET = Target("cpu")


def chain(count: int) -> Module:
    """``count`` different products over a symbolic dimension."""
    weights = ", ".join(f"%w{i}: f32[{i + 1}, {i + 2}]" for i in range(count))
    lines = "\n".join(f"  %y{i}: f32[n, {i + 2}] = matmul(%{f'y{i - 1}' if i else 'x'}, %w{i})" for i in range(count))
    head = f"def @main<n>(%x: f32[n, 1], {weights}) -> f32[n, {count + 1}]"
    return parse(f"{head} {{\n{lines}\n  return %y{count - 1}\n}}", OPERATORS)


def tasks(count: int, **changes: Any) -> list[KernelTask]:
    fused = optimize(chain(count), TARGET)
    calls = [e.target for e in post_order(fused.main) if isinstance(e, Call)]
    programs = [unscheduled(f)[0] for f in calls if isinstance(f, Function)]
    return [replace(KernelTask(p, TARGET), **changes) for p in programs]


def code_of(module: Module, jobs: int) -> dict[str, bytes]:
    artifact, report = compile_module(module, [TARGET], options=Options(jobs=jobs))
    assert report.built == len(artifact.codes)
    return {k.name: c.variants[0].data for k, c in zip(artifact.program.kernels, artifact.codes, strict=True)}


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "the workers do nothing"
        time.sleep(0.01)


def built(workers: Workers) -> dict[str, MachineCode]:
    return {task.key: made for task, made in workers.results()}


@pytest.fixture
def built_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of what this process builds by itself."""
    keys: list[str] = []

    def counted(task: KernelTask) -> MachineCode:
        keys.append(task.key)
        return machine_code(task)

    monkeypatch.setattr(kernel_workers, "machine_code", counted)
    return keys


def test_the_number_of_processes_changes_no_byte() -> None:
    module = chain(9)
    assert code_of(module, 1) == code_of(module, 4)


def test_workers_and_this_process_build_the_same_code(built_here: list[str]) -> None:
    wanted = tasks(6)
    with Workers(2) as workers:
        for task in wanted:
            workers.submit(task)
        until(lambda: workers._finished.qsize() == len(wanted))
        made = built(workers)
    assert not built_here
    assert made == {t.key: machine_code(t) for t in wanted}


@pytest.mark.parametrize("executable", ["/nowhere/python", "", None, "/usr/bin/true"])
def test_where_no_process_can_be_started(
    executable: str | None, built_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    wanted = tasks(3)
    with Workers(2) as workers:
        for task in wanted:
            workers.submit(task)
        assert len(built(workers)) == len(built_here) == 3


def test_a_program_made_of_python_and_all_is_never_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert start_python("weft.kernels.workers") is None


def test_workers_of_another_version_get_nothing(built_here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_workers, "compiler_fingerprint", lambda: "another")
    with Workers(1) as workers:
        until(lambda: not any(t.is_alive() for t in workers._threads))
        workers.submit(tasks(1)[0])
        assert len(built(workers)) == len(built_here) == 1


def test_the_work_of_a_worker_that_dies_is_done_here() -> None:
    wanted = tasks(6)
    with Workers(1) as workers:
        for task in wanted:
            workers.submit(task)
        until(lambda: len(workers._tasks) < len(wanted))  # it has something
        workers._processes[0].kill()
        assert set(built(workers)) == {t.key for t in wanted}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("step", ["to_text", "send", "receive", "from_bytes"])
@pytest.mark.parametrize("call", [0, 1, 2])
def test_no_task_is_lost_wherever_a_worker_fails(
    step: str, call: int, built_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that has left the queue and is not finished would be waited for without end."""
    owner = {"to_text": KernelTask, "from_bytes": MachineCode}.get(step, kernel_workers)
    right, calls = getattr(owner, step), itertools.count()

    def failing(*args: Any) -> Any:
        if next(calls) == call + (step == "receive"):  # the first receives the fingerprint
            raise MemoryError
        return right(*args)

    monkeypatch.setattr(owner, step, failing)
    wanted = tasks(6)
    with Workers(1) as workers:
        for task in wanted:
            workers.submit(task)
        until(lambda: not workers._threads[0].is_alive() or not workers._tasks)
        assert set(built(workers)) == {t.key for t in wanted}


def test_without_threads_this_process_builds(built_here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(kernel_workers.threading.Thread, "start", refused)
    wanted = tasks(2)
    with Workers(2) as workers:
        for task in wanted:
            workers.submit(task)
        assert len(built(workers)) == len(built_here) == 2
    assert all(p.returncode is not None for p in workers._processes)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes have groups on POSIX systems")
def test_processes_started_by_a_helper_end_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that outlives its worker would hold the pipe that is read until its end."""
    (tmp_path / "starts_another.py").write_text(
        "import subprocess, sys\n"
        "def serve():\n"
        "    subprocess.Popen([sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(600)']).wait()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    process = start_python("starts_another")
    assert process is not None and process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"1\n"
    end(process)
    assert process.stdout.read() == b""  # ends when nobody can write any more
    process.wait()
    process.stdout.close()
    process.stdin.close()


def test_errors_arise_as_without_workers(built_here: list[str]) -> None:
    nonsense = TARGET.replace(arch=TARGET.cpu.replace(triple="nonsense-unknown-none"))
    with Workers(1) as workers:
        workers.submit(tasks(1, target=nonsense)[0])
        until(lambda: not workers._finished.empty())
        with pytest.raises(TargetError, match="nonsense"):
            built(workers)
    assert len(built_here) == 1


def test_tasks_without_a_text_are_built_in_this_process(built_here: list[str]) -> None:
    (task,) = tasks(1)
    note = FrozenMap(origin=frozenset("a type of attribute that has no text"))
    unprintable = replace(task, program=replace(task.program, attrs=note))
    with pytest.raises(InternalError, match="printed"):
        unprintable.to_text()
    with Workers(1) as workers:
        workers.submit(unprintable)
        until(lambda: not workers._finished.empty())
        assert list(built(workers)) == built_here == [unprintable.key]


def test_a_trace_without_a_json_form_has_no_key() -> None:
    with pytest.raises(ScheduleError, match="a trace cannot hold"):
        print(tasks(1, trace=Trace((Instruction("nothing", (("f", lambda: 0),)),)))[0].key)


def test_an_interrupt_ends_the_workers() -> None:
    with pytest.raises(KeyboardInterrupt), Workers(2) as workers:
        for task in tasks(6):
            workers.submit(task)
        until(lambda: len(workers._tasks) < 6)
        raise KeyboardInterrupt
    assert all(p.returncode is not None for p in workers._processes)
    assert not any(t.is_alive() for t in workers._threads)


def test_a_worker_ends_with_its_input() -> None:
    process = start_python("weft.kernels.workers")
    assert process is not None and process.stdin is not None and process.stdout is not None
    process.stdin.close()
    assert process.wait(timeout=120) == 0
    process.stdout.close()


def test_few_kernels_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("started")

    monkeypatch.setattr(kernel_workers, "start_python", refused)
    assert len(code_of(chain(3), 8)) == 3


@pytest.mark.parametrize("jobs", [0, -1, 1.5, "2"])
def test_jobs_are_a_positive_number(jobs: Any) -> None:
    with pytest.raises(InputError, match="jobs"):
        Options(jobs=jobs)
