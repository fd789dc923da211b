"""Reductions, arg-max, cumulative sums, sorting."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontends.common.problems import Malformed
from weft.frontends.common.sizes import decide
from weft.frontends.onnx.converters.computed_axes import along_computed, reduce_computed
from weft.frontends.onnx.converters.elementwise import cast_to
from weft.frontends.onnx.converters.normalization import coerced
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import GraphExpr
from weft.support.dtypes import DType

_REDUCTIONS = {
    "ReduceL1": "reduce_l1", "ReduceL2": "reduce_l2", "ReduceLogSum": "reduce_log_sum",
    "ReduceLogSumExp": "reduce_log_sum_exp", "ReduceMax": "reduce_max", "ReduceMean": "reduce_mean",
    "ReduceMin": "reduce_min", "ReduceProd": "reduce_prod", "ReduceSum": "reduce_sum",
    "ReduceSumSquare": "reduce_sum_square",
}  # fmt: skip
_REAL = ("reduce_l2", "reduce_log_sum", "reduce_log_sum_exp")
"""Reductions that the catalogue defines for floats only, and ONNX for integers too."""


def _reduction(name: str) -> Callable[[Node], Result]:
    def convert(node: Node) -> Result:
        x, empty, keepdims = node.data(0), node.flag("noop_with_empty_axes"), node.flag("keepdims", True)
        wide = cast_to(node, x, DType("float64")) if name in _REAL and not x.tensor.dtype.is_float else x
        if node.is_computed(1) and node.shape(1) != (0,):
            made = reduce_computed(node, name, wide, keepdims=keepdims, empty=empty)
        else:
            axes = None if node.is_computed(1) else node.axes(1)
            made = node.call(name, wide, axes=axes or (() if empty else None), keepdims=keepdims)
        return cast_to(node, made, x.tensor.dtype)

    return convert


def _arg(name: str) -> Callable[[Node], Result]:
    def convert(node: Node) -> Result:
        x = node.data(0)
        return node.call(
            name,
            x,
            axis=node.axis(x.tensor.rank, 0),
            keepdims=node.flag("keepdims", True),
            select_last=node.flag("select_last_index"),
        )

    return convert


def _cumulative(name: str) -> Callable[[Node], Result]:
    def convert(node: Node) -> Result:
        x = node.data(0)
        options = {"exclusive": node.flag("exclusive"), "reverse": node.flag("reverse")}
        if node.is_computed(1):
            return along_computed(node, name, x, **options)
        (axis,) = node.numbers(1, "axis")
        return node.call(name, x, axis=node.checked_axis(axis, x.tensor.rank), **options)

    return convert


def _top_k(node: Node) -> Result:
    x = node.data(0)
    counts = (node.integer("k"),) if node.opset < 10 else node.dims(1, "k")
    if len(counts) != 1:
        raise Malformed("its input 'k' must hold one number")
    axis = node.axis(x.tensor.rank, -1)
    if decide("le", counts[0], x.tensor.shape[axis]) is None:
        node.importer.assume("le", counts[0], x.tensor.shape[axis], node.name)
    return node.calls("topk", x, k=counts[0], axis=axis, largest=node.flag("largest", True))


def _hardmax(node: Node) -> Result:
    def one_hot(x: GraphExpr, axis: int) -> GraphExpr:
        if x.tensor.shape[axis] == 0:
            return x
        best = node.call("argmax", x, axis=axis, keepdims=True)
        positions = node.call("arange", start=0, stop=x.tensor.shape[axis], step=1, dtype="int64")
        positions = node.call("reshape", positions, shape=(-1, *(1,) * (x.tensor.rank - 1 - axis)))
        return cast_to(node, node.call("equal", positions, best), x.tensor.dtype)

    return coerced(node, one_hot)


REDUCTION: dict[str, Callable[[Node], Result]] = {
    **{onnx: _reduction(name) for onnx, name in _REDUCTIONS.items()},
    "ArgMax": _arg("argmax"),
    "ArgMin": _arg("argmin"),
    "CumProd": _cumulative("cumprod"),
    "CumSum": _cumulative("cumsum"),
    "Hardmax": _hardmax,
    "TopK": _top_k,
}
