"""Running totals along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def _infer(op: str) -> Callable[..., TensorType]:
    def infer(attrs: Attrs, *types: Type) -> TensorType:
        data = _one(op, types)
        rel.want_kind(op, data, "int uint float")
        rel.axis_of(op, attrs.axis, data.rank)
        return data

    return infer


def _compute(op: str, start: int, combine: Callable[[Expr, Expr], Expr]) -> Callable[..., Any]:
    def compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
        """A recurrence over the axis, which stands first in its state: one operation an element."""
        axis, dtype = rel.axis_of(op, attrs.axis, data.ndim), accumulator(data.dtype)
        size = data.shape[axis]
        rest = (*data.shape[:axis], *data.shape[axis + 1 :])
        if 0 in out.shape:
            return te.compute(out.shape, lambda *i: data[i], name=op)

        def moved(t: Any, *i: Any) -> Expr:
            place = size - 1 - t if attrs.reverse else t
            return te.cast(data[(*i[:axis], place, *i[axis:])], dtype)

        terms = te.compute((size, *rest), moved, name=f"{op}_terms")

        def first(t: Expr, *i: Expr) -> Any:
            return te.const(start, dtype) if attrs.exclusive else terms[(t, *i)]

        def step(t: Expr, *i: Expr) -> Expr:
            return combine(state[(t - 1, *i)], terms[(t - 1 if attrs.exclusive else t, *i)])

        state = te.placeholder((size, *rest), dtype, f"{op}_state")
        totals = te.scan(
            te.compute((1, *rest), first, name=f"{op}_first"),
            te.compute((size, *rest), step, name=f"{op}_step"),
            state,
            [terms],
            name=f"{op}_scan",
        )
        if axis == 0 and not attrs.reverse and dtype == out.dtype:
            return totals

        def element(*i: Expr) -> Expr:
            t = size - 1 - i[axis] if attrs.reverse else i[axis]
            return te.cast(totals[(t, *i[:axis], *i[axis + 1 :])], out.dtype)

        return te.compute(out.shape, element, name=op)

    return compute


def _reference(start: int, accumulate: Callable[..., Array]) -> Callable[..., Array]:
    def reference(attrs: Attrs, data: Array) -> Array:
        wide = data.astype(np.float32) if DType(data.dtype).is_float and data.dtype.itemsize < 4 else data
        wide = np.moveaxis(np.flip(wide, attrs.axis) if attrs.reverse else wide, attrs.axis, 0)
        out = accumulate(wide, 0, dtype=wide.dtype)
        if attrs.exclusive and out.shape[0]:
            out = np.concatenate([np.full_like(out[:1], start), out[:-1]])
        out = np.moveaxis(out, 0, attrs.axis)
        return np.ascontiguousarray(np.flip(out, attrs.axis) if attrs.reverse else out).astype(data.dtype)

    return reference


def _attributes(what: str) -> tuple[Attribute, ...]:
    return (
        AXIS,
        Attribute("exclusive", False, "whether an element's own value is left out"),
        Attribute("reverse", False, f"whether to {what} from the end"),
    )


CUMSUM = OpDef(
    "cumsum",
    _attributes("sum"),
    _infer("cumsum"),
    _reference(0, np.cumsum),
    compute=_compute("cumsum", 0, lambda a, b: a + b),
    cases=(
        Case((_f(2, 5),), {"axis": 1}),
        Case((_f(5),), {"axis": 0, "exclusive": True}),
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
CUMPROD = OpDef(
    "cumprod",
    _attributes("multiply"),
    _infer("cumprod"),
    _reference(1, np.cumprod),
    compute=_compute("cumprod", 1, lambda a, b: a * b),
    cases=(
        Case((_f(2, 5),), {"axis": 1}),
        Case((_f(5),), {"axis": 0, "exclusive": True}),
        Case((_f(2, 5),), {"axis": -1, "reverse": True}),
        Case((_f(3, 4, 2),), {"axis": 1}),
        Case((_f(0, 3),), {"axis": 0}),
        Case((_f(4, 2, dtype="int64"),), {"axis": 0, "exclusive": True, "reverse": True}, -9, 9),
    ),
    doc="products of all values up to each along an axis",
    source="ONNX CumProd-26",
)
