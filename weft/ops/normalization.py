"""Normalizations: by given statistics (batch_norm), over trailing axes, over groups of channels, over neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.expr.nodes import Expr
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.ops.stages import accumulator, extent, reduced
from weft.support.dtypes import DType

EPSILON = Attribute("epsilon", 1e-5, "added to the variance")


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


def _per_channel(op: str, data: TensorType, parameters: Sequence[TensorType]) -> None:
    """Check that the parameters hold one float a channel."""
    rel.want_kind(op, data, "float")
    rel.want_rank_at_least(op, data, 2, "the data")
    for i, p in enumerate(parameters, 1):
        rel.want_rank(op, p, 1, f"operand {i}")
        rel.want_kind(op, p, "float", f"operand {i}")
        rel.join_dim(op, p.shape[0], data.shape[1], f"the channels of the data and the size of operand {i}")


def _channels(array: Array, rank: int) -> Array:
    """A per-channel vector shaped to broadcast over dimension 1."""
    return _wide(array).reshape((1, -1) + (1,) * (rank - 2))


def _batch_norm_infer(attrs: Attrs, *types: Type) -> TensorType:
    data, *parameters = rel.tensors("batch_norm", types, 5)
    _per_channel("batch_norm", data, parameters)
    return data


def _batch_norm_compute(attrs: Attrs, out: TensorType, data: te.Tensor, *parameters: te.Tensor) -> Any:
    wide = accumulator(data.dtype)

    def element(*i: Expr) -> Expr:
        scale, bias, mean, variance = (te.cast(p[i[1]], wide) for p in parameters)
        normal = (te.cast(data[i], wide) - mean) / te.sqrt(variance + attrs.epsilon)
        return te.cast(normal * scale + bias, out.dtype)

    return te.compute(out.shape, element, name="batch_norm")


def _batch_norm_reference(attrs: Attrs, data: Array, *parameters: Array) -> Array:
    scale, bias, mean, variance = (_channels(p, data.ndim) for p in parameters)
    out = (_wide(data) - mean) / np.sqrt(variance + attrs.epsilon) * scale + bias
    return np.asarray(out.astype(data.dtype))


def _vector(n: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return (n,), dtype


BATCH_NORM = OpDef(
    "batch_norm",
    (EPSILON,),
    _batch_norm_infer,
    _batch_norm_reference,
    compute=_batch_norm_compute,
    cases=(
        Case((((2, 3, 4, 5), "float32"), *(_vector(3),) * 4), {}, 0.1, 2.0),
        Case((((2, 3), "float32"), *(_vector(3),) * 4), {"epsilon": 1e-2}, 0.1, 2.0),
    ),
    doc="(x - mean) / sqrt(variance + epsilon) · scale + bias, by channel; operands x, scale, bias, mean, variance",
    source="ONNX BatchNormalization-15, inference",
)


def _trailing_infer(name: str, operands: int) -> Any:
    def infer(attrs: Attrs, *types: Type) -> TensorType:
        data, *parameters = rel.tensors(name, types, 1, operands)
        rel.want_kind(name, data, "float")
        axis = rel.axis_of(name, attrs.axis, data.rank)
        for i, p in enumerate(parameters, 1):
            shape = rel.broadcast(name, p.shape, data.shape[axis:])
            if len(shape) != data.rank - axis or any(
                rel.equal_dims(a, b) is False for a, b in zip(shape, data.shape[axis:], strict=True)
            ):
                rel.fail(name, f"operand {i} ({p}) does not broadcast to the normalized axes of {data}", "T013")
        return data

    return infer


def _apply(parameter: te.Tensor, at: Sequence[Expr], wide: DType) -> Expr:
    """The element of a parameter that broadcasts against the last axes."""
    tail = at[len(at) - parameter.ndim :]
    return te.cast(
        parameter[tuple(te.const(0) if s == te.const(1) else i for s, i in zip(parameter.shape, tail, strict=True))],
        wide,
    )


def _moments(data: te.Tensor, axes: Sequence[int], wide: DType, name: str) -> tuple[te.Tensor, te.Tensor]:
    """Mean and variance over ``axes``, which stay with size 1; the variance in a second pass, for accuracy."""
    count = te.cast(extent(data.shape, axes), wide)
    total = reduced(data, axes, te.sum, lambda x, at: te.cast(x, wide), name=f"{name}_sum")
    mean = te.compute(total.shape, lambda *i: total[i] / count, name=f"{name}_mean")

    def squared(x: Expr, at: tuple[Any, ...]) -> Expr:
        d = te.cast(x, wide) - _line(mean, at, axes)
        return d * d

    squares = reduced(data, axes, te.sum, squared, name=f"{name}_squares")
    variance = te.compute(squares.shape, lambda *i: squares[i] / count, name=f"{name}_variance")
    return mean, variance


def _line(t: te.Tensor, at: Sequence[Any], axes: Sequence[int]) -> Expr:
    return t[tuple(te.const(0) if d in axes else i for d, i in enumerate(at))]


def _layer_norm_compute(attrs: Attrs, out: TensorType, data: te.Tensor, *parameters: te.Tensor) -> Any:
    wide = accumulator(data.dtype)
    axes = tuple(range(rel.axis_of("layer_norm", attrs.axis, data.ndim), data.ndim))
    mean, variance = _moments(data, axes, wide, "layer_norm")
    scale = te.compute(variance.shape, lambda *i: te.rsqrt(variance[i] + attrs.epsilon), name="layer_norm_rsqrt")

    def element(*i: Expr) -> Expr:
        value = (te.cast(data[i], wide) - _line(mean, i, axes)) * _line(scale, i, axes)
        if parameters:
            value = value * _apply(parameters[0], i, wide)
        if len(parameters) > 1:
            value = value + _apply(parameters[1], i, wide)
        return te.cast(value, out.dtype)

    return te.compute(out.shape, element, name="layer_norm")


def _layer_norm_reference(attrs: Attrs, data: Array, *parameters: Array) -> Array:
    axes = tuple(range(attrs.axis % data.ndim, data.ndim))
    wide = _wide(data)
    out = wide - wide.mean(axes, keepdims=True)
    out /= np.sqrt(wide.var(axes, keepdims=True) + attrs.epsilon)
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
        value = te.cast(data[i], wide) * _line(scale, i, axes)
        return te.cast(value * _apply(parameters[0], i, wide) if parameters else value, out.dtype)

    return te.compute(out.shape, element, name="rms_norm")


def _rms_norm_reference(attrs: Attrs, data: Array, *parameters: Array) -> Array:
    axes = tuple(range(attrs.axis % data.ndim, data.ndim))
    wide = _wide(data)
    out = wide / np.sqrt((wide * wide).mean(axes, keepdims=True) + attrs.epsilon)
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


def _instance_norm_infer(attrs: Attrs, *types: Type) -> TensorType:
    data, *parameters = rel.tensors("instance_norm", types, 3)
    rel.want_rank_at_least("instance_norm", data, 3, "the data")
    _per_channel("instance_norm", data, parameters)
    return data


def _instance_norm_compute(attrs: Attrs, out: TensorType, data: te.Tensor, scale: te.Tensor, bias: te.Tensor) -> Any:
    wide = accumulator(data.dtype)
    axes = tuple(range(2, data.ndim))
    mean, variance = _moments(data, axes, wide, "instance_norm")

    def element(*i: Expr) -> Expr:
        factor = te.cast(scale[i[1]], wide) * te.rsqrt(_line(variance, i, axes) + attrs.epsilon)
        value = (te.cast(data[i], wide) - _line(mean, i, axes)) * factor + te.cast(bias[i[1]], wide)
        return te.cast(value, out.dtype)

    return te.compute(out.shape, element, name="instance_norm")


def _instance_norm_reference(attrs: Attrs, data: Array, scale: Array, bias: Array) -> Array:
    wide, axes = _wide(data), tuple(range(2, data.ndim))
    out = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + attrs.epsilon)
    return np.asarray((out * _channels(scale, data.ndim) + _channels(bias, data.ndim)).astype(data.dtype))


INSTANCE_NORM = OpDef(
    "instance_norm",
    (EPSILON,),
    _instance_norm_infer,
    _instance_norm_reference,
    compute=_instance_norm_compute,
    cases=(
        Case((((2, 3, 4, 5), "float32"), _vector(3), _vector(3)), {}),
        Case((((1, 2, 7), "float32"), _vector(2), _vector(2)), {"epsilon": 1e-2}),
    ),
    doc="every channel of every sample normalized over space; operands x, scale, bias",
    source="ONNX InstanceNormalization-22",
)


def _group_norm_infer(attrs: Attrs, *types: Type) -> TensorType:
    data, *parameters = rel.tensors("group_norm", types, 3)
    _per_channel("group_norm", data, parameters)
    channels, groups = data.shape[1], attrs.num_groups
    if not isinstance(groups, int) or groups < 1 or not isinstance(channels, int) or channels % groups:
        rel.fail("group_norm", f"{channels} channels do not split into {groups} groups", "T015")
    return data


def _group_norm_compute(attrs: Attrs, out: TensorType, data: te.Tensor, scale: te.Tensor, bias: te.Tensor) -> Any:
    wide = accumulator(data.dtype)
    groups, size = attrs.num_groups, int(data.shape[1]) // attrs.num_groups  # type: ignore[call-overload]
    split = te.compute(
        (data.shape[0], groups, size, *data.shape[2:]),
        lambda n, g, c, *i: data[(n, g * size + c, *i)],
        name="group_norm_split",
    )
    axes = tuple(range(2, split.ndim))
    mean, variance = _moments(split, axes, wide, "group_norm")

    def element(*i: Expr) -> Expr:
        at = (i[0], i[1] // size, i[1] % size, *i[2:])
        factor = te.cast(scale[i[1]], wide) * te.rsqrt(_line(variance, at, axes) + attrs.epsilon)
        value = (te.cast(data[i], wide) - _line(mean, at, axes)) * factor + te.cast(bias[i[1]], wide)
        return te.cast(value, out.dtype)

    return te.compute(out.shape, element, name="group_norm")


def _group_norm_reference(attrs: Attrs, data: Array, scale: Array, bias: Array) -> Array:
    wide = _wide(data).reshape(data.shape[0], attrs.num_groups, -1)
    out = (wide - wide.mean(2, keepdims=True)) / np.sqrt(wide.var(2, keepdims=True) + attrs.epsilon)
    out = out.reshape(data.shape) * _channels(scale, data.ndim) + _channels(bias, data.ndim)
    return np.asarray(out.astype(data.dtype))


GROUP_NORM = OpDef(
    "group_norm",
    (Attribute("num_groups", REQUIRED, "number of groups of channels"), EPSILON),
    _group_norm_infer,
    _group_norm_reference,
    compute=_group_norm_compute,
    cases=(Case((((2, 6, 3, 2), "float32"), _vector(6), _vector(6)), {"num_groups": 3}),),
    doc="groups of channels normalized together over channels and space; operands x, scale, bias (by channel)",
    source="ONNX GroupNormalization-21",
)


def _lrn_infer(attrs: Attrs, *types: Type) -> TensorType:
    (data,) = rel.tensors("lrn", types, 1)
    rel.want_kind("lrn", data, "float")
    rel.want_rank_at_least("lrn", data, 2)
    if not isinstance(attrs.size, int) or attrs.size < 1:
        rel.fail("lrn", f"size must be a positive integer, not {attrs.size!r}", "T015")
    return data


def _lrn_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    wide = accumulator(data.dtype)
    below = (attrs.size - 1) // 2
    window = te.reduce_axis((0, attrs.size), name="window")

    def neighbours(*i: Expr) -> Expr:
        c = i[1] + window.var - below
        value = te.cast(data[(i[0], c, *i[2:])], wide)
        inside = te.all(c >= 0, c < data.shape[1])
        return te.sum(te.if_then_else(inside, value * value, te.const(0, wide)), axis=window)

    squares = te.compute(data.shape, neighbours, name="lrn_squares")

    def element(*i: Expr) -> Expr:
        base = squares[i] * (attrs.alpha / attrs.size) + attrs.bias
        return te.cast(te.cast(data[i], wide) * te.power(base, te.const(-attrs.beta, wide)), out.dtype)

    return te.compute(out.shape, element, name="lrn")


def _lrn_reference(attrs: Attrs, data: Array) -> Array:
    wide = _wide(data)
    squares = np.zeros_like(wide)
    channels = data.shape[1]
    for c in range(channels):
        low, high = max(0, c - (attrs.size - 1) // 2), min(channels, c + -(-(attrs.size - 1) // 2) + 1)
        squares[:, c] = (wide[:, low:high] ** 2).sum(1)
    return np.asarray((wide / (attrs.bias + attrs.alpha / attrs.size * squares) ** attrs.beta).astype(data.dtype))


LRN = OpDef(
    "lrn",
    (
        Attribute("size", REQUIRED, "number of neighbouring channels"),
        Attribute("alpha", 1e-4, "scale of the mean of squares"),
        Attribute("beta", 0.75, "exponent"),
        Attribute("bias", 1.0, "added to the scaled mean of squares"),
    ),
    _lrn_infer,
    _lrn_reference,
    compute=_lrn_compute,
    cases=(
        Case((((2, 7, 3), "float32"),), {"size": 5, "alpha": 0.5}),
        Case((((1, 6, 2, 2), "float32"),), {"size": 4, "alpha": 0.1, "beta": 0.5, "bias": 2.0}),
    ),
    doc="x divided by a power of the mean of squares of neighbouring channels",
    source="ONNX LRN-13",
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
        norm = _line(total, i, (axis,))
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

NORMALIZATIONS: tuple[OpDef, ...] = (
    BATCH_NORM,
    LAYER_NORM,
    RMS_NORM,
    INSTANCE_NORM,
    GROUP_NORM,
    LRN,
    LP_NORMALIZE,
)
