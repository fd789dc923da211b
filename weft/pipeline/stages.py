"""Every stage of one fused group, from graph to machine code, as text."""

from __future__ import annotations

from collections.abc import Iterator

from weft.backends.protocol import Backend, StageText
from weft.graph.nodes import Function
from weft.kernels.stages import task_stages
from weft.kernels.task import KernelTask
from weft.lowering.graph_to_te import group_to_te
from weft.lowering.group_to_tir import group_to_tir
from weft.schedule.dispatch import RecordedSchedule
from weft.target import Target
from weft.tensor_expr.text import to_text


def kernel_stages(
    group: Function, target: Target, trace: RecordedSchedule | None = None, backend: Backend | None = None
) -> Iterator[StageText]:
    """Every stage of a fused group as text, from tensor expressions to the texts of the back end."""
    stages = group_to_te(group)
    yield StageText("te", ".txt", to_text(stages.outputs, stages.inputs))
    yield from task_stages(KernelTask(group_to_tir(group, stages), target, trace, backend=backend))
