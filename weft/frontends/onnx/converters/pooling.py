"""Pooling over windows and over all spatial dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.onnx.converters.windows import SlidingWindow, window
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim


def _window(node: Node, x: GraphExpr) -> dict[str, Any]:
    w = window(node, x.tensor.shape[2:], node.integers("kernel_shape"))
    return {
        "kernel": _reached(x, w) if node.flag("ceil_mode") else w.kernel,
        "strides": w.strides,
        "pads": w.pads,
        "dilations": w.dilations,
        "ceil_mode": node.flag("ceil_mode"),
    }


def _reached(x: GraphExpr, w: SlidingWindow) -> tuple[Dim, ...]:
    """The kernel cut to the data if there is only one window and it is larger than the data. Some exporters use such
    windows for global pooling."""
    found = list(w.kernel)
    for d, (k, step, dilation, size) in enumerate(
        zip(w.kernel, w.strides, w.dilations, x.tensor.shape[2:], strict=True)
    ):
        room = size + w.pads[d] + w.pads[len(found) + d]
        if isinstance(k, int) and isinstance(room, int) and dilation == 1 and 0 < room < k < room + step:
            found[d] = room
    return tuple(found)


def _max_pool(node: Node) -> Result:
    x = node.data(0)
    if node.output_count < 2:
        return node.call("max_pool", x, **_window(node, x))
    return node.calls("max_pool_with_indices", x, **_window(node, x), column_major=node.flag("storage_order"))


def _average_pool(node: Node) -> Result:
    x = node.data(0)
    return node.call("avg_pool", x, **_window(node, x), count_include_pad=node.flag("count_include_pad"))


def _lp_pool(node: Node) -> Result:
    x = node.data(0)
    p = int(node.real("p", 2.0)) if node.opset < 2 else node.integer("p", 2)
    return node.call("lp_pool", x, **_window(node, x), p=p)


def _over_space(name: str) -> Callable[[Node], Result]:
    """A reduction over all dimensions except samples and channels."""

    def convert(node: Node) -> Result:
        x = node.data(0)
        if x.tensor.rank < 2:
            raise Malformed(f"it needs samples and channels, not {x.tensor}")
        return node.call(name, x, axes=tuple(range(2, x.tensor.rank)), keepdims=True)

    return convert


def _global_lp_pool(node: Node) -> Result:
    norms = {1: "reduce_l1", 2: "reduce_l2"}
    p = int(node.real("p", 2.0)) if node.opset < 2 else node.integer("p", 2)
    if p not in norms:
        raise Unsupported(f"the norm p={p} is not supported")
    return _over_space(norms[p])(node)


POOLING: dict[str, Callable[[Node], Result]] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _over_space("reduce_mean"),
    "GlobalLpPool": _global_lp_pool,
    "GlobalMaxPool": _over_space("reduce_max"),
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
}
