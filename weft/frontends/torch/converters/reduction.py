"""Reductions, searches along an axis, cumulative sums, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.frontends.common.sizes import arithmetic, product
from weft.frontends.torch.converters.elementwise import truth
from weft.frontends.torch.node import AtenNode, Result
from weft.frontends.torch.tensors import dtype_of
from weft.graph.nodes import GraphExpr
from weft.support.dtypes import BOOL, FLOAT32, INDEX, DType

Converter = Callable[[AtenNode], Result]


def _keepdim(node: AtenNode) -> bool:
    return bool(node.arguments.get("keepdim"))


def _reduced(node: AtenNode, name: str, x: GraphExpr, axes: tuple[int, ...]) -> GraphExpr:
    return node.call(name, x, axes=axes, keepdims=_keepdim(node)) if x.tensor.rank else x


def _axes(node: AtenNode, x: GraphExpr) -> tuple[int, ...]:
    return node.axes("dim", x.tensor.rank) if "dim" in node.arguments else tuple(range(x.tensor.rank))


def _reduction(name: str) -> Converter:
    """A reduction in the dtype of the result."""

    def convert(node: AtenNode) -> Result:
        x = node.cast(node.data("self"), node.result_dtype)
        return _reduced(node, name, x, _axes(node, x))

    return convert


def _any(name: str) -> Converter:
    """Whether any, or all, of the elements are not 0."""

    def convert(node: AtenNode) -> Result:
        x = node.cast(truth(node, node.data("self")), "uint8")
        return node.cast(_reduced(node, name, x, _axes(node, x)), node.result_dtype)

    return convert


def _extremum(name: str, arg: str) -> Converter:
    """``max`` and ``min``: of two tensors, over everything, or along an axis with the places."""

    def convert(node: AtenNode) -> Result:
        x = node.data("self")
        if "dim" not in node.arguments:
            return _on_bools(node, x, lambda t: _reduced(node, name, t, tuple(range(t.tensor.rank))))
        if not x.tensor.rank:
            return x, node.constant(0, INDEX)
        axis = node.axis("dim", x.tensor.rank)
        values = _on_bools(node, x, lambda t: _reduced(node, name, t, (axis,)))
        return values, _on_bools(node, x, lambda t: _place(node, arg, t, axis), back=False)

    return convert


def _on_bools(node: AtenNode, x: GraphExpr, function: Callable[[GraphExpr], GraphExpr], back: bool = True) -> GraphExpr:
    """``function`` of ``x``, which bools enter as bytes."""
    if x.tensor.dtype != BOOL:
        return function(x)
    made = function(node.cast(x, "uint8"))
    return node.cast(made, BOOL) if back else made


def _place(node: AtenNode, arg: str, x: GraphExpr, axis: int) -> GraphExpr:
    return node.call(arg, x, axis=axis, keepdims=_keepdim(node))


def _arg(name: str) -> Converter:
    def convert(node: AtenNode) -> Result:
        x = node.data("self")
        if not x.tensor.rank:
            return node.constant(0, INDEX)
        if node.has("dim"):
            axis = node.axis("dim", x.tensor.rank)
            return _on_bools(node, x, lambda t: _place(node, name, t, axis), back=False)
        flat = node.reshaped(x, (product(x.tensor.shape),))
        made = _on_bools(node, flat, lambda t: node.call(name, t, axis=0, keepdims=False), back=False)
        return node.reshaped(made, node.shape)

    return convert


def _moments(node: AtenNode) -> tuple[GraphExpr, GraphExpr]:
    """The variance and the mean, with the correction of the call."""
    x = node.data("self")
    wide = node.cast(x, FLOAT32) if x.tensor.dtype.bits < 32 else x
    axes = _axes(node, x)
    correction = node.arguments.get("correction")
    if correction is None:
        correction = 1 if node.arguments.get("unbiased", True) else 0
    mean = node.call("reduce_mean", wide, axes=axes, keepdims=True) if x.tensor.rank else wide
    centred = node.call("sub", wide, mean)
    squares = _reduced(node, "reduce_sum", node.call("mul", centred, centred), axes)
    count = arithmetic("sub", product([x.tensor.shape[a] for a in axes]), int(correction))
    count = arithmetic("max", count, 0)
    variance = node.call("div", squares, node.cast(node.as_data(count), wide.tensor.dtype))
    if not _keepdim(node) and x.tensor.rank:
        mean = node.call("squeeze", mean, axes=axes)
    return node.cast(variance, x.tensor.dtype), node.cast(mean, x.tensor.dtype)


def _var(node: AtenNode) -> Result:
    return _moments(node)[0]


def _std(node: AtenNode) -> Result:
    return node.call("sqrt", _moments(node)[0])


def _var_mean(node: AtenNode) -> Result:
    return _moments(node)


def _std_mean(node: AtenNode) -> Result:
    variance, mean = _moments(node)
    return node.call("sqrt", variance), mean


def _norm(order: str) -> Converter:
    def convert(node: AtenNode) -> Result:
        x = node.cast(node.data("self"), node.result_dtype)
        p = node.arguments.get(order)
        p = 2 if p is None else float(p)
        axes = _axes(node, x)
        if p in (1, 2) and x.tensor.rank:
            return _reduced(node, f"reduce_l{int(p)}", x, axes)
        size = node.call("abs", x)
        if p in (float("inf"), float("-inf")):
            return _reduced(node, "reduce_max" if p > 0 else "reduce_min", size, axes)
        if p == 0:
            return _reduced(node, "reduce_sum", node.cast(truth(node, x), x.tensor.dtype), axes)
        powers = _reduced(node, "reduce_sum", node.call("pow", size, node.like(p, x)), axes)
        return node.call("pow", powers, node.like(1 / p, x))

    return convert


def _cumulative(name: str) -> Converter:
    def convert(node: AtenNode) -> Result:
        x = node.cast(node.data("self"), node.result_dtype)
        return node.call(name, x, axis=node.axis("dim", x.tensor.rank)) if x.tensor.rank else x

    return convert


def _top_k(node: AtenNode) -> Result:
    x = node.data("self")
    if not x.tensor.rank:
        return x, node.constant(0, INDEX)
    axis, k = node.axis("dim", x.tensor.rank), node.value("k")
    return tuple(node.calls("topk", x, k=k, axis=axis, largest=bool(node.value("largest"))))


def _sort(node: AtenNode) -> Result:
    """Stable in both directions, as ``topk`` of everything is: of equal elements the first one comes first."""
    x = node.data("self")
    if not x.tensor.rank:
        return x, node.constant(0, INDEX)
    axis = node.axis("dim", x.tensor.rank)
    size, largest = x.tensor.shape[axis], bool(node.arguments.get("descending"))
    plain = node.cast(x, "uint8") if x.tensor.dtype == BOOL else x
    values, places = node.calls("topk", plain, k=size, axis=axis, largest=largest)
    return node.cast(values, x.tensor.dtype), places


def _argsort(node: AtenNode) -> Result:
    made: Any = _sort(node)
    places: GraphExpr = made[1]
    return places


def _count_nonzero(node: AtenNode) -> Result:
    x = node.cast(truth(node, node.data("self")), INDEX)
    return _reduced(node, "reduce_sum", x, _axes(node, x))


def _aminmax(node: AtenNode) -> Result:
    x = node.data("self")
    axes = _axes(node, x) if node.has("dim") else tuple(range(x.tensor.rank))

    def reduced(name: str) -> GraphExpr:
        return _on_bools(node, x, lambda t: _reduced(node, name, t, axes))

    return reduced("reduce_min"), reduced("reduce_max")


def _extreme_values(name: str) -> Converter:
    """``amax`` and ``amin``."""
    return lambda node: _on_bools(node, node.data("self"), lambda t: _reduced(node, name, t, _axes(node, t)))


def result_dtypes(node: AtenNode) -> list[DType]:
    """The dtypes of several results."""
    return [dtype_of(s.dtype) for s in node.said]


REDUCTION: dict[str, Converter] = {
    "all": _any("reduce_min"),
    "amax": _extreme_values("reduce_max"),
    "amin": _extreme_values("reduce_min"),
    "aminmax": _aminmax,
    "any": _any("reduce_max"),
    "argmax": _arg("argmax"),
    "argmin": _arg("argmin"),
    "argsort": _argsort,
    "count_nonzero": _count_nonzero,
    "cumprod": _cumulative("cumprod"),
    "cumsum": _cumulative("cumsum"),
    "linalg_vector_norm": _norm("ord"),
    "logsumexp": _reduction("reduce_log_sum_exp"),
    "max": _extremum("reduce_max", "argmax"),
    "mean": _reduction("reduce_mean"),
    "min": _extremum("reduce_min", "argmin"),
    "norm": _norm("p"),
    "prod": _reduction("reduce_prod"),
    "sort": _sort,
    "std": _std,
    "std_mean": _std_mean,
    "sum": _reduction("reduce_sum"),
    "topk": _top_k,
    "var": _var,
    "var_mean": _var_mean,
}
