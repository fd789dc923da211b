"""What the hot loops of an operator's kernels look like, without a clock: every recipe of ``benchmarks.operators``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from perf_metrics import TARGET, groups_of

import weft
from benchmarks.operators.cases import Case, quick
from benchmarks.operators.surroundings import model
from weft.backends.llvm import assembly, emit_ir
from weft.expr.nodes import Const
from weft.graph.nodes import Function
from weft.ir.structural import structural_hash
from weft.kernels.machine_code import lowered
from weft.pipeline import operators_in, optimize, unscheduled
from weft.target import Target
from weft.view.assembly import LoopCode, hot_loop

SMALL = 1024
"""Kernels that move fewer numbers may use any code: they compute sizes and shapes."""
VECTOR_BITS = 512
FILLS_AND_COPIES = {"memcpy", "memmove", "memset"}
"""What LLVM makes of loops that only fill or copy rows. The C library uses whole vectors."""
HELPERS = ("weft_", "mem")
"""Beginnings of the names of functions that kernels may call in loops: the runtime's, and copies of memory."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of a recipe: the row and the choice of attributes it belongs to, its operators, and its hot loop."""

    row: str
    variant: str
    operators: tuple[str, ...]
    loop: LoopCode

    def problems(self) -> Iterator[tuple[str, str]]:
        """Kinds of problems (narrow, lanes, calls), and what is wrong."""
        where = f"{self.row}: the hot loop of the kernel of {', '.join(self.operators)}"
        copied = not self.loop.arithmetic and bool(self.loop.calls) and FILLS_AND_COPIES.issuperset(self.loop.calls)
        if self.loop.vector_bits < VECTOR_BITS and not copied:
            yield "narrow", f"{where} works on {self.loop.vector_bits} bits"
        if self.loop.lanes:
            yield "lanes", f"{where} reads lanes one by one ({self.loop.lanes} instructions)"
        if calls := sorted({c for c in self.loop.calls if not c.startswith(HELPERS) and ".work" not in c}):
            yield "calls", f"{where} calls {', '.join(calls)}"


@cache
def groups(op: str, target: str = TARGET) -> tuple[tuple[Case, Function], ...]:
    """The kernels of the recipes of an ONNX operator, with the row."""
    machine, found = Target(target), []
    for case in (c for c in quick() if c.recipe.op == op):
        if (made := case.made()) is not None and (built := model(made)) is not None:
            fused = optimize(weft.load(built[0]), machine, None)
            found += [(case, g) for g in groups_of(fused)]
    return tuple(found)


def kernels(op: str, target: str = TARGET) -> Iterator[Kernel]:
    """The large kernels of the recipes of an ONNX operator. Equal ones are compiled once: the steps of a recurrence and
    the corners of a sampled grid have the same kernels."""
    machine, loops = Target(target), dict[str, LoopCode]()
    for case, group in groups(op, target):
        program, work = unscheduled(group)
        if isinstance(work.bytes, Const) and int(work.bytes) < 4 * SMALL:
            continue
        key = structural_hash(program)
        if key not in loops:
            loops[key] = hot_loop(assembly(emit_ir(lowered(program, machine, None), machine), machine))
        yield Kernel(case.name, case.recipe.variant, tuple(operators_in(group)), loops[key])
