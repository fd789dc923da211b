"""Running totals along an axis."""

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
from weft.ops.stages import accumulator
from weft.support.dtypes import DType

AXIS = Attribute("axis", REQUIRED, "the axis; negative ones count from the back")


def _f(*shape: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return shape, dtype


def _one(op: str, types: Sequence[Type]) -> TensorType:
    return rel.tensors(op, types, 1)[0]


def _cumsum_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("cumsum", types)
    rel.want_kind("cumsum", data, "int uint float")
    rel.axis_of("cumsum", attrs.axis, data.rank)
    return data


def _cumsum_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    """A recurrence over the axis, which stands first in its state: one addition an element."""
    axis, dtype = rel.axis_of("cumsum", attrs.axis, data.ndim), accumulator(data.dtype)
    size = data.shape[axis]
    rest = (*data.shape[:axis], *data.shape[axis + 1 :])
    if 0 in out.shape:
        return te.compute(out.shape, lambda *i: data[i], name="cumsum")

    def value(t: Any, i: Sequence[Any]) -> Expr:
        place = size - 1 - t if attrs.reverse else t
        return te.cast(data[(*i[:axis], place, *i[axis:])], dtype)

    def first(t: Expr, *i: Expr) -> Expr:
        return te.const(0, dtype) if attrs.exclusive else value(t, i)

    def step(t: Expr, *i: Expr) -> Expr:
        return state[(t - 1, *i)] + value(t - 1 if attrs.exclusive else t, i)

    state = te.placeholder((size, *rest), dtype, "cumsum_state")
    sums = te.scan(
        te.compute((1, *rest), first, name="cumsum_first"),
        te.compute((size, *rest), step, name="cumsum_step"),
        state,
        [data],
        name="cumsum_scan",
    )
    if axis == 0 and not attrs.reverse and dtype == out.dtype:
        return sums

    def element(*i: Expr) -> Expr:
        t = size - 1 - i[axis] if attrs.reverse else i[axis]
        return te.cast(sums[(t, *i[:axis], *i[axis + 1 :])], out.dtype)

    return te.compute(out.shape, element, name="cumsum")


def _cumsum_reference(attrs: Attrs, data: Array) -> Array:
    wide = data.astype(np.float32) if DType(data.dtype).is_float and data.dtype.itemsize < 4 else data
    wide = np.flip(wide, attrs.axis) if attrs.reverse else wide
    out = np.cumsum(wide, attrs.axis, dtype=wide.dtype)
    if attrs.exclusive:
        out = out - wide
    return np.ascontiguousarray(np.flip(out, attrs.axis) if attrs.reverse else out).astype(data.dtype)


CUMSUM = OpDef(
    "cumsum",
    (
        AXIS,
        Attribute("exclusive", False, "whether an element's own value is left out"),
        Attribute("reverse", False, "whether to sum from the end"),
    ),
    _cumsum_infer,
    _cumsum_reference,
    compute=_cumsum_compute,
    cases=(
        Case((_f(2, 5),), {"axis": 1}),
        Case(
            (
                _f(
                    5,
                ),
            ),
            {"axis": 0, "exclusive": True},
        ),
        Case((_f(2, 5),), {"axis": -1, "reverse": True}),
        Case((_f(3, 4, 2),), {"axis": 1}),
        Case((_f(1),), {"axis": 0, "exclusive": True}),
        Case((_f(2, 0),), {"axis": 1}),
        Case((_f(3, 20, dtype="float16"),), {"axis": 1}, rtol=2e-3, atol=2e-3),
        Case((_f(4, 2, dtype="int64"),), {"axis": 0, "exclusive": True, "reverse": True}, -9, 9),
    ),
    doc="sums of all values up to each along an axis",
    source="ONNX CumSum-14",
)
