"""Machine code of many kernels at once. LLVM holds a lock for each process, so the helpers are processes.

A helper is a fresh Python that reads jobs from its standard input: nothing is inherited from a caller that may have
threads, and no script runs twice. It dies with the call, and if LLVM aborts, it dies alone.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock, Thread
from typing import IO, TypeAlias

from weft.codegen.llvm.backend import compile_object
from weft.support.errors import InternalError
from weft.target import Target

Job: TypeAlias = "tuple[str, Target]"
"""LLVM IR and the target it is for."""

WORTH_IT = 8
"""Kernels from which on starting a helper (about 0.2 s) pays."""
_START = "import sys; sys.path.insert(0, sys.argv[1]); from weft.codegen.llvm.parallel import serve; serve()"


def compile_objects(jobs: Sequence[Job], opt_level: int = 3, processes: int | None = None) -> list[bytes]:
    """The objects of :func:`compile_object` for each job, in order, made by up to ``processes`` processes.

    By default there are as many as processors, and only this one for fewer than :data:`WORTH_IT` jobs. Raises what
    compile_object raises, and InternalError if LLVM aborts in a helper.
    """
    if processes is None:
        processes = len(os.sched_getaffinity(0)) if len(jobs) >= WORTH_IT else 1
    run = _Run(jobs, opt_level)
    helpers = [Thread(target=run.with_helper) for _ in range(min(processes, len(jobs)) - 1)]
    for helper in helpers:
        helper.start()
    run.here()
    run.stop_late_helpers()
    for helper in helpers:
        helper.join()
    if run.errors:
        raise run.errors[min(run.errors)]
    return [run.made[n] for n in range(len(jobs))]


class _Run:
    """Jobs that several threads take one after the other; the longest texts first, so that none ends late."""

    def __init__(self, jobs: Sequence[Job], opt_level: int) -> None:
        self.jobs, self.opt_level = jobs, opt_level
        self.made: dict[int, bytes] = {}
        self.errors: dict[int, Exception] = {}
        self._waiting = sorted(range(len(jobs)), key=lambda n: len(jobs[n][0]))
        self._starting: set[subprocess.Popen[bytes]] = set()
        self._over = False
        self._lock = Lock()

    def take(self) -> Iterator[int]:
        while True:
            with self._lock:
                if not self._waiting or self.errors:
                    return
                n = self._waiting.pop()
            yield n

    def here(self) -> None:
        for n in self.take():
            try:
                self.made[n] = compile_object(*self.jobs[n], self.opt_level)
            except Exception as error:
                self.errors[n] = error

    def with_helper(self) -> None:
        root = str(Path(__file__).parents[3])
        command = [sys.executable, "-c", _START, root]
        with self._lock:
            if self._over:
                return
            helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._starting.add(helper)
        with helper:
            assert helper.stdin is not None and helper.stdout is not None
            ready = helper.stdout.read(1)
            with self._lock:
                self._starting.discard(helper)
            if ready:  # else it cannot start here, or comes too late: the others do its work
                self.feed(helper.stdin, helper.stdout)

    def feed(self, questions: IO[bytes], answers: IO[bytes]) -> None:
        for n in self.take():
            try:
                pickle.dump((*self.jobs[n], self.opt_level), questions)
                questions.flush()
                answer = pickle.load(answers)
            except (EOFError, BrokenPipeError):
                self.errors[n] = InternalError("LLVM aborted", reproducer=self.jobs[n][0])
                return
            if isinstance(answer, Exception):
                self.errors[n] = answer
            else:
                self.made[n] = answer

    def stop_late_helpers(self) -> None:
        """Nothing is left for helpers that are still starting."""
        with self._lock:
            self._over = True
            for helper in self._starting:
                helper.kill()


def serve(jobs: IO[bytes] | None = None, answers: IO[bytes] | None = None) -> None:
    """What a helper does: answer jobs until there are no more, after one byte that says that it runs."""
    jobs, answers = jobs or sys.stdin.buffer, answers or sys.stdout.buffer
    answers.write(b".")
    answers.flush()
    while True:
        try:
            ir_text, target, opt_level = pickle.load(jobs)
        except EOFError:
            return
        try:
            answer: object = compile_object(ir_text, target, opt_level)
        except Exception as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()
