"""A back end: one value that defines how programs become code for one kind of target.

A program goes through three steps, each of which is a field: ``schedule`` decides when and where values are
computed, ``lower`` turns the scheduled program into the kernel form of the machine, ``emit`` turns that into code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.schedule import Schedule
from weft.target import Target, TargetKind
from weft.tir.nodes import Program

if TYPE_CHECKING:
    from weft.schedule.rules.common.context import Rule

ELF: Final = "elf"
"""Relocatable objects for CPUs, which the runtime's own loader links: the format of :class:`Code` of CPU back ends."""


@dataclass(frozen=True, slots=True)
class Code:
    """The code of a kernel.

    ``format`` names the format of ``data`` for the device that loads it (:data:`ELF`). ``entry`` is the symbol of the
    kernel. ``features`` are those that the machine must have to run it, by LLVM's names.
    """

    format: str
    data: bytes
    entry: str
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StageText:
    """The text of one kernel at one stage; ``suffix`` names the language (``.txt``: the notation of a Weft IR)."""

    name: str
    suffix: str
    text: str


class Scheduling(Protocol):
    """Unscheduled program → its default schedule. ``rules`` of plugins are applied first; they may name
    ``intrinsics``."""

    def __call__(
        self,
        program: Program,
        target: Target,
        rules: Sequence[Rule] = (),
        intrinsics: Sequence[TensorIntrinsic] = (),
    ) -> Schedule: ...


class Lowering(Protocol):
    """Scheduled form → kernel form; ``name`` (default: the program's) becomes the symbol of the kernel."""

    def __call__(self, program: Program, target: Target, name: str | None = None) -> Program: ...


def _accept(target: Target) -> None:
    """Accept every target."""


def _nothing(*_: object) -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Offload:
    """What a device besides the CPU can compute, and how fast. ``can_run``: whether the device can compute an
    unscheduled program. ``seconds``: how long that takes. ``copy_seconds``: how long it takes to copy a number of bytes
    to or from its memory. The CPU computes programs that the device cannot compute or computes more slowly."""

    can_run: Callable[[Program, Target], bool]
    seconds: Callable[[Program, Target], float] = _nothing
    copy_seconds: Callable[[int], float] = _nothing


@dataclass(frozen=True, slots=True)
class Backend:
    """A back end; the name of its ``kind`` is the first word of its targets.

    ``schedule`` gives the default schedule of an unscheduled program. ``lower`` and ``emit`` raise TargetError for
    kernels that the machine cannot run. ``texts`` writes the intermediate results of ``emit`` as text, for people to
    inspect. ``version`` names the tools that make the code for a target (a compiler and its version): it is part of
    the key under which kernels are cached. ``check`` raises TargetError for targets whose code could not be made or
    loaded; ``texts`` supports more targets than that.
    """

    kind: TargetKind
    schedule: Scheduling
    lower: Lowering
    emit: Callable[[Program, Target], Code]
    texts: Callable[[Program, Target], Iterator[StageText]]
    version: Callable[[Target], str]
    check: Callable[[Target], None] = _accept
    stages: Sequence[str] = field(default=())
    """The names of the texts that ``texts`` writes, in order."""
    offload: Offload | None = None
    """What the device of the target computes; for targets that have a host."""
    origin: str = ""
    """The plugins that decide the code and a hash of their source; part of the key of kernels."""
    intrinsics: Sequence[TensorIntrinsic] = ()
    """Intrinsics that traces may name in addition to the built-in ones."""
