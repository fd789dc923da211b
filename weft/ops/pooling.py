"""Pooling over windows in dimensions 2, 3, …. Dimensions after the spatial ones (blocked channels) are not pooled."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.cost import windows
from weft.expr.nodes import Expr, index, maximum, minimum, select
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import Dim, TensorType, TupleType, Type
from weft.ops import relations as rel
from weft.ops.convolution import WINDOW, split_pads
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import NUMBER, Array
from weft.ops.layouts import follow_channels
from weft.ops.stages import accumulator
from weft.support.dtypes import INT32, INT64, DType

POOL = (
    Attribute("kernel", REQUIRED, "size of the window in each spatial dimension"),
    *WINDOW,
    Attribute("ceil_mode", False, "whether a window that extends beyond the end counts"),
)


def _window(op: str, attrs: Attrs) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Kernel, strides and dilations, checked."""
    if not isinstance(attrs.kernel, tuple) or not attrs.kernel:
        rel.fail(op, f"kernel must hold one size a spatial dimension, not {attrs.kernel!r}", "T015")
    n = len(attrs.kernel)
    strides = rel.per_axis(op, attrs.strides, n, "strides")
    dilations = rel.per_axis(op, attrs.dilations, n, "dilations")
    if any(v < 1 for v in (*attrs.kernel, *strides, *dilations)):
        rel.fail(op, "kernel, strides and dilations must be positive", "T015")
    return attrs.kernel, strides, dilations


def _extent(op: str, attrs: Attrs, size: Dim, d: int) -> Dim:
    """How many windows there are in spatial dimension ``d``."""
    kernel, strides, dilations = _window(op, attrs)
    before, after = split_pads(op, attrs.pads, len(kernel))
    room = rel.add(size, before[d], after[d], -((kernel[d] - 1) * dilations[d] + 1))
    rel.require(
        op,
        index(room) >= 0,
        f"the window of {kernel[d]} (dilation {dilations[d]}) does not fit into {size} with its pads",
    )
    if not attrs.ceil_mode:
        return rel.add(rel.divide(room, strides[d]), 1)
    count = rel.add(rel.ceil_divide(room, strides[d]), 1)
    if isinstance(count, int) and isinstance(size, int) and isinstance(before[d], int):
        # A window that starts beyond the data and the pad before it does not count.
        return count - 1 if (count - 1) * strides[d] >= size + before[d] else count
    starts_beyond = rel.add(
        rel.multiply((rel.add(count, -1), strides[d])), rel.multiply((size, -1)), rel.multiply((before[d], -1))
    )
    return rel.simplified(index(count) - select(index(starts_beyond) >= 0, 1, 0))


def _infer(op: str) -> Any:
    def infer(attrs: Attrs, *types: Type) -> TensorType:
        (data,) = rel.tensors(op, types, 1)
        rel.want_kind(op, data, "float" if op == "lp_pool" else NUMBER)
        n = len(_window(op, attrs)[0])
        rel.want_rank_at_least(op, data, n + 2)
        spatial = (_extent(op, attrs, data.shape[2 + d], d) for d in range(n))
        return TensorType((*data.shape[:2], *spatial, *data.shape[2 + n :]), data.dtype)

    return infer


def _taps(
    op: str, attrs: Attrs, data: te.Tensor, i: tuple[Expr, ...], window: list[Any]
) -> tuple[tuple[Any, ...], Expr]:
    """The indices of a window element in the data, and the condition that they are within the data."""
    _, strides, dilations = _window(op, attrs)
    places = [i[2 + d] * strides[d] + k.var * dilations[d] for d, k in enumerate(window)]
    return _within(op, attrs, data, i, places)


def _within(
    op: str, attrs: Attrs, data: te.Tensor, i: tuple[Expr, ...], places: list[Expr]
) -> tuple[tuple[Any, ...], Expr]:
    """The indices of an element of the data at ``places`` of the padded spatial dimensions, and the condition that it
    is no padding."""
    before, after = split_pads(op, attrs.pads, len(places))
    at: list[Any] = list(i)
    inside: list[Expr] = []
    for d, padded in enumerate(places):
        place = padded - index(before[d])
        at[2 + d] = place
        if before[d] != 0:
            inside.append(place >= 0)
        if after[d] != 0 or attrs.ceil_mode:
            inside.append(place < data.shape[2 + d])
    return tuple(at), te.all(*inside)


def _combined(
    op: str,
    attrs: Attrs,
    shape: tuple[Dim, ...],
    data: te.Tensor,
    combine: Callable[..., Expr],
    value: Callable[[Expr], Expr],
    outside: Expr,
    name: str,
) -> te.Tensor:
    """``combine`` (te.max, te.sum) of ``value(element)`` over each window, where padding counts as ``outside``."""
    window, n = _axes(attrs), len(attrs.kernel)
    _, strides, dilations = _window(op, attrs)
    if not in_two_passes(op, attrs, shape):

        def element(*i: Expr) -> Expr:
            at, inside = _taps(op, attrs, data, i, window)
            return combine(te.if_then_else(inside, value(data[at]), outside), axis=window)

        return _tensor(shape, element, name)
    last, own = window[-1], n + 1

    def row(*i: Expr) -> Expr:
        places = [i[2 + d] * strides[d] + k.var * dilations[d] for d, k in enumerate(window[:-1])]
        at, inside = _within(op, attrs, data, i, [*places, i[own]])
        return combine(te.if_then_else(inside, value(data[at]), outside), axis=window[:-1])

    reach = (attrs.kernel[-1] - 1) * dilations[-1] + 1
    columns = rel.add(rel.multiply((rel.add(shape[own], -1), strides[-1])), reach)
    rows = _tensor((*shape[:own], columns, *shape[own + 1 :]), row, f"{name}_rows")

    def element_of_row(*i: Expr) -> Expr:
        return combine(rows[(*i[:own], i[own] * strides[-1] + last.var * dilations[-1], *i[own + 1 :])], axis=last)

    return _tensor(shape, element_of_row, name)


def _tensor(shape: tuple[Dim, ...], element: Callable[..., Expr], name: str) -> te.Tensor:
    made: te.Tensor = te.compute(shape, element, name=name)
    return made


def in_two_passes(op: str, attrs: Attrs, shape: tuple[Dim, ...]) -> bool:
    """Whether it is faster to reduce windows in two passes: all their axes but the last for whole rows, then the
    last."""
    kernel, strides, _ = _window(op, attrs)
    blocked = len(shape) > 2 + len(kernel)
    columns = shape[1 + len(kernel)]
    if len(kernel) < 2 or (isinstance(columns, int) and columns < windows.MIN_COLUMNS and not blocked):
        return False
    return windows.two_passes_are_faster(math.prod(kernel[:-1]), kernel[-1], strides[-1], blocked)


def _axes(attrs: Attrs) -> list[Any]:
    n = len(attrs.kernel)
    return [te.reduce_axis((0, k), name=f"k{'dhw'[d - n] if n <= 3 else d}") for d, k in enumerate(attrs.kernel)]


def _reference_taps(op: str, attrs: Attrs, data: Array, fill: float, out: tuple[int, ...]) -> list[Array]:
    """The values seen by each element of the window, as arrays of the shape of the result."""
    kernel, strides, dilations = _window(op, attrs)
    n = len(kernel)
    before = rel.known(split_pads(op, attrs.pads, n)[0])
    after = [
        max(0, (o - 1) * s + (k - 1) * d + 1 - size - b)
        for o, s, k, d, size, b in zip(out[2 : 2 + n], strides, kernel, dilations, data.shape[2:], before, strict=False)
    ]
    rest = data.ndim - 2 - n
    big = np.pad(data, [(0, 0)] * 2 + list(zip(before, after, strict=True)) + [(0, 0)] * rest, constant_values=fill)
    taps = []
    for tap in product(*map(range, kernel)):
        cut = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip(tap, dilations, out[2:], strides, strict=False)
        )
        taps.append(big[(slice(None), slice(None), *cut)])
    return taps


def _static(t: TensorType) -> tuple[int, ...]:
    return tuple(d for d in t.shape if isinstance(d, int))


def _wide(data: Array) -> Array:
    return data.astype(np.float64) if DType(data.dtype).is_float else data.astype(np.int64)


def _shape_of(op: str, attrs: Attrs, data: Array) -> tuple[int, ...]:
    return _static(_infer(op)(attrs, TensorType.of(data.shape, DType(data.dtype))))


def _max_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    return _combined(
        "max_pool", attrs, out.shape, data, te.max, lambda x: x, te.infinity(data.dtype, -1), name="max_pool"
    )


def _max_reference(attrs: Attrs, data: Array) -> Array:
    shape = _shape_of("max_pool", attrs, data)
    fill = -np.inf if DType(data.dtype).is_float else DType(data.dtype).limits()[0]
    taps = _reference_taps("max_pool", attrs, _wide(data), fill, shape)
    return np.asarray(np.max(taps, axis=0)).astype(data.dtype)


def _avg_count(attrs: Attrs, data: te.Tensor, i: tuple[Expr, ...]) -> Expr | int:
    """How many elements of the window lie in the data (or its pads, if they count): a product over dimensions."""
    kernel, strides, dilations = _window("avg_pool", attrs)
    before, after = split_pads("avg_pool", attrs.pads, len(kernel))
    total: Expr | int = 1
    for d, (k, s, dil) in enumerate(zip(kernel, strides, dilations, strict=True)):
        low, high = (0, 0) if not attrs.count_include_pad else (before[d], after[d])
        if before[d] == 0 and after[d] == 0 and not attrs.ceil_mode:
            total = total * k
            continue
        start = i[2 + d] * s - index(before[d])
        # Elements t with -low <= start + t·dil < size + high.
        first = maximum((-index(low) - start + (dil - 1)) // dil, 0)
        last = minimum((data.shape[2 + d] + index(high) - start + (dil - 1)) // dil, k)
        inside = last - first
        if not attrs.count_include_pad and not _always_meets(k, dil, before[d], after[d]):
            inside = maximum(inside, 0)
        total = total * (k if attrs.count_include_pad and not attrs.ceil_mode else inside)
    return total


def _always_meets(kernel: Dim, dilation: int, before: Dim, after: Dim) -> bool:
    """Whether no window lies in the padding, or steps over the data."""
    if dilation != 1 or not isinstance(kernel, int):
        return False
    return isinstance(before, int) and isinstance(after, int) and max(before, after) < kernel


def _avg_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    narrow = not data.dtype.is_float and data.dtype.bits < INT32.bits
    wide = INT32 if narrow else accumulator(data.dtype)  # sums of bytes need more bits
    total = _combined(
        "avg_pool",
        attrs,
        out.shape,
        data,
        te.sum,
        lambda x: te.cast(x, wide),
        te.const(0, wide),
        name="avg_pool_sum",
    )

    def element(*i: Expr) -> Expr:
        count = _avg_count(attrs, data, i)
        if not wide.is_float:
            whole = count if isinstance(count, int) else maximum(count, 1)  # a window without data gives 0
            return te.cast(te.truncdiv(total[i], whole), out.dtype)
        # Times the reciprocal: counts are the same for all channels and most rows, so loops divide before they start.
        part = te.const(1 / count, wide) if isinstance(count, int) else 1 / te.cast(count, wide)
        return te.cast(total[i] * part, out.dtype)

    return te.compute(out.shape, element, name="avg_pool")


def _avg_reference(attrs: Attrs, data: Array) -> Array:
    shape = _shape_of("avg_pool", attrs, data)
    n = len(attrs.kernel)
    before, after = map(rel.known, split_pads("avg_pool", attrs.pads, n))
    ones = np.ones_like(data, np.float64)
    sized = attrs
    if attrs.count_include_pad:
        rest = data.ndim - 2 - n
        widths = [(0, 0)] * 2 + list(zip(before, after, strict=True)) + [(0, 0)] * rest
        ones = np.pad(ones, widths, constant_values=1.0)
        sized = attrs.replace(pads=None)
    counts = np.sum(_reference_taps("avg_pool", sized, ones, 0, shape), axis=0)
    total = np.sum(_reference_taps("avg_pool", attrs, _wide(data), 0, shape), axis=0)
    out = total / counts
    return np.asarray(out if DType(data.dtype).is_float else np.trunc(out)).astype(data.dtype)


def _lp_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    wide = accumulator(data.dtype)

    def power(value: Expr) -> Expr:
        x = te.abs(te.cast(value, wide))
        return x if attrs.p == 1 else x * x if attrs.p == 2 else te.power(x, te.const(attrs.p, wide))

    total = _combined("lp_pool", attrs, out.shape, data, te.sum, power, te.const(0, wide), name="lp_pool_sum")

    def element(*i: Expr) -> Expr:
        x = total[i]
        root = x if attrs.p == 1 else te.sqrt(x) if attrs.p == 2 else te.power(x, te.const(1 / attrs.p, wide))
        return te.cast(root, out.dtype)

    return te.compute(out.shape, element, name="lp_pool")


def _lp_reference(attrs: Attrs, data: Array) -> Array:
    shape = _shape_of("lp_pool", attrs, data)
    taps = _reference_taps("lp_pool", attrs, np.abs(data.astype(np.float64)) ** attrs.p, 0, shape)
    return np.asarray(np.sum(taps, axis=0) ** (1 / attrs.p)).astype(data.dtype)


def _with_indices_infer(attrs: Attrs, *types: Type) -> TupleType:
    result = _infer("max_pool_with_indices")(attrs, *types)
    (data,) = rel.tensors("max_pool_with_indices", types, 1)
    rel.want_rank("max_pool_with_indices", data, 2 + len(attrs.kernel))
    return TupleType((result, result.with_dtype(INT64)))


def _with_indices_compute(attrs: Attrs, out: TupleType, data: te.Tensor) -> Any:
    window = _axes(attrs)
    lowest = te.infinity(data.dtype, -1)
    unset = te.max_value(INT64)

    def better(x: Any, y: Any) -> Any:
        take = te.any(y[0] > x[0], te.all(y[0] == x[0], y[1] < x[1]))
        return te.select(take, y[0], x[0]), te.select(take, y[1], x[1])

    first = te.comm_reducer(better, lambda v, i: (te.infinity(v, -1), te.const(unset.value, i)), name="first_max")

    def element(*i: Expr) -> Any:
        at, inside = _taps("max_pool_with_indices", attrs, data, i, window)
        flat: Expr = te.const(0)
        for d, v in enumerate(at):
            if attrs.column_major and d >= 2:
                continue
            flat = flat * data.shape[d] + v
        if attrs.column_major:
            space: Expr = te.const(0)
            size: Expr = te.const(1)
            for d in range(2, data.ndim):
                space, size = space + at[d] * size, size * data.shape[d]
            flat = flat * size + space
        value = te.if_then_else(inside, data[at], lowest)
        return first((value, te.if_then_else(inside, flat, unset)), axis=window)

    shape = out.fields[0].shape  # type: ignore[attr-defined]  # tuple
    return te.compute(shape, element, name="max_pool_with_indices")


def _with_indices_reference(attrs: Attrs, data: Array) -> tuple[Array, Array]:
    plain = Attrs(attrs.without("column_major"))
    shape = _shape_of("max_pool", plain, data)
    fill = -np.inf if DType(data.dtype).is_float else DType(data.dtype).limits()[0]
    flat = np.arange(data.size).reshape(data.shape)
    if attrs.column_major:
        lead = data.shape[:2]
        space = data.shape[2:]
        flat = np.arange(data.size).reshape(*lead, *space[::-1]).transpose(0, 1, *range(data.ndim - 1, 1, -1))
    values = np.stack(_reference_taps("max_pool", plain, _wide(data), fill, shape))
    # Padding never wins: where everything is the filling value, the smallest index inside does.
    places = np.stack(_reference_taps("max_pool", plain, flat.astype(np.float64), np.inf, shape))
    best = values.max(0)
    index_of = np.where(values == best, places, np.inf).min(0)
    return np.asarray(best.astype(data.dtype)), np.asarray(index_of.astype(np.int64))


def _f(*shape: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return shape, dtype


_CASES = (
    Case((_f(1, 2, 6, 5),), {"kernel": (2, 2), "strides": (2, 2)}),
    Case((_f(1, 2, 7, 6),), {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    Case((_f(1, 2, 7, 6),), {"kernel": (3, 2), "strides": (2, 3), "pads": (0, 1, 1, 0), "ceil_mode": True}),
    Case((_f(1, 1, 8, 8),), {"kernel": (2, 2), "dilations": (2, 3)}),
    Case((_f(2, 2, 9),), {"kernel": (3,)}),
    Case((_f(1, 2, 4, 4, 3),), {"kernel": (2, 2, 2)}),
    Case((_f(1, 2, 5, 5, 4),), {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
)

MAX_POOL = OpDef(
    "max_pool",
    POOL,
    _infer("max_pool"),
    _max_reference,
    follows=follow_channels(_infer("max_pool")),
    moves=True,
    compute=_max_compute,
    cases=(*_CASES, Case((_f(1, 1, 4, 4, dtype="int8"),), {"kernel": (2, 2)}, -100, 100)),
    doc="the largest value in each window; padding never wins",
    source="ONNX MaxPool-22",
)

AVG_POOL = OpDef(
    "avg_pool",
    (*POOL, Attribute("count_include_pad", False, "whether padding counts in the mean")),
    _infer("avg_pool"),
    _avg_reference,
    follows=follow_channels(_infer("avg_pool")),
    compute=_avg_compute,
    cases=(
        *_CASES,
        *(Case(c.inputs, {**c.attrs, "count_include_pad": True}) for c in _CASES[1:4]),
        Case((_f(1, 2, 5, 5, dtype="float16"),), {"kernel": (3, 3)}, -2, 2, 2e-3, 2e-3),
    ),
    doc="the mean of each window",
    source="ONNX AveragePool-22",
)

LP_POOL = OpDef(
    "lp_pool",
    (*POOL, Attribute("p", 2, "exponent of the norm")),
    _infer("lp_pool"),
    _lp_reference,
    follows=follow_channels(_infer("lp_pool")),
    compute=_lp_compute,
    cases=(
        *_CASES[:2],
        Case((_f(1, 2, 5, 5),), {"kernel": (2, 2), "p": 3}),
        Case((_f(1, 2, 5),), {"kernel": (2,), "p": 1}),
    ),
    doc="the p-norm of each window",
    source="ONNX LpPool-22",
)

MAX_POOL_WITH_INDICES = OpDef(
    "max_pool_with_indices",
    (*POOL, Attribute("column_major", False, "whether indices count the last spatial dimension slowest")),
    _with_indices_infer,
    _with_indices_reference,
    compute=_with_indices_compute,
    cases=(
        Case((_f(1, 2, 6, 5),), {"kernel": (2, 2), "strides": (2, 2)}),
        Case((_f(1, 2, 7, 6),), {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
        Case((_f(1, 2, 5, 4),), {"kernel": (2, 2), "column_major": True}),
    ),
    doc="the largest value in each window and its place in the flattened operand (the first where several are largest)",
    source="ONNX MaxPool-22",
)

POOLS: tuple[OpDef, ...] = (MAX_POOL, AVG_POOL, LP_POOL, MAX_POOL_WITH_INDICES)
