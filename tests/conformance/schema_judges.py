"""What single nodes must give by the wording of the specification, computed with exact numbers or in float64.

For operators and versions where the evaluator and onnxruntime are both known to be wrong, or where the specification
leaves something open that they decide differently.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from schema_cases import Array, Case

Bounds: TypeAlias = "tuple[Array, Array]"
"""The least and the greatest result that the specification allows, usually the same."""


def bounds(case: Case) -> Bounds | None:
    """What the only result of a case must be; None where this file does not say."""
    for names, versions, judge in BY_HAND:
        if case.schema.name in names and case.schema.since_version in versions:
            return judge(case)
    return None


def _operand(case: Case, i: int) -> Array:
    value = case.operands[i]
    assert value is not None
    return value


def _same(value: Array, like: Array) -> Bounds:
    made = value.astype(like.dtype)
    return made, made


def average_pool(case: Case) -> Bounds:
    """ "The output of each pooling window is divided by the number of elements exclude pad." """
    x, attrs = _operand(case, 0), case.attributes
    kernel, rank = attrs["kernel_shape"], x.ndim - 2
    strides, pads = attrs.get("strides", [1] * rank), attrs.get("pads", [0] * 2 * rank)
    sizes = [(d + pads[i] + pads[rank + i] - kernel[i]) // strides[i] + 1 for i, d in enumerate(x.shape[2:])]
    out = np.empty((*x.shape[:2], *sizes))
    for place in np.ndindex(*sizes):
        first = [p * s - b for p, s, b in zip(place, strides, pads, strict=False)]
        window = tuple(slice(max(f, 0), f + k) for f, k in zip(first, kernel, strict=True))
        out[(..., *place)] = x.astype(np.float64)[(..., *window)].mean(tuple(range(2, x.ndim)))
    return _same(out, x)


def normalized(case: Case) -> Bounds:
    """ "Input will be coerced into a 2-dimensional tensor": all axes from ``axis`` on count as one."""
    x, name = _operand(case, 0), case.schema.name
    axis = case.attributes.get("axis", 1) % x.ndim
    rows = x.astype(np.float64).reshape(math.prod(x.shape[:axis]), -1)
    raised = np.exp(rows - rows.max(1, keepdims=True))
    made = raised / raised.sum(1, keepdims=True)
    if name == "LogSoftmax":
        made = np.log(made)
    elif name == "Hardmax":
        made = np.arange(rows.shape[1]) == rows.argmax(1)[:, None]
    return _same(made.reshape(x.shape), x)


def lp_normalization(case: Case) -> Bounds:
    """``input / Lp_norm(input, axis)``, where a norm of order 1 adds magnitudes; 0 where the norm is 0."""
    x, attrs = _operand(case, 0), case.attributes
    wide = x.astype(np.float64)
    norm = np.linalg.norm(wide, attrs.get("p", 2), attrs.get("axis", -1), keepdims=True)
    return _same(np.divide(wide, norm, out=np.zeros_like(wide), where=norm != 0), x)


def log_sum_exp(case: Case) -> Bounds:
    """The function body of version 18: cast to double, and back by CastLike, which takes fractions off."""
    x, attrs = _operand(case, 0), case.attributes
    axes = _operand(case, 1).tolist() if len(case.operands) > 1 else attrs.get("axes", [])
    if not axes and attrs.get("noop_with_empty_axes"):
        return x, x
    wide, along = x.astype(np.float64), tuple(axes) or None
    most = wide.max(along, keepdims=True)
    made = np.log(np.exp(wide - most).sum(along, keepdims=True)) + most
    if not attrs.get("keepdims", 1):
        made = made.squeeze(along)
    return _same(np.trunc(made) if x.dtype.kind in "iu" else made, x)


def qlinear_matmul(case: Case) -> Bounds | None:
    """``saturate((x / y_scale) + y_zero_point)``; "for (x / y_scale), it is rounding to nearest ties to even"."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (_operand(case, i) for i in range(8))
    if y_zero.dtype.kind not in "iu":
        return None
    sums = (a.astype(np.float64) - float(a_zero)) @ (b.astype(np.float64) - float(b_zero))  # exact: a few bits each
    factor = Fraction(float(a_scale)) * Fraction(float(b_scale)) / Fraction(float(y_scale))
    rounded = [round(Fraction(s) * factor) + int(y_zero) for s in sums.ravel()]
    limits = np.iinfo(y_zero.dtype)
    return _same(np.clip(rounded, limits.min, limits.max).reshape(sums.shape), y_zero)


def resampled(case: Case) -> Bounds | None:
    """Linear resampling to more elements, from their corners up to version 10 and from their middles since. Nothing
    says how results are rounded where elements are whole numbers, so halves may go either way."""
    x, attrs, scales = _operand(case, 0), case.attributes, _scales(case)
    usual = attrs.get("mode") in ("linear", "bilinear") and "coordinate_transformation_mode" not in attrs
    if not usual or x.dtype.kind not in "iuf" or min(scales) < 1:
        return None
    old = case.schema.name == "Upsample" or case.schema.since_version < 11
    middle = Fraction(0) if old else Fraction(1, 2)
    sizes = [math.floor(d * s) for d, s in zip(x.shape, scales, strict=True)]
    axes = zip(x.shape, sizes, scales, strict=True)
    near = [[_neighbours((i + middle) / s - middle, d) for i in range(n)] for d, n, s in axes]
    exact = np.empty(sizes, object)
    for place in np.ndindex(*sizes):
        corners = itertools.product(*(axis[i] for axis, i in zip(near, place, strict=True)))
        exact[place] = sum(Fraction(x[tuple(k for k, _ in c)].item()) * math.prod(w for _, w in c) for c in corners)
    if x.dtype.kind == "f":
        return _same(exact.astype(np.float64), x)
    half = Fraction(1, 2)
    low, high = ([math.ceil(e - half) for e in exact.ravel()], [math.floor(e + half) for e in exact.ravel()])
    return np.array(low).reshape(sizes).astype(x.dtype), np.array(high).reshape(sizes).astype(x.dtype)


def _scales(case: Case) -> list[Fraction]:
    attrs = case.attributes
    if case.schema.name == "Upsample" and case.schema.since_version < 9:
        given = attrs.get("scales") or [1, 1, attrs["height_scale"], attrs["width_scale"]]
    else:
        given = _operand(case, -1).tolist()
    return [Fraction(s) for s in given]


def _neighbours(place: Fraction, size: int) -> list[tuple[int, Fraction]]:
    """The elements between which it lies, with their weights; behind the ends stands the last element."""
    first = math.floor(place)
    pairs = ((first, 1 - (place - first)), (first + 1, place - first))
    return [(min(max(k, 0), size - 1), weight) for k, weight in pairs if weight]


BY_HAND: Sequence[tuple[set[str], Container[int], Callable[[Case], Bounds | None]]] = (
    ({"AveragePool"}, {1}, average_pool),
    ({"Softmax", "LogSoftmax", "Hardmax"}, {1, 11}, normalized),
    ({"LpNormalization"}, range(100), lp_normalization),
    ({"ReduceLogSumExp"}, range(100), log_sum_exp),
    ({"QLinearMatMul"}, range(100), qlinear_matmul),
    ({"Resize", "Upsample"}, range(100), resampled),
)
"""Names, versions that define the operator, and what it must give."""
