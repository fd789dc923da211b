"""What tuning gave, as values: each kernel, and the model before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from weft.graph.passes.layout_problem import LayoutDecider
from weft.kernels.machine_code import lowered, scheduled
from weft.kernels.one_program import one_program
from weft.lowering.tir_to_kernel import symbol
from weft.runtime.executable import Executable
from weft.schedule.dispatch import Dispatch, RecordedSchedule
from weft.support.html import TextInNotebooks
from weft.tir.nodes import Program
from weft.tune.database import Database
from weft.tune.in_model import Chosen, Verdicts
from weft.tune.layouts.outcome import LayoutOutcome
from weft.tune.measure.runner import Workload
from weft.tune.record import TrialRecord
from weft.tune.scheduler import TaskScheduler, TaskState
from weft.tune.workloads import ModelKernel

INTERRUPTED: Final = "interrupted"
"""What :attr:`TaskScheduler.ended` says after Ctrl-C."""
COLUMNS: Final = ("kernel", "calls", "trials", "µs per call", "speedup", "bound", "result")
"""The columns of :meth:`KernelResult.row`. The bound is the least time that arithmetic and memory allow, as a share of
the time after."""


@dataclass
class KernelResult(TextInNotebooks):
    """What was found for one kernel. ``str`` is one line.

    ``calls``: how often a run of the model calls it. ``found`` is the record of the best schedule, measured again at
    the end, None where that is the default one; ``confirmed``: whether that was done. ``refused`` says why the model
    does not use it, empty if it does. ``search`` is the state of the search. ``ended`` says why the search ended.
    """

    name: str
    workload: Workload
    calls: int
    search: TaskState
    found: TrialRecord | None = None
    confirmed: bool = False
    refused: str = ""
    ended: str = ""

    @property
    def trace(self) -> RecordedSchedule | None:
        """The schedule to use, None for the default one. Without confirmation (after Ctrl-C), the best so far."""
        if self.refused or not self.search.baseline:
            return None
        if self.confirmed:
            return None if self.found is None else self.found.trace
        return self.search.tuner.best.trace

    @property
    def schedule(self) -> str:
        """The schedule to use as Python; of a kernel with open sizes several, each with the sizes that it serves."""
        trace = self.trace
        if isinstance(trace, Dispatch):
            return trace.to_python([v.name for v in self.workload.task.program.sizes])
        return "# the default schedule" if trace is None else trace.to_python()

    @property
    def trials(self) -> int:
        """Trials of this search, those of earlier runs included."""
        return self.search.trials

    @property
    def before(self) -> float:
        """Seconds of one call with the default schedule; 0 where it was not measured."""
        return self.search.baseline

    @property
    def speedup(self) -> float:
        """How many times as fast as the default schedule :attr:`trace` is; 1 for the default one."""
        if self.trace is None:
            return 1.0
        if self.found is not None and self.found.relative:
            return 1.0 / self.found.relative
        return self.search.tuner.speedup

    @property
    def after(self) -> float:
        """Seconds of one call with :attr:`trace`."""
        return self.before / self.speedup

    @property
    def share_of_bound(self) -> float | None:
        """The least time that arithmetic and memory allow, divided by :attr:`after`; None where it is not known."""
        return self.search.bound / self.after if self.search.bound and self.after else None

    @property
    def outcome(self) -> str:
        """What became of the kernel, in a word or two."""
        if self.search.failed:
            return "failed"
        if self.refused:
            return "refused"
        if self.trace is not None:
            return "tuned" if self.confirmed else "unconfirmed"
        if not self.search.tuner.space.has_choice:
            return "no choice"
        return "default" if self.trials else "not tried"

    @property
    def reason(self) -> str:
        """Why the kernel could not be tuned, or why its best schedule is refused; empty otherwise."""
        return self.search.failed or self.refused

    @property
    def program(self) -> Program:
        """The program with the schedule to use, in scheduled form. Raises ScheduleError S008 where it has several, by
        its sizes."""
        task = self.workload.task
        with task.scope():
            return scheduled(task.program, task.target, self.trace, task.maker.intrinsics, task.maker).program

    def executable(self, threads: int | None = None) -> Executable:
        """The kernel with the schedule to use, as a function of its inputs; with the threads it was tuned for unless
        given."""
        task = self.workload.task
        with task.scope():
            kernel = lowered(task.program, task.target, self.trace, task.maker.intrinsics, task.maker)
        kernel = replace(kernel, name=symbol(task.program.name))
        made = one_program(task.program, task.target, kernel=kernel)
        return Executable(made, self.workload.threads if threads is None else threads)

    def row(self) -> list[str]:
        """The cells of :data:`COLUMNS`."""
        share = self.share_of_bound
        return [
            self.name,
            str(self.calls),
            str(self.trials),
            f"{microseconds(self.before)} → {microseconds(self.after)}" if self.before else "-",
            f"{self.speedup:.2f}×" if self.before else "-",
            "-" if share is None else f"{share:.0%}",
            self.outcome,
        ]

    def __str__(self) -> str:
        more = f": {self.reason}" if self.reason else ""
        _, _, trials, times, speedup, _, outcome = self.row()
        return f"{self.name}: {times} µs, {speedup} ({outcome}{more}), trials: {trials}"

    __repr__ = __str__


@dataclass
class TuningResult(TextInNotebooks):
    """What tuning of a model gave. ``str`` is a table.

    ``facts`` says how it was tuned. ``verdicts`` has the times of the model before and after, and which schedules it
    refuses; None where that was not measured. ``layouts`` is what came of a joint search for layouts, None without one;
    ``decider`` decides about the layouts of the model that was tuned, None for estimates. ``ended`` says why the search
    ended, ``notes`` what is worth knowing.
    """

    model: str
    database: Path
    kernels: list[KernelResult]
    scheduler: TaskScheduler
    facts: dict[str, str] = field(default_factory=dict)
    verdicts: Verdicts | None = None
    layouts: LayoutOutcome | None = None
    decider: LayoutDecider | None = None
    ended: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.ended == INTERRUPTED

    @property
    def trials(self) -> int:
        """Trials of all kernels, those of earlier runs of the same search included."""
        return self.scheduler.trials

    @property
    def new_trials(self) -> int:
        """Trials of this run."""
        return sum(k.search.new_trials for k in self.kernels)

    @property
    def before(self) -> float:
        """Seconds of a run of the model with the default schedules; without a check in the model, the sum of all
        calls of kernels measured alone."""
        return self.verdicts.before if self.verdicts else sum(k.calls * k.before for k in self.kernels)

    @property
    def after(self) -> float:
        """Seconds of a run of the model with :attr:`schedules`, as for :attr:`before`."""
        return self.verdicts.after if self.verdicts else sum(k.calls * k.after for k in self.kernels)

    @property
    def speedup(self) -> float:
        """How many times as fast the model is."""
        return self.before / self.after if self.after else 1.0

    @property
    def schedules(self) -> Chosen:
        """The schedules to use, as a source for ``weft.compile(schedules=…)``. A compilation with the database finds
        the same."""
        found = {k.workload.task.identity: k.trace for k in self.kernels if k.trace is not None}
        return Chosen(found, self.decider)

    def summary(self) -> str:
        """The times of the model in one line."""
        what = "the model" if self.verdicts else "all kernels, measured alone"
        return f"{what}: {milliseconds_of(self.before)} → {milliseconds_of(self.after)}, {self.speedup:.2f}×"

    def __str__(self) -> str:
        rows = [list(COLUMNS), *(k.row() for k in by_time(self.kernels))]
        widths = [max(len(r[i]) for r in rows) for i in range(len(COLUMNS))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        return "\n".join([*lines, *reasons(self.kernels), "", *self.told_of_layouts(), self.summary()])

    def told_of_layouts(self) -> list[str]:
        """What came of the joint search for layouts, as lines of text; none without one."""
        if self.layouts is None:
            return []
        return [self.layouts.summary(), *(f"  {change}" for change in self.layouts.changes)]

    __repr__ = __str__


def not_begun(kernels: Sequence[ModelKernel], scheduler: TaskScheduler, name: str, database: Database) -> TuningResult:
    """The result of a run of which nothing is known yet but what its searches know."""
    for task in scheduler.tasks:
        if task.tuner.is_open and not task.baseline:
            task.baseline = task.tuner.history.baseline.seconds or 0.0
    found = [KernelResult(k.name, k.workload, k.calls, s) for k, s in zip(kernels, scheduler.tasks, strict=True)]
    return TuningResult(name, database.path, found, scheduler)


class TuningStopped(KeyboardInterrupt):
    """Ctrl-C ended tuning. ``result`` is what was found until then; all that was measured is in the database."""

    def __init__(self, result: TuningResult) -> None:
        super().__init__("tuning was interrupted")
        self.result = result


def by_time(kernels: Sequence[KernelResult]) -> list[KernelResult]:
    """The kernels in the order of the time that they took before, all calls together."""
    return sorted(kernels, key=lambda k: -k.calls * k.before)


def judged(kernels: Sequence[KernelResult], best: Mapping[str, TrialRecord], verdicts: Verdicts | None) -> None:
    """Note in ``kernels`` what was found when the best schedules were measured again (``best``, by identity), and in
    the model."""
    for k in kernels:
        identity = k.workload.task.identity
        k.confirmed, k.found = True, best.get(identity)
        if verdicts is not None:
            k.refused = verdicts.refused.get(identity, "")


def reasons(kernels: Sequence[KernelResult]) -> list[str]:
    """A line for each kernel that was refused or could not be tuned."""
    return [f"{k.name} ({k.outcome}): {k.reason}" for k in kernels if k.reason]


def microseconds(seconds: float) -> str:
    """A number of microseconds, with three digits at least."""
    return f"{seconds * 1e6:.0f}" if seconds >= 1e-4 else f"{seconds * 1e6:.3g}"


def milliseconds_of(seconds: float) -> str:
    """A time in milliseconds; a dash where it is not known."""
    return f"{seconds * 1e3:.4g} ms" if seconds else "-"
