"""Gathering and scattering by computed indices. Negative indices count from the end.

Indices must lie within the data. Where that is not known, ``in_range`` checks them and stops with an error. The kernels
themselves never read or write outside of the data: an index beyond an end counts as the element at that end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.folds import any_of
from weft.expr.nodes import Const, Expr, index, make, maximum, minimum, select
from weft.graph.assume import assume
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import Dim, TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.support.dtypes import INDEX, INT32, UINT32
from weft.support.errors import InputError

AXIS = Attribute("axis", 0, "the axis that indices point into")
REDUCTION = Attribute("reduction", "none", "how updates meet the data: none (replace), add, mul, max or min")
_REDUCTIONS = ("none", "add", "mul", "max", "min")


def place(value: Expr, size: Expr) -> Expr:
    """An index into a dimension of ``size`` that is safe to load from. Of a known size that fits, it is made with the
    32 bits that ``value`` has: twice as many in a vector."""
    small = value.dtype in (INT32, UINT32) and isinstance(size, Const) and 0 < int(size.value) <= INT32.limits()[1]
    i, n = (value, te.cast(size, value.dtype)) if small else (te.cast(value, INDEX), size)
    if value.dtype.kind == "uint" and small:
        return te.cast(minimum(i, n - 1), INDEX)
    if value.dtype.kind != "uint":
        i = select(i < 0, i + n, i)
    return te.cast(maximum(minimum(i, n - 1), 0), INDEX)


def _indices(op: str, t: TensorType) -> None:
    rel.want_kind(op, t, "int uint", "the indices")


def _want_elements(op: str, indices: TensorType, sizes: Sequence[Dim]) -> None:
    """An empty dimension has no place that an index could count as."""
    count = rel.multiply(indices.shape)
    for size in sizes:
        if count == 0 or (isinstance(size, int) and size > 0):
            continue
        if isinstance(size, int) and isinstance(count, int):
            rel.fail(op, "a dimension that indices point into is empty", "T013")
        if not isinstance(size, int) and rel.never_negative(rel.simplified(size - 1)):
            continue
        assume(
            any_of(make("gt", index(size), index(0)), make("eq", index(count), index(0))),
            f"{op}: the dimension {size} that indices point into is empty",
        )


def _f(*shape: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return shape, dtype


def _i(values: Any, dtype: str = "int64") -> Array:
    return np.array(values, dtype)


def _in_range_infer(attrs: Attrs, *types: Type) -> TensorType:
    (values,) = rel.tensors("in_range", types, 1)
    _indices("in_range", values)
    columns = len(attrs.low)
    if not columns or len(attrs.high) != columns:
        rel.fail("in_range", "low and high must hold as many sizes, at least one", "T015")
    if columns > 1 and (not values.shape or values.shape[-1] != columns):
        rel.fail("in_range", f"the last dimension of {values} must be {columns}", "T013")
    return values


def _in_range_reference(attrs: Attrs, values: Array) -> Array:
    columns = len(attrs.low)
    flat = values.reshape(-1, columns)
    low, high = (np.array(a, np.int64) for a in (attrs.low, attrs.high))
    outside = np.argwhere((flat < low) | (flat > high))
    if outside.size:
        row, column = (int(n) for n in outside[0])
        found, limits = flat[row, column], f"{low[column]} to {high[column]}"
        raise InputError(f"{attrs.what}: an index is {found} where it must lie in {limits}", code="I004")
    return values


IN_RANGE = OpDef(
    "in_range",
    (
        Attribute("low", REQUIRED, "the least that is allowed: one size, or one for each column of the last dimension"),
        Attribute("high", REQUIRED, "the largest that is allowed, likewise"),
        Attribute("what", "the indices", "what the integers are, for the error"),
    ),
    _in_range_infer,
    _in_range_reference,
    checks=True,
    cases=(
        Case((_i([[0, 2], [-3, 1]]),), {"low": (-3,), "high": (2,)}),
        Case((_i([[0, 5], [1, -6]], "int32"),), {"low": (0, -6), "high": (1, 5)}),
    ),
    doc="the operand, if all its integers lie between two sizes; else the run ends with an error",
    source="Weft",
)


def _gather_infer(attrs: Attrs, *types: Type) -> TensorType:
    data, indices = rel.tensors("gather", types, 2)
    _indices("gather", indices)
    axis = rel.axis_of("gather", attrs.axis, data.rank)
    _want_elements("gather", indices, data.shape[axis : axis + 1])
    return TensorType((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]), data.dtype)


def _gather_rows(attrs: Attrs, types: tuple[TensorType, ...]) -> Dim | None:
    (*before, last) = types[0].shape
    return last if rel.axis_of("gather", attrs.axis, len(before) + 1) < len(before) else None


def _gather_compute(attrs: Attrs, out: TensorType, data: te.Tensor, indices: te.Tensor) -> Any:
    axis = rel.axis_of("gather", attrs.axis, data.ndim)
    end = axis + indices.ndim

    def element(*i: Expr) -> Expr:
        return data[(*i[:axis], place(indices[i[axis:end]], data.shape[axis]), *i[end:])]

    return te.compute(out.shape, element, name="gather")


GATHER = OpDef(
    "gather",
    (AXIS,),
    _gather_infer,
    lambda attrs, data, indices: np.take(data, indices, attrs.axis),
    moves=True,
    rows=_gather_rows,
    compute=_gather_compute,
    cases=(
        Case((_f(4, 3), _i([[0, -1], [2, 1]])), {}),
        Case((_f(2, 4, 3), _i([3, 0], "int32")), {"axis": 1}),
        Case((_f(2, 5), _i(-2)), {"axis": -1}),
    ),
    doc="slices of the data along an axis; operands data, indices",
    source="ONNX Gather-13",
)


def _gather_elements_infer(attrs: Attrs, *types: Type) -> TensorType:
    data, indices = rel.tensors("gather_elements", types, 2)
    _indices("gather_elements", indices)
    rel.want_rank("gather_elements", indices, data.rank, "the indices")
    axis = rel.axis_of("gather_elements", attrs.axis, data.rank)
    _want_elements("gather_elements", indices, data.shape[axis : axis + 1])
    return TensorType(indices.shape, data.dtype)


def _gather_elements_compute(attrs: Attrs, out: TensorType, data: te.Tensor, indices: te.Tensor) -> Any:
    axis = rel.axis_of("gather_elements", attrs.axis, data.ndim)

    def element(*i: Expr) -> Expr:
        return data[(*i[:axis], place(indices[i], data.shape[axis]), *i[axis + 1 :])]

    return te.compute(out.shape, element, name="gather_elements")


def _gather_elements_reference(attrs: Attrs, data: Array, indices: Array) -> Array:
    axis = attrs.axis % data.ndim
    data = data[tuple(slice(None) if d == axis else slice(0, n) for d, n in enumerate(indices.shape))]
    return np.take_along_axis(data, indices.astype(np.int64) % max(1, data.shape[axis]), axis)


GATHER_ELEMENTS = OpDef(
    "gather_elements",
    (AXIS,),
    _gather_elements_infer,
    _gather_elements_reference,
    compute=_gather_elements_compute,
    cases=(
        Case((_f(3, 3), _i([[1, 2, 0], [2, 0, -1]])), {}),
        Case((_f(2, 3), _i([[0, 0], [1, -3]])), {"axis": 1}),
    ),
    doc="element by element along an axis; operands data, indices of the result's shape",
    source="ONNX GatherElements-13",
)


def _depth(op: str, indices: TensorType, data: TensorType, batch: int) -> int:
    """How many dimensions an index tuple addresses."""
    rel.want_rank_at_least(op, indices, 1, "the indices")
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        rel.fail(op, f"the length {depth} of its index tuples is not known", "T013", "reshape the indices")
    if depth + batch > data.rank:
        rel.fail(op, f"index tuples of {depth} do not fit {data} with {batch} batch dimensions", "T013")
    return depth


def _gather_nd_infer(attrs: Attrs, *types: Type) -> TensorType:
    data, indices = rel.tensors("gather_nd", types, 2)
    _indices("gather_nd", indices)
    batch = attrs.batch_dims
    if not isinstance(batch, int) or not 0 <= batch < max(1, min(data.rank, indices.rank)):
        rel.fail("gather_nd", f"batch_dims {batch!r} does not fit {data} and {indices}", "T015")
    depth = _depth("gather_nd", indices, data, batch)
    _want_elements("gather_nd", indices, data.shape[batch : batch + depth])
    for d in range(batch):
        rel.join_dim("gather_nd", data.shape[d], indices.shape[d], f"batch dimension {d} of data and indices")
    return TensorType((*indices.shape[:-1], *data.shape[batch + depth :]), data.dtype)


def _gather_nd_rows(attrs: Attrs, types: tuple[TensorType, ...]) -> Dim | None:
    data, indices = types
    return data.shape[-1] if attrs.batch_dims + indices.shape[-1] < data.rank else None


def _gather_nd_compute(attrs: Attrs, out: TensorType, data: te.Tensor, indices: te.Tensor) -> Any:
    batch, depth = attrs.batch_dims, int(indices.shape[-1])  # type: ignore[call-overload]  # constant
    lead = indices.ndim - 1

    def element(*i: Expr) -> Expr:
        at = [place(indices[(*i[:lead], d)], data.shape[batch + d]) for d in range(depth)]
        return data[(*i[:batch], *at, *i[lead:])]

    return te.compute(out.shape, element, name="gather_nd")


def _gather_nd_reference(attrs: Attrs, data: Array, indices: Array) -> Array:
    batch, depth = attrs.batch_dims, indices.shape[-1]
    lead = indices.shape[:-1]
    out = np.empty((*lead, *data.shape[batch + depth :]), data.dtype)
    for at in np.ndindex(*lead):
        out[at] = data[(*at[:batch], *indices[at])]
    return out


GATHER_ND = OpDef(
    "gather_nd",
    (Attribute("batch_dims", 0, "leading dimensions that data and indices share"),),
    _gather_nd_infer,
    _gather_nd_reference,
    rows=_gather_nd_rows,
    compute=_gather_nd_compute,
    cases=(
        Case((_f(2, 3, 4), _i([[0, 1], [1, -1]])), {}),
        Case((_f(2, 3), _i([[[0, 1]], [[1, 2]]])), {}),
        Case((_f(2, 3, 4), _i([[1], [2]])), {"batch_dims": 1}),
    ),
    doc="slices addressed by index tuples; operands data, indices (tuples in the last dimension)",
    source="ONNX GatherND-13",
)


def _reduction(op: str, attrs: Attrs) -> str:
    if attrs.reduction not in _REDUCTIONS:
        rel.fail(op, f"unknown reduction '{attrs.reduction}'", "T015", "one of " + ", ".join(_REDUCTIONS))
    return str(attrs.reduction)


_COMBINE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": maximum,
    "min": minimum,
}
"""By reduction: what becomes of an element that an update reaches."""


_APPLY: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter_elements_infer(attrs: Attrs, *types: Type) -> TensorType:
    name = "scatter_elements"
    data, indices, updates = rel.tensors(name, types, 3)
    _indices(name, indices)
    rel.same_dtype(name, (data, updates))
    rel.want_rank(name, indices, data.rank, "the indices")
    rel.want_rank(name, updates, data.rank, "the updates")
    axis = rel.axis_of(name, attrs.axis, data.rank)
    _want_elements(name, indices, data.shape[axis : axis + 1])
    _reduction(name, attrs)
    for d, (a, b) in enumerate(zip(indices.shape, updates.shape, strict=True)):
        rel.join_dim(name, a, b, f"sizes of indices and updates in dimension {d}")
    return data


def _scatter_elements_compute(
    attrs: Attrs, out: TensorType, data: te.Tensor, indices: te.Tensor, updates: te.Tensor
) -> Any:
    axis = rel.axis_of("scatter_elements", attrs.axis, data.ndim)
    combine = _COMBINE[attrs.reduction]

    def step(old: te.Tensor, *i: Expr) -> Any:
        at = (*i[:axis], place(indices[i], data.shape[axis]), *i[axis + 1 :])
        return at, combine(old[at], updates[i])

    others = [d for d in range(data.ndim) if d != axis]
    return te.update(data, indices.shape, step, name="scatter", independent=others)


def _scatter_elements_reference(attrs: Attrs, data: Array, indices: Array, updates: Array) -> Array:
    out, axis = data.copy(), attrs.axis % data.ndim
    for at in np.ndindex(*indices.shape):
        where = (*at[:axis], int(indices[at]) % data.shape[axis], *at[axis + 1 :])
        out[where] = updates[at] if attrs.reduction == "none" else _APPLY[attrs.reduction](out[where], updates[at])
    return out


SCATTER_ELEMENTS = OpDef(
    "scatter_elements",
    (AXIS, REDUCTION),
    _scatter_elements_infer,
    _scatter_elements_reference,
    changes=True,
    compute=_scatter_elements_compute,
    cases=(
        Case((_f(3, 3), _i([[1, 0, 2], [0, 2, 1]]), _f(2, 3)), {}),
        Case((_f(2, 4), _i([[1, -1]]), _f(1, 2)), {"axis": 1}),
        *(Case((_f(1, 4), _i([[1, 1, 3]]), _f(1, 3)), {"axis": 1, "reduction": r}) for r in _REDUCTIONS[1:]),
    ),
    doc="the data with elements replaced or combined along an axis; operands data, indices, updates",
    source="ONNX ScatterElements-18",
)


def _scatter_nd_infer(attrs: Attrs, *types: Type) -> TensorType:
    name = "scatter_nd"
    data, indices, updates = rel.tensors(name, types, 3)
    _indices(name, indices)
    rel.same_dtype(name, (data, updates))
    _reduction(name, attrs)
    depth = _depth(name, indices, data, 0)
    _want_elements(name, indices, data.shape[:depth])
    wanted = (*indices.shape[:-1], *data.shape[depth:])
    rel.want_rank(name, updates, len(wanted), "the updates")
    for d, (a, b) in enumerate(zip(wanted, updates.shape, strict=True)):
        rel.join_dim(name, a, b, f"wanted and given size of the updates in dimension {d}")
    return data


def _scatter_nd_compute(attrs: Attrs, out: TensorType, data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> Any:
    depth, lead = int(indices.shape[-1]), indices.ndim - 1  # type: ignore[call-overload]  # constant
    combine = _COMBINE[attrs.reduction]

    def step(old: te.Tensor, *i: Expr) -> Any:
        at = (*(place(indices[(*i[:lead], d)], data.shape[d]) for d in range(depth)), *i[lead:])
        return at, combine(old[at], updates[i])

    return te.update(data, updates.shape, step, name="scatter", independent=range(lead, updates.ndim))


def _scatter_nd_reference(attrs: Attrs, data: Array, indices: Array, updates: Array) -> Array:
    out = data.copy()
    for at in np.ndindex(*indices.shape[:-1]):
        where = tuple(int(v) for v in indices[at])
        out[where] = updates[at] if attrs.reduction == "none" else _APPLY[attrs.reduction](out[where], updates[at])
    return out


SCATTER_ND = OpDef(
    "scatter_nd",
    (REDUCTION,),
    _scatter_nd_infer,
    _scatter_nd_reference,
    changes=True,
    compute=_scatter_nd_compute,
    cases=(
        Case((_f(5), _i([[1], [3], [0]]), _f(3)), {}),
        Case((_f(3, 2), _i([[2], [-3]]), _f(2, 2)), {}),
        Case((_f(2, 3), _i([[[0, 1], [1, 2]]]), _f(1, 2)), {}),
        *(Case((_f(4), _i([[1], [1]]), _f(2)), {"reduction": r}) for r in _REDUCTIONS[1:]),
    ),
    doc="the data with slices replaced or combined; operands data, indices (tuples in the last dimension), updates",
    source="ONNX ScatterND-18",
)


def _reverse_infer(attrs: Attrs, *types: Type) -> TensorType:
    name = "reverse_sequence"
    data, lengths = rel.tensors(name, types, 2)
    _indices(name, lengths)
    batch, time = (rel.axis_of(name, a, data.rank) for a in (attrs.batch_axis, attrs.time_axis))
    if batch == time:
        rel.fail(name, "batch_axis and time_axis must differ", "T014")
    rel.want_rank(name, lengths, 1, "the lengths")
    rel.join_dim(name, data.shape[batch], lengths.shape[0], "the batch sizes of data and lengths")
    return data


def _reverse_compute(attrs: Attrs, out: TensorType, data: te.Tensor, lengths: te.Tensor) -> Any:
    batch, time = (a % data.ndim for a in (attrs.batch_axis, attrs.time_axis))

    def element(*i: Expr) -> Expr:
        length = index(te.cast(lengths[i[batch]], INDEX))
        source = select(i[time] < length, length - 1 - i[time], i[time])
        return data[(*i[:time], maximum(minimum(source, data.shape[time] - 1), 0), *i[time + 1 :])]

    return te.compute(out.shape, element, name="reverse_sequence")


def _reverse_reference(attrs: Attrs, data: Array, lengths: Array) -> Array:
    moved = np.moveaxis(data, (attrs.batch_axis, attrs.time_axis), (0, 1)).copy()
    for b, n in enumerate(lengths):
        moved[b, :n] = moved[b, :n][::-1].copy()
    return np.ascontiguousarray(np.moveaxis(moved, (0, 1), (attrs.batch_axis, attrs.time_axis)))


REVERSE_SEQUENCE = OpDef(
    "reverse_sequence",
    (Attribute("batch_axis", 1, "the axis of sequences"), Attribute("time_axis", 0, "the axis reversed")),
    _reverse_infer,
    _reverse_reference,
    compute=_reverse_compute,
    cases=(
        Case((_f(4, 3), _i([4, 2, 1])), {}),
        Case((_f(3, 4, 2), _i([1, 3, 4])), {"batch_axis": 0, "time_axis": 1}),
    ),
    doc="the first elements of every sequence reversed; operands data, lengths",
    source="ONNX ReverseSequence-10",
)

INDEXING: tuple[OpDef, ...] = (
    IN_RANGE,
    GATHER,
    GATHER_ELEMENTS,
    GATHER_ND,
    SCATTER_ELEMENTS,
    SCATTER_ND,
    REVERSE_SEQUENCE,
)
