"""The code of schedules: built when it is first asked for, and kept for a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from functools import partial
from typing import Final

from weft.kernels.machine_code import MachineCode
from weft.kernels.task import KernelTask
from weft.schedule.dispatch import RecordedSchedule
from weft.support.errors import UserError
from weft.tune.measure.bench import first_line
from weft.tune.measure.builder import Builder, Built
from weft.tune.measure.building import ENDED
from weft.tune.record import Outcome

MAX_KEPT: Final = 64
"""Schedules whose code is kept, in case they become the best."""


class ScheduleCodes:
    """Builds with what ``start`` makes when it is needed; :meth:`close` ends that. Code is kept longer."""

    def __init__(self, start: Callable[[], Builder]) -> None:
        self._start = start
        self._builder: Builder | None = None
        self._kept: OrderedDict[tuple[str, str], MachineCode] = OrderedDict()

    def code(self, task: KernelTask, trace: RecordedSchedule | None) -> Built:
        """The code of a kernel under a schedule; None: the default one."""
        try:
            return self.build(task, trace).result()
        except CancelledError:  # another thread has ended the builder
            return ENDED

    def build(self, task: KernelTask, trace: RecordedSchedule | None, seconds: float | None = None) -> Future[Built]:
        """Have the code built, within ``seconds`` if they are given, unless it is kept or the schedule is not one of
        this kernel."""
        key = _key(task, trace)
        if key in self._kept:
            return _known(self._kept[key])
        try:
            scheduled = replace(task, trace=None) if trace is None else task.with_trace(trace, task.maker.intrinsics)
        except UserError as error:
            return _known((Outcome.REFUSED, first_line(error)))
        if self._builder is None:
            self._builder = self._start()
        future = self._builder.build(scheduled, seconds)
        future.add_done_callback(partial(self._keep, key))
        return future

    def _keep(self, key: tuple[str, str], future: Future[Built]) -> None:
        made = None if future.cancelled() else future.result()
        if isinstance(made, MachineCode):
            self._kept[key] = made
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)

    def close(self) -> None:
        """End the builder."""
        if self._builder is not None:
            self._builder.close()
            self._builder = None


def _known(made: Built) -> Future[Built]:
    future: Future[Built] = Future()
    future.set_result(made)
    return future


def _key(task: KernelTask, trace: RecordedSchedule | None) -> tuple[str, str]:
    return task.identity, "" if trace is None else trace.to_json()
