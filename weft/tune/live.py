"""What a tuner shows while it works: a table on a terminal, a line every few seconds elsewhere; nothing if asked."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from weft.support import settings
from weft.support.progress import wanted
from weft.support.words import counted
from weft.tune.results import INTERRUPTED
from weft.tune.scheduler import Budget, TaskScheduler, TaskState

LINE_SECONDS: Final = 3.0
"""Least time between two lines."""
REFRESHES_PER_SECOND: Final = 4
MAX_ROWS: Final = 12
"""Kernels in the table: those that take most of the time."""


class Watcher(Protocol):
    """Is told how tuning goes."""

    def phase(self, text: str) -> None:
        """What begins now."""

    def batch(self, scheduler: TaskScheduler) -> None:
        """A batch of measurements has ended."""


class Unwatched:
    """Shows nothing."""

    def phase(self, text: str) -> None: ...

    def batch(self, scheduler: TaskScheduler) -> None: ...


class ProgressLines:
    """Writes a line for a batch, at most every few seconds. ``clock`` gives seconds."""

    def __init__(self, write: Callable[[str], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._next = -1.0

    def phase(self, text: str) -> None:
        """Write what begins now."""
        self._write(text)

    def batch(self, scheduler: TaskScheduler) -> None:
        """Write how far it is, unless that was just written."""
        if scheduler.ended and scheduler.ended != INTERRUPTED:
            self._write(f"{scheduler.ended}: measuring the best schedules again")
        elif not scheduler.ended and self._clock() >= self._next:
            self._next = self._clock() + LINE_SECONDS
            self._write(progress_line(scheduler))


class LiveTable:
    """A table of the kernels that take most of the time, which rich draws again and again."""

    def __init__(self) -> None:
        self._scheduler: TaskScheduler | None = None
        self._phase = "beginning"

    def phase(self, text: str) -> None:
        """Show what begins now."""
        self._phase = text

    def batch(self, scheduler: TaskScheduler) -> None:
        """Show the state of ``scheduler`` from now on."""
        self._scheduler = scheduler
        if scheduler.trials or scheduler.ended:
            self._phase = "measuring the best schedules again" if scheduler.ended else "searching"

    def __rich__(self) -> Any:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        scheduler = self._scheduler
        if scheduler is None:
            return Text(self._phase)
        made = Table(box=box.SIMPLE_HEAD)
        for number, name in enumerate(("kernel", "calls", "best", "of bound", "trials", "state")):
            made.add_column(name, justify="right" if 0 < number < 5 else "left", no_wrap=True)
        shown = sorted(scheduler.tasks, key=lambda t: -t.calls * t.seconds)
        for task in shown[:MAX_ROWS]:
            made.add_row(*(Text(cell) for cell in cells(task, task is scheduler.current)))
        more = [Text(f"  and {counted(len(shown) - MAX_ROWS, 'more kernel')}")] if len(shown) > MAX_ROWS else []
        return Group(made, *more, Text(f"{self._phase} · {status(scheduler)}"))


def cells(task: TaskState, current: bool) -> list[str]:
    """A row of the table: name, calls, how many times as fast as the default schedule, share of the bound, trials,
    state."""
    name, calls, trials = task.name, str(task.calls), str(task.trials)
    if task.failed:
        return [name, calls, "-", "-", trials, "cannot be tuned"]
    if not task.baseline:
        return [name, calls, "-", "-", trials, "measuring" if current else "waiting"]
    share = f"{task.bound / task.seconds:.0%}" if task.bound else "-"
    state = "all tried" if task.tuner.exhausted else "searching" if current else ""
    return [name, calls, f"{task.tuner.speedup:.2f}×", share, trials, state]


def estimated_speedup(scheduler: TaskScheduler) -> float:
    """How many times as fast all kernels together are with the best schedules so far."""
    before = sum(t.calls * t.baseline for t in scheduler.tasks)
    return before / scheduler.total if scheduler.total else 1.0


def remaining(scheduler: TaskScheduler) -> str:
    """What is left of the budget."""
    budget: Budget = scheduler.budget
    parts = []
    if budget.trials is not None:
        parts.append(counted(max(0, budget.trials - scheduler.trials), "trial"))
    if budget.seconds is not None:
        parts.append(f"{max(0.0, budget.seconds - scheduler.elapsed) / 60:.1f} min")
    return f"{' or '.join(parts)} left" if parts else f"{counted(scheduler.trials, 'trial')} so far"


def status(scheduler: TaskScheduler) -> str:
    """Estimated speedup, what is left, and the time since the start."""
    return (
        f"kernels {estimated_speedup(scheduler):.2f}× (estimated) · {remaining(scheduler)} · {scheduler.elapsed:.0f} s"
    )


def progress_line(scheduler: TaskScheduler) -> str:
    """One line: which kernel was measured last, how it is, and how far the whole is."""
    task = scheduler.current
    if task is None:
        return status(scheduler)
    if task.failed:
        return f"{task.name}: {task.failed}"
    return f"{task.name}: {task.tuner.speedup:.2f}× after {counted(task.trials, 'trial')} · {status(scheduler)}"


@contextmanager
def watching(show: bool) -> Iterator[Watcher]:
    """Shows progress on the standard error stream inside of the ``with`` statement, if ``show`` and ``WEFT_PROGRESS``
    say so: as a table on a terminal, as lines elsewhere."""
    if not show or not settings.show_progress() or sys.stderr is None:
        yield Unwatched()
    elif not wanted():
        yield ProgressLines(lambda line: print(line, file=sys.stderr, flush=True))
    else:
        from rich.console import Console
        from rich.live import Live

        table = LiveTable()
        with Live(table, console=Console(stderr=True), refresh_per_second=REFRESHES_PER_SECOND, transient=True):
            yield table
