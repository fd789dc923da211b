"""Local response normalization: over neighbouring channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Expr
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.ops.layouts import follow_channels
from weft.ops.stages import accumulator


def _infer(attrs: Attrs, *types: Type) -> TensorType:
    (data,) = rel.tensors("lrn", types, 1)
    rel.want_kind("lrn", data, "float")
    rel.want_rank_at_least("lrn", data, 3 if attrs.block is not None else 2)
    if not isinstance(attrs.size, int) or attrs.size < 1:
        rel.fail("lrn", f"size must be a positive integer, not {attrs.size!r}", "T015")
    if attrs.block is not None and data.shape[-1] != attrs.block:
        rel.fail("lrn", f"{data} has no channels in blocks of {attrs.block}", "T013")
    return data


def _compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    wide, block = accumulator(data.dtype), attrs.block
    below = (attrs.size - 1) // 2
    channels = data.shape[1] if block is None else data.shape[1] * block
    window = te.reduce_axis((0, attrs.size), name="window")

    def neighbours(*i: Expr) -> Expr:
        if block is None:
            c = i[1] + window.var - below
            at: tuple[Any, ...] = (i[0], c, *i[2:])
        else:
            c = i[1] * block + i[-1] + window.var - below
            at = (i[0], c // block, *i[2:-1], c % block)
        value = te.cast(data[at], wide)
        return te.sum(te.if_then_else(te.all(c >= 0, c < channels), value * value, te.const(0, wide)), axis=window)

    squares = te.compute(data.shape, neighbours, name="lrn_squares")

    def element(*i: Expr) -> Expr:
        base: Expr = squares[i] * (attrs.alpha / attrs.size) + attrs.bias
        return te.cast(te.cast(data[i], wide) * te.power(base, te.const(-attrs.beta, wide)), out.dtype)

    return te.compute(out.shape, element, name="lrn")


def _reference(attrs: Attrs, data: Array) -> Array:
    wide = data.astype(np.float64)
    if attrs.block is not None:
        wide = np.moveaxis(wide, -1, 2).reshape(data.shape[0], -1, *data.shape[2:-1])
    squares = np.zeros_like(wide)
    channels = wide.shape[1]
    for c in range(channels):
        low, high = max(0, c - (attrs.size - 1) // 2), min(channels, c + -(-(attrs.size - 1) // 2) + 1)
        squares[:, c] = (wide[:, low:high] ** 2).sum(1)
    out = wide / (attrs.bias + attrs.alpha / attrs.size * squares) ** attrs.beta
    if attrs.block is not None:
        out = np.moveaxis(out.reshape(*data.shape[:2], attrs.block, *data.shape[2:-1]), 2, -1)
    return np.ascontiguousarray(out).astype(data.dtype)


def _blocked(attrs: Attrs, data: TensorType, block: int) -> Attrs | None:
    return attrs.replace(block=block)


LRN = OpDef(
    "lrn",
    (
        Attribute("size", REQUIRED, "number of neighbouring channels"),
        Attribute("alpha", 1e-4, "scale of the mean of squares"),
        Attribute("beta", 0.75, "exponent"),
        Attribute("bias", 1.0, "added to the scaled mean of squares"),
        Attribute("block", None, "the size of blocks of channels, [N, C/b, …, b]; None: not blocked"),
    ),
    _infer,
    _reference,
    follows=follow_channels(_infer, _blocked),
    compute=_compute,
    cases=(
        Case((((2, 7, 3), "float32"),), {"size": 5, "alpha": 0.5}),
        Case((((1, 6, 2, 2), "float32"),), {"size": 4, "alpha": 0.1, "beta": 0.5, "bias": 2.0}),
        Case((((1, 2, 2, 3, 4), "float32"),), {"size": 5, "alpha": 0.1, "block": 4}),
    ),
    doc="x divided by a power of the mean of squares of neighbouring channels",
    source="ONNX LRN-13",
)
