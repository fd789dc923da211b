"""Sources of schedules besides the default rules, and what happens to a schedule that does not work any more."""

from __future__ import annotations

import warnings
from typing import Protocol

from weft.graph.hashes import module_hash
from weft.graph.nodes import Module
from weft.graph.passes.layout_problem import LayoutDecider
from weft.kernels.machine_code import machine_code
from weft.kernels.task import KernelTask
from weft.schedule.dispatch import Dispatch, RecordedSchedule
from weft.schedule.trace import Trace
from weft.support.errors import ScheduleError, WeftError
from weft.target import Target


class ScheduleSource(Protocol):
    """Where schedules come from besides the default rules: a tuner's database implements it.

    A source may have four more attributes:

    ``version`` is a text that changes whenever an answer may change, and that no source with other answers has. With
    it, kernels of known groups are found in the cache without asking the source. Without it, every compilation asks.

    ``for_model(graph)`` gives the source for the model whose graph has this hash (:mod:`weft.graph.hashes`), where its
    answers depend on the model.

    ``layouts(target)`` gives what decides about layouts (:class:`~weft.graph.passes.layout_problem.LayoutDecider`),
    None for estimates.

    ``skips_refused``: if true, a schedule of the source with which a kernel cannot be built is reported by a
    RuntimeWarning, and the default rules decide; so is one that ``find`` cannot read (it raises ScheduleError).
    Otherwise the error ends the compilation. A kernel that is in the cache is neither built nor reported again.
    """

    def find(self, task: KernelTask) -> RecordedSchedule | None:
        """The best known schedule of ``task`` (which itself has the default schedule), or None.

        Stored measurements are found by ``task.identity``.
        """


def source_for(source: ScheduleSource | None, module: Module) -> ScheduleSource | None:
    """``source``, as it answers for the kernels of ``module``."""
    for_model = getattr(source, "for_model", None)
    return source if for_model is None else for_model(module_hash(module))


def layouts_of(source: ScheduleSource | None, target: Target) -> LayoutDecider | None:
    """What decides about layouts for ``target`` where ``source`` gives the schedules; None: estimates."""
    layouts = getattr(source, "layouts", None)
    return None if layouts is None else layouts(target)


class Asked:
    """A source (or none) as one compilation asks it: kernels whose schedule was refused have the default one."""

    def __init__(self, source: ScheduleSource | None) -> None:
        self._source = source
        self._skips = bool(getattr(source, "skips_refused", False))
        self._refused: set[str] = set()
        version = getattr(source, "version", None)
        self.version: str | None = version if isinstance(version, str) else None
        """The version of the source; None if it has none, or if there is no source."""

    @property
    def is_versioned(self) -> bool:
        """Whether :attr:`version` says which schedules there are: of the default rules, or of a source with one."""
        return self._source is None or self.version is not None

    def scheduled(self, task: KernelTask) -> KernelTask:
        """``task`` with the schedule that the source has for it, if any. Raises ScheduleError S006 if that is not a
        trace or a dispatch."""
        if self._source is None or (self._refused and task.identity in self._refused):
            return task
        try:
            trace = self._source.find(task)
        except ScheduleError as error:
            self._skip(task, error)
            return task
        if trace is None:
            return task
        if not isinstance(trace, (Trace, Dispatch)):
            raise ScheduleError(
                f"schedules= gave {type(trace).__name__} for '{task.program.name}', which is not a schedule",
                code="S006",
                hint="find(task) returns a Trace (Schedule.trace, or what Trace.from_json reads), a Dispatch, or None",
            )
        return task.with_trace(trace, task.maker.intrinsics)

    def buildable(self, task: KernelTask) -> KernelTask:
        """``task``, with the default schedule if it cannot be built with its own and the source's are skipped then."""
        if task.trace is None or not self._skips:
            return task
        try:
            machine_code(task)
        except WeftError as error:
            self.refuse(task, error)
            return KernelTask(task.program, task.target, backend=task.backend)
        return task

    def refuse(self, task: KernelTask, error: WeftError) -> None:
        """Note that ``task`` cannot be built with its schedule. Raises ``error`` if it has the default schedule, or if
        the source vouches for its schedules."""
        if task.trace is None:
            raise error
        self._skip(task, error)

    def _skip(self, task: KernelTask, error: WeftError) -> None:
        if not self._skips:
            raise error
        self._refused.add(task.identity)
        warnings.warn(
            f"the schedule that is stored for kernel '{task.program.name}' does not work, the default one is used: "
            f"[{error.code}] {error.message}",
            RuntimeWarning,
            stacklevel=2,
        )
