"""Every stage of one fused group, from graph to machine code, as text."""

from __future__ import annotations

from collections.abc import Iterator

from weft.backends.protocol import Backend, StageText
from weft.graph.nodes import Function
from weft.kernels.machine_code import scheduled
from weft.kernels.task import KernelTask
from weft.lowering.graph_to_te import group_to_te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.trace import Trace
from weft.target import Target
from weft.tensor_expr.text import to_text as te_text
from weft.tir.text import to_text as tir_text


def kernel_stages(
    group: Function, target: Target, trace: Trace | None = None, backend: Backend | None = None
) -> Iterator[StageText]:
    """Every stage of a fused group as text, from tensor expressions to the texts of the back end."""
    stages = group_to_te(group)
    yield StageText("te", ".txt", te_text(stages.outputs, stages.inputs))
    yield from task_stages(
        KernelTask(te_to_tir(stages.name, stages.inputs, stages.outputs), target, trace, backend=backend)
    )


def task_stages(task: KernelTask) -> Iterator[StageText]:
    """Every stage of a kernel as text, from the plain loops to the texts of the back end."""
    stages = _stages(task)
    while True:
        with task.scope():  # not across a yield: the caller's own names must mean the same between two stages
            stage = next(stages, None)
        if stage is None:
            return
        yield stage


def _stages(task: KernelTask) -> Iterator[StageText]:
    backend = task.maker
    with task.reported():
        yield StageText("tir", ".txt", tir_text(task.program))
        schedule = scheduled(task.program, task.target, task.trace, task.intrinsics, backend)
        notes = "".join(f"\n# note: {note}" for note in schedule.notes)
        yield StageText("trace", ".py", schedule.trace.to_python() + notes)
        yield StageText("scheduled", ".txt", tir_text(schedule.program))
        kernel = backend.lower(schedule.program, task.target)
        yield StageText("kernel", ".txt", tir_text(kernel))
        yield from backend.texts(kernel, task.target)
