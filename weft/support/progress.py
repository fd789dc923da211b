"""Progress on a terminal; silent where there is none, or where ``WEFT_PROGRESS=0``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO, TypeVar

from weft.support import settings

T = TypeVar("T")


class Reporter(Protocol):
    """What long computations report to."""

    def advance(self, steps: int = 1) -> None:
        """Report that ``steps`` more are done."""

    def describe(self, text: str) -> None:
        """Report what is being done now."""


class Silent:
    """Shows nothing."""

    def advance(self, steps: int = 1) -> None: ...

    def describe(self, text: str) -> None: ...


class _Bar:
    def __init__(self, bars: Any, task: Any) -> None:
        self._bars, self._task = bars, task

    def advance(self, steps: int = 1) -> None:
        self._bars.advance(self._task, steps)

    def describe(self, text: str) -> None:
        self._bars.update(self._task, description=text)


def wanted(stream: TextIO | None = None) -> bool:
    """Whether progress is to be shown: a terminal, and not turned off."""
    stream = stream or sys.stderr
    # without a standard error stream (2>&-) Python has None
    return stream is not None and stream.isatty() and settings.show_progress()


@contextmanager
def progress(title: str, total: int | None = None, *, show: bool | None = None) -> Iterator[Reporter]:
    """A bar on the standard error stream while the block runs; ``total`` steps, unknown if None."""
    if not (wanted() if show is None else show):
        yield Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bars:
        yield _Bar(bars, bars.add_task(title, total=total))
