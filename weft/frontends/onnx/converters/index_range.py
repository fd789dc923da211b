"""Checks of indices: at import where their range is known, otherwise at run time."""

from __future__ import annotations

from collections.abc import Sequence

from weft.expr.folds import all_of, any_of
from weft.expr.nodes import index, make
from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.common.sizes import arithmetic, product
from weft.frontends.common.value_ranges import value_range, within
from weft.frontends.onnx.converters.numbers import Traced
from weft.frontends.onnx.node import Node
from weft.graph.nodes import Constant, GraphExpr
from weft.graph.types import Dim


def indices(node: Node, i: int, size: Dim, *, wrap: bool = True) -> GraphExpr:
    """Operand ``i`` as indices into a dimension; see :func:`in_range`."""
    return in_range(node, node.data(i), [size], _named(node, i), wrap=wrap)


def checked(x: Traced, i: int, size: Dim) -> Traced:
    """``x``, computed from operand ``i``, as indices into a dimension; negative indices are errors."""
    return Traced(x.node, in_range(x.node, x.x, [size], _named(x.node, i), wrap=False))


def index_tuples(node: Node, i: int, sizes: Sequence[Dim]) -> GraphExpr:
    """Operand ``i``, whose last dimension contains indices into the first dimensions of ``sizes``."""
    found = node.data(i)
    depth = found.tensor.shape[-1] if found.tensor.shape else 0
    columns = sizes[:depth] if isinstance(depth, int) else ()  # for other depths the operator raises an error
    return in_range(node, found, columns, _named(node, i)) if columns else found


def _named(node: Node, i: int) -> str:
    return f"input {i} of {node.op_type}"


def in_range(node: Node, x: GraphExpr, sizes: Sequence[Dim], what: str, *, wrap: bool = True) -> GraphExpr:
    """``x``, whose integers are all valid indices into ``sizes``: one size, or one for each column.

    If this is not provable, a condition on sizes is required where that is enough, else the elements are checked at run
    time. ``wrap``: indices below 0 count from the end. Raises Malformed for a constant with an index out of range.
    """
    low = tuple(arithmetic("sub", 0, s) if wrap else 0 for s in sizes)
    high = tuple(arithmetic("sub", s, 1) for s in sizes)
    if isinstance(x, Constant) and len(sizes) == 1 and isinstance(sizes[0], int):
        return _constant(node, x, sizes[0], low[0], what)
    try:
        known, exact = value_range(x)
        if known is not None and all(within(known, a, b) for a, b in zip(low, high, strict=True)):
            return x
    except Unsupported:  # the expression of the sizes is too large
        known = None
    if known is not None and exact and not all(isinstance(v, int) for v in known):
        none = make("eq", index(product(x.tensor.shape)), index(0))
        for a, b in zip(low, high, strict=True):
            inside = all_of(make("ge", index(known[0]), index(a)), make("le", index(known[1]), index(b)))
            message = f"{node.name}: {what} reaches from {known[0]} to {known[1]}, but must lie in {a} to {b}"
            node.importer.require(any_of(inside, none), message)
        return x
    return node.call("in_range", x, low=low, high=high, what=what)


def _constant(node: Node, x: Constant, size: int, low: Dim, what: str) -> GraphExpr:
    values = x.data
    if values.size and (values.min() < low or values.max() >= size):
        wrong = values[(values < low) | (values >= size)].reshape(-1)[0]
        raise Malformed(f"{what}: an index is {wrong}, which is outside of a dimension of size {size}")
    if not values.size or values.min() >= 0:
        return x
    return Constant((values + (values < 0) * size).astype(values.dtype), x.origin)
