"""Operators that are one function of PyTorch: part of the table of ``in_torch``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.support.errors import ModelError

Attributes = dict[str, Any]
Converter = Callable[[Any, Sequence[Any], Attributes, int], Any]


def integers(tensor: Any) -> list[int]:
    return [int(v) for v in tensor.tolist()]


def listed(x: Sequence[Any], a: Attributes, index: int, name: str) -> list[int] | None:
    """Integers that are an attribute in older opsets and an input in newer ones."""
    if len(x) > index and x[index] is not None:
        return integers(x[index])
    return list(a[name]) if name in a else None


def reduced_axes(x: Sequence[Any], a: Attributes) -> list[int]:
    """The axes of a reduction; none of them where no axes mean no reduction."""
    axes = listed(x, a, 1, "axes")
    return axes or ([] if a.get("noop_with_empty_axes") else list(range(x[0].dim())))


def _named(name: str) -> Converter:
    return lambda t, x, a, opset: getattr(t, name)(*x)


def _layer(name: str, **names: str) -> Converter:
    """A function of torch.nn.functional; ``names`` are its parameters and the attributes that give them."""

    def convert(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
        given = {k: a[v] for k, v in names.items() if v in a}
        return getattr(t.nn.functional, name)(x[0], **given)

    return convert


def _folded(name: str) -> Converter:
    """A function of two operands for any number of them."""

    def convert(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
        total = x[0]
        for more in x[1:]:
            total = getattr(t, name)(total, more)
        return total

    return convert


def _mod(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    return t.fmod(*x) if a.get("fmod") else t.remainder(*x)


def _cumulated(name: str, first: int) -> Converter:
    """Sums or products of all elements before; ``first`` is that of none."""

    def convert(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
        axis = int(x[1])
        data = t.flip(x[0], [axis]) if a.get("reverse") else x[0]
        made = getattr(t, name)(data, axis, dtype=data.dtype)
        if a.get("exclusive"):
            before = t.full_like(data.narrow(axis, 0, 1), first)
            made = t.cat([before, made.narrow(axis, 0, made.shape[axis] - 1)], axis)
        return t.flip(made, [axis]) if a.get("reverse") else made

    return convert


def _top_k(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    count = int(x[1]) if len(x) > 1 else a["k"]
    return t.topk(x[0], count, a.get("axis", -1), bool(a.get("largest", 1)), bool(a.get("sorted", 1)))


def _index_of(name: str) -> Converter:
    def convert(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
        axis, keep = a.get("axis", 0), bool(a.get("keepdims", 1))
        if a.get("select_last_index"):
            return x[0].shape[axis] - 1 - getattr(t, name)(t.flip(x[0], [axis]), axis, keep)
        return getattr(t, name)(x[0], axis, keep)

    return convert


def _is_inf(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    negative, positive = a.get("detect_negative", 1), a.get("detect_positive", 1)
    if negative and positive:
        return t.isinf(x[0])
    return t.isneginf(x[0]) if negative else t.isposinf(x[0]) if positive else t.zeros_like(x[0], dtype=t.bool)


def _selu(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    alpha, gamma = a.get("alpha"), a.get("gamma")
    if alpha is None and gamma is None:
        return t.nn.functional.selu(x[0])
    alpha, gamma = alpha or 1.6732632423543772, gamma or 1.0507009873554805
    return gamma * t.nn.functional.elu(x[0], alpha)


def _log_softmax(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    if opset >= 13:
        return t.log_softmax(x[0], a.get("axis", -1))
    return t.log_softmax(x[0].flatten(a.get("axis", 1) % x[0].dim()), -1).reshape(x[0].shape)


def _trilu(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    diagonal = int(x[1]) if len(x) > 1 and x[1] is not None else 0
    return t.triu(x[0], diagonal) if a.get("upper", 1) else t.tril(x[0], diagonal)


def _gather_elements(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    axis, places = a.get("axis", 0), x[1].long()
    return t.gather(x[0], axis, t.where(places < 0, places + x[0].shape[axis], places))


def _prelu(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    slope = x[1]
    channels = slope.dim() == x[0].dim() - 1 and slope.shape[1:].numel() == 1
    if slope.numel() == 1 or channels:
        return t.nn.functional.prelu(x[0], slope.reshape(-1))
    return t.where(x[0] < 0, x[0] * slope, x[0])


def _grid_sample(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(a.get("mode", "linear"), a.get("mode", "linear"))
    aligned = bool(a.get("align_corners", 0))
    return t.nn.functional.grid_sample(*x, mode, a.get("padding_mode", "zeros"), aligned)


def _depth_to_space(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    size = a["blocksize"]
    if a.get("mode", "DCR") == "CRD":
        return t.nn.functional.pixel_shuffle(x[0], size)
    batch, channels, height, width = x[0].shape
    parts = x[0].reshape(batch, size, size, channels // size**2, height, width)
    return parts.permute(0, 3, 4, 1, 5, 2).reshape(batch, channels // size**2, height * size, width * size)


def _reduced(t: Any, x: Sequence[Any], a: Attributes, name: str) -> Any:
    axes = reduced_axes(x, a)
    keep = bool(a.get("keepdims", 1))
    if not axes:  # of each element alone
        return x[0] if name in ("logsumexp", "prod") else t.abs(x[0])
    if name == "logsumexp":
        return t.logsumexp(x[0], axes, keepdim=keep)
    if name == "prod":
        total = x[0]
        for axis in sorted((axis % x[0].dim() for axis in axes), reverse=True):
            total = t.prod(total, axis, keepdim=keep, dtype=total.dtype)
        return total
    return t.linalg.vector_norm(x[0], 1 if name == "l1" else 2, axes, keepdim=keep)


def _reducing(name: str) -> Converter:
    return lambda t, x, a, opset: _reduced(t, x, a, name)


def _summed(t: Any, x: Sequence[Any], a: Attributes) -> Any:
    axes = reduced_axes(x, a)
    return t.sum(x[0], axes, keepdim=bool(a.get("keepdims", 1)), dtype=x[0].dtype) if axes else x[0]


def _rms_norm(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    shape = x[0].shape[a.get("axis", -1) % x[0].dim() :]
    scale = x[1].expand(shape)
    return t.nn.functional.rms_norm(x[0], shape, scale, a.get("epsilon", 1e-5))


def _constant_of_shape(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    value = a.get("value", t.zeros(1))
    return t.full(integers(x[0]), value.reshape(-1)[0].item(), dtype=value.dtype)


def _range(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    start, limit, step = (v.item() for v in x)
    count = max(0, math.ceil((limit - start) / step))
    return (t.arange(count, dtype=x[0].dtype) * step + start).to(x[0].dtype)


def _scatter_elements(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    axis, places = a.get("axis", 0), x[1].long()
    places = t.where(places < 0, places + x[0].shape[axis], places)
    how = {"none": "", "add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[a.get("reduction", "none")]
    return t.scatter_reduce(x[0], axis, places, x[2], how) if how else t.scatter(x[0], axis, places, x[2])


def _scatter_nd(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    places, how = tuple(x[1].long().unbind(-1)), a.get("reduction", "none")
    if how in ("none", "add"):
        return x[0].index_put(places, x[2], accumulate=how == "add")
    raise ModelError(f"the PyTorch peer has no converter for ScatterND with reduction={how}", code="M040")


def _one_hot(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    depth, axis = int(x[1].reshape(-1)[0]), a.get("axis", -1)
    axis = axis % (x[0].dim() + 1)
    places = t.remainder(x[0].long(), depth) if opset >= 11 else x[0].long()
    classes = t.arange(depth).reshape([-1 if d == axis else 1 for d in range(x[0].dim() + 1)])
    inside = (x[0].long() >= -depth) & (x[0].long() < depth)
    return t.where((places.unsqueeze(axis) == classes) & inside.unsqueeze(axis), x[2][1], x[2][0])


def _group_norm(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    groups, scale, bias = a["num_groups"], x[1], x[2]
    if opset < 21:  # one number for each group
        scale, bias = (v.repeat_interleave(x[0].shape[1] // groups) for v in (scale, bias))
    return t.nn.functional.group_norm(x[0], groups, scale, bias, a.get("epsilon", 1e-5))


def _swish(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    alpha = a.get("alpha", 1.0)
    return t.nn.functional.silu(x[0]) if alpha == 1 else x[0] * t.sigmoid(x[0] * alpha)


def _space_to_depth(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    size = a["blocksize"]
    batch, channels, height, width = x[0].shape
    parts = x[0].reshape(batch, channels, height // size, size, width // size, size)
    return parts.permute(0, 3, 5, 1, 2, 4).reshape(batch, channels * size**2, height // size, width // size)


def _lp_normalization(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    axis = a.get("axis", -1)
    length = t.linalg.vector_norm(x[0], a.get("p", 2), axis, keepdim=True)
    return t.where(length == 0, t.zeros_like(x[0]), x[0] / length)


_SAME_NAME = "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Floor Round Sign Sin Sinh Tan Det"
_OTHER_NAME = {
    "Or": "logical_or", "Xor": "logical_xor", "LessOrEqual": "le", "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "BitwiseNot": "bitwise_not",
}  # fmt: skip

FUNCTIONS: dict[str, Converter] = {
    **{name: _named(name.lower()) for name in _SAME_NAME.split()},
    **{name: _named(function) for name, function in _OTHER_NAME.items()},
    "Elu": _layer("elu", alpha="alpha"),
    "Celu": _layer("celu", alpha="alpha"),
    "Selu": _selu,
    "IsInf": _is_inf,
    "Softplus": _layer("softplus"),
    "Softsign": _layer("softsign"),
    "Mish": _layer("mish"),
    "Max": _folded("maximum"),
    "Min": _folded("minimum"),
    "Mod": _mod,
    "CumSum": _cumulated("cumsum", 0),
    "CumProd": _cumulated("cumprod", 1),
    "TopK": _top_k,
    "ArgMax": _index_of("argmax"),
    "ArgMin": _index_of("argmin"),
    "LogSoftmax": _log_softmax,
    "Einsum": lambda t, x, a, v: t.einsum(a["equation"], *x),
    "GridSample": _grid_sample,
    "DepthToSpace": _depth_to_space,
    "GatherElements": _gather_elements,
    "Tile": lambda t, x, a, v: t.tile(x[0], [int(r) for r in x[1]]),
    "Trilu": _trilu,
    "ReduceLogSumExp": _reducing("logsumexp"),
    "ReduceProd": _reducing("prod"),
    "ReduceL1": _reducing("l1"),
    "ReduceL2": _reducing("l2"),
    "RMSNormalization": _rms_norm,
    "CastLike": lambda t, x, a, v: x[0].to(x[1].dtype),
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Size": lambda t, x, a, v: t.tensor(x[0].numel()),
    "NonZero": lambda t, x, a, v: t.nonzero(x[0]).t(),
    "ScatterElements": _scatter_elements,
    "Scatter": _scatter_elements,
    "ScatterND": _scatter_nd,
    "OneHot": _one_hot,
    "GroupNormalization": _group_norm,
    "LpNormalization": _lp_normalization,
    "Swish": _swish,
    "SpaceToDepth": _space_to_depth,
    "Mean": lambda t, x, a, v: sum(x[1:], x[0]) / len(x),
    "ReduceSumSquare": lambda t, x, a, v: _summed(t, [x[0] * x[0], *x[1:]], a),
    "ReduceLogSum": lambda t, x, a, v: t.log(_summed(t, x, a)),
    "ThresholdedRelu": lambda t, x, a, v: t.where(x[0] > a.get("alpha", 1.0), x[0], 0),
    "Shrink": lambda t, x, a, v: t.where(
        x[0] < -a.get("lambd", 0.5),
        x[0] + a.get("bias", 0.0),
        t.where(x[0] > a.get("lambd", 0.5), x[0] - a.get("bias", 0.0), 0),
    ),
    "PRelu": _prelu,
}
"""ONNX operator → what computes it; the arguments are torch, the operands, the attributes and the opset."""
