"""One kernel becomes machine code: schedule, kernel form, LLVM.

Nothing here knows of graphs, so that a process which only builds kernels starts quickly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.backends.llvm import compile_object, emit
from weft.kernels.task import KernelTask
from weft.lowering.sizes import size_expr
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.runtime.program import SizeExpr
from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.rules.cpu import default_schedule
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Trace
from weft.support.frames import pack, unpack
from weft.target import Target
from weft.tir.nodes import Program


@dataclass(frozen=True, slots=True)
class MachineCode:
    """A relocatable object that defines ``name``; ``workspace`` in bytes, over ``s0, s1, …``: the program's sizes."""

    name: str
    code: bytes
    workspace: SizeExpr

    def to_bytes(self) -> bytes:
        """What :meth:`from_bytes` reads back, in this process or another."""
        return pack({"name": self.name, "workspace": self.workspace}, self.code)

    @classmethod
    def from_bytes(cls, packed: bytes) -> MachineCode:
        """Raises ValueError, KeyError or TypeError for what :meth:`to_bytes` did not write."""
        header, code = unpack(packed)
        return cls(str(header["name"]), code, tuple(header["workspace"]))


def scheduled(
    program: Program, target: Target, trace: Trace | None = None, intrinsics: Sequence[TensorIntrinsic] = ()
) -> Schedule:
    """``program`` by the given schedule (which may name ``intrinsics``), or by the default rules."""
    if trace is None:
        return default_schedule(program, target)
    return Schedule(program, intrinsics=intrinsics).replay(trace)


def lowered(
    program: Program, target: Target, trace: Trace | None = None, intrinsics: Sequence[TensorIntrinsic] = ()
) -> Program:
    """The kernel form of ``program``."""
    return tir_to_kernel(scheduled(program, target, trace, intrinsics).program, target)


def machine_code(task: KernelTask) -> MachineCode:
    """Machine code of one kernel. An InternalError carries the task as its reproducer."""
    with task.reported():
        kernel = lowered(task.program, task.target, task.trace, task.intrinsics)
        kernel = replace(kernel, name=task.symbol)
        code = compile_object(emit(kernel, task.target), task.target)
        names = {v: f"s{i}" for i, v in enumerate(task.program.sizes)}
        return MachineCode(kernel.name, code, size_expr(kernel.attrs.get("workspace", 0), names))
