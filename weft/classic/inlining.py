"""Helpers of the classic notation that inline stages by what they are: ``te.schedule.AutoInlineInjective(s)``.

A stage is *element-wise* if it reads everything at its own axes, a *broadcast* if it reads at some of them in their
order, and *injective* if it is no reduction. Outputs, stages with several results and stages about which something has
been declared stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from weft.classic.schedule import TensorSchedule
from weft.expr.visit import loads
from weft.support.arguments import checked, instance
from weft.support.errors import ScheduleError
from weft.tensor_expr.nodes import ComputeOp
from weft.tensor_expr.visit import topological

_SCHEDULE = instance("a schedule, as te.create_schedule makes it", TensorSchedule)


@checked("S004", ScheduleError, schedule=_SCHEDULE)
def AutoInlineElemWise(schedule: TensorSchedule) -> None:
    """Inline all element-wise stages. Raises ScheduleError (S004) for what is no schedule of tensors."""
    _inline(schedule, _is_elementwise)


@checked("S004", ScheduleError, schedule=_SCHEDULE)
def AutoInlineBroadcast(schedule: TensorSchedule) -> None:
    """Inline all element-wise stages and broadcasts. Raises ScheduleError (S004) for what is no schedule of tensors."""
    _inline(schedule, _is_broadcast)


@checked("S004", ScheduleError, schedule=_SCHEDULE)
def AutoInlineInjective(schedule: TensorSchedule) -> None:
    """Inline all stages that are no reductions. Raises ScheduleError (S004) for what is no schedule of tensors."""
    _inline(schedule, lambda op: True)


def _inline(schedule: TensorSchedule, fits: Callable[[ComputeOp], bool]) -> None:
    outputs = {t.op for t in schedule.outputs}
    for op in topological(list(schedule.outputs)):
        if not isinstance(op, ComputeOp) or op in outputs or op.reduce_axis or op.num_outputs != 1 or not fits(op):
            continue
        if schedule[op].identity not in schedule.wishes.stages:
            with suppress(ScheduleError):  # the state of a recurrence, or a stage that another kind of stage needs
                schedule[op].compute_inline()


def _is_elementwise(op: ComputeOp) -> bool:
    own = tuple(axis.var for axis in op.axis)
    return all(load.indices == own for load in loads(*op.body))


def _is_broadcast(op: ComputeOp) -> bool:
    order = {axis.var: n for n, axis in enumerate(op.axis)}
    for load in loads(*op.body):
        found = [order.get(index, -1) for index in load.indices]  # type: ignore[call-overload]  # other indices are no axes
        if -1 in found or found != sorted(set(found)):
            return False
    return True
