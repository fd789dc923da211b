"""Results whose sizes depend on the data, and shapes that are computed at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.frontends.common.problems import Malformed
from weft.frontends.common.sizes import Sizes, object_array, product
from weft.frontends.onnx.converters.computed_axes import require
from weft.frontends.onnx.converters.numbers import Traced
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import Constant, GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import INDEX, DType


def marked_places(node: Node, marks: GraphExpr) -> GraphExpr:
    """The positions of the true elements of a bool vector, in order: int64; their number is known at run time."""
    found = _marked_indices(node, marks, marks.tensor.shape)
    return node.call("reshape", found, shape=(found.tensor.shape[1],))


def _marked_indices(node: Node, marks: GraphExpr, shape: Sequence[Dim]) -> GraphExpr:
    """The indices along ``shape`` of the true elements of a bool vector in row-major order: a row for each axis."""
    if marks.tensor.shape[0] == 0:
        return node.constant(np.zeros((len(shape), 0), np.int64))
    total = node.call("reduce_sum", node.call("cast", marks, to=INDEX), axes=(0,), keepdims=True)
    (size,) = node.bound(total, "marked")
    return node.call("places", marks, size=size, shape=tuple(shape))


def _truth(node: Node, x: GraphExpr) -> GraphExpr:
    return x if x.tensor.dtype == "bool" else node.call("not_equal", x, node.scalar(0, x))


def _nonzero(node: Node) -> Result:
    x = node.data(0)
    shape = x.tensor.shape
    marks = node.call("reshape", _truth(node, x), shape=(product(shape),))
    if shape:
        return _marked_indices(node, marks, shape)
    found = marked_places(node, marks)  # "for scalar input, the output shape is (0, N)"
    return node.call("full", shape=(0, found.tensor.shape[0]), value=0, dtype=INDEX)


def size_scalar(node: Node, size: Dim) -> GraphExpr:
    """A size as an int64 tensor without dimensions."""
    if isinstance(size, int):
        return node.constant(size, INDEX)
    return node.as_data(Sizes(object_array([size], ()), INDEX))


def _compress(node: Node) -> Result:
    x, marks = node.data(0), node.data(1)
    axis = node.axis(x.tensor.rank) if node.has_attribute("axis") else 0
    if not node.has_attribute("axis"):
        x = node.call("reshape", x, shape=(product(x.tensor.shape),))
    node.importer.assume("le", marks.tensor.shape[0], x.tensor.shape[axis], f"{node.name}: its condition")
    return node.call("gather", x, marked_places(node, marks), axis=axis)


SELECTION: dict[str, Callable[[Node], Result]] = {"Compress": _compress, "NonZero": _nonzero}


def runtime_shape(node: Node, x: GraphExpr, target: GraphExpr) -> tuple[Dim, ...]:
    """The shape that a Reshape to ``target`` gives, 0 and -1 resolved at run time."""
    count = target.tensor.shape[0] if target.tensor.rank == 1 else None
    if not isinstance(count, int):
        return node.bound(target, "shape", 1)
    target = node.call("cast", target, to=INDEX) if target.tensor.dtype != INDEX else target
    shape = x.tensor.shape
    if not node.flag("allowzero"):
        copied = node.as_data(Sizes(object_array([*shape, *[0] * count][:count]), INDEX))
        zero = node.call("equal", target, node.constant(0, INDEX))
        target = node.call("where", zero, copied, target)
    unknown = node.call("equal", target, node.constant(-1, INDEX))
    known = node.call("where", unknown, node.constant(1, INDEX), target)
    rest = node.call("reduce_prod", known, axes=(0,), keepdims=False)
    rest = node.call("maximum", rest, node.constant(1, INDEX))
    missing = node.call("div", size_scalar(node, product(shape)), rest)
    return node.bound(node.call("where", unknown, missing, target), "shape", 1)


def runtime_bounds(node: Node, bounds: GraphExpr, sizes: list[Dim], what: str, i: int) -> tuple[Dim, ...]:
    """Starts or ends of slices with positive steps, counted from the front and limited to their axes."""
    t = bounds.tensor
    if t.rank != 1 or t.shape[0] != len(sizes):
        return node.bound(bounds, what, i)
    bounds = node.call("cast", bounds, to=INDEX) if t.dtype != INDEX else bounds
    size = node.as_data(Sizes(object_array(list(sizes)), INDEX))
    zero = node.constant(0, INDEX)
    from_back = node.call("maximum", node.call("add", bounds, size), zero)
    counted = node.call("where", node.call("less", bounds, zero), from_back, bounds)
    return node.bound(node.call("minimum", counted, size), what, i)


def runtime_range(node: Node) -> GraphExpr:
    """Equally spaced numbers whose ends are computed by the model."""
    start, limit, step = (node.call("reshape", node.data(i), shape=()) for i in range(3))
    if isinstance(step, Constant):
        if not step.data:
            raise Malformed("its step (input 'delta') is 0")
    else:
        moves = Traced(node, node.call("not_equal", step, node.scalar(0, step))).reshape(1)
        require(node, moves, "its step (input 'delta') must not be 0")
        step = node.call(
            "where", moves.reshape().x, step, node.scalar(1, step)
        )  # avoids a wrong size before the check reports the error
    dtype = start.tensor.dtype
    exact = "float64" if dtype.is_integer or dtype == "float64" else "float32"
    distance = node.call("cast", node.call("sub", limit, start), to=DType(exact))
    steps = node.call("ceil", node.call("div", distance, node.call("cast", step, to=DType(exact))))
    count = node.call("cast", node.call("maximum", steps, node.scalar(0, steps)), to=INDEX)
    (size,) = node.bound(node.call("reshape", count, shape=(1,)), "range")
    return node.call("add", start, node.call("mul", node.call("arange", count=size, dtype=dtype), step))
