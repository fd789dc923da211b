"""Running totals along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.expr.nodes import Expr, IterVar, select
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array

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
    axis = rel.axis_of("cumsum", attrs.axis, data.ndim)
    k: IterVar = te.reduce_axis((0, data.shape[axis]), name="k")

    def element(*i: Expr) -> Expr:
        here = i[axis]
        if attrs.reverse:
            counts = k.var > here if attrs.exclusive else k.var >= here
        else:
            counts = k.var < here if attrs.exclusive else k.var <= here
        value = data[(*i[:axis], k.var, *i[axis + 1 :])]
        return te.sum(select(counts, value, te.const(0, data.dtype)), axis=k)

    return te.compute(out.shape, element, name="cumsum")


def _cumsum_reference(attrs: Attrs, data: Array) -> Array:
    wide = np.flip(data, attrs.axis) if attrs.reverse else data
    out = np.cumsum(wide, attrs.axis, dtype=data.dtype)
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
        Case((_f(4, 2, dtype="int64"),), {"axis": 0, "exclusive": True, "reverse": True}, -9, 9),
    ),
    doc="sums of all values up to each along an axis",
    source="ONNX CumSum-14",
)
