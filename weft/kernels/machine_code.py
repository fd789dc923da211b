"""One kernel becomes machine code: schedule, kernel form, LLVM.

Nothing here knows of graphs, so that a process which only builds kernels starts quickly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from weft.backends.catalogue import backend_of
from weft.backends.protocol import Backend, Code
from weft.kernels.task import KernelTask
from weft.kernels.versions import with_versions
from weft.lowering.sizes import size_expr
from weft.runtime.program import SizeExpr
from weft.schedule.dispatch import Dispatch, RecordedSchedule
from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.support.frames import pack, unpack
from weft.target import Target
from weft.tir.nodes import Program


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The code of one kernel, and its ``workspace`` in bytes, an expression over the program's sizes ``s0, s1, …``."""

    code: Code
    workspace: SizeExpr

    def to_bytes(self) -> bytes:
        """Bytes that :meth:`from_bytes` reads back, in this process or another."""
        return pack({"workspace": self.workspace, **code_header(self.code)}, self.code.data)

    @classmethod
    def from_bytes(cls, packed: bytes) -> MachineCode:
        """Raises ValueError, KeyError or TypeError for bytes that :meth:`to_bytes` did not write."""
        header, data = unpack(packed)
        return cls(code_of(header, data), tuple(header["workspace"]))


def code_header(code: Code) -> dict[str, Any]:
    """All fields of ``code`` but its data, as values for JSON."""
    return {"format": code.format, "entry": code.entry, "features": sorted(code.features)}


def code_of(header: Mapping[str, Any], data: bytes) -> Code:
    """The code that has :func:`code_header` and ``data``. Raises KeyError or TypeError for other headers."""
    return Code(str(header["format"]), data, str(header["entry"]), frozenset(map(str, header["features"])))


def scheduled(
    program: Program,
    target: Target,
    trace: RecordedSchedule | None = None,
    intrinsics: Sequence[TensorIntrinsic] = (),
    backend: Backend | None = None,
) -> Schedule:
    """``program``, scheduled by the given schedule (which may name ``intrinsics``) or by the default rules. Raises
    ScheduleError S008 for a dispatch: each of its versions has a scheduled form of its own."""
    if isinstance(trace, Dispatch):
        raise ScheduleError(
            f"'{program.name}' has {len(list(trace.versions()))} schedules, chosen by its sizes",
            code="S008",
            hint="take one of dispatch.versions(); the kernel form has all of them",
        )
    if trace is None:
        return (backend or backend_of(target)).schedule(program, target)
    return Schedule(program, intrinsics=intrinsics).replay(trace)


def lowered(
    program: Program,
    target: Target,
    trace: RecordedSchedule | None = None,
    intrinsics: Sequence[TensorIntrinsic] = (),
    backend: Backend | None = None,
) -> Program:
    """The kernel form of ``program``; with a dispatch, that of all its versions together."""
    maker = backend or backend_of(target)
    if isinstance(trace, Dispatch):
        return with_versions(program, trace, lambda t: lowered(program, target, t, intrinsics, maker))
    return maker.lower(scheduled(program, target, trace, intrinsics, maker).program, target)


def machine_code(task: KernelTask) -> MachineCode:
    """Machine code of one kernel. An InternalError carries the task as its reproducer."""
    with task.reported(), task.scope():
        kernel = lowered(task.program, task.target, task.trace, task.intrinsics, task.maker)
        kernel = replace(kernel, name=task.symbol)
        code = task.maker.emit(kernel, task.target)
        names = {v: f"s{i}" for i, v in enumerate(task.program.sizes)}
        return MachineCode(code, size_expr(kernel.attrs.get("workspace", 0), names))
