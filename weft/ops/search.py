"""Where the largest and smallest values are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Const, Expr, Not, make, select
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, TupleType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import ANY, Array
from weft.ops.sort_keys import sort_key
from weft.ops.stages import narrowed, reduced, reduced_shape
from weft.support.dtypes import BOOL, INT32, INT64, UINT8, DType


def _infer(op: str) -> Any:
    def infer(attrs: Attrs, *types: Type) -> TensorType:
        (data,) = rel.tensors(op, types, 1)
        rel.want_kind(op, data, ANY)
        axis = rel.axis_of(op, attrs.axis, data.rank)
        if data.shape[axis] == 0:
            rel.fail(op, f"axis {axis} of {data} is empty", "T013")
        return TensorType(reduced_shape(data.shape, (axis,), attrs.keepdims), INT64)

    return infer


def ahead(a: Expr, b: Expr, largest: bool) -> Expr:
    """Whether ``a`` comes strictly before ``b`` in the order searched; NaN comes before everything else."""
    strictly = a > b if largest else a < b
    if not a.dtype.is_float:
        return strictly
    return te.any(strictly, te.all(te.isnan(a), Not(te.isnan(b))))


def _compute(op: str, largest: bool) -> Any:
    """The best value, then the first (or last) place that holds it: two simple reductions. One that carries a value and
    its place takes five times as many instructions for each element."""

    def compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
        axis = rel.axis_of(op, attrs.axis, data.ndim)
        if data.dtype == BOOL:
            data = te.compute(data.shape, lambda *i: te.cast(data[i], UINT8), name=f"{op}_data")
        best = reduced(data, (axis,), te.max if largest else te.min, name=f"{op}_best")
        size = data.shape[axis]
        word = INT32 if isinstance(size, Const) and int(size) <= INT32.limits()[1] else INT64

        def place(value: Expr, at: tuple[Any, ...]) -> Expr:
            top = best[(*at[:axis], 0, *at[axis + 1 :])]
            here = te.any(make("eq", value, top), te.isnan(value)) if data.dtype.is_float else make("eq", value, top)
            return select(here, te.cast(at[axis], word), te.cast(size if not attrs.select_last else te.const(-1), word))

        first = te.max if attrs.select_last else te.min
        places = reduced(data, (axis,), first, place, keepdims=attrs.keepdims, name=op)
        return narrowed(places, INT64, f"{op}_places")

    return compute


def _reference(largest: bool) -> Any:
    def reference(attrs: Attrs, data: Array) -> Array:
        find = np.argmax if largest else np.argmin
        if attrs.select_last:
            out = data.shape[attrs.axis] - 1 - find(np.flip(data, attrs.axis), attrs.axis)
        else:
            out = find(data, attrs.axis)
        return np.asarray(np.expand_dims(out, attrs.axis) if attrs.keepdims else out).astype(np.int64)

    return reference


_ATTRIBUTES = (
    Attribute("axis", 0, "the axis to search"),
    Attribute("keepdims", True, "whether the axis stays, with size 1"),
    Attribute("select_last", False, "whether the last of several equal values counts, else the first"),
)
_TIES = np.array([[2, 1, 2, 1], [0, 0, 0, 0]], np.float32)
_ODD = np.array([0.0, np.nan, -np.inf, -0.0, 2.5, np.inf, -3.0], np.float32)
_CASES = (
    Case((((3, 5), "float32"),), {"axis": 1}),
    Case((((3, 5), "float32"),), {"axis": 0, "keepdims": False}),
    Case((_TIES,), {"axis": -1}),
    Case((_TIES,), {"axis": -1, "select_last": True}),
    Case((np.array([[1, np.nan, 3, np.nan]], np.float32),), {"axis": 1}),
    Case((((4,), "int32"),), {}, -9, 9),
)

ARGMAX = OpDef(
    "argmax",
    _ATTRIBUTES,
    _infer("argmax"),
    _reference(True),
    compute=_compute("argmax", True),
    cases=_CASES,
    doc="where the largest value is; NaN counts as largest",
    source="ONNX ArgMax-13",
)
ARGMIN = OpDef(
    "argmin",
    _ATTRIBUTES,
    _infer("argmin"),
    _reference(False),
    compute=_compute("argmin", False),
    cases=_CASES,
    doc="where the smallest value is; NaN counts as smallest",
    source="ONNX ArgMin-13",
)


def _topk_infer(attrs: Attrs, *types: Type) -> TupleType:
    (data,) = rel.tensors("topk", types, 1)
    axis = rel.axis_of("topk", attrs.axis, data.rank)
    k, size = attrs.k, data.shape[axis]
    if isinstance(k, int) and (k < 0 or (isinstance(size, int) and k > size)):
        rel.fail("topk", f"k is {k}, but axis {axis} has {size} elements", "T013")
    values = TensorType((*data.shape[:axis], rel.simplified(k), *data.shape[axis + 1 :]), data.dtype)
    return TupleType((values, values.with_dtype(INT64)))


def _topk_compute(attrs: Attrs, out: TupleType, data: te.Tensor) -> Any:
    """The places of the best values in order, and the values there."""
    axis, largest = rel.axis_of("topk", attrs.axis, data.ndim), attrs.largest
    rest, size = (*data.shape[:axis], *data.shape[axis + 1 :]), data.shape[axis]
    shape = out.fields[0].shape  # type: ignore[attr-defined]  # tuple
    if 0 in shape:
        return tuple(te.compute(shape, lambda *i, t=t: te.const(0, t), name="topk") for t in (data.dtype, INT64))

    def before(a: Expr, b: Expr, *i: Expr) -> Expr:
        x, y = (data[(*i[:axis], p, *i[axis:])] for p in (a, b))
        return ahead(x, y, largest)

    def key(a: Expr, *i: Expr) -> Expr:
        return sort_key(data[(*i[:axis], a, *i[axis:])], descending=largest, nan_first=True)

    places = te.order(rest, shape[axis], size, before, name="topk_places", key=key)

    def at(i: Sequence[Expr]) -> Expr:
        return places[(*i[:axis], *i[axis + 1 :], i[axis])]

    values = te.compute(shape, lambda *i: data[(*i[:axis], at(i), *i[axis + 1 :])], name="topk_values")
    return values, places if axis == data.ndim - 1 else te.compute(shape, lambda *i: at(i), name="topk")


def _topk_reference(attrs: Attrs, data: Array) -> tuple[Array, Array]:
    keys = data.astype(np.float64) if DType(data.dtype).is_float else data.astype(np.int64)
    missing = np.isnan(keys)
    keys = np.where(missing, 0, -keys if attrs.largest else keys)
    order = np.lexsort((keys, ~missing), axis=attrs.axis)
    order = np.take(order, np.arange(attrs.k), attrs.axis)
    return np.take_along_axis(data, order, attrs.axis), order.astype(np.int64)


TOPK = OpDef(
    "topk",
    (
        Attribute("k", REQUIRED, "how many values"),
        Attribute("axis", -1, "the axis to search"),
        Attribute("largest", True, "whether the largest values count, else the smallest"),
    ),
    _topk_infer,
    _topk_reference,
    compute=_topk_compute,
    cases=(
        Case((((3, 6), "float32"),), {"k": 3}),
        Case((((4, 2), "float32"),), {"k": 2, "axis": 0, "largest": False}),
        Case((_TIES,), {"k": 3}),
        Case((((5,), "int64"),), {"k": 5}, -9, 9),
        Case((((2, 3, 5), "float16"),), {"k": 1, "axis": 1}),
        Case((((3, 4), "float32"),), {"k": 0}),
        Case((np.array([[1, np.nan, 3, np.nan, 3]], np.float32),), {"k": 5}),
        *(Case((np.tile(_ODD, 10).astype(t),), {"k": 70}) for t in ("float16", "float32", "float64")),
        Case((np.tile(_ODD, 10),), {"k": 30, "largest": False}),
        Case((((70, 2), "int32"),), {"k": 9, "axis": 0, "largest": False}, -90, 90),
        Case((((70,), "uint64"),), {"k": 9}, 0, 90),
        Case((np.array([[1, np.nan, -np.inf, np.inf, 3]], np.float32),), {"k": 5, "largest": False}),
    ),
    doc="the k largest or smallest values along an axis in order, and their places; of equal ones the first is ahead",
    source="ONNX TopK-11",
)


def _argsort_infer(attrs: Attrs, *types: Type) -> TensorType:
    (data,) = rel.tensors("argsort", types, 1)
    rel.want_kind("argsort", data, ANY)
    rel.axis_of("argsort", attrs.axis, data.rank)
    return data.with_dtype(INT64)


def _argsort_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    axis = rel.axis_of("argsort", attrs.axis, data.ndim)
    rest, size = (*data.shape[:axis], *data.shape[axis + 1 :]), data.shape[axis]
    if 0 in out.shape:
        return te.compute(out.shape, lambda *i: te.const(0, INT64), name="argsort")

    def before(a: Expr, b: Expr, *i: Expr) -> Expr:
        x, y = (data[(*i[:axis], p, *i[axis:])] for p in (a, b))
        if data.dtype == BOOL:
            x, y = te.cast(x, "int32"), te.cast(y, "int32")
        return te.any(x < y, te.all(te.isnan(y), Not(te.isnan(x)))) if data.dtype.is_float else x < y

    def key(a: Expr, *i: Expr) -> Expr:
        return sort_key(data[(*i[:axis], a, *i[axis:])])

    places = te.order(rest, size, size, before, name="argsort_places", key=key)
    if axis == data.ndim - 1:
        return places
    return te.compute(out.shape, lambda *i: places[(*i[:axis], *i[axis + 1 :], i[axis])], name="argsort")


ARGSORT = OpDef(
    "argsort",
    (Attribute("axis", -1, "the axis to sort along"),),
    _argsort_infer,
    lambda attrs, data: np.argsort(
        data.astype(np.float64) if DType(data.dtype).is_float else data, attrs.axis, kind="stable"
    ).astype(np.int64),
    compute=_argsort_compute,
    cases=(
        Case((((3, 6), "float32"),), {}),
        Case((((37, 2), "float32"),), {"axis": 0}),
        Case((((70,), "int8"),), {}, -3, 3),
        Case((((1,), "int64"),), {}, -9, 9),
        Case((((0, 2), "float32"),), {"axis": 0}),
        Case((((5,), "bool"),), {}, 0, 2),
        Case((((2, 70), "bool"),), {}, 0, 2),
        *(Case((((2, 70), t),), {}, -90, 90) for t in ("int8", "int64", "float64", "bfloat16")),
        *(Case((((70,), t),), {}, 0, 200) for t in ("uint8", "uint32")),
        *(Case((np.tile(_ODD, 10).astype(t),), {}) for t in ("float16", "float32", "float64")),
        Case((np.array([3, np.nan, -np.inf, 1, np.nan, 1, np.inf], np.float32),), {}),
    ),
    doc="the places of the values along an axis in ascending order; equal ones keep theirs, NaN is last",
    source="ONNX Unique-11",
)

SEARCH: tuple[OpDef, ...] = (ARGMAX, ARGMIN, TOPK, ARGSORT)
