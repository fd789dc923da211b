"""Kernels are built in processes of their own while others are measured elsewhere.

The processes are those of :mod:`weft.kernels.workers`. A candidate on which the compiler hangs or crashes costs one of
them, and is the only one that fails.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
import time
from concurrent.futures import Future
from typing import Final, Self

from weft.kernels.machine_code import MachineCode, machine_code
from weft.kernels.task import KernelTask
from weft.support.errors import ScheduleError, WeftError
from weft.support.fingerprint import compiler_fingerprint
from weft.support.processes import end, receive_within, send, start_python
from weft.tune.measure.bench import first_line
from weft.tune.measure.builder import Built
from weft.tune.record import Outcome

START_SECONDS: Final = 60.0
"""Time limit for a process to start."""

ENDED: Final = (Outcome.FAILED, "building was ended")
_compiling = threading.Lock()
"""LLVM allows one thread at a time."""


class Builders:
    """A :class:`~weft.tune.measure.builder.Builder` of this machine: ``count`` threads, each with a process that
    builds; ``seconds`` is the time limit for one kernel.

    Where no process can be started, kernels are built in this one, without a limit. Use it in a ``with`` statement.
    """

    def __init__(self, count: int, seconds: float) -> None:
        self._count, self._seconds = max(1, count), seconds
        self._asked: queue.SimpleQueue[tuple[KernelTask, float, Future[Built]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def build(self, task: KernelTask, seconds: float | None = None) -> Future[Built]:
        """Have ``task`` built by one of the threads, which calls what waits for the future."""
        future: Future[Built] = Future()
        if len(self._threads) < self._count:
            thread = threading.Thread(target=self._run, name="building kernels", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._asked.put((task, min(self._seconds, seconds or self._seconds), future))
        return future

    def close(self) -> None:
        """End the processes. What was asked for and is not built stays unbuilt."""
        self._closed.set()
        for _ in self._threads:
            self._asked.put(None)
        for process in list(self._processes):
            end(process)
        for thread in self._threads:
            thread.join()
        with contextlib.suppress(queue.Empty):
            while True:
                left = self._asked.get_nowait()
                if left is not None:
                    left[2].cancel()

    def _run(self) -> None:
        process: subprocess.Popen[bytes] | None = None
        while not self._closed.is_set():
            asked = self._asked.get()
            if asked is None:
                break
            if self._closed.is_set():
                asked[2].cancel()
                break
            task, seconds, future = asked
            if not future.set_running_or_notify_cancel():
                continue
            made: Built = ENDED
            if process is None:
                process = self._started()
            if not self._closed.is_set():  # else the kernel would be built here, while close waits
                made, process = self._built(task, process, seconds)
            future.set_result(ENDED if self._closed.is_set() else made)
        self._ended(process)

    def _started(self) -> subprocess.Popen[bytes] | None:
        process = start_python("weft.kernels.workers")
        if process is None:
            return None
        self._processes.add(process)
        if self._closed.is_set():  # close may have looked for processes before
            end(process)
        with contextlib.suppress(EOFError, OSError):  # TimeoutError is an OSError
            if receive_within(process.stdout, time.monotonic() + START_SECONDS) == compiler_fingerprint().encode():
                return process
        self._ended(process)
        return None

    def _ended(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is None:
            return
        self._processes.discard(process)
        end(process)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # data that was not written is not needed any more
                pipe.close()  # type: ignore[union-attr]  # both are pipes

    def _built(
        self, task: KernelTask, process: subprocess.Popen[bytes] | None, seconds: float
    ) -> tuple[Built, subprocess.Popen[bytes] | None]:
        """What building gave, and the process if it can build another kernel."""
        if process is None:
            return built_here(task), None
        try:
            send(process.stdin, task.to_text().encode())
            answer = receive_within(process.stdout, time.monotonic() + seconds)
            made = MachineCode.from_bytes(answer) if answer else built_here(task)  # again, for the error
            return made, process
        except TimeoutError:
            self._ended(process)
            return (Outcome.TIMEOUT, f"it is not built within {seconds:.3g} seconds"), None
        except (EOFError, OSError, ValueError, KeyError, TypeError):
            self._ended(process)
            return (Outcome.FAILED, "the process that builds it ended"), None
        except Exception as error:  # an annotation without a text, or a mistake: nobody else would tell of the kernel
            return (Outcome.FAILED, first_line(error)), process


def built_here(task: KernelTask) -> Built:
    """Build a kernel in this process."""
    try:
        with _compiling:
            return machine_code(task)
    except ScheduleError as error:
        return Outcome.REFUSED, first_line(error)
    except (WeftError, ValueError, MemoryError) as error:
        return Outcome.FAILED, first_line(error)
