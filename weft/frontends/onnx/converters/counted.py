"""Operators whose result sizes depend on the data: the count is known at run time and becomes a symbolic size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.expr.nodes import Var as Symbol
from weft.frontends.common.sizes import arithmetic, product
from weft.frontends.onnx.converters.loops import repeat, slice_at
from weft.frontends.onnx.converters.numbers import Operand, Traced, constant, operand, size, stack
from weft.frontends.onnx.converters.selection import marked_places
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import INT64


def _steps(node: Node, count: Dim) -> Traced:
    """0, 1, … below ``count``."""
    return Traced(node, node.call("arange", start=0, step=1, count=count, dtype="int64"))


def _running(flags: Traced, axis: int = 0) -> Traced:
    """The number of true elements up to and including each position."""
    return flags.to(INT64).call("cumsum", axis=axis)


def marked(flags: Traced) -> Traced:
    """The positions of the true elements of ``flags`` (a vector), in order; their number is known at run time."""
    return Traced(flags.node, marked_places(flags.node, flags.x))


def _head(x: Traced, count: Dim) -> Traced:
    return x.call("slice", begin=(0,), end=(count,), strides=(1,), axes=(0,), in_bounds=True)


def _unraveled(flat: Traced, shape: Sequence[Dim]) -> list[Traced]:
    """The index along each axis of positions in row-major order."""
    made = []
    for axis, d in enumerate(shape):
        below = product(shape[axis + 1 :])
        place = flat if below == 1 else flat / _whole(flat, below)
        made.append(place if axis == 0 else place.call("mod", _whole(flat, d), fmod=False))
    return made


def _whole(like: Traced, d: Dim) -> Operand:
    return size(like.node, d, INT64)


# --- suppression of overlapping boxes ---------------------------------------------------------------------------------


def _suppression(node: Node) -> Result:
    """The chosen boxes for each batch and class, as one row for each box."""
    boxes, scores = operand(node, 0), operand(node, 1)
    batches, classes, count = scores.shape
    most = _most(node, count)
    if most == 0:
        return node.constant(np.zeros((0, 3), np.int64))
    limits = [operand(node, 3).reshape() if node.has(3) else constant(node, 0.0)]
    limits += [operand(node, 4).reshape()] if node.has(4) else []
    center = node.flag("center_point_box")
    chosen = boxes.call("suppress", scores, *limits, count=most, center=center)
    every = (batches, classes, most)
    flat = chosen.reshape(product(every))
    places = marked(flat >= 0)
    return stack([*_unraveled(places, every)[:2], flat.call("gather", places, axis=0)], axis=1).x


def _most(node: Node, count: Dim) -> Dim:
    """The largest number of boxes for each class, not more than ``count``."""
    if not node.has(2):
        return 0
    known = node.array(2)
    if known is not None:
        wanted = max(int(known.reshape(())), 0)
        return min(wanted, count) if isinstance(count, int) else arithmetic("min", wanted, count)
    given = operand(node, 2).to(INT64).reshape(1)
    limited = given.call("maximum", 0).call("minimum", _whole(given, count))
    (most,) = node.bound(limited.x, "max_output_boxes_per_class", 2)
    return most


# --- distinct values --------------------------------------------------------------------------------------------------


def _unique(node: Node) -> Result:
    x = operand(node, 0)
    in_order = not node.flag("sorted", True)
    if node.has_attribute("axis"):
        return unique_slices(node, x, node.axis(len(x.shape)), in_order=in_order)
    return unique_values(node, x.reshape(product(x.shape)), in_order=in_order)


def unique_values(node: Node, x: Traced, *, in_order: bool) -> list[GraphExpr]:
    """The distinct values of a vector, sorted or in order of appearance; the first position of each; the number of the
    distinct value for each element; the count of each. NaN equals NaN and is last, as in NumPy."""
    return unique_slices(node, x, 0, in_order=in_order)


def unique_slices(node: Node, x: Traced, axis: int, *, in_order: bool) -> list[GraphExpr]:
    """Like :func:`unique_values` for slices along an axis, in lexicographic order. A slice that differs from the one
    before it is a new distinct slice."""
    length = x.shape[axis]
    moved = x.transpose(axis, *(i for i in range(len(x.shape)) if i != axis)) if len(x.shape) > 1 else x
    rows = moved.reshape(length, product(moved.shape[1:]))
    rows = rows.to("int32") if rows.dtype == "bool" else rows
    order = _row_order(rows)
    steps = _steps(node, length)
    new = steps.equals(0).call("logical_or", _differs(rows.call("gather", order, axis=0), steps))
    number = _running(new) - 1
    starts = marked(new)
    count = starts.shape[0]
    first = order.call("gather", starts, axis=0)
    counts = _head((steps * 0).call("scatter_elements", number, steps * 0 + 1, axis=0, reduction="add"), count)
    inverse = (steps * 0).call("scatter_elements", order, number, axis=0)
    if in_order:
        by_place = first.call("argsort", axis=0)
        ranks = _steps(node, count)
        rank = (ranks * 0).call("scatter_elements", by_place, ranks, axis=0)
        first, counts = (t.call("gather", by_place, axis=0) for t in (first, counts))
        inverse = rank.call("gather", inverse, axis=0)
    return [t.x for t in (x.call("gather", first, axis=axis), first, inverse, counts)]


def _row_order(rows: Traced) -> Traced:
    """The rows of a matrix in lexicographic order: stably sorted by the last column, then by the one before it, and so
    on."""
    node, (length, width) = rows.node, rows.shape
    if width == 1:
        return rows.reshape(length).call("argsort", axis=0)

    def step(number: Symbol, state: list[GraphExpr]) -> tuple[None, list[GraphExpr], list[GraphExpr]]:
        order = Traced(node, state[0])
        column = slice_at(node, rows.x, 1, arithmetic("sub", arithmetic("sub", width, 1), number))
        keys = Traced(node, column).call("gather", order, axis=0)
        return None, [order.call("gather", keys.call("argsort", axis=0), axis=0).x], []

    (order,), _ = repeat(node, [_steps(node, length).x], step, trips=width)
    return Traced(node, order)


def _differs(rows: Traced, steps: Traced) -> Traced:
    """Whether each row differs from the one before."""
    before = rows.call("gather", (steps - 1).call("maximum", 0), axis=0)
    same = rows.equals(before)
    if rows.dtype.is_float:
        same = same.call("logical_or", rows.call("isnan") & before.call("isnan"))
    return same.to("int32").call("reduce_min", axes=(1,), keepdims=False).equals(0)


COUNTED: dict[str, Callable[[Node], Result]] = {
    "NonMaxSuppression": _suppression,
    "Unique": _unique,
}
