"""Tensors made from sizes and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Expr, index, select
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import Dim, TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.support.dtypes import INDEX, DType


def _count(attrs: Attrs) -> Dim:
    """The number of elements of an arange."""
    if attrs.count is not None:
        return rel.simplified(attrs.count)
    if attrs.stop is None:
        rel.fail("arange", "needs stop or count", "T015")
    if isinstance(attrs.step, Expr) or attrs.step == 0:
        rel.fail("arange", f"step must be a number other than 0, not {attrs.step}", "T015")
    if all(isinstance(v, (int, float)) for v in (attrs.start, attrs.stop, attrs.step)):
        return max(0, int(np.ceil((attrs.stop - attrs.start) / attrs.step)))
    sign = 1 if attrs.step > 0 else -1
    room = rel.multiply((rel.add(attrs.stop, rel.multiply((attrs.start, -1))), sign))
    return rel.at_least_zero(rel.ceil_divide(room, abs(attrs.step)))


def _arange_infer(attrs: Attrs, *types: Type) -> TensorType:
    rel.tensors("arange", types, 0)
    return TensorType((_count(attrs),), DType(attrs.dtype))


def _arange_compute(attrs: Attrs, out: TensorType) -> Any:
    dtype = out.dtype

    def value(v: Any) -> Expr:
        return te.cast(v, dtype) if isinstance(v, Expr) else te.const(v, dtype)

    return te.compute(out.shape, lambda i: value(attrs.start) + te.cast(i, dtype) * value(attrs.step), name="arange")


def _arange_reference(attrs: Attrs) -> Array:
    dtype = DType(attrs.dtype).numpy
    count = _count(attrs)
    assert isinstance(count, int)
    steps = np.arange(count).astype(dtype) * np.asarray(attrs.step).astype(dtype)
    return np.asarray((np.asarray(attrs.start).astype(dtype) + steps).astype(dtype))


ARANGE = OpDef(
    "arange",
    (
        Attribute("start", 0, "the first value, a number or a symbolic size"),
        Attribute("stop", None, "the value before which to stop"),
        Attribute("step", 1, "the difference of neighbours"),
        Attribute("count", None, "the number of values, instead of stop"),
        Attribute("dtype", "int64", "the dtype of the result"),
    ),
    _arange_infer,
    _arange_reference,
    cheap=True,
    compute=_arange_compute,
    cases=(
        Case((), {"stop": 5}),
        Case((), {"start": 10, "stop": 4, "step": -2, "dtype": "int32"}),
        Case((), {"start": 0.5, "stop": 2.0, "step": 0.25, "dtype": "float32"}),
        Case((), {"start": 3, "count": 4, "step": 2}),
        Case((), {"start": 3, "stop": 1}),
    ),
    doc="equally spaced values",
    source="ONNX Range-11",
)


def _sizes_infer(attrs: Attrs, *types: Type) -> TensorType:
    rel.tensors("from_sizes", types, 0)
    return TensorType((len(attrs.sizes),), INDEX)


def _sizes_compute(attrs: Attrs, out: TensorType) -> Any:
    sizes = [index(s) for s in attrs.sizes]

    def element(i: Expr) -> Expr:
        value = sizes[-1] if sizes else te.const(0)
        for n in range(len(sizes) - 2, -1, -1):
            value = select(i == n, sizes[n], value)
        return value

    return te.compute(out.shape, element, name="from_sizes")


FROM_SIZES = OpDef(
    "from_sizes",
    (Attribute("sizes", REQUIRED, "the values, symbolic sizes included"),),
    _sizes_infer,
    lambda attrs: np.array(attrs.sizes, np.int64).reshape(len(attrs.sizes)),
    cheap=True,
    compute=_sizes_compute,
    cases=(Case((), {"sizes": (2, 5, 3)}), Case((), {"sizes": (7,)})),
    doc="sizes as a vector of int64, for models that compute with shapes",
    source="ONNX Shape-21",
)


def _full_infer(attrs: Attrs, *types: Type) -> TensorType:
    rel.tensors("full", types, 0)
    return TensorType(tuple(rel.simplified(s) for s in attrs.shape), DType(attrs.dtype))


FULL = OpDef(
    "full",
    (
        Attribute("shape", REQUIRED, "the shape, symbolic sizes included"),
        Attribute("value", 0, "the value of every element"),
        Attribute("dtype", "float32", "the dtype of the result"),
    ),
    _full_infer,
    lambda attrs: np.full(attrs.shape, attrs.value, DType(attrs.dtype).numpy),
    cheap=True,
    compute=lambda attrs, out: te.compute(out.shape, lambda *i: te.const(attrs.value, out.dtype), name="full"),
    cases=(Case((), {"shape": (2, 3), "value": 1.5}), Case((), {"shape": (), "value": 3, "dtype": "int64"})),
    doc="one value everywhere",
    source="ONNX ConstantOfShape-21",
)


def _eye_infer(attrs: Attrs, *types: Type) -> TensorType:
    rel.tensors("eye", types, 0)
    return TensorType((rel.simplified(attrs.rows), rel.simplified(attrs.columns)), DType(attrs.dtype))


EYE = OpDef(
    "eye",
    (
        Attribute("rows", REQUIRED, "number of rows"),
        Attribute("columns", REQUIRED, "number of columns"),
        Attribute("k", 0, "which diagonal; above the main one if positive"),
        Attribute("dtype", "float32", "the dtype of the result"),
    ),
    _eye_infer,
    lambda attrs: np.eye(attrs.rows, attrs.columns, attrs.k, DType(attrs.dtype).numpy),
    cheap=True,
    compute=lambda attrs, out: te.compute(
        out.shape, lambda i, j: select(j - i == attrs.k, te.const(1, out.dtype), te.const(0, out.dtype)), name="eye"
    ),
    cases=(Case((), {"rows": 3, "columns": 4, "k": 1}), Case((), {"rows": 2, "columns": 2, "k": -1, "dtype": "int32"})),
    doc="1 on a diagonal, 0 elsewhere",
    source="ONNX EyeLike-22",
)


def _trilu_infer(attrs: Attrs, *types: Type) -> TensorType:
    (data,) = rel.tensors("trilu", types, 1)
    rel.want_rank_at_least("trilu", data, 2)
    return data


def _trilu_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    def element(*i: Expr) -> Expr:
        distance = i[-1] - i[-2]
        kept = distance >= index(attrs.k) if attrs.upper else distance <= index(attrs.k)
        return select(kept, data[i], te.const(attrs.fill, data.dtype))

    return te.compute(out.shape, element, name="trilu")


def _trilu_reference(attrs: Attrs, data: Array) -> Array:
    rows, columns = data.shape[-2:]
    lower = np.tri(rows, columns, attrs.k - attrs.upper, dtype=bool)
    return np.where(lower != attrs.upper, data, np.asarray(attrs.fill).astype(data.dtype))


TRILU = OpDef(
    "trilu",
    (
        Attribute("upper", True, "whether to keep the upper part, else the lower"),
        Attribute("k", 0, "the diagonal at which the kept part ends"),
        Attribute("fill", 0, "the value elsewhere"),
    ),
    _trilu_infer,
    _trilu_reference,
    compute=_trilu_compute,
    cases=(
        Case((((3, 4), "float32"),), {}),
        Case((((2, 3, 3), "float32"),), {"upper": False, "k": -1}),
        Case((((3, 4), "float32"),), {"upper": False, "fill": float("-inf")}),
        Case((((2, 4, 3), "int32"),), {"k": 1, "fill": 7}, -9, 9),
    ),
    doc="the upper or lower part of matrices, ``fill`` elsewhere",
    source="ONNX Trilu-14",
)

CREATION: tuple[OpDef, ...] = (ARANGE, FROM_SIZES, FULL, EYE, TRILU)
