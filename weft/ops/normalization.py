"""Normalizations over trailing axes and by norms; the catalogue of all normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Const, Expr
from weft.graph.operator import Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.channel_norm import CHANNEL_NORMS
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array, read
from weft.ops.lrn import LRN
from weft.ops.moments import EPSILON, line, mean, moments, variance
from weft.ops.moments import wide as _wide
from weft.ops.stages import accumulator, extent, reduced
from weft.support.dtypes import DType


def _vector(n: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return (n,), dtype


def _trailing_infer(name: str, operands: int) -> Any:
    def infer(attrs: Attrs, *types: Type) -> TensorType:
        data, *parameters = rel.tensors(name, types, 1, operands)
        rel.want_kind(name, data, "float")
        axis = rel.axis_of(name, attrs.axis, data.rank)
        for i, p in enumerate(parameters, 1):
            rel.broadcast_onto(name, p.shape, data.shape[axis:], f"operand {i} ({p})")
        return data

    return infer


def _apply(parameter: te.Tensor, at: Sequence[Expr], data: te.Tensor, wide: DType) -> Expr:
    """The element of a parameter that broadcasts against the last axes of the data."""
    known = [d if isinstance(d, Const) and int(d) > 1 else None for d in parameter.shape]
    tail = data.shape[data.ndim - parameter.ndim :]
    shape = [w if k is None else k for k, w in zip(known, tail, strict=True)]  # what is more than 1 is that of the data
    return te.cast(read(parameter, at[len(at) - parameter.ndim :], shape), wide)


def _layer_norm_compute(attrs: Attrs, out: TensorType, data: te.Tensor, *parameters: te.Tensor) -> Any:
    wide = accumulator(data.dtype)
    axes = tuple(range(rel.axis_of("layer_norm", attrs.axis, data.ndim), data.ndim))
    mean, variance = moments(data, axes, wide, "layer_norm")
    scale = te.compute(variance.shape, lambda *i: te.rsqrt(variance[i] + attrs.epsilon), name="layer_norm_rsqrt")

    def element(*i: Expr) -> Expr:
        value = (te.cast(data[i], wide) - line(mean, i, axes)) * line(scale, i, axes)
        if parameters:
            value = value * _apply(parameters[0], i, data, wide)
        if len(parameters) > 1:
            value = value + _apply(parameters[1], i, data, wide)
        return te.cast(value, out.dtype)

    return te.compute(out.shape, element, name="layer_norm")


def _layer_norm_reference(attrs: Attrs, data: Array, *parameters: Array) -> Array:
    axes = tuple(range(attrs.axis % data.ndim, data.ndim))
    wide = _wide(data)
    out = wide - mean(wide, axes)
    out /= np.sqrt(variance(wide, axes) + attrs.epsilon)
    if parameters:
        out = out * _wide(parameters[0])
    if len(parameters) > 1:
        out = out + _wide(parameters[1])
    return np.asarray(out.astype(data.dtype))


LAYER_NORM = OpDef(
    "layer_norm",
    (Attribute("axis", -1, "the first of the axes normalized together"), EPSILON),
    _trailing_infer("layer_norm", 3),
    _layer_norm_reference,
    compute=_layer_norm_compute,
    cases=(
        Case((((2, 3, 8), "float32"), _vector(8), _vector(8)), {}),
        Case((((2, 3, 4), "float32"), ((3, 4), "float32")), {"axis": 1}),
        Case((((3, 4), "float32"),), {"epsilon": 1e-2}),
        Case((((2, 16), "float16"), _vector(16, "float16"), _vector(16, "float16")), {}, -2, 2, 4e-3, 4e-3),
    ),
    doc="(x - mean) / sqrt(variance + epsilon) over the last axes; operands x, optional scale, optional bias",
    source="ONNX LayerNormalization-17",
)


def _rms_norm_compute(attrs: Attrs, out: TensorType, data: te.Tensor, *parameters: te.Tensor) -> Any:
    wide = accumulator(data.dtype)
    axes = tuple(range(rel.axis_of("rms_norm", attrs.axis, data.ndim), data.ndim))
    count = te.cast(extent(data.shape, axes), wide)

    def square(x: Expr, at: tuple[Any, ...]) -> Expr:
        return te.cast(x, wide) * te.cast(x, wide)

    squares = reduced(data, axes, te.sum, square, name="rms_norm_squares")
    scale = te.compute(squares.shape, lambda *i: te.rsqrt(squares[i] / count + attrs.epsilon), name="rms_norm_rsqrt")

    def element(*i: Expr) -> Expr:
        value = te.cast(data[i], wide) * line(scale, i, axes)
        return te.cast(value * _apply(parameters[0], i, data, wide) if parameters else value, out.dtype)

    return te.compute(out.shape, element, name="rms_norm")


def _rms_norm_reference(attrs: Attrs, data: Array, *parameters: Array) -> Array:
    axes = tuple(range(attrs.axis % data.ndim, data.ndim))
    wide = _wide(data)
    out = wide / np.sqrt(mean(wide * wide, axes) + attrs.epsilon)
    return np.asarray((out * _wide(parameters[0]) if parameters else out).astype(data.dtype))


RMS_NORM = OpDef(
    "rms_norm",
    (Attribute("axis", -1, "the first of the axes normalized together"), EPSILON),
    _trailing_infer("rms_norm", 2),
    _rms_norm_reference,
    compute=_rms_norm_compute,
    cases=(
        Case((((2, 3, 8), "float32"), _vector(8)), {}),
        Case((((3, 4), "float32"),), {"axis": 0}),
    ),
    doc="x / sqrt(mean of squares + epsilon) over the last axes; operands x, optional scale",
    source="ONNX RMSNormalization-23",
)


def _lp_infer(attrs: Attrs, *types: Type) -> TensorType:
    (data,) = rel.tensors("lp_normalize", types, 1)
    rel.want_kind("lp_normalize", data, "float")
    rel.axis_of("lp_normalize", attrs.axis, data.rank)
    if attrs.p not in (1, 2):
        rel.fail("lp_normalize", f"p must be 1 or 2, not {attrs.p!r}", "T015")
    return data


def _lp_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    wide = accumulator(data.dtype)
    axis = rel.axis_of("lp_normalize", attrs.axis, data.ndim)

    def magnitude(x: Expr, at: tuple[Any, ...]) -> Expr:
        x = te.cast(x, wide)
        return te.abs(x) if attrs.p == 1 else x * x

    total = reduced(data, (axis,), te.sum, magnitude, name="lp_normalize_sum")

    def element(*i: Expr) -> Expr:
        norm = line(total, i, (axis,))
        norm = norm if attrs.p == 1 else te.sqrt(norm)
        return te.cast(te.if_then_else(norm > 0.0, te.cast(data[i], wide) / norm, te.const(0, wide)), out.dtype)

    return te.compute(out.shape, element, name="lp_normalize")


def _lp_reference(attrs: Attrs, data: Array) -> Array:
    norm = np.linalg.norm(_wide(data), attrs.p, attrs.axis, keepdims=True)
    return np.asarray(np.where(norm == 0, 0, _wide(data) / np.where(norm == 0, 1, norm)).astype(data.dtype))


LP_NORMALIZE = OpDef(
    "lp_normalize",
    (Attribute("axis", -1, "the axis to normalize"), Attribute("p", 2, "1 or 2: sum of magnitudes, Euclidean")),
    _lp_infer,
    _lp_reference,
    compute=_lp_compute,
    cases=(
        Case((((2, 3, 4), "float32"),), {}),
        Case((((2, 3), "float32"),), {"axis": 0, "p": 1}),
        Case((np.zeros((2, 2), np.float32),), {}),
    ),
    doc="x over its norm along an axis; 0 where the norm is 0",
    source="ONNX LpNormalization-22",
)

NORMALIZATIONS: tuple[OpDef, ...] = (*CHANNEL_NORMS, LAYER_NORM, RMS_NORM, LRN, LP_NORMALIZE)
