"""What a kernel should compute, found on this machine: boards are compared with it when the kernel is opened there.

Schedules are compared with the default schedule on the same board, which a board that computes wrongly, but always
alike, would pass. So the default schedule's own results are compared with those of this machine, once for each board.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weft.backends.protocol import ELF
from weft.expr.nodes import Const, Expr, Var, const
from weft.expr.simplify import simplify
from weft.expr.visit import substitute
from weft.kernels.machine_code import MachineCode
from weft.kernels.task import KernelTask
from weft.runtime.threads import SYSTEM_FEATURES, cpu_features
from weft.support.differences import errors, largest_error
from weft.support.errors import WeftError
from weft.target import Target
from weft.target.target import host, host_cpu
from weft.tir.interpret import run as interpret
from weft.tir.nodes import For, Stmt
from weft.tir.visit import children
from weft.tune.measure.bench import NARROW_TOLERANCE, TOLERANCE, Loaded, are_numbers, made_case
from weft.tune.measure.inputs import inputs_of
from weft.tune.measure.runner import Workload

MAX_INTERPRETED: Final = 300_000
"""Statements that the interpreter is given, where code for this machine cannot be had: it does about a million a
second."""
MIN_PER_FLIP: Final = 64
"""One of so many integers may differ: a number that is rounded to an integer, or the place of the largest of equals,
depends on the last bit of a float."""

Build = Callable[[KernelTask], MachineCode | None]
"""Builds the default schedule of a kernel; None if that cannot be done."""


@dataclass(frozen=True)
class CaseResults:
    """Results for one assignment of the open sizes, and whether the inputs were positive (see
    :func:`~weft.tune.measure.inputs.inputs_of`)."""

    positive: bool
    wanted: list[NDArray[Any]]


class Reference:
    """The results of a workload on this machine, computed when they are first asked for. ``default`` is the code of the
    boards, which may run here, too; ``build`` builds other code."""

    def __init__(self, workload: Workload, default: MachineCode, build: Build) -> None:
        self._workload, self._default, self._build = workload, default, build
        self._guard = threading.Lock()
        self._found: list[CaseResults] | None = None
        self._is_known = False

    def results(self) -> list[CaseResults] | None:
        """For each case, in the order of the workload's; None where this machine can neither compile nor interpret
        the kernel."""
        with self._guard:
            if not self._is_known:
                try:
                    self._found = self._computed()
                except (WeftError, MemoryError):
                    self._found = None
                self._is_known = True
            return self._found

    def forget(self) -> None:
        """Free the results; they are computed again if they are asked for again."""
        with self._guard:
            self._found, self._is_known = None, False

    def _computed(self) -> list[CaseResults] | None:
        sizes = [tuple(s) for s in self._workload.sizes] or [(64,) * len(self._workload.task.program.sizes)]
        task = self._workload.task
        made = self._default if runs_here(self._default, task.target) else self._built(task)
        if made is None:
            return [self._interpreted(s) for s in sizes] if self._is_small(sizes) else None
        loaded = Loaded(made, 1)
        cases = [made_case(task.program, s, loaded) for s in sizes]
        return [CaseResults(c.positive, [a.copy() for a in c.wanted]) for c in cases]

    def _built(self, task: KernelTask) -> MachineCode | None:
        made = self._build(replace(task, target=host(), trace=None, intrinsics=(), scalars=None, backend=None))
        return made if made is not None and runs_here(made, host()) else None

    def _is_small(self, sizes: Sequence[tuple[int, ...]]) -> bool:
        program = self._workload.task.program
        values = [{v: const(n) for v, n in zip(program.sizes, s, strict=True)} for s in sizes]
        return math.fsum(_steps(program.body, known) for known in values) <= MAX_INTERPRETED

    def _interpreted(self, sizes: tuple[int, ...]) -> CaseResults:
        program = self._workload.task.program
        values = dict(zip(program.sizes, sizes, strict=True))
        for positive in (False, True):
            inputs = inputs_of(program, values, positive=positive)
            with np.errstate(all="ignore"):
                found = list(interpret(program, inputs, {v.name: n for v, n in values.items()}))
            if are_numbers(found):
                break
        return CaseResults(positive, found)


def _steps(statement: Stmt, values: Mapping[Var, Expr]) -> float:
    """How many statements are executed, as far as loops tell."""
    inner = math.fsum(_steps(s, values) for s in children(statement)) or 1.0
    if not isinstance(statement, For):
        return inner
    extent = simplify(substitute(statement.extent, values))
    return inner * max(0, int(extent.value)) if isinstance(extent, Const) else math.inf


def runs_here(made: MachineCode, target: Target) -> bool:
    """Whether this machine loads and runs code that was made for a target."""
    mine, theirs = host_cpu().triple, target.cpu.triple
    same = mine.partition("-")[0] == theirs.partition("-")[0]
    return same and made.code.format == ELF and made.code.features <= cpu_features() | SYSTEM_FEATURES


def disagreement(found: Sequence[NDArray[Any]], wanted: Sequence[NDArray[Any]]) -> str:
    """How results of a board differ from those of this machine by more than another processor's rounding; empty if they
    do not."""
    for got, expected in zip(found, wanted, strict=True):
        each = errors(got, expected)
        if expected.dtype.kind in "biu":
            wrong = int(np.count_nonzero(each))
            if wrong > expected.size // MIN_PER_FLIP:
                return f"{wrong} of {expected.size} results differ from those of this machine"
            continue
        error = largest_error(each)
        if error > (TOLERANCE if expected.dtype.itemsize >= 4 else NARROW_TOLERANCE):
            return f"its results differ from those of this machine by {error:.2g} of the largest"
    return ""
