"""Hardware instructions, declared as a tensor expression and a lowering."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from weft.expr.nodes import Expr, ExprLike, Var, wrap
from weft.ir.frozen import FrozenMap
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.operands import OperandBuffer, operand
from weft.support.arguments import FUNCTION, MAPPING, TEXT, Form, checked, instance, optional, several
from weft.support.dtypes import INDEX
from weft.support.errors import ScheduleError
from weft.tensor_expr.nodes import Operation, PlaceholderOp, Tensor
from weft.tensor_expr.verify import verify
from weft.tensor_expr.visit import topological
from weft.tir.foreign import written
from weft.tir.nodes import Stmt

COUNT = Form("a whole number of at least 0", lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0)
BINDS = Form(
    "a dictionary with tensors as keys", lambda v: isinstance(v, Mapping) and all(isinstance(t, Tensor) for t in v)
)


@checked(
    "S004",
    ScheduleError,
    shape=instance("a list of sizes", list, tuple),
    dtype=TEXT,
    name=TEXT,
    scope=TEXT,
    strides=optional(instance("a list of strides", list, tuple)),
    elem_offset=optional(instance("a number of elements or a variable", int, Expr)),
    offset_factor=COUNT,
    data_alignment=COUNT,
)
def decl_buffer(
    shape: Sequence[ExprLike],
    dtype: str = "float32",
    name: str = "buffer",
    scope: str = "global",
    strides: Sequence[ExprLike] | None = None,
    elem_offset: ExprLike | None = None,
    offset_factor: int = 0,
    data_alignment: int = 0,
) -> OperandBuffer:
    """How an operand of an intrinsic lies in memory, for ``binds`` of :func:`declare`.

    ``strides`` and ``elem_offset`` (what is before the operand in its buffer) count elements. Each is a number, which
    tensorize checks, or a variable (``te.var("s")``), which has the operand's value in the lowering. Without
    ``strides`` the operand is row-major without gaps. ``offset_factor`` divides the offset, ``data_alignment`` the
    address in bytes; 0 stands for no condition. ``scope`` is that of the buffer. Raises ScheduleError S082 if nothing
    can fulfil the declaration.
    """
    sizes = [wrap(e, INDEX) for e in shape]
    steps = None if strides is None else [wrap(e, INDEX) for e in strides]
    offset = None if elem_offset is None else wrap(elem_offset, INDEX)
    return operand(sizes, dtype, name, scope, steps, offset, offset_factor, data_alignment)


@checked(
    "S004",
    ScheduleError,
    output=instance("a tensor or its operation", Tensor, Operation),
    lowering=FUNCTION,
    name=TEXT,
    inputs=optional(several(instance("a tensor", Tensor))),
    binds=optional(BINDS),
    default_buffer_params=optional(MAPPING),
)
def declare(
    output: Any,
    lowering: Callable[[Sequence[Any], Any], Stmt],
    name: str = "",
    inputs: Sequence[Tensor] | None = None,
    binds: Mapping[Tensor, OperandBuffer] | None = None,
    default_buffer_params: Mapping[str, Any] | None = None,
) -> TensorIntrinsic:
    """The instruction that computes ``output`` (a tensor of constant shape, or its operation).

    ``lowering(inputs, output)`` gets buffers of the declared shapes and returns a statement on them. For a reduction it
    accumulates into the output. ``binds`` says of tensors how they must lie in memory (:func:`decl_buffer`), and
    ``default_buffer_params``, arguments of ``decl_buffer``, says it of all others; without them, operands may lie
    anyhow. Raises ScheduleError S082 for a declaration that fits no tensor of the instruction, UserError (E201 to E208)
    for tensors that are not well formed.
    """
    tensor = output.output(0) if isinstance(output, Operation) else output
    order = topological([tensor])
    given = list(inputs) if inputs is not None else [op.output(0) for op in order if isinstance(op, PlaceholderOp)]
    verify([tensor], given)
    description = te_to_tir(name or tensor.op.name, given, [tensor])
    operands = _operands([*given, tensor], dict(binds or {}), default_buffer_params)
    params = tuple(
        b if (o := operands.get(t)) is None else b.replace(strides=o.strides)
        for b, t in zip(description.params, [*given, tensor], strict=True)
    )
    noted = {b.name: operands[t].attributes for b, t in zip(params, [*given, tensor], strict=True) if t in operands}
    variables = tuple(dict.fromkeys(v for o in operands.values() for v in o.variables))
    *sources, result = params
    implementation = replace(
        description,
        params=params,
        body=written(lowering, tuple(sources), result),
        allocs=(),
        sizes=(*description.sizes, *variables),
        attrs=description.attrs.replace(operands=FrozenMap(noted)) if noted else description.attrs,
    )
    return TensorIntrinsic(name or tensor.op.name, description, implementation)


def _operands(
    tensors: Sequence[Tensor], binds: dict[Tensor, OperandBuffer], default: Mapping[str, Any] | None
) -> dict[Tensor, OperandBuffer]:
    """The declared operand of each tensor that has one. Refuses (S082) those that do not fit."""
    for t, o in binds.items():
        if t not in tensors or not isinstance(o, OperandBuffer):
            raise ScheduleError(
                f"binds: {t!r} is no tensor of the instruction, or {o!r} no te.decl_buffer", code="S082"
            )
        if o.shape != t.shape or o.dtype != t.dtype:
            raise ScheduleError(
                f"'{o.name}' is declared with other sizes or another dtype than the tensor '{t.name}'", code="S082"
            )
    if default is not None:
        binds = {t: binds.get(t) or decl_buffer(t.shape, t.dtype, t.name, **default) for t in tensors if t.shape}
    bare = {v for o in binds.values() for e in (*o.strides, o.elem_offset) if isinstance(v := e, Var)}
    for o in binds.values():
        unknown = next((v for v in o.variables if v not in bare), None)
        if unknown is not None:
            raise ScheduleError(
                f"nothing gives '{unknown.name}' of the operand '{o.name}' a value",
                code="S082",
                hint="let it be a whole stride or offset of an operand",
            )
    return binds
