"""Operands of which the operator tells a size that their own shape leaves open: lengths of vectors, and of the tuples
that indices, places and boxes consist of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from weft.expr.nodes import Var as Symbol
from weft.frontends.common.problems import NeedsValue
from weft.frontends.onnx.node import Node
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim

Told: TypeAlias = "dict[int, dict[int, int]]"
"""By operand: sizes by axis."""


def with_known_lengths(node: Node) -> Node:
    """The node with the sizes of operands known, where the operator takes no others: the sizes of what is given are
    checked when they are known."""
    told = _TOLD.get(node.op_type)
    if told is None or node.domain or not any(_is_open(node, i) for i in range(len(node.inputs))):
        return node
    inputs = list(node.inputs)
    for i, sizes in told(node).items():
        if _is_open(node, i):
            inputs[i] = _with_sizes(node, node.data(i), sizes)
    return node.altered(tuple(inputs))


def _is_open(node: Node, i: int) -> bool:
    found = node.inputs[i] if i < len(node.inputs) else None
    return isinstance(found, GraphExpr) and not found.tensor.is_static


def _with_sizes(node: Node, given: GraphExpr, sizes: Mapping[int, int]) -> GraphExpr:
    """``given`` with these sizes where its own are open; itself if it has not the dimensions that the operator takes,
    which its converter says."""
    shape = list(given.tensor.shape)
    for axis, count in sizes.items():
        if axis >= len(shape):
            return given
        if not isinstance(shape[axis], int):
            node.importer.assume("eq", shape[axis], count, node.name)
            shape[axis] = count
    same = tuple(shape) == given.tensor.shape
    return given if same else node.call("reshape", given, shape=tuple(shape))


def _vector(node: Node, i: int, count: int) -> Told:
    """``count`` as the length of operand ``i``, a vector."""
    return {i: {0: count}} if node.has(i) and len(node.shape(i)) == 1 else {}


def _last(node: Node, i: int, count: int) -> Told:
    """``count`` as the size of the last dimension of operand ``i``."""
    rank = len(node.shape(i))
    return {i: {rank - 1: count}} if rank and count > 0 else {}


def _one_each(node: Node) -> Told:
    """A number for each dimension."""
    return _vector(node, 1, node.data(0).tensor.rank)


def _pad(node: Node) -> Told:
    if not node.has(3):
        return _vector(node, 1, 2 * node.data(0).tensor.rank)
    named = node.shape(3)[0] if node.shape(3) else 1
    return _vector(node, 1, 2 * named) if isinstance(named, int) else {}


def _resize(node: Node) -> Told:
    """Only one of the scales and the sizes may be given; the other one is empty."""
    count = len(node.integers("axes", ())) or node.data(0).tensor.rank
    if node.opset < 11:
        return _vector(node, 1, count)
    given = [i for i in (2, 3) if node.has(i) and node.shape(i) != (0,)]
    return _vector(node, given[0], count) if len(given) == 1 else {}


def _slice(node: Node) -> Told:
    for i in (3, 4, 1, 2):
        if node.has(i) and node.shape(i) and isinstance(node.shape(i)[0], int):
            count = node.shape(i)[0]
            assert isinstance(count, int)
            return {k: v for j in (1, 2, 3, 4) for k, v in _vector(node, j, count).items()}
    return {}


def _affine_grid(node: Node) -> Told:
    """A matrix of n rows and n + 1 columns for each image of n dimensions."""
    given = node.shape(1)
    n = given[0] - 2 if len(given) == 1 and isinstance(given[0], int) else 0
    return {0: {1: n, 2: n + 1}} if n > 0 else {}


# --- tuples -----------------------------------------------------------------------------------------------------------


def _grid_sample(node: Node) -> Told:
    """A place has a number for each dimension of an image."""
    return _last(node, 1, len(node.shape(0)) - 2)


def _scatter_nd(node: Node) -> Told:
    """The updates have the dimensions of the indices but the last, then those that an index tuple leaves."""
    return _last(node, 1, len(node.shape(0)) + len(node.shape(1)) - 1 - len(node.shape(2)))


def _gather_nd(node: Node) -> Told:
    """An index tuple has at least one number, and at most one for each dimension of what it points into; how many it
    has decides the rank of the result, which the model may declare."""
    places, batch = node.shape(1), node.integer("batch_dims", 0)
    most = len(node.shape(0)) - batch
    if not places or isinstance(places[-1], int) or batch < 0 or most < 1:
        return {}
    if most == 1:
        return _last(node, 1, 1)
    name = node.proto.output[0]
    declared = node.scope.declared_rank(name)
    depth = 0 if declared is None else most + len(places) - 1 - declared
    if not 1 <= depth <= most:
        raise _unknown_depth(node, places[-1], name)
    return _last(node, 1, depth)


def _unknown_depth(node: Node, depth: Dim, name: str) -> NeedsValue:
    known = node.importer.is_of_inputs(depth)
    shapes = f"; shapes={{'{depth}': …}} gives it" if known and isinstance(depth, Symbol) else ""
    text = (
        f"the length {depth} of its index tuples is not known, which decides the rank of its result '{name}'{shapes}"
        f"{', or' if shapes else ';'} declare the rank of '{name}' in the model"
    )
    return NeedsValue(text, node.importer.inputs_behind(node.data(1)), shape=known)


_TOLD: Final[Mapping[str, Callable[[Node], Told]]] = {
    "AffineGrid": _affine_grid,
    "GatherND": _gather_nd,
    "GridSample": _grid_sample,
    "MaxRoiPool": lambda node: _last(node, 1, 5),
    "OneHot": lambda node: _vector(node, 1, 1),
    "Pad": _pad,
    "Resize": _resize,
    "RoiAlign": lambda node: _last(node, 1, 4),
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "Split": lambda node: _vector(node, 1, len(node.proto.output)),
    "Tile": _one_each,
    "TopK": lambda node: _vector(node, 1, 1),
    "Upsample": _one_each,
}
