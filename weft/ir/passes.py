"""Passes over programs of any intermediate representation, and instruments that observe them.

A pass is a frozen dataclass: its fields are its options, so a pass prints as it was written, compares by content and
can be named on the command line. A valid program gives a valid program; the program itself if there is nothing to do.

    program = run_passes((FoldConstants(), Fuse(limit=8)), program, (Verify(verify, to_text),))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from weft.support.errors import InternalError, UserError

P = TypeVar("P")


class Pass(Protocol[P]):
    """A program-to-program function with a name."""

    @property
    def name(self) -> str: ...

    def run(self, program: P) -> P: ...


class Instrument(Protocol[P]):
    """Is called with the program before and after each pass."""

    def before(self, step: Pass[P], program: P) -> None: ...

    def after(self, step: Pass[P], before: P, after: P) -> None: ...


def run_passes(
    passes: Sequence[Pass[P]],
    program: P,
    instruments: Sequence[Instrument[P]] = (),
    to_text: Callable[[P], str] | None = None,
) -> P:
    """Run ``passes`` in order.

    Errors of the user and MemoryError pass through; anything else becomes an InternalError that names the pass and,
    given ``to_text``, carries the program before it as reproducer.
    """
    for step in passes:
        for instrument in instruments:
            instrument.before(step, program)
        try:
            made = step.run(program)
        except (UserError, MemoryError):
            raise
        except Exception as error:  # an unexpected exception in a pass is a bug of the compiler
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
        except Exception as second:  # the printer may fail in any way on an invalid program
            reproducer = f"# the program cannot be printed: {type(second).__name__}: {second}\n"
    what = error.message if isinstance(error, InternalError) else f"{type(error).__name__}: {error}"
    return InternalError(f"pass '{name}' failed: {what}", reproducer=reproducer)


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
        except MemoryError:
            raise
        except Exception as error:  # as in run_passes
            blamed = blame(step.name, error, before, self.to_text)
            blamed.message = blamed.message.replace("failed:", "gave an invalid program:", 1)
            raise blamed from error
