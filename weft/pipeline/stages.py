"""The story of one fused group, stage by stage, as text."""

from __future__ import annotations

from collections.abc import Iterator

from weft.backends.catalogue import backend_of
from weft.backends.protocol import StageText
from weft.graph.nodes import Function
from weft.kernels.machine_code import lowered as lowered
from weft.kernels.machine_code import scheduled
from weft.lowering.graph_to_te import group_to_te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.trace import Trace
from weft.target import Target
from weft.tensor_expr.text import to_text as te_text
from weft.tir.text import to_text as tir_text


def kernel_stages(group: Function, target: Target, trace: Trace | None = None) -> Iterator[StageText]:
    """Every stage of a fused group as text, from tensor expressions to what the back end writes."""
    stages = group_to_te(group)
    yield StageText("te", ".txt", te_text(stages.outputs, stages.inputs))
    program = te_to_tir(stages.name, stages.inputs, stages.outputs)
    yield StageText("tir", ".txt", tir_text(program))
    schedule = scheduled(program, target, trace)
    yield StageText("trace", ".py", schedule.trace.to_python())
    yield StageText("scheduled", ".txt", tir_text(schedule.program))
    kernel = backend_of(target).lower(schedule.program, target)
    yield StageText("kernel", ".txt", tir_text(kernel))
    yield from backend_of(target).texts(kernel, target)
