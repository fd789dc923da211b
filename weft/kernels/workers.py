"""Kernels built by several processes: LLVM and Python allow one thread at a time.

The compiling process hands out tasks and also builds kernels itself, so nothing depends on the workers. If no worker
can be started, it builds everything. If a worker fails or dies, it builds the kernel, so errors are raised as without
workers. Every process builds a task to the same bytes. ``weft.support.processes`` starts workers and talks to them.

A worker reads the texts of tasks (:meth:`KernelTask.to_text`) from its standard input until that ends. To its standard
output it writes the compiler's fingerprint and then, for each task in order, the bytes of its :class:`MachineCode`, or
no bytes if it could not build it.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Self

from weft.kernels.machine_code import MachineCode, machine_code
from weft.kernels.task import KernelTask
from weft.support.errors import WeftError
from weft.support.fingerprint import compiler_fingerprint
from weft.support.garbage import seldom_collected
from weft.support.processes import end, receive, send, start_python

MAX_WORKERS: Final = 8
"""Processes that build kernels. Each takes about 100 MB of memory."""


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
        self._processes = [p for p in (start_python(__name__) for _ in range(min(count, MAX_WORKERS))) if p is not None]
        self._threads: list[threading.Thread] = []
        for process in self._processes:
            thread = threading.Thread(target=self._supply, args=(process,), daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system gives no more threads; the process is not used
                break
            self._threads.append(thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for process in self._processes:
            end(process)
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

    def results(
        self, failed: Callable[[KernelTask, WeftError], None] | None = None
    ) -> Iterator[tuple[KernelTask, MachineCode]]:
        """All submitted tasks, each when it is finished. ``failed`` gets the tasks that cannot be built, which are left
        out unless it raises; without it, the errors of building are raised."""
        while self._outstanding:
            try:
                task, made = self._finished.get_nowait()
            except queue.Empty:
                found = self._take()
                task, made = (found, None) if found is not None else self._finished.get()
            self._outstanding -= 1
            try:
                made = machine_code(task) if made is None else made
            except WeftError as error:
                if failed is None:
                    raise
                failed(task, error)
            else:
                yield task, made

    def _take(self) -> KernelTask | None:
        with self._changed:
            return self._tasks.popleft() if self._tasks else None

    def _hold_next(self, held: deque[KernelTask]) -> bool:
        """Wait for a task and add it to ``held``; False when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._tasks or self._closed)
            if not self._closed:
                held.append(self._tasks.popleft())
            return not self._closed

    def _hold_more(self, held: deque[KernelTask]) -> bool:
        """Add a task to send before the last answer has arrived, if enough tasks are left for all processes."""
        with self._changed:
            enough = len(self._tasks) > len(self._processes)
            if enough:
                held.append(self._tasks.popleft())
            return enough

    def _supply(self, process: subprocess.Popen[bytes]) -> None:
        """Send tasks to a worker, one ahead of its answers, until there are no more or the worker has ended.

        A task that leaves the queue is in ``held`` until it is finished: whatever fails, none is lost, for
        :meth:`results` waits for each of them."""
        held: deque[KernelTask] = deque()
        try:
            if receive(process.stdout) != compiler_fingerprint().encode():
                return
            while True:
                if not held:
                    if not self._hold_next(held):
                        return
                    self._send(process, held)
                if self._hold_more(held):
                    self._send(process, held)
                if held:
                    answer = receive(process.stdout)
                    made = MachineCode.from_bytes(answer) if answer else None
                    self._finished.put((held.popleft(), made))
        except Exception:  # the worker has ended, or is of another version: this process builds its tasks
            return
        finally:
            while held:
                self._finished.put((held.popleft(), None))

    def _send(self, process: subprocess.Popen[bytes], held: deque[KernelTask]) -> None:
        """Send the last of ``held``; if it has no text, this process builds it."""
        task = held[-1]
        try:
            # workers know no plugins
            data = None if task.maker.origin else task.to_text().encode()
        except WeftError:  # an annotation of a type that has no text
            data = None
        if data is None:
            self._finished.put((held.pop(), None))
        else:
            send(process.stdin, data)


def serve() -> None:
    """What a worker does: read tasks, write machine code (nothing for those that it cannot build)."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr

    # A thread reads while kernels are built, so that the two processes never block on each other's full pipe.
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(tasks,), daemon=True).start()
    send(answers, compiler_fingerprint().encode())
    with seldom_collected():
        while data := tasks.get():
            try:
                made = machine_code(KernelTask.from_text(data.decode())).to_bytes()
            except Exception:  # the compiling process builds the task again and raises the error
                made = b""
            send(answers, made)


def _read(tasks: queue.SimpleQueue[bytes]) -> None:
    with contextlib.suppress(EOFError):
        while True:
            tasks.put(receive(sys.stdin.buffer))
    tasks.put(b"")
