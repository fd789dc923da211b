"""A schedule of a kernel, as that from which features are computed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from weft.kernels.machine_code import scheduled
from weft.kernels.task import KernelTask
from weft.schedule.trace import Trace
from weft.target import Target
from weft.tir.nodes import Program
from weft.tune.draft.estimate import DraftMachine
from weft.tune.draft.nests import nests_of
from weft.tune.draft.rows import nest_rows


@dataclass(frozen=True, eq=False)
class Candidate:
    """A kernel under a schedule, run by so many ``threads``. ``scheduled`` is its program in scheduled form; what is
    more expensive is computed when it is asked for."""

    scheduled: Program
    task: KernelTask
    threads: int = 1

    @classmethod
    def of(cls, task: KernelTask, trace: Trace | None, threads: int = 1) -> Candidate:
        """The kernel under ``trace``; None is the default schedule. Raises ScheduleError where a step is refused."""
        with task.scope():
            known = task.maker.intrinsics if trace is not None else ()
            return cls(scheduled(task.program, task.target, trace, known, task.maker).program, task, threads)

    @cached_property
    def kernel(self) -> Program:
        """The kernel form. Raises WeftError where the program cannot be lowered."""
        with self.task.scope():
            return self.task.maker.lower(self.scheduled, self.task.target)

    @property
    def nest_row(self) -> NDArray[np.float32]:
        """What the draft model sees: a row of :data:`~weft.tune.draft.rows.NEST_COLUMNS`."""
        return self._estimated[0]

    @property
    def draft_seconds(self) -> float:
        """What the draft model estimates."""
        return self._estimated[1]

    @cached_property
    def _estimated(self) -> tuple[NDArray[np.float32], float]:
        nests = nests_of(self.scheduled)
        rows, seconds = nest_rows(nests.structure, nests.numbers[None], _machine(self.task.target, self.threads))
        return rows[0], float(seconds[0])


@lru_cache(maxsize=16)
def _machine(target: Target, threads: int) -> DraftMachine:
    return DraftMachine.of(target, threads)
