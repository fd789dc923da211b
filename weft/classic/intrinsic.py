"""Hardware instructions, declared as a tensor expression and a lowering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.intrinsic import TensorIntrinsic
from weft.support.arguments import FUNCTION, TEXT, checked, instance, optional, several
from weft.support.errors import ScheduleError
from weft.tensor_expr.nodes import Operation, PlaceholderOp, Tensor
from weft.tensor_expr.visit import topological
from weft.tir.nodes import Stmt


@checked(
    "S004",
    ScheduleError,
    output=instance("a tensor or its operation", Tensor, Operation),
    lowering=FUNCTION,
    name=TEXT,
    inputs=optional(several(instance("a tensor", Tensor))),
)
def declare(
    output: Any, lowering: Callable[[Sequence[Any], Any], Stmt], name: str = "", inputs: Sequence[Tensor] | None = None
) -> TensorIntrinsic:
    """The instruction that computes ``output`` (a tensor of constant shape, or its operation).

    ``lowering(inputs, output)`` gets buffers of the declared shapes and returns a statement on them. For a reduction it
    accumulates into the output.
    """
    tensor = output.output(0) if isinstance(output, Operation) else output
    order = topological([tensor])
    given = list(inputs) if inputs is not None else [op.output(0) for op in order if isinstance(op, PlaceholderOp)]
    description = te_to_tir(name or tensor.op.name, given, [tensor])
    *sources, result = description.params
    return TensorIntrinsic(
        name or tensor.op.name, description, replace(description, body=lowering(tuple(sources), result), allocs=())
    )
