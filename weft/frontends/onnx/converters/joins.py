"""Joins of tensors along an axis, with sizes that stay short."""

from __future__ import annotations

from collections.abc import Sequence

from weft.frontends.common.sizes import Sizes, object_array
from weft.frontends.onnx.node import Node
from weft.graph.dims import symbols
from weft.graph.nodes import GraphExpr
from weft.support.dtypes import INDEX

MOST_OPEN_SIZES = 32
"""Most open sizes that the size of a join is written with. Proofs about a sum take time for each of its terms, and a
join has as many sums as operands."""
_OPERANDS = 16
"""Operands of a part of a join that has too many open sizes."""


def joined(node: Node, operands: Sequence[GraphExpr], axis: int) -> GraphExpr:
    """The operands, one after the other along an axis. If their sizes there are written with very many open sizes,
    parts of the join have sizes of their own, known at run time."""
    parts = list(operands)
    while len(_open(parts, axis)) > MOST_OPEN_SIZES:
        groups = [parts[i : i + _OPERANDS] for i in range(0, len(parts), _OPERANDS)]
        parts = [_with_own_size(node, _concat(node, group, axis), axis) for group in groups]
    return _concat(node, parts, axis)


def _concat(node: Node, parts: Sequence[GraphExpr], axis: int) -> GraphExpr:
    return parts[0] if len(parts) == 1 else node.call("concat", *parts, axis=axis)


def _open(parts: Sequence[GraphExpr], axis: int) -> set[object]:
    return {s for x in parts for s in symbols(x.tensor.shape[axis])}


def _with_own_size(node: Node, x: GraphExpr, axis: int) -> GraphExpr:
    """``x`` with a new symbol for its size along the axis, if several symbols decide it."""
    shape = x.tensor.shape
    if len(_open([x], axis)) < 2:
        return x
    total = node.as_data(Sizes(object_array([shape[axis]]), INDEX))
    (size,) = node.bound(total, "joined")
    return node.call("reshape", x, shape=(*shape[:axis], size, *shape[axis + 1 :]))
