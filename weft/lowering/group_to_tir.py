"""The plain loops of a fused group, with its result where the graph wants it."""

from __future__ import annotations

from dataclasses import replace

from weft.expr.nodes import const
from weft.graph.nodes import Function
from weft.lowering.graph_to_te import FusedStages, group_to_te
from weft.lowering.te_to_tir import te_to_tir
from weft.support.dtypes import INDEX
from weft.tir.nodes import Program
from weft.tir.placement import compact_strides
from weft.tir.visit import substitute


def group_to_tir(group: Function, stages: FusedStages | None = None) -> Program:
    """The unscheduled program of ``group``; ``stages`` are its tensor expressions, if they are known.

    If the result is part of a longer tensor (``Function.within``), its strides are those of the latter.
    """
    stages = stages or group_to_te(group)
    program = te_to_tir(stages.name, stages.inputs, stages.outputs)
    if group.within is None:
        return program
    axis, size = group.within
    *others, result = program.params
    whole = (*result.shape[:axis], const(size, INDEX), *result.shape[axis + 1 :])
    placed = result.replace(strides=compact_strides(whole))
    return replace(program, params=(*others, placed), body=substitute(program.body, {}, {result: placed}))
