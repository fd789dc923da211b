"""Normalizations with parameters by channel: batch_norm, instance_norm, group_norm, plain and with blocked channels.

Where the data has blocked channels, [N, C/b, …, b], parameters have the shape [C/b, b] instead of [C]. Their padding is
zero, and so is that of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Expr, index, minimum
from weft.graph.layout import parse
from weft.graph.operator import REQUIRED, Attribute, Attrs, LayoutChoice
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.ops.layouts import follow_channels
from weft.ops.moments import EPSILON, line, mean, moments, total, variance, wide
from weft.ops.stages import accumulator, extent

Follows = Callable[[Attrs, tuple[TensorType, ...], int, str], "LayoutChoice | None"]


def _per_channel(op: str, data: TensorType, parameters: Sequence[TensorType]) -> None:
    """Check that the parameters hold one float a channel."""
    rel.want_kind(op, data, "float")
    rel.want_rank_at_least(op, data, 2, "the data")
    blocked = bool(parameters) and parameters[0].rank == 2
    wanted = (data.shape[1], data.shape[-1]) if blocked else (data.shape[1],)
    for i, p in enumerate(parameters, 1):
        rel.want_rank(op, p, len(wanted), f"operand {i}")
        rel.want_kind(op, p, "float", f"operand {i}")
        for have, want in zip(p.shape, wanted, strict=True):
            rel.join_dim(op, have, want, f"the channels of the data and the size of operand {i}")


def _channels(array: Array, rank: int) -> Array:
    """A parameter shaped to broadcast over data of that rank."""
    count, *block = array.shape
    return wide(array).reshape((1, count) + (1,) * (rank - 2 - len(block)) + tuple(block))


def _at(parameter: te.Tensor, i: Sequence[Expr], dtype: Any) -> Expr:
    """The parameter of the channel of element ``i``."""
    return te.cast(parameter[i[1]] if parameter.ndim == 1 else parameter[i[1], i[-1]], dtype)


def _space(data: Any, parameter: Any) -> tuple[int, ...]:
    """The spatial axes of the data."""
    return tuple(range(2, data.ndim - (parameter.ndim - 1)))


def _follow(infer: Callable[..., TensorType], blocked: Any = None) -> Follows:
    """The ``follows`` trait: parameters are packed like the channels of the data."""
    channels = follow_channels(infer, blocked)

    def follows(attrs: Attrs, types: tuple[TensorType, ...], operand: int, layout: str) -> LayoutChoice | None:
        made = channels(attrs, types, operand, layout)
        if made is None or types[1].rank != 1:
            return None
        packed = f"C{parse(layout).dims[-1][1]}c"
        return LayoutChoice((layout, *(packed,) * (len(types) - 1)), made.outputs, made.attrs)

    return follows


def _vector(n: int, *more: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return (n, *more), dtype


def _batch_norm_infer(attrs: Attrs, *types: Type) -> TensorType:
    data, *parameters = rel.tensors("batch_norm", types, 5)
    _per_channel("batch_norm", data, parameters)
    return data


def _batch_norm_compute(attrs: Attrs, out: TensorType, data: te.Tensor, *parameters: te.Tensor) -> Any:
    dtype = accumulator(data.dtype)

    def element(*i: Expr) -> Expr:
        scale, bias, mean, variance = (_at(p, i, dtype) for p in parameters)
        normal: Expr = (te.cast(data[i], dtype) - mean) / te.sqrt(variance + attrs.epsilon)
        return te.cast(normal * scale + bias, out.dtype)

    return te.compute(out.shape, element, name="batch_norm")


def _batch_norm_reference(attrs: Attrs, data: Array, *parameters: Array) -> Array:
    scale, bias, mean, variance = (_channels(p, data.ndim) for p in parameters)
    out = (wide(data) - mean) / np.sqrt(variance + attrs.epsilon) * scale + bias
    return np.asarray(out.astype(data.dtype))


BATCH_NORM = OpDef(
    "batch_norm",
    (EPSILON,),
    _batch_norm_infer,
    _batch_norm_reference,
    follows=_follow(_batch_norm_infer),
    compute=_batch_norm_compute,
    cases=(
        Case((((2, 3, 4, 5), "float32"), *(_vector(3),) * 4), {}, 0.1, 2.0),
        Case((((2, 3), "float32"), *(_vector(3),) * 4), {"epsilon": 1e-2}, 0.1, 2.0),
        Case((((2, 2, 3, 4), "float32"), *(_vector(2, 4),) * 4), {}, 0.1, 2.0),
    ),
    doc="(x - mean) / sqrt(variance + epsilon) · scale + bias, by channel; operands x, scale, bias, mean, variance",
    source="ONNX BatchNormalization-15, inference",
)


def _instance_norm_infer(attrs: Attrs, *types: Type) -> TensorType:
    data, *parameters = rel.tensors("instance_norm", types, 3)
    rel.want_rank_at_least("instance_norm", data, 3, "the data")
    _per_channel("instance_norm", data, parameters)
    return data


def _instance_norm_compute(attrs: Attrs, out: TensorType, data: te.Tensor, scale: te.Tensor, bias: te.Tensor) -> Any:
    dtype = accumulator(data.dtype)
    axes = _space(data, scale)
    mean, variance = moments(data, axes, dtype, "instance_norm")
    root = te.compute(variance.shape, lambda *i: te.rsqrt(variance[i] + attrs.epsilon), name="instance_norm_rsqrt")

    def element(*i: Expr) -> Expr:
        factor = _at(scale, i, dtype) * line(root, i, axes)
        value = (te.cast(data[i], dtype) - line(mean, i, axes)) * factor + _at(bias, i, dtype)
        return te.cast(value, out.dtype)

    return te.compute(out.shape, element, name="instance_norm")


def _instance_norm_reference(attrs: Attrs, data: Array, scale: Array, bias: Array) -> Array:
    x, axes = wide(data), _space(data, scale)
    out = (x - mean(x, axes)) / np.sqrt(variance(x, axes) + attrs.epsilon)
    return np.asarray((out * _channels(scale, data.ndim) + _channels(bias, data.ndim)).astype(data.dtype))


INSTANCE_NORM = OpDef(
    "instance_norm",
    (EPSILON,),
    _instance_norm_infer,
    _instance_norm_reference,
    follows=_follow(_instance_norm_infer),
    compute=_instance_norm_compute,
    cases=(
        Case((((2, 3, 4, 5), "float32"), _vector(3), _vector(3)), {}),
        Case((((1, 2, 7), "float32"), _vector(2), _vector(2)), {"epsilon": 1e-2}),
        Case((((2, 2, 3, 5, 4), "float32"), _vector(2, 4), _vector(2, 4)), {}),
    ),
    doc="every channel of every sample normalized over space; operands x, scale, bias",
    source="ONNX InstanceNormalization-22",
)


def _group_norm_infer(attrs: Attrs, *types: Type) -> TensorType:
    data, *parameters = rel.tensors("group_norm", types, 3)
    _per_channel("group_norm", data, parameters)
    channels, groups = attrs.channels or data.shape[1], attrs.num_groups
    if not isinstance(groups, int) or groups < 1 or not isinstance(channels, int) or channels % groups:
        rel.fail("group_norm", f"{channels} channels do not split into {groups} groups", "T015")
    if parameters[0].rank == 2 and attrs.channels is None:
        rel.fail("group_norm", f"the number of channels in {data} must be given", "T015")
    return data


def _group_norm_compute(attrs: Attrs, out: TensorType, data: te.Tensor, scale: te.Tensor, bias: te.Tensor) -> Any:
    """Sums by channel, then by group; the variance in a second pass over the data."""
    dtype, axes, groups = accumulator(data.dtype), _space(data, scale), attrs.num_groups
    channels = attrs.channels or int(data.shape[1])  # type: ignore[call-overload]  # constant
    size = channels // groups
    block = int(scale.shape[1]) if scale.ndim == 2 else 1  # type: ignore[call-overload]  # constant
    count = te.cast(extent(data.shape, axes) * size, dtype)

    def group(i: Sequence[Expr]) -> Expr:
        channel = i[1] if scale.ndim == 1 else i[1] * block + i[-1]
        return channel // size if channels % block == 0 else minimum(channel // size, groups - 1)

    def by_group(element: Any, name: str) -> te.Tensor:
        sums = total(data, axes, element, dtype=dtype, name=f"{name}_channels")
        member = te.reduce_axis((0, size), name="member")

        def of_group(n: Expr, g: Expr) -> Expr:
            channel = g * size + index(member.var)
            place = (channel,) if scale.ndim == 1 else (channel // block,)
            lane = () if scale.ndim == 1 else (channel % block,)
            return te.sum(sums[(n, *place, *(te.const(0),) * len(axes), *lane)], axis=member)

        summed = te.compute((data.shape[0], groups), of_group, name=name)
        made: te.Tensor = te.compute(summed.shape, lambda *i: summed[i] / count, name=f"{name}_mean")
        return made

    mean = by_group(lambda x, at: te.cast(x, dtype), "group_norm_sum")

    def squared(x: Expr, at: tuple[Any, ...]) -> Expr:
        d = te.cast(x, dtype) - mean[at[0], group(at)]
        return d * d

    variance = by_group(squared, "group_norm_squares")

    def element(*i: Expr) -> Expr:
        at = (i[0], group(i))
        factor = _at(scale, i, dtype) * te.rsqrt(variance[at] + attrs.epsilon)
        normal: Expr = (te.cast(data[i], dtype) - mean[at]) * factor + _at(bias, i, dtype)
        return te.cast(normal, out.dtype)

    return te.compute(out.shape, element, name="group_norm")


def _group_norm_reference(attrs: Attrs, data: Array, scale: Array, bias: Array) -> Array:
    x = wide(data)
    if scale.ndim == 2:
        x = np.moveaxis(x, -1, 2)
        x = x.reshape(data.shape[0], -1, *data.shape[2:-1])[:, : attrs.channels]
    parts = x.reshape(data.shape[0], attrs.num_groups, -1)
    parts = (parts - mean(parts, (2,))) / np.sqrt(variance(parts, (2,)) + attrs.epsilon)
    out = parts.reshape(x.shape)
    if scale.ndim == 2:
        out = np.pad(out, [(0, 0), (0, scale.size - out.shape[1]), *[(0, 0)] * (out.ndim - 2)])
        out = np.moveaxis(out.reshape(data.shape[0], *scale.shape, *data.shape[2:-1]), 2, -1)
    return np.asarray((out * _channels(scale, data.ndim) + _channels(bias, data.ndim)).astype(data.dtype))


def _group_blocked(attrs: Attrs, data: TensorType, block: int) -> Attrs | None:
    return attrs.replace(channels=data.shape[1]) if isinstance(data.shape[1], int) else None


GROUP_NORM = OpDef(
    "group_norm",
    (
        Attribute("num_groups", REQUIRED, "number of groups of channels"),
        EPSILON,
        Attribute("channels", None, "the number of channels, where they are blocked"),
    ),
    _group_norm_infer,
    _group_norm_reference,
    follows=_follow(_group_norm_infer, _group_blocked),
    compute=_group_norm_compute,
    cases=(
        Case((((2, 6, 3, 2), "float32"), _vector(6), _vector(6)), {"num_groups": 3}),
        Case((((2, 6), "float32"), _vector(6), _vector(6)), {"num_groups": 2}),
        Case((((2, 2, 3, 2, 4), "float32"), _vector(2, 4), _vector(2, 4)), {"num_groups": 4, "channels": 8}),
    ),
    doc="groups of channels normalized together over channels and space; operands x, scale, bias (by channel)",
    source="ONNX GroupNormalization-21",
)

CHANNEL_NORMS: tuple[OpDef, ...] = (BATCH_NORM, INSTANCE_NORM, GROUP_NORM)
