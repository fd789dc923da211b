"""Softmax and its logarithm, computed without overflow in several stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.intrinsics import exp_nonpositive
from weft.expr.nodes import Expr, index, select
from weft.graph.operator import Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.ops.stages import accumulator, reduced

AXIS = (Attribute("axis", -1, "the axis along which the result sums to 1"),)
LIMIT = Attribute(
    "limit", None, "k: only elements 0 … i + k of row i (of the last two dimensions) count, the rest are 0"
)


def _infer(name: str) -> Any:
    def infer(attrs: Attrs, *types: Type) -> TensorType:
        (data,) = rel.tensors(name, types, 1)
        rel.want_kind(name, data, "float")
        axis = rel.axis_of(name, attrs.axis, data.rank)
        if attrs.get("limit") is not None and not 0 < axis == data.rank - 1:
            rel.fail(name, f"a limit needs rows of the last axis, not axis {attrs.axis} of {data}", "T012")
        return data

    return infer


def _compute(log: bool) -> Any:
    def compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
        axis = rel.axis_of("softmax", attrs.axis, data.ndim)
        wide = accumulator(data.dtype)
        where = _counts(attrs)
        top = reduced(data, (axis,), te.max, lambda x, at: te.cast(x, wide), where=where, name="softmax_max")

        def counted(value: Expr, at: Sequence[Expr]) -> Expr:
            return value if where is None else select(where(at), value, te.const(0, value.dtype))

        def line(t: te.Tensor, at: Any) -> Expr:
            return t[tuple(te.const(0) if d == axis else i for d, i in enumerate(at))]

        if log:
            total = reduced(
                data, (axis,), te.sum, lambda x, at: te.exp(te.cast(x, wide) - line(top, at)), name="softmax_sum"
            )

            # A stage of its own: once for each row, not in each of the loops into which rows of open length are split.
            logs = te.compute(total.shape, lambda *i: te.log(total[i]), name="softmax_log")

            def log_element(*i: Expr) -> Expr:
                return te.cast(te.cast(data[i], wide) - line(top, i) - line(logs, i), out.dtype)

            return te.compute(out.shape, log_element, name="log_softmax")

        def power(*i: Expr) -> Expr:
            return counted(exp_nonpositive(te.cast(data[i], wide) - line(top, i)), i)

        powers = te.compute(data.shape, power, name="softmax_exp")
        total = reduced(powers, (axis,), te.sum, where=where, name="softmax_sum")

        def element(*i: Expr) -> Expr:
            return counted(te.cast(powers[i] * (te.const(1, wide) / line(total, i)), out.dtype), i)

        return te.compute(out.shape, element, name="softmax")

    return compute


def _counts(attrs: Attrs) -> Callable[[Sequence[Any]], Expr] | None:
    """Whether the element at some indices counts; None where all do."""
    limit = attrs.get("limit")
    return None if limit is None else lambda at: at[-1] <= at[-2] + index(limit)


def _reference(log: bool) -> Any:
    def reference(attrs: Attrs, data: Array) -> Array:
        wide = data.astype(np.float64)
        if data.shape[attrs.axis] == 0:
            return data.copy()
        limit = attrs.get("limit")
        counts = np.asarray(True) if limit is None else np.tri(data.shape[-2], data.shape[-1], limit, dtype=bool)
        wide = np.where(counts, wide, -np.inf)
        with np.errstate(all="ignore"):
            wide = wide - np.max(wide, attrs.axis, keepdims=True)
            powers = np.exp(wide)
            total = np.sum(powers, attrs.axis, keepdims=True)
            out = wide - np.log(total) if log else np.where(counts, powers / total, 0)
        return np.asarray(out.astype(data.dtype))

    return reference


_CASES = (
    Case((((2, 5), "float32"),), {}),
    Case((((2, 3, 4), "float32"),), {"axis": 1}, -20, 20),
    Case((((3, 4), "float32"),), {"axis": 0}, 80, 120),
    Case((((2, 9), "float16"),), {}, -4, 4, 2e-3, 1e-3),
    Case((np.array([[0, -np.inf, 1]], np.float32),), {}),
)

SOFTMAX: tuple[OpDef, ...] = (
    OpDef(
        "softmax",
        (*AXIS, LIMIT),
        _infer("softmax"),
        _reference(False),
        compute=_compute(False),
        cases=(
            *_CASES,
            Case((((2, 3, 5), "float32"),), {"limit": 1}),
            Case((((4, 3), "float32"),), {"axis": 1, "limit": -1}),
        ),
        doc="exp(x) over its sum along an axis",
        source="ONNX Softmax-13",
    ),
    OpDef(
        "log_softmax",
        AXIS,
        _infer("log_softmax"),
        _reference(True),
        compute=_compute(True),
        cases=_CASES,
        doc="the logarithm of softmax",
        source="ONNX LogSoftmax-13",
    ),
)
