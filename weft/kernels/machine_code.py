"""One unscheduled program becomes machine code: schedule, kernel form, LLVM.

Nothing here knows of graphs, so that a process which only builds kernels starts quickly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.backends.catalogue import backend_of
from weft.backends.protocol import Code
from weft.ir.structural import structural_hash
from weft.lowering.sizes import size_expr
from weft.runtime.program import SizeExpr
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Trace
from weft.target import Target
from weft.tir.nodes import Program


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The code of the kernel ``name``; ``workspace`` in bytes, over ``s0, s1, …``: the program's sizes."""

    name: str
    code: Code
    workspace: SizeExpr


def scheduled(program: Program, target: Target, trace: Trace | None = None) -> Schedule:
    """``program`` by the given schedule, or by the default rules."""
    return backend_of(target).schedule(program, target) if trace is None else Schedule(program).replay(trace)


def lowered(program: Program, target: Target, trace: Trace | None = None) -> Program:
    """The kernel form of ``program``."""
    return backend_of(target).lower(scheduled(program, target, trace).program, target)


def machine_code(program: Program, target: Target, trace: Trace | None = None) -> MachineCode:
    """Machine code of one program, named with a hash of the program: unique in an artifact, whatever the target."""
    kernel = lowered(program, target, trace)
    kernel = replace(kernel, name=f"{program.name}_{structural_hash(program)[:10]}")
    code = backend_of(target).emit(kernel, target)
    names = {v: f"s{i}" for i, v in enumerate(program.sizes)}
    return MachineCode(kernel.name, code, size_expr(kernel.attrs.get("workspace", 0), names))
