"""Padding, with amounts, axes and values known or computed by the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.frontends.common.problems import Malformed
from weft.frontends.common.sizes import arithmetic
from weft.frontends.onnx.converters.computed_axes import ComputedAxes, integers, require, vector
from weft.frontends.onnx.converters.numbers import stack
from weft.frontends.onnx.converters.slicing import Cut, cut
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim

_PAD_MODES = ("constant", "reflect", "edge", "wrap")


def _pad(node: Node) -> Result:
    x = node.data(0)
    rank = x.tensor.rank
    mode = node.text("mode", "constant")
    if mode not in _PAD_MODES:
        raise Malformed(f"its mode is '{mode}', not one of {', '.join(_PAD_MODES)}")
    value: Any = node.real("value", 0.0)
    if node.opset >= 11:
        value = _pad_value(node) if mode == "constant" and node.has(2) else 0
    if node.opset >= 11 and (node.is_computed(1) or node.is_computed(3)):
        return pad_computed(node, x, mode, value)
    pads: Sequence[Dim]
    if node.opset < 11:
        pads = node.integers("pads" if node.has_attribute("pads") else "paddings")
    else:
        pads = node.dims(1, "pads")
    axes = node.numbers(3, "axes") if node.has(3) else tuple(range(rank))
    if len(pads) != 2 * len(axes):
        raise Malformed(f"its pads hold {len(pads)} numbers, not {2 * len(axes)}")
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for i, axis in enumerate(axes):
        place = node.checked_axis(axis, rank)
        before[place], after[place] = pads[i], pads[i + len(axes)]
    return padded(node, x, before, after, mode, value)


def _pad_value(node: Node) -> Any:
    """The value that constant mode adds: a number, or a tensor if it is computed."""
    found = node.array(2)
    return node.call("reshape", node.data(2), shape=()) if found is None else found.reshape(-1)[0].item()


def padded(
    node: Node, x: GraphExpr, before: Sequence[Dim], after: Sequence[Dim], mode: str = "constant", value: Any = 0
) -> GraphExpr:
    """``x`` with elements added around it; negative amounts remove some."""
    cuts = {}
    for i, (b, a, size) in enumerate(zip(before, after, x.tensor.shape, strict=True)):
        low, high = (arithmetic("max", arithmetic("sub", 0, v), 0) for v in (b, a))
        if low != 0 or high != 0:
            cuts[i] = Cut(low, arithmetic("sub", size, arithmetic("add", low, high)))
    x = cut(node, x, cuts)
    before, after = ([arithmetic("max", v, 0) for v in side] for side in (before, after))
    if all(v == 0 for v in (*before, *after)):
        return x
    if not isinstance(value, GraphExpr):
        return node.call("pad", x, pads=(*before, *after), mode=mode, value=value)
    inside = node.call("full", shape=x.tensor.shape, value=True, dtype="bool")
    inside, x = (node.call("pad", t, pads=(*before, *after), mode=mode, value=0) for t in (inside, x))
    return node.call("where", inside, x, value)


def pad_computed(node: Node, x: GraphExpr, mode: str, value: Any) -> GraphExpr:
    """``x`` with elements added or removed around it. Their numbers or the axes are computed."""
    rank = x.tensor.rank
    both = integers(node, 1)
    if node.has(3):
        axes = ComputedAxes(node, 3, rank)
        require(node, vector(node, both.shape).equals(vector(node, [arithmetic("mul", axes.count, 2)])),
                "its pads must hold two numbers for each axis")  # fmt: skip
        halves = both.reshape(2, axes.count)
        nothing = vector(node, [0] * rank)
        both = stack([axes.spread(halves.part(0, i), nothing) for i in (0, 1)], axis=0).reshape(2 * rank)
    elif both.shape != (2 * rank,):
        raise Malformed(f"its pads hold {both.shape[0]} numbers, not {2 * rank}")
    removed = node.bound((both * -1).call("maximum", 0).x, "pads", 1)
    added = node.bound(both.call("maximum", 0).x, "pads", 1)
    cuts = {}
    for i, size in enumerate(x.tensor.shape):
        low, high = removed[i], removed[i + rank]
        node.importer.assume("le", arithmetic("add", low, high), size, f"{node.name}: pads remove more than there is")
        cuts[i] = Cut(low, arithmetic("sub", size, arithmetic("add", low, high)))
    return padded(node, cut(node, x, cuts), added[:rank], added[rank:], mode, value)


PADDING: dict[str, Callable[[Node], Result]] = {"Pad": _pad}
