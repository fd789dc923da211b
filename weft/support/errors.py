"""The one tree of exceptions.

Two kinds, never mixed: :class:`UserError` and its children say what the caller can mend (a code, the
place, what would work); :class:`InternalError` says that the compiler itself is wrong and names the pass.
Everything that Weft raises on purpose is a :class:`WeftError`.

    WeftError
    ├── UserError
    │   ├── ModelError      a model file is malformed or uses something unsupported        M…
    │   ├── TypeRelationError  shapes or dtypes of an operator do not fit                  T…
    │   ├── ParseError      text of an IR is malformed                                     P…
    │   ├── ScheduleError   a schedule primitive would change the meaning                  S…
    │   ├── TargetError     a target is unknown or lacks a capability                      G…
    │   ├── ArtifactError   a saved artifact is damaged, foreign or too new                A…
    │   ├── ProgramError    a program breaks an invariant, or a rule while it runs   V…
    │   ├── InputError      run-time inputs do not fit the model                           I…
    │   └── MissingExtra    an optional dependency is not installed                        X…
    └── InternalError       a bug in Weft                                                  W…
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Location:
    """Where an error points.

    ``file`` and ``node`` name a model file and a node in it; ``line`` (1-based) with ``text`` quotes a line
    of program text, and ``column`` (0-based) with ``length`` underlines a part of it.
    """

    file: str | None = None
    node: str | None = None
    line: int | None = None
    text: str | None = None
    column: int = 0
    length: int = 1

    def header(self) -> str:
        parts = []
        if self.file:
            parts.append(self.file)
        if self.node:
            parts.append(f"node {self.node}")
        where = ": ".join(parts)
        if self.line is not None:
            where = f"{where}, line {self.line}" if where else f"line {self.line}"
        return where


MALFORMED: Final = (
    *(KeyError, IndexError, TypeError, ValueError, AttributeError),
    *(OverflowError, RecursionError, MemoryError),
)
"""What reading data of unknown form may raise: wrong types and keys, infinite or huge numbers, deep nesting, sizes that
no memory holds. Code that decodes such data catches all of these and raises an error of Weft."""


class WeftError(Exception):
    """Base of all errors raised by Weft on purpose.

    ``code`` is stable and can be searched for; ``message`` is one sentence; ``hint`` says what would work.
    """

    default_code = "W000"
    label = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        place: Location | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = message
        self.code = code or self.default_code
        self.place = place
        self.hint = hint
        super().__init__(message)

    def at(self, place: Location) -> WeftError:
        """Return the error itself, with ``place`` filled in where it was unknown."""
        if self.place is None:
            self.place = place
        return self

    def __str__(self) -> str:
        lines = [f"{self.label}[{self.code}] {self.message}"]
        place = self.place
        if place is not None and place.header():
            lines.append(f" --> {place.header()}")
        if place is not None and place.text is not None:
            gutter = str(place.line) if place.line is not None else ""
            lines.append(f"{gutter} | {place.text}")
            caret = " " * place.column + "^" * max(1, place.length)
            lines.append(f"{' ' * len(gutter)} | {caret}" + (f"   {self.hint}" if self.hint else ""))
        elif self.hint:
            lines.append(f"  = {self.hint}")
        return "\n".join(lines)


class UserError(WeftError):
    """An error that the caller can correct."""


class ModelError(UserError):
    """A model file is malformed, or uses something that is not supported."""

    default_code = "M001"


class TypeRelationError(UserError):
    """Shapes or dtypes of an operator do not fit together."""

    default_code = "T001"


class ParseError(UserError):
    """Text of an intermediate representation is malformed."""

    default_code = "P001"


class ScheduleError(UserError):
    """A schedule primitive was refused because it would change the meaning."""

    default_code = "S001"


class TargetError(UserError):
    """A target is unknown, or lacks a capability that was asked for."""

    default_code = "G001"


class ArtifactError(UserError):
    """A saved artifact is damaged, or was made for another machine or another format version."""

    default_code = "A001"


class ProgramError(UserError):
    """A program breaks an invariant of its intermediate representation (V0…), or touches memory that it must not while
    it runs (V9…)."""

    default_code = "V001"


class InputError(UserError):
    """Inputs given at run time do not fit the executable."""

    default_code = "I001"


class MissingExtra(UserError):
    """An optional dependency is needed and not installed."""

    default_code = "X001"

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed",
            hint=f"pip install 'weft[{extra}]'",
        )


class InternalError(WeftError):
    """A bug in Weft itself.

    ``reproducer`` is text that repeats it, if any: the task of the kernel that could not be built, or else the program
    before the failing pass. ``weft opt`` and ``weft inspect`` read it.
    """

    default_code = "W001"
    label = "internal error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        place: Location | None = None,
        hint: str | None = None,
        reproducer: str | None = None,
    ) -> None:
        super().__init__(message, code=code, place=place, hint=hint)
        self.reproducer = reproducer
