"""Schedules indexed by tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.expr.nodes import Expr
from weft.lowering.te_to_tir import Stages, te_to_stages
from weft.schedule.schedule import Schedule
from weft.schedule.stage_notation import ClassicSchedule
from weft.support.errors import ScheduleError
from weft.tensor_expr.bounds import guarded, open_accesses
from weft.tensor_expr.nodes import ComputeOp, Operation, PlaceholderOp, Tensor
from weft.tensor_expr.verify import verify
from weft.tensor_expr.visit import topological


class Stagewise:
    """Maps tensors and operations to their blocks and axes."""

    def __init__(self, stages: Stages) -> None:
        self.stages = stages

    def block_name(self, key: Any) -> str:
        return self.stages.blocks[operation_of(key)]

    def axes(self, key: Any) -> Sequence[Any]:
        op = operation_of(key)
        return (*op.axis, *op.reduce_axis) if isinstance(op, ComputeOp) else ()

    def buffer_name(self, key: Any) -> str:
        if isinstance(key, str):
            return key
        tensor = key if isinstance(key, Tensor) else operation_of(key).output(0)
        return self.stages.buffers.get(tensor, tensor.name)


class TensorSchedule(ClassicSchedule):
    """The schedule of some outputs; ``stages`` links tensors to the buffers of the program.

    ``checks`` are conditions on sizes, with messages: where they do not hold, something is read out of bounds."""

    def __init__(
        self, stages: Stages, outputs: tuple[Tensor, ...], checks: Sequence[tuple[Expr, str]] = (), seed: int = 0
    ) -> None:
        super().__init__(Schedule(stages.program, seed), Stagewise(stages))
        self.stages, self.outputs, self.checks = stages, outputs, tuple(checks)


def create_schedule(outputs: Any) -> TensorSchedule:
    """The schedule that computes ``outputs`` with plain loops. Where neither a proof nor a check of sizes keeps an
    access inside of its tensor, the loops have a condition: elements outside read as 0, and changes of them are left
    out. Raises ScheduleError S004 if nothing is computed, UserError (E201 to E209) for tensors that are not well formed
    or read or change elements outside of others for all sizes."""
    given = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    tensors: list[Tensor] = []
    for one in given:
        if isinstance(one, Operation):
            tensors += [one.output(i) for i in range(one.num_outputs)]
        elif isinstance(one, Tensor):
            tensors.append(one)
        else:
            raise ScheduleError(
                f"create_schedule: {type(one).__name__} is neither a tensor nor an operation",
                code="S004",
                hint="te.create_schedule(C.op)",
            )
    tensors = list(dict.fromkeys(tensors))  # several outputs may belong to one operation
    verify(tensors)
    accesses = open_accesses(tensors)
    checks = [(a.condition, a.message) for a in accesses if a.condition is not None]
    order = topological(tensors)
    states = {s.op for op in order for s in getattr(op, "states", ())}
    inputs = [op.output(0) for op in order if isinstance(op, PlaceholderOp) and op not in states]
    if not tensors or all(isinstance(t.op, PlaceholderOp) for t in tensors):
        raise ScheduleError("create_schedule: there is nothing to compute", code="S004", hint="give computed tensors")
    stages = te_to_stages(tensors[-1].op.name, inputs, tensors, guarded(accesses))
    return TensorSchedule(stages, tuple(tensors), checks)


def operation_of(key: Any) -> Operation:
    """The operation of a tensor, or the operation itself; KeyError for anything else."""
    op = key.op if isinstance(key, Tensor) else key
    if not isinstance(op, Operation):
        raise KeyError(key)
    return op
