"""Passes over the programs of any room, and instruments that look on.

A pass is a frozen dataclass: its fields are its options, so a pass prints as it was written, compares by content and
can be named on the command line. Valid in, valid out; it returns the program it was given if there is nothing to do.

    program = run_passes((FoldConstants(), Fuse(limit=8)), program, (Verify(verify), Dump(directory, to_text)))
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from weft.support.errors import InternalError, UserError

P = TypeVar("P")


class Pass(Protocol[P]):
    """A program-to-program function with a name."""

    @property
    def name(self) -> str: ...

    def run(self, program: P) -> P: ...


class Instrument(Protocol[P]):
    """Looks at the program before and after each pass."""

    def before(self, step: Pass[P], program: P) -> None: ...

    def after(self, step: Pass[P], before: P, after: P) -> None: ...


@dataclass(frozen=True)
class FunctionPass(Generic[P]):
    """A plain function as a pass."""

    name: str
    function: Callable[[P], P]

    def run(self, program: P) -> P:
        return self.function(program)


def run_passes(
    passes: Sequence[Pass[P]],
    program: P,
    instruments: Sequence[Instrument[P]] = (),
    to_text: Callable[[P], str] | None = None,
) -> P:
    """Run ``passes`` in order.

    Errors of the user pass through; anything else becomes an InternalError that names the pass and, given
    ``to_text``, carries the program before it as reproducer.
    """
    for step in passes:
        for instrument in instruments:
            instrument.before(step, program)
        try:
            made = step.run(program)
        except UserError:
            raise
        except Exception as error:  # whatever a pass trips over is the compiler's mistake
            raise blame(step.name, error, program, to_text) from error
        for instrument in instruments:
            instrument.after(step, program, made)
        program = made
    return program


def blame(name: str, error: Exception, program: P, to_text: Callable[[P], str] | None) -> InternalError:
    """The InternalError that says that pass ``name`` failed on ``program``."""
    if isinstance(error, InternalError) and error.reproducer is not None:
        return error
    reproducer = None
    if to_text is not None:
        try:
            reproducer = to_text(program)
        except Exception as second:  # an invalid program may trip the printer anywhere
            reproducer = f"# the program cannot be printed: {type(second).__name__}: {second}\n"
    what = error.message if isinstance(error, InternalError) else f"{type(error).__name__}: {error}"
    return InternalError(f"pass '{name}' failed: {what}", reproducer=reproducer)


@dataclass
class Timing(Generic[P]):
    """Seconds spent in each pass, in order: ``rows`` holds (name, seconds)."""

    rows: list[tuple[str, float]] = field(default_factory=list)
    _start: float = 0.0

    def before(self, step: Pass[P], program: P) -> None:
        self._start = time.perf_counter()

    def after(self, step: Pass[P], before: P, after: P) -> None:
        self.rows.append((step.name, time.perf_counter() - self._start))

    def totals(self) -> dict[str, float]:
        """Seconds by pass name, the most expensive first."""
        sums: dict[str, float] = {}
        for name, seconds in self.rows:
            sums[name] = sums.get(name, 0.0) + seconds
        return dict(sorted(sums.items(), key=lambda row: -row[1]))


@dataclass
class Verify(Generic[P]):
    """Calls ``verify`` on what each pass gives; what it raises becomes an InternalError that names the pass."""

    verify: Callable[[P], Any]
    to_text: Callable[[P], str] | None = None

    def before(self, step: Pass[P], program: P) -> None: ...

    def after(self, step: Pass[P], before: P, after: P) -> None:
        if after is before:
            return
        try:
            self.verify(after)
        except Exception as error:  # as in run_passes
            blamed = blame(step.name, error, before, self.to_text)
            blamed.message = blamed.message.replace("failed:", "gave an invalid program:", 1)
            raise blamed from error


class Dump(Generic[P]):
    """Writes the program after each pass to ``NN-name.txt`` in ``directory``, numbered on from what is there."""

    def __init__(self, directory: str | Path, to_text: Callable[[P], str], suffix: str = ".txt") -> None:
        self.directory, self.to_text, self.suffix = Path(directory), to_text, suffix

    def before(self, step: Pass[P], program: P) -> None: ...

    def after(self, step: Pass[P], before: P, after: P) -> None:
        if after is not before:
            self.write(step.name, after)

    def write(self, name: str, program: P) -> Path:
        """Write ``program`` as the next stage, called ``name``."""
        return write_stage(self.directory, name, self.to_text(program), self.suffix)


_STAGE = re.compile(r"^(\d+)-")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def write_stage(directory: str | Path, name: str, text: str, suffix: str = ".txt") -> Path:
    """Write ``text`` to the next numbered file of ``directory`` (``07-name.txt``); the file's path."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    numbers = [int(m[1]) for m in (_STAGE.match(p.name) for p in folder.iterdir()) if m]
    path = folder / f"{max(numbers, default=-1) + 1:02d}-{_UNSAFE.sub('_', name)}{suffix}"
    path.write_text(text)
    return path
