"""Operands whose length the operator tells, where their own shape leaves it open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from weft.frontends.onnx.node import Node
from weft.graph.nodes import GraphExpr


def with_known_lengths(node: Node) -> Node:
    """The node with operands of known length, where the operator takes no other: the length of what is given is checked
    when it is known."""
    lengths = _LENGTHS.get(node.op_type)
    if lengths is None or node.domain or not any(_is_open(node, i) for i in range(1, len(node.inputs))):
        return node
    inputs = list(node.inputs)
    for i, count in lengths(node).items():
        if _is_open(node, i):
            given = node.data(i)
            node.importer.assume("eq", given.tensor.shape[0], count, node.name)
            inputs[i] = node.call("reshape", given, shape=(count,))
    return node.altered(tuple(inputs))


def _is_open(node: Node, i: int) -> bool:
    found = node.inputs[i] if i < len(node.inputs) else None
    return isinstance(found, GraphExpr) and found.tensor.rank == 1 and not found.tensor.is_static


def _one_each(node: Node) -> dict[int, int]:
    """A number for each dimension."""
    return {1: node.data(0).tensor.rank}


def _pad(node: Node) -> dict[int, int]:
    if not node.has(3):
        return {1: 2 * node.data(0).tensor.rank}
    named = node.shape(3)[0] if node.shape(3) else 1
    return {1: 2 * named} if isinstance(named, int) else {}


def _resize(node: Node) -> dict[int, int]:
    """Only one of the scales and the sizes may be given; the other one is empty."""
    count = len(node.integers("axes", ())) or node.data(0).tensor.rank
    if node.opset < 11:
        return {1: count}
    given = [i for i in (2, 3) if node.has(i) and node.shape(i) != (0,)]
    return {given[0]: count} if len(given) == 1 else {}


def _slice(node: Node) -> dict[int, int]:
    for i in (3, 4, 1, 2):
        if node.has(i) and node.shape(i) and isinstance(node.shape(i)[0], int):
            count = node.shape(i)[0]
            assert isinstance(count, int)
            return dict.fromkeys((1, 2, 3, 4), count)
    return {}


_LENGTHS: Final[Mapping[str, Callable[[Node], dict[int, int]]]] = {
    "OneHot": lambda node: {1: 1},
    "Pad": _pad,
    "Resize": _resize,
    "Slice": _slice,
    "Split": lambda node: {1: len(node.proto.output)},
    "Tile": _one_each,
    "TopK": lambda node: {1: 1},
    "Upsample": _one_each,
}
