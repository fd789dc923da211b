"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Expr, select
from weft.graph.operator import Attribute, Attrs
from weft.graph.types import TensorType, TupleType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import NUMBER, Array
from weft.ops.layouts import follow_channels
from weft.ops.moments import mean
from weft.ops.stages import accumulator, extent, narrowed, reduce_axes, reduced, reduced_shape, with_reduced
from weft.support.dtypes import BOOL, DType

AXES = (
    Attribute("axes", None, "the axes to reduce, negative ones from the back; None means all"),
    Attribute("keepdims", True, "whether reduced axes stay, with size 1"),
)


def _infer(name: str, kinds: str) -> Callable[..., TensorType]:
    def infer(attrs: Attrs, *types: Type) -> TensorType:
        (data,) = rel.tensors(name, types, 1)
        rel.want_kind(name, data, kinds)
        axes = rel.axes_of(name, attrs.axes, data.rank)
        return TensorType(reduced_shape(data.shape, axes, attrs.keepdims), data.dtype)

    return infer


def _blocked(attrs: Attrs, data: TensorType, block: int) -> Attrs | None:
    """The attributes for blocked channels, where space alone is reduced."""
    axes = rel.axes_of("reduce", attrs.axes, data.rank)
    return attrs.replace(axes=axes) if attrs.keepdims and 1 not in axes else None


@dataclass(frozen=True, slots=True)
class _Row:
    """``finish(combine(before(x)), count)`` in scalars; ``numpy(x, axes, keepdims)`` on arrays."""

    name: str
    combine: Callable[..., Expr]
    numpy: Callable[[Any, tuple[int, ...], bool], Any]
    source: str
    doc: str
    before: Callable[[Expr], Expr] = lambda x: x
    finish: Callable[[Expr, Expr], Expr] | None = None
    kinds: str = NUMBER
    low: float = -2.0

    def compute(self, attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
        axes = rel.axes_of(self.name, attrs.axes, data.ndim)
        wide = accumulator(data.dtype)
        combine = _for_bool(self.combine) if data.dtype == BOOL else self.combine
        total = reduced(
            data,
            axes,
            combine,
            lambda x, at: self.before(te.cast(x, wide)),
            keepdims=attrs.keepdims,
            name=self.name,
        )
        finish = self.finish
        if finish is None:
            return narrowed(total, out.dtype, f"{self.name}_narrow")
        count = extent(data.shape, axes)
        made: te.Tensor = te.compute(
            out.shape, lambda *i: te.cast(finish(total[i], count), out.dtype), name=f"{self.name}_finish"
        )
        return made

    def reference(self, attrs: Attrs, data: Array) -> Array:
        axes = rel.axes_of(self.name, attrs.axes, data.ndim)
        wide = data.astype(np.float64) if DType(data.dtype).is_float else data
        with np.errstate(all="ignore"):
            return np.asarray(self.numpy(wide, axes, attrs.keepdims)).astype(data.dtype)

    def define(self) -> OpDef:
        low = self.low
        cases = (
            Case((((2, 3, 4), "float32"),), {"axes": (1,), "keepdims": False}, low),
            Case((((2, 3, 4), "float32"),), {"axes": (-1, 0)}, low),
            Case((((3, 5), "float32"),), {}, low),
            Case((((3, 5), "float32"),), {"axes": ()}, low),
            Case((((2, 40), "float16"),), {"axes": (1,)}, low, 2.0, 4e-3, 1e-2),
            Case((((3, 4), "int32"),), {"axes": (1,), "keepdims": False}, 1, 5),
        )
        return OpDef(
            self.name,
            AXES,
            _infer(self.name, self.kinds),
            self.reference,
            follows=follow_channels(_infer(self.name, self.kinds), _blocked),
            compute=self.compute,
            cases=cases if self.name not in _REAL else cases[:-1],
            doc=self.doc,
            source=self.source,
        )


def _for_bool(combine: Callable[..., Expr]) -> Callable[..., Expr]:
    return te.any if combine is te.max else te.all


def _mean(total: Expr, count: Expr) -> Expr:
    return total / te.cast(count, total.dtype) if total.dtype.is_float else te.truncdiv(total, count)


def _np_mean(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    made = mean(x, axes)
    made = made if keep else made.squeeze(axes)
    return np.trunc(made) if x.dtype.kind in "iu" else made


def _extreme(dtype: np.dtype[Any], sign: int) -> Any:
    """The result of reducing nothing: the value that never wins."""
    if dtype.kind == "f":
        return sign * np.inf
    low, high = DType(dtype).limits()
    return dtype.type(low if sign < 0 else high)


_REAL = ("reduce_l2", "reduce_log_sum")
"""Reductions whose results are no integers."""

ROWS = (
    _Row("reduce_sum", te.sum, lambda x, a, k: np.sum(x, a, keepdims=k), "ONNX ReduceSum-13", "sum"),
    _Row("reduce_mean", te.sum, _np_mean, "ONNX ReduceMean-18", "mean", finish=_mean),
    _Row(
        "reduce_max",
        te.max,
        lambda x, a, k: np.max(x, a, keepdims=k, initial=_extreme(x.dtype, -1)),
        "ONNX ReduceMax-20",
        "largest value; NaN if any is; of bool: whether any",
        kinds="bool int uint float",
    ),
    _Row(
        "reduce_min",
        te.min,
        lambda x, a, k: np.min(x, a, keepdims=k, initial=_extreme(x.dtype, 1)),
        "ONNX ReduceMin-20",
        "smallest value; NaN if any is; of bool: whether all",
        kinds="bool int uint float",
    ),
    _Row("reduce_prod", te.prod, lambda x, a, k: np.prod(x, a, keepdims=k), "ONNX ReduceProd-18", "product"),
    _Row(
        "reduce_l1",
        te.sum,
        lambda x, a, k: np.sum(np.abs(x), a, keepdims=k),
        "ONNX ReduceL1-18",
        "sum of magnitudes",
        before=te.abs,
    ),
    _Row(
        "reduce_l2",
        te.sum,
        lambda x, a, k: np.sqrt(np.sum(x * x, a, keepdims=k)),
        "ONNX ReduceL2-18",
        "root of the sum of squares",
        before=lambda x: x * x,
        finish=lambda total, count: te.sqrt(total),
        kinds="float",
    ),
    _Row(
        "reduce_log_sum",
        te.sum,
        lambda x, a, k: np.log(np.sum(x, a, keepdims=k)),
        "ONNX ReduceLogSum-18",
        "logarithm of the sum",
        finish=lambda total, count: te.log(total),
        kinds="float",
        low=0.1,
    ),
    _Row(
        "reduce_sum_square",
        te.sum,
        lambda x, a, k: np.sum(x * x, a, keepdims=k),
        "ONNX ReduceSumSquare-18",
        "sum of squares",
        before=lambda x: x * x,
    ),
)


def _log_sum_exp_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    axes = rel.axes_of("reduce_log_sum_exp", attrs.axes, data.ndim)
    wide = accumulator(data.dtype)
    top = reduced(data, axes, te.max, lambda x, at: te.cast(x, wide), name="log_sum_exp_max")

    def finite(at: tuple[Any, ...]) -> Expr:
        value = top[tuple(0 if d in axes else i for d, i in enumerate(at))]
        return select(te.any(te.isinf(value), te.isnan(value)), te.const(0, wide), value)

    total = reduced(
        data, axes, te.sum, lambda x, at: te.exp(te.cast(x, wide) - finite(at)), keepdims=attrs.keepdims, name="sum_exp"
    )

    def finish(*i: Expr) -> Expr:
        kept = iter(i)
        at = tuple(0 if d in axes and not attrs.keepdims else next(kept) for d in range(data.ndim))
        return te.cast(te.log(total[i]) + finite(at), out.dtype)

    return te.compute(out.shape, finish, name="log_sum_exp")


def _log_sum_exp_reference(attrs: Attrs, data: Array) -> Array:
    axes = rel.axes_of("reduce_log_sum_exp", attrs.axes, data.ndim)
    with np.errstate(all="ignore"):
        wide = data.astype(np.float64)
        return np.asarray(np.log(np.sum(np.exp(wide), axes, keepdims=attrs.keepdims))).astype(data.dtype)


LOG_SUM_EXP = OpDef(
    "reduce_log_sum_exp",
    AXES,
    _infer("reduce_log_sum_exp", "float"),
    _log_sum_exp_reference,
    compute=_log_sum_exp_compute,
    cases=(
        Case((((2, 3, 4), "float32"),), {"axes": (1,), "keepdims": False}),
        Case((((2, 3, 4), "float32"),), {}),
        Case((np.array([[-np.inf, 0.0], [-np.inf, -np.inf], [np.inf, 1.0]], np.float32),), {"axes": (1,)}),
    ),
    doc="logarithm of the sum of exponentials, without overflow",
    source="ONNX ReduceLogSumExp-18",
)


def _min_max_infer(attrs: Attrs, *types: Type) -> TupleType:
    made = _infer("reduce_min_max", NUMBER)(attrs, *types)
    return TupleType((made, made))


def _min_max_compute(attrs: Attrs, out: TupleType, data: te.Tensor) -> Any:
    """Both at once: large operands are read only once."""
    axes = rel.axes_of("reduce_min_max", attrs.axes, data.ndim)
    over = reduce_axes(data.shape, axes)
    wide = accumulator(data.dtype) if data.dtype.is_float else data.dtype
    wider = te.comm_reducer(
        lambda x, y: (te.minimum(x[0], y[0]), te.maximum(x[1], y[1])),
        lambda low, high: (te.infinity(low), te.infinity(high, -1)),
        name="min_max",
    )

    def element(*i: Expr) -> Any:
        value = te.cast(data[with_reduced(data.ndim, axes, i, over, attrs.keepdims)], wide)
        return wider((value, value), axis=over) if over else (value, value)

    shape = reduced_shape(data.shape, axes, attrs.keepdims)
    both = te.compute(shape, element, name="min_max")
    return tuple(narrowed(t, data.dtype, f"{t.name}_narrow") for t in both)


def _min_max_reference(attrs: Attrs, data: Array) -> tuple[Array, Array]:
    axes = rel.axes_of("reduce_min_max", attrs.axes, data.ndim)
    low = np.min(data, axes, keepdims=attrs.keepdims, initial=_extreme(data.dtype, 1))
    high = np.max(data, axes, keepdims=attrs.keepdims, initial=_extreme(data.dtype, -1))
    return np.asarray(low), np.asarray(high)


MIN_MAX = OpDef(
    "reduce_min_max",
    AXES,
    _min_max_infer,
    _min_max_reference,
    compute=_min_max_compute,
    cases=(
        Case((((2, 3, 4), "float32"),), {"axes": (1,), "keepdims": False}),
        Case((((3, 700), "float32"),), {"axes": (-1,)}),
        Case((((3, 5), "float32"),), {"axes": None, "keepdims": False}),
        Case((((3, 5), "float32"),), {"axes": ()}),
        Case((np.array([[1, np.nan], [-np.inf, 2]], np.float32),), {"axes": (1,)}),
        Case((((2, 40), "float16"),), {"axes": (1,)}),
        Case((((3, 4), "int32"),), {"axes": (0,)}, -9, 9),
        Case((((3, 4), "uint8"),), {"axes": (1,)}, 0, 9),
    ),
    doc="smallest and largest value, in one pass; NaN if any is",
    source="PyTorch aminmax; of nothing, as ONNX ReduceMin-20 and ReduceMax-20",
)

REDUCTIONS: tuple[OpDef, ...] = (*(row.define() for row in ROWS), LOG_SUM_EXP, MIN_MAX)
