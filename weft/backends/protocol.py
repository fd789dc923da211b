"""What a back end is: one value that says how programs become code for one kind of target.

A scheduled program goes through three steps, each of which is a field: ``schedule`` decides when and where things are
computed, ``lower`` brings the scheduled program into the kernel form of the machine, ``emit`` turns that into code.
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
    """What a back end makes of a kernel.

    ``format`` names what ``data`` is, for the device that loads it (:data:`ELF`). ``entry`` is the symbol of the
    kernel. ``features`` are those that the machine must have to run it, under LLVM's names.
    """

    format: str
    data: bytes
    entry: str
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StageText:
    """The text of one kernel at one place of its way; ``suffix`` names the language (``.txt``: an IR's own)."""

    name: str
    suffix: str
    text: str


class Scheduling(Protocol):
    """Unscheduled program → its default schedule. ``rules`` come from outside and are asked first; they may name
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
    """Every target will do."""


def _nothing(*_: object) -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Offload:
    """What the back end of a device besides the CPU says of unscheduled programs: ``can_run`` whether the device can
    compute one, ``seconds`` how long that takes, ``copy_seconds`` how long it takes to copy so many bytes to or from
    its memory. The CPU computes what takes longer there, and everything that the device cannot."""

    can_run: Callable[[Program, Target], bool]
    seconds: Callable[[Program, Target], float] = _nothing
    copy_seconds: Callable[[int], float] = _nothing


@dataclass(frozen=True, slots=True)
class Backend:
    """A back end; the name of its ``kind`` is the first word of its targets.

    ``schedule`` gives the default schedule of an unscheduled program. ``lower`` and ``emit`` raise TargetError for
    what the machine cannot do. ``texts`` writes what ``emit`` makes on its way as text: the languages that people
    inspect. ``version`` names the tools that make the code for a target (a compiler and its version): it is part of
    the key under which kernels are cached. ``check`` raises TargetError for targets whose code could not be
    loaded or made; texts can be had for more of them.
    """

    kind: TargetKind
    schedule: Scheduling
    lower: Lowering
    emit: Callable[[Program, Target], Code]
    texts: Callable[[Program, Target], Iterator[StageText]]
    version: Callable[[Target], str]
    check: Callable[[Target], None] = _accept
    stages: Sequence[str] = field(default=())
    """The names of what ``texts`` writes, in order."""
    offload: Offload | None = None
    """What its device computes; for targets that have a host."""
    origin: str = ""
    """What decides the code besides the package: plugins, and a hash of their source. Part of the key of kernels."""
    intrinsics: Sequence[TensorIntrinsic] = ()
    """What traces may name besides the built-in intrinsics."""
