"""Slicing with static or symbolic bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Expr, index, maximum, minimum, select
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import Dim, TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.ops.layouts import follow_channels
from weft.support.dtypes import INDEX

_LONGEST_AXIS = 1 << 40


def is_endless(bound: int) -> bool:
    """Whether a bound of a slice stands for the end (or, if negative, for the beginning) of a dimension of open size:
    exporters write the largest integers of 32 and of 64 bits. Others are numbers, because a dimension may be longer
    than 2³¹. Where the size is known, every bound is a number."""
    return bound == (1 << 31) - 1 or bound in (-(1 << 31), 1 - (1 << 31)) or abs(bound) >= _LONGEST_AXIS


def _from_front(bound: Dim, size: Dim) -> Dim:
    """A bound counted from the front."""
    if isinstance(bound, int):
        return bound if bound >= 0 else rel.add(bound, size)
    if rel.never_negative(bound):
        return bound
    return rel.simplified(select(index(bound) < 0, index(bound) + index(size), index(bound)))


def slice_bounds(op: str, size: Dim, begin: Any, end: Any, step: int, in_bounds: bool = False) -> tuple[Dim, Dim]:
    """First index and number of elements of a slice of a dimension of ``size``, as Python and ONNX define it.

    ``begin`` and ``end`` None mean as far as possible; with ``in_bounds`` symbolic ones are taken as they are.
    """
    if not isinstance(step, int) or step == 0:
        rel.fail(op, f"the step must be an integer other than 0, not {step!r}", "T015")
    first, last = (None if b is None else rel.simplified(b) for b in (begin, end))
    if isinstance(size, int) and all(b is None or isinstance(b, int) for b in (first, last)):
        start, stop, stride = slice(first, last, step).indices(size)
        return start, len(range(start, stop, stride))
    if in_bounds and first is not None and (last is not None or step < 0):
        return _inside(first, -1 if last is None else last, step)
    low: Dim = 0 if step > 0 else -1
    high: Dim = size if step > 0 else rel.add(size, -1)
    if first is None or (isinstance(first, int) and is_endless(first)):
        at_start = first is None or (first < 0) == (step > 0)
        start_at: Dim = (low if step > 0 else high) if at_start else (high if step > 0 else low)
    else:
        start_at = rel.clamp(_from_front(first, size), low, high)
    if last is None or (isinstance(last, int) and is_endless(last)):
        at_end = last is None or (last > 0) == (step > 0)
        stop_at: Dim = (high if step > 0 else low) if at_end else (low if step > 0 else high)
    else:
        stop_at = rel.clamp(_from_front(last, size), low, high)
    room = (
        rel.add(stop_at, rel.multiply((start_at, -1))) if step > 0 else rel.add(start_at, rel.multiply((stop_at, -1)))
    )
    return start_at, rel.at_least_zero(rel.ceil_divide(room, abs(step)))


def _inside(begin: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """First index and number of elements of a slice whose bounds need no clamping."""
    first, last = rel.simplified(begin), rel.simplified(end)
    room = rel.add(last, rel.multiply((first, -1))) if step > 0 else rel.add(first, rel.multiply((last, -1)))
    return first, rel.ceil_divide(room, abs(step))


def _ranges(attrs: Attrs, shape: tuple[Dim, ...]) -> dict[int, tuple[Dim, Dim, int]]:
    """Start, count and step by axis."""
    count = len(attrs.begin)
    axes = tuple(range(count)) if attrs.axes is None else attrs.axes
    strides = rel.per_axis("slice", attrs.strides, count, "strides")
    if len(attrs.end) != count or len(axes) != count:
        rel.fail("slice", f"begin, end and axes have {count}, {len(attrs.end)} and {len(axes)} entries", "T015")
    out: dict[int, tuple[Dim, Dim, int]] = {}
    for a, begin, end, step in zip(axes, attrs.begin, attrs.end, strides, strict=True):
        axis = rel.axis_of("slice", a, len(shape))
        if axis in out:
            rel.fail("slice", f"axis {axis} appears twice", "T014")
        out[axis] = (*slice_bounds("slice", shape[axis], begin, end, step, attrs.in_bounds), step)
    return out


def _infer(attrs: Attrs, *types: Type) -> TensorType:
    (data,) = rel.tensors("slice", types, 1)
    shape = list(data.shape)
    for axis, (_, count, _) in _ranges(attrs, data.shape).items():
        shape[axis] = count
    return TensorType(tuple(shape), data.dtype)


def _compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    ranges = _ranges(attrs, TensorType.of(data.shape, data.dtype).shape)

    def element(*i: Expr) -> Expr:
        at = list(i)
        for axis, (start, _, step) in ranges.items():
            at[axis] = i[axis] * step + index(start)
        return data[tuple(at)]

    return te.compute(out.shape, element, name="slice")


def _reference(attrs: Attrs, data: Array) -> Array:
    cut = [slice(None)] * data.ndim
    axes = attrs.axes if attrs.axes is not None else range(len(attrs.begin))
    for axis, begin, end, step in zip(
        axes, attrs.begin, attrs.end, attrs.strides or (1,) * len(attrs.begin), strict=True
    ):
        cut[axis] = slice(begin, end, step)
    return np.ascontiguousarray(data[tuple(cut)])


def _blocked(attrs: Attrs, data: TensorType, block: int) -> Attrs | None:
    """The attributes for blocked channels, where a part of them is whole blocks, or ends where the channels end."""
    axes = tuple(range(len(attrs.begin))) if attrs.axes is None else attrs.axes
    axes = rel.per_axis("slice", axes, len(attrs.begin), "axes")
    axes = tuple(rel.axis_of("slice", a, data.rank) for a in axes)
    there = attrs.replace(axes=axes)
    if 1 not in axes:
        return there
    start, count, step = _ranges(there, data.shape)[1]
    channels, k = data.shape[1], axes.index(1)
    if step != 1 or not (isinstance(start, int) and isinstance(count, int) and isinstance(channels, int)):
        return None
    if start % block or (count % block and start + count != channels):
        return None

    def changed(bounds: tuple[Dim, ...], value: int) -> tuple[Dim, ...]:
        return (*bounds[:k], value, *bounds[k + 1 :])

    begin = changed(attrs.begin, start // block)
    return there.replace(begin=begin, end=changed(attrs.end, -(-(start + count) // block)))


def _parts(attrs: Attrs, types: tuple[TensorType, ...], result: Type) -> tuple[int, ...] | None:
    """A slice is contiguous if it takes one index of the slower axes, a range of one axis and all of the faster
    axes."""
    data = types[0]
    ranges = _ranges(attrs, data.shape)
    start, stride, whole = 0, 1, True
    for axis in range(data.rank - 1, -1, -1):
        size = data.shape[axis]
        begin, count, step = ranges.get(axis, (0, size, 1))
        if not (isinstance(size, int) and isinstance(begin, int) and isinstance(count, int)) or count < 1:
            return None
        if count > 1 and (step != 1 or not whole):
            return None
        whole = whole and count == size
        start, stride = start + begin * stride, stride * size
    return (start,)


def _f(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, "float32"


SLICE = OpDef(
    "slice",
    (
        Attribute("begin", REQUIRED, "first index by axis; negative ones count from the end, None: as far as possible"),
        Attribute("end", REQUIRED, "index before which to stop, likewise; bounds beyond the dimension are clamped"),
        Attribute("strides", None, "steps, not 0; None means 1"),
        Attribute("axes", None, "the axes; None means the first ones"),
        Attribute("in_bounds", False, "a promise: symbolic begin and end lie inside the dimension, in order"),
    ),
    _infer,
    _reference,
    follows=follow_channels(_infer, _blocked),
    moves=True,
    parts=_parts,
    compute=_compute,
    cases=(
        Case((_f(5, 6),), {"begin": (1, 0), "end": (4, -1)}),
        Case((_f(5, 6),), {"begin": (0,), "end": (1 << 62,), "axes": (1,), "strides": (2,)}),
        Case((_f(5, 6),), {"begin": (-1, None), "end": (-(1 << 62), None), "axes": (0, -1), "strides": (-2, -1)}),
        Case(
            (
                _f(
                    4,
                ),
            ),
            {"begin": (3,), "end": (1,)},
        ),
        Case(
            (
                _f(
                    4,
                ),
            ),
            {"begin": (-100,), "end": (100,)},
        ),
    ),
    doc="a regular part of a tensor",
    source="ONNX Slice-13",
)


def _dynamic_infer(attrs: Attrs, *types: Type) -> TensorType:
    name = "dynamic_slice"
    data, first, step = rel.tensors(name, types, 3)
    axes = tuple(rel.axis_of(name, a, data.rank) for a in attrs.axes)
    sizes = rel.per_axis(name, attrs.sizes, len(axes), "sizes")
    if len(set(axes)) != len(axes):
        rel.fail(name, f"an axis appears twice in {attrs.axes}", "T014")
    for what, t in (("the first places", first), ("the steps", step)):
        rel.want_kind(name, t, "int uint", what)
        if t.shape != (len(axes),):
            rel.fail(name, f"{what} must be {len(axes)} integers, not {t}", "T012")
    shape = list(data.shape)
    for a, n in zip(axes, sizes, strict=True):
        shape[a] = rel.simplified(n)
    return TensorType(rel.nonnegative(name, shape), data.dtype)


def _dynamic_compute(attrs: Attrs, out: TensorType, data: te.Tensor, first: te.Tensor, step: te.Tensor) -> Any:
    def element(*i: Expr) -> Expr:
        at = list(i)
        for k, a in enumerate(attrs.axes):
            place = te.cast(first[k], INDEX) + i[a] * te.cast(step[k], INDEX)
            at[a] = maximum(minimum(place, data.shape[a] - 1), 0)
        return data[tuple(at)]

    return te.compute(out.shape, element, name="dynamic_slice")


def _dynamic_reference(attrs: Attrs, data: Array, first: Array, step: Array) -> Array:
    for a, n, start, stride in zip(attrs.axes, attrs.sizes, first.tolist(), step.tolist(), strict=True):
        places = np.clip(start + np.arange(n) * stride, 0, max(0, data.shape[a] - 1))
        data = np.take(data, places, a)
    return np.ascontiguousarray(data)


def _i(*values: int) -> Array:
    return np.array(values, np.int64)


DYNAMIC_SLICE = OpDef(
    "dynamic_slice",
    (
        Attribute("axes", REQUIRED, "the axes that are cut"),
        Attribute("sizes", REQUIRED, "how many elements are left along each of them"),
    ),
    _dynamic_infer,
    _dynamic_reference,
    moves=True,
    compute=_dynamic_compute,
    cases=(
        Case((_f(5, 6), _i(1, 4), _i(1, -2)), {"axes": (0, 1), "sizes": (3, 2)}),
        Case((_f(5, 6), _i(5), _i(-1)), {"axes": (1,), "sizes": (6,)}),
        Case((_f(5, 6), _i(0), _i(9)), {"axes": (0,), "sizes": (0,)}),
    ),
    doc="a regular part of a tensor; operands data, the first place and the step (negative: backwards) of each axis,"
    " known at run time",
    source="ONNX Slice-13",
)
