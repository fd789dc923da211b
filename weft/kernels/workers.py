"""Kernels built by several processes: LLVM and Python allow one thread at a time.

The compiling process hands out tasks and also builds kernels itself, so nothing depends on the workers. If no worker
can be started, it builds everything. If a worker fails or dies, it builds the kernel, so errors are raised as without
workers. Every process builds a task to the same bytes. A worker is a fresh interpreter: no fork, because the caller may
have threads, and no second run of the caller's main module.

A worker reads the texts of tasks (:meth:`KernelTask.to_text`) from its standard input until that ends. To its standard
output it writes the compiler's fingerprint and then, for each task in order, the bytes of its :class:`MachineCode`, or
no bytes if it could not build it. Every message has its length before it, in eight bytes (little-endian).
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, Self

from weft.kernels.machine_code import MachineCode, machine_code
from weft.kernels.task import KernelTask
from weft.support.errors import WeftError
from weft.support.fingerprint import compiler_fingerprint
from weft.support.garbage import seldom_collected

MAX_WORKERS: Final = 8
"""Processes that build kernels. Each takes about 100 MB of memory."""

_LENGTH_BYTES: Final = 8
"""Bytes of the length before each message."""

_CODE: Final = "import sys; sys.path[:] = {path!r}; from weft.kernels.workers import serve; serve()"


class Workers:
    """Builds what is submitted, with up to ``count`` processes besides this one.

    Use it in a ``with`` statement. The end of the statement ends the processes, even if they are still working.
    """

    def __init__(self, count: int) -> None:
        self._tasks: deque[KernelTask] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._outstanding = 0
        self._finished: queue.SimpleQueue[tuple[KernelTask, MachineCode | None]] = queue.SimpleQueue()
        self._processes = [p for p in (_start() for _ in range(min(count, MAX_WORKERS))) if p is not None]
        self._threads = [threading.Thread(target=self._supply, args=(p,), daemon=True) for p in self._processes]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for process in self._processes:
            process.kill()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):  # data that was not written is not needed any more
                    pipe.close()  # type: ignore[union-attr]  # both are pipes

    def submit(self, task: KernelTask) -> None:
        """Have ``task`` built."""
        with self._changed:
            self._tasks.append(task)
            self._outstanding += 1
            self._changed.notify()

    def results(self) -> Iterator[tuple[KernelTask, MachineCode]]:
        """All submitted tasks, each when it is finished. Raises the errors of building."""
        while self._outstanding:
            try:
                task, made = self._finished.get_nowait()
            except queue.Empty:
                found = self._take()
                task, made = (found, None) if found is not None else self._finished.get()
            made = machine_code(task) if made is None else made
            self._outstanding -= 1
            yield task, made

    def _take(self) -> KernelTask | None:
        with self._changed:
            return self._tasks.popleft() if self._tasks else None

    def _wait(self) -> KernelTask | None:
        """The next task; None when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._tasks or self._closed)
            return None if self._closed else self._tasks.popleft()

    def _more(self) -> KernelTask | None:
        """A task to send before the last answer has arrived, if enough tasks are left for all processes."""
        with self._changed:
            return self._tasks.popleft() if len(self._tasks) > len(self._processes) else None

    def _supply(self, process: subprocess.Popen[bytes]) -> None:
        """Send tasks to a worker, one ahead of its answers, until there are no more or the worker has ended."""
        sent: deque[KernelTask] = deque()
        try:
            if _receive(process.stdout) != compiler_fingerprint().encode():
                return
            while True:
                if not sent:
                    task = self._wait()
                    if task is None:
                        return
                    self._send(process, task, sent)
                ahead = self._more()
                if ahead is not None:
                    self._send(process, ahead, sent)
                if sent:
                    answer = _receive(process.stdout)
                    made = MachineCode.from_bytes(answer) if answer else None
                    self._finished.put((sent.popleft(), made))
        except Exception:  # the worker has ended, or is of another version: this process builds its tasks
            return
        finally:
            for task in sent:
                self._finished.put((task, None))

    def _send(self, process: subprocess.Popen[bytes], task: KernelTask, sent: deque[KernelTask]) -> None:
        """Send ``task``; if it has no text, this process builds it."""
        if task.maker.origin:
            self._finished.put((task, None))  # workers know no plugins
            return
        try:
            data = task.to_text().encode()
        except WeftError:  # an annotation of a type that has no text
            self._finished.put((task, None))
            return
        sent.append(task)
        assert process.stdin is not None
        _write(process.stdin, data)


def _start() -> subprocess.Popen[bytes] | None:
    """A worker, or None where this process does not run under a plain Python interpreter or may start none."""
    if getattr(sys, "frozen", False) or "python" not in Path(sys.executable or "").name.lower():
        return None
    path = [*sys.path, str(Path(__file__).parent.parent)]  # weft may come from an import hook and not be on the path
    try:
        return subprocess.Popen(
            [sys.executable, "-S", "-c", _CODE.format(path=path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the process that compiles, which ends this one
        )
    except OSError:
        return None


def _receive(pipe: IO[bytes] | None) -> bytes:
    """The next message. Raises EOFError at the end."""
    assert pipe is not None
    size = pipe.read(_LENGTH_BYTES)
    if len(size) < _LENGTH_BYTES:
        raise EOFError
    return pipe.read(int.from_bytes(size, "little"))


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
    pipe.flush()


def serve() -> None:
    """What a worker does: read tasks, write machine code (nothing for those that it cannot build)."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr

    # A thread reads while kernels are built, so that the two processes never block on each other's full pipe.
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(tasks,), daemon=True).start()
    _write(answers, compiler_fingerprint().encode())
    with seldom_collected():
        while data := tasks.get():
            try:
                made = machine_code(KernelTask.from_text(data.decode())).to_bytes()
            except Exception:  # the compiling process builds the task again and raises the error
                made = b""
            _write(answers, made)


def _read(tasks: queue.SimpleQueue[bytes]) -> None:
    source = sys.stdin.buffer
    while len(size := source.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
        tasks.put(source.read(int.from_bytes(size, "little")))
    tasks.put(b"")
