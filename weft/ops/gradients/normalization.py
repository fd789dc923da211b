"""Normalizations and attention in terms of simpler operators: what is differentiated in their place, and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.graph.operator import Attrs
from weft.graph.types import Dim
from weft.ops.gradients.notation import T, Wide, full, number
from weft.support.dtypes import BOOL
from weft.support.errors import ModelError


def _softmax(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    (g,), y = given, T(call)
    assert g is not None
    return [y * (g - (g * y).sum((a.axis,)))]


def _log_softmax(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    (g,), y = given, T(call)
    assert g is not None
    return [g - y.do("exp") * g.sum((a.axis,))]


SOFTMAX: dict[str, Wide] = {"softmax": _softmax, "log_softmax": _log_softmax}


def _last(a: Attrs, x: T) -> tuple[int, ...]:
    return tuple(range(a.axis % len(x.shape), len(x.shape)))


def _standard(x: T, axes: tuple[int, ...], epsilon: float) -> T:
    centred = x - x.mean(axes)
    return centred * ((centred * centred).mean(axes) + epsilon).do("rsqrt")


def _scaled(x: T, rest: list[T]) -> T:
    for name, p in zip(("mul", "add"), rest, strict=False):
        x = x.do(name, p)
    return x


def _by_channel(p: T, x: T) -> T:
    if len(p.shape) != 1:
        raise ModelError("a normalization in a blocked layout cannot be differentiated", code="M030")
    return p.reshape((1, p.shape[0], *(1,) * (len(x.shape) - 2)))


def _layer_norm(a: Attrs, x: T, *rest: T) -> T:
    return _scaled(_standard(x, _last(a, x), a.epsilon), list(rest))


def _rms_norm(a: Attrs, x: T, *rest: T) -> T:
    return _scaled(x * ((x * x).mean(_last(a, x)) + a.epsilon).do("rsqrt"), list(rest))


def _batch_norm(a: Attrs, x: T, scale: T, bias: T, mean: T, variance: T) -> T:
    factor = scale * (variance + a.epsilon).do("rsqrt")
    return (x - _by_channel(mean, x)) * _by_channel(factor, x) + _by_channel(bias, x)


def _instance_norm(a: Attrs, x: T, scale: T, bias: T) -> T:
    axes = tuple(range(2, len(x.shape)))
    return _standard(x, axes, a.epsilon) * _by_channel(scale, x) + _by_channel(bias, x)


def _group_norm(a: Attrs, x: T, scale: T, bias: T) -> T:
    channels = x.shape[1]
    if a.channels is not None or not isinstance(channels, int):
        raise ModelError("this group_norm cannot be differentiated", code="M030")
    shape: tuple[Dim, ...] = (x.shape[0], a.num_groups, channels // a.num_groups, *x.shape[2:])
    wide = _standard(x.reshape(shape), tuple(range(2, len(shape))), a.epsilon)
    return wide.reshape(x.shape) * _by_channel(scale, x) + _by_channel(bias, x)


def _lp_normalize(a: Attrs, x: T) -> T:
    norm = x.do("reduce_l2" if a.p == 2 else "reduce_l1", axes=(a.axis,), keepdims=True)
    return x / norm.same(0.0).where(full(norm, 1.0), norm)


def _lrn(a: Attrs, x: T) -> T:
    if a.block is not None:
        raise ModelError("lrn in a blocked layout cannot be differentiated", code="M030")
    rank, channels = len(x.shape), x.shape[1]
    before = (a.size - 1) // 2
    pads = [0] * (2 * rank)
    pads[1], pads[rank + 1] = before, a.size - 1 - before
    squares = (x * x).pad(pads)
    total = squares.part(1, 0, channels)
    for i in range(1, a.size):
        total = total + squares.part(1, i, channels + i)
    mean = total * (a.alpha / a.size) + float(a.bias)
    made: T = x * mean.do("pow", -float(a.beta))
    return made


def _attention(a: Attrs, q: T, k: T, v: T, *mask: T) -> T:
    width = q.shape[-1]
    if a.scale is None and not isinstance(width, int):
        raise ModelError("attention of symbolic width cannot be differentiated", code="M030")
    scale = a.scale if a.scale is not None else 1 / math.sqrt(float(width))  # type: ignore[arg-type]  # constant
    scores = q.do("matmul", k, transpose_b=True) * scale
    if mask and mask[0].t.dtype == BOOL:
        scores = mask[0].do("where", scores, number(scores, -math.inf))
    elif mask:
        scores = scores + mask[0]
    if a.causal:
        scores = scores.do("trilu", upper=False, fill=-math.inf, k=a.offset)
    return scores.do("softmax", axis=-1).do("matmul", v)


EXPANSIONS: dict[str, Callable[..., T]] = {
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "lp_normalize": _lp_normalize,
    "lrn": _lrn,
    "scaled_dot_product_attention": _attention,
}
"""What an operator means in simpler ones, from its attributes and operands."""
