"""The way of one fused group to machine code, stage by stage, as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.backends.llvm import assembly, emit
from weft.graph.nodes import Function
from weft.kernels.machine_code import lowered as lowered
from weft.kernels.machine_code import scheduled
from weft.kernels.task import KernelTask
from weft.lowering.graph_to_te import group_to_te
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.trace import Trace
from weft.target import Target
from weft.tensor_expr.text import to_text as te_text
from weft.tir.text import to_text as tir_text


@dataclass(frozen=True, slots=True)
class StageText:
    """The text of one kernel at one place of its way; ``suffix`` names the language (``.txt``: an IR's own)."""

    name: str
    suffix: str
    text: str


def kernel_stages(group: Function, target: Target, trace: Trace | None = None) -> Iterator[StageText]:
    """Every stage of a fused group as text, from tensor expressions to assembly."""
    stages = group_to_te(group)
    yield StageText("te", ".txt", te_text(stages.outputs, stages.inputs))
    yield from task_stages(KernelTask(te_to_tir(stages.name, stages.inputs, stages.outputs), target, trace))


def task_stages(task: KernelTask) -> Iterator[StageText]:
    """Every stage of a kernel as text, from the plain loops to assembly."""
    target = task.target
    with task.reported():
        yield StageText("tir", ".txt", tir_text(task.program))
        schedule = scheduled(task.program, target, task.trace, task.intrinsics)
        yield StageText("trace", ".py", schedule.trace.to_python())
        yield StageText("scheduled", ".txt", tir_text(schedule.program))
        kernel = tir_to_kernel(schedule.program, target)
        yield StageText("kernel", ".txt", tir_text(kernel))
        ir = emit(kernel, target)
        yield StageText("llvm", ".ll", ir)
        yield StageText("assembly", ".s", assembly(ir, target))
