"""Operators with a function in the specification that does not cover all their uses.

Operands are cast if the function takes one dtype and the operator takes several. Causal attention without a mask
becomes one operator, which does not compute hidden scores; the function would add a mask to all scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.frontends.common.problems import Malformed
from weft.frontends.onnx import functions
from weft.frontends.onnx.converters.contrib.scores import appended, join_heads, repeated, split_heads
from weft.frontends.onnx.converters.elementwise import cast_to
from weft.frontends.onnx.converters.numbers import Traced, operand
from weft.frontends.onnx.node import Fork, Node, Result, Value
from weft.graph.nodes import GraphExpr
from weft.support.dtypes import FLOAT32, FLOAT64, INDEX, DType

_UNROUNDED_FLOATS = (FLOAT32, FLOAT64)


def _expanded(node: Node, dtypes: dict[int, DType]) -> list[Value | None]:
    """The outputs of the specification's function for operands (by number) of these dtypes."""
    node, body = _with_body(node, dtypes)
    found = functions.expand(node, body, node.importer)
    assert not isinstance(found, Fork), "no branch of these functions gives another rank"
    return found


def _with_body(node: Node, dtypes: dict[int, DType]) -> tuple[Node, Any]:
    """The node with operands (by number) of these dtypes, and the specification's function for it."""
    inputs = [
        cast_to(node, node.data(i), dtypes[i]) if i in dtypes and value is not None else value
        for i, value in enumerate(node.inputs)
    ]
    node = node.altered(tuple(inputs))
    body = functions.specified_body(node)
    if body is None:
        raise Malformed("the specification defines it by no function for these operands")
    return node, body


def _center_crop_pad(node: Node) -> Result:
    return _expanded(node, {1: INDEX})  # type: ignore[return-value]  # tensor


def _attention(node: Node) -> Result:
    """Attention. The values may have another dtype than queries and keys; their results keep that dtype."""
    common, values = node.dtype(0), node.dtype(2)
    if common == values:
        node, body = _with_body(node, {})  # checks the node, too
        if _looks_back_only(node):
            return _causal(node)
        return functions.expand(node, body, node.importer)  # type: ignore[return-value]  # tensor
    made = _expanded(node, {2: common, 5: common})
    if len(made) > 2 and isinstance(made[2], GraphExpr):
        made[2] = cast_to(node, made[2], values)
    return made  # type: ignore[return-value]  # tensor


def _looks_back_only(node: Node) -> bool:
    """Whether a node ``Attention`` is causal and nothing else: no mask, window, capped scores or scores as a result."""
    plain = not (node.has(3) or node.has(6)) and node.output_count < 4 and node.real("softcap", 0.0) == 0
    plain = plain and node.integer("left_window_size", -1) == -1  # that to the right hides nothing more
    if (
        not (plain and node.flag("is_causal"))
        or node.dtype(0) != node.dtype(1)
        or node.dtype(0) not in _UNROUNDED_FLOATS
    ):
        return False
    shapes = [node.shape(i) for i in range(3)]
    ranks = {len(shape) for shape in shapes}
    if node.has(4) != node.has(5) or node.has_attribute("softmax_precision") or ranks not in ({3}, {4}):
        return False
    heads = _heads(node)
    widths = [d for shape in shapes for d in (shape[1], shape[-1]) if len(shape) == 4] or [s[2] for s in shapes]
    return all(isinstance(d, int) for d in widths) and min(heads) > 0 and heads[0] % heads[1] == 0


def _heads(node: Node) -> tuple[int, int]:
    """Heads of queries, and of keys and values."""
    if len(node.shape(0)) == 3:
        return node.integer("q_num_heads", 0), node.integer("kv_num_heads", 0)
    found = node.shape(0)[1], node.shape(1)[1]
    return (found[0], found[1]) if isinstance(found[0], int) and isinstance(found[1], int) else (0, 0)


def _causal(node: Node) -> Result:
    """Causal attention: query i sees the keys up to i + past, where past keys come first; and the states to keep."""
    heads, flat = _heads(node), len(node.shape(0)) == 3
    parts = [operand(node, i) for i in range(3)]
    if flat:
        parts = [split_heads(x, n) for x, n in zip(parts, (heads[0], *heads[1:] * 2), strict=True)]
    query, key, value = parts
    past = operand(node, 4).shape[2] if node.has(4) else 0
    keys, values = (
        appended(operand(node, i) if node.has(i) else None, x)[0] for i, x in ((4, key), (5, value))
    )  # fmt: skip
    made = node.call(
        "scaled_dot_product_attention",
        query.x,
        repeated(keys, heads[0]).x,
        repeated(values, heads[0]).x,
        causal=True,
        offset=past,
        scale=node.real("scale") if node.has_attribute("scale") else None,
    )
    result = join_heads(Traced(node, made)) if flat else Traced(node, made)
    return [result.x, keys.x, values.x]


SPECIFIED: dict[str, Callable[[Node], Result]] = {"Attention": _attention, "CenterCropPad": _center_crop_pad}
