"""Products with matrices of few bits a number, which are decoded where they are multiplied."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Call, Expr
from weft.graph.operator import REQUIRED, Attribute, Attrs, Widening
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.ops.stages import accumulator, narrowed
from weft.support.dtypes import FLOAT32, DType

NAME = "packed_matmul"
PANEL = 16
"""Columns of a panel: its bytes of one row lie side by side."""
BITS = (2, 4, 8)


def _infer(attrs: Attrs, *types: Type) -> TensorType:
    a, packed, scale, shift = rel.tensors(NAME, types, 4)
    rel.want_kind(NAME, a, "float", "the first operand")
    rel.want_rank_at_least(NAME, a, 1, "the first operand")
    rel.want_rank(NAME, packed, 4, "the packed matrix")
    if attrs.bits not in BITS:
        rel.fail(NAME, f"bits is {attrs.bits}, not one of {', '.join(map(str, BITS))}", "T015")
    if packed.dtype != DType("uint8"):
        rel.fail(NAME, f"the packed matrix must be uint8, not {packed.dtype}", "T011")
    panels, blocks, size, panel = packed.shape
    if panel != PANEL or rel.equal_dims(rel.ceil_divide(attrs.columns, PANEL), panels) is False:
        rel.fail(NAME, f"{packed} holds no panels of {PANEL} for {attrs.columns} columns", "T013")
    rel.join_dim(NAME, a.shape[-1], rel.multiply((blocks, size, 8 // attrs.bits)), "the contracted dimensions")
    for t, what in ((scale, "the scale"), (shift, "the shift")):
        if t.dtype != FLOAT32:
            rel.fail(NAME, f"{what} must be float32, not {t.dtype}", "T011")
        rel.want_rank(NAME, t, 3, what)
        for d, (x, y) in enumerate(zip(t.shape, (panels, blocks, panel), strict=True)):
            rel.join_dim(NAME, x, y, f"dimension {d} of {what}")
    return TensorType((*a.shape[:-1], attrs.columns), a.dtype)


def _compute(attrs: Attrs, out: TensorType, a: te.Tensor, packed: te.Tensor, scale: te.Tensor, shift: te.Tensor) -> Any:
    wide, parts = accumulator(out.dtype), 8 // attrs.bits
    size = packed.shape[2]
    block = te.reduce_axis((0, packed.shape[1]), name="block")
    byte = te.reduce_axis((0, size), name="byte")
    part = te.reduce_axis((0, parts), name="part")

    def number(n: Expr) -> Expr:
        value = te.cast(packed[n // PANEL, block.var, byte.var, n % PANEL], "int32")
        if parts > 1:
            moved = Call("shr", (value, te.cast(part.var * attrs.bits, "int32")), DType("int32"))
            value = Call("bitand", (moved, te.const((1 << attrs.bits) - 1, "int32")), DType("int32"))
        at = (n // PANEL, block.var, n % PANEL)
        return te.cast(te.cast(value, FLOAT32) * scale[at] + shift[at], wide)

    def element(*i: Expr) -> Expr:
        k = (block.var * size + byte.var) * parts + part.var
        return te.sum(te.cast(a[(*i[:-1], k)], wide) * number(i[-1]), axis=[block, byte, part])

    return narrowed(te.compute(out.shape, element, name="packed_matmul"), out.dtype, "packed_matmul_narrow")


def _reference(attrs: Attrs, a: Array, packed: Array, scale: Array, shift: Array) -> Array:
    parts = np.stack([packed >> s & ((1 << attrs.bits) - 1) for s in range(0, 8, attrs.bits)], axis=3)
    panels, blocks = packed.shape[:2]
    numbers = parts.reshape(panels, blocks, -1, PANEL) * scale[:, :, None].astype(np.float64) + shift[:, :, None]
    matrix = numbers.reshape(panels, -1, PANEL).transpose(1, 0, 2).reshape(-1, panels * PANEL)[:, : attrs.columns]
    return np.asarray((a.astype(np.float64) @ matrix).astype(a.dtype))


def _case(lead: tuple[int, ...], blocks: int, size: int, columns: int, bits: int, dtype: str = "float32") -> Case:
    rng = np.random.default_rng(1)
    panels = -(-columns // PANEL)
    packed = rng.integers(0, 256, (panels, blocks, size, PANEL)).astype(np.uint8)
    scale, shift = (rng.standard_normal((panels, blocks, PANEL)).astype(np.float32) * 0.1 for _ in range(2))
    operand = ((*lead, blocks * size * 8 // bits), dtype)
    rtol, atol = (1e-4, 1e-4) if dtype == "float32" else (1e-2, 1e-2)
    return Case((operand, packed, scale, shift), {"bits": bits, "columns": columns}, rtol=rtol, atol=atol)


PACKED_MATMUL = OpDef(
    NAME,
    (
        Attribute("bits", REQUIRED, "the width of a number: 2, 4 or 8"),
        Attribute("columns", REQUIRED, "the number of columns, of which the last panel may hold fewer"),
    ),
    _infer,
    _reference,
    widens=lambda attrs, types: Widening((0, 0, 0), -1, "columns", PANEL),
    compute=_compute,
    cases=(
        _case((3,), 2, 16, 40, 4),
        _case((1,), 3, 8, 16, 4),
        _case((2, 2), 1, 16, 5, 8),
        _case((1,), 2, 4, 33, 2),
        _case((7,), 2, 16, 32, 4, "float16"),
    ),
    doc="a · (scale · numbers + shift) with numbers of few bits in panels [columns/16, blocks, bytes, 16], the lowest"
    " bits of a byte first; operands a, panels, scale and shift for each block [columns/16, blocks, 16]",
    source="com.microsoft MatMulNBits",
)
