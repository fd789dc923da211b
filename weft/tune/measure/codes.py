"""The code of schedules: built when it is first asked for, and kept for a while."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from weft.kernels.machine_code import MachineCode
from weft.kernels.task import KernelTask
from weft.schedule.dispatch import RecordedSchedule
from weft.support.errors import UserError
from weft.tune.measure.bench import first_line
from weft.tune.measure.building import START_SECONDS, Builders, Built
from weft.tune.record import Outcome

MAX_KEPT: Final = 64
"""Schedules whose code is kept, in case they become the best."""

_LOOK_SECONDS: Final = 0.5


class ScheduleCodes:
    """Builds with ``count`` processes, each kernel in ``seconds`` at most. The processes start when they are needed
    and end with :meth:`close`; code is kept longer."""

    def __init__(self, count: int, seconds: float) -> None:
        self._count, self._seconds = count, seconds
        self._builders: Builders | None = None
        self._kept: OrderedDict[tuple[str, str], MachineCode] = OrderedDict()

    def code(self, task: KernelTask, trace: RecordedSchedule | None) -> Built:
        """The code of a kernel under a schedule; None: the default one."""
        kept = self._kept.get(_key(task, trace))
        if kept is not None:
            return kept
        ended, found = threading.Event(), list[Built]()

        def tell(made: Built) -> None:
            found.append(made)
            ended.set()

        self.build(task, trace, tell)
        until = time.monotonic() + 2 * (self._seconds + START_SECONDS)
        while not ended.wait(_LOOK_SECONDS):
            if time.monotonic() > until:
                return Outcome.TIMEOUT, "it is not built in time"
            if self._builders is None:  # another thread has closed them, and nobody tells
                return Outcome.FAILED, "building was ended"
        return found[0]

    def build(self, task: KernelTask, trace: RecordedSchedule | None, tell: Callable[[Built], None]) -> None:
        """Have the code built; another thread calls ``tell`` with it, or this one, if the schedule is not one of this
        kernel."""
        key = _key(task, trace)

        def built(made: Built) -> None:
            if isinstance(made, MachineCode):
                self._kept[key] = made
                while len(self._kept) > MAX_KEPT:
                    self._kept.popitem(last=False)
            tell(made)

        try:
            scheduled = replace(task, trace=None) if trace is None else task.with_trace(trace, task.maker.intrinsics)
        except UserError as error:
            tell((Outcome.REFUSED, first_line(error)))
            return
        if self._builders is None:
            self._builders = Builders(self._count, self._seconds)
        self._builders.build(scheduled, built)

    def close(self) -> None:
        """End the processes."""
        if self._builders is not None:
            self._builders.close()
            self._builders = None


def _key(task: KernelTask, trace: RecordedSchedule | None) -> tuple[str, str]:
    return task.identity, "" if trace is None else trace.to_json()
