"""Operators whose results are as long as the data says: the count is found at run time and becomes a size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.expr.nodes import Var as Symbol
from weft.frontend.onnx.converters.loops import repeat
from weft.frontend.onnx.converters.numbers import Operand, Tensor, constant, operand, size, stack
from weft.frontend.onnx.converters.selection import marked_places
from weft.frontend.onnx.node import Node, Result
from weft.frontend.onnx.sizes import product
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import INT64


def _steps(node: Node, count: Dim) -> Tensor:
    """0, 1, … below ``count``."""
    return Tensor(node, node.call("arange", start=0, step=1, count=count, dtype="int64"))


def _running(flags: Tensor, axis: int = 0) -> Tensor:
    """How many hold up to and with each place."""
    return flags.to(INT64).call("cumsum", axis=axis)


def marked(flags: Tensor) -> Tensor:
    """The places at which ``flags`` (a vector) holds, in order; how many is known once it has run."""
    return Tensor(flags.node, marked_places(flags.node, flags.x))


def _head(x: Tensor, count: Dim) -> Tensor:
    return x.call("slice", begin=(0,), end=(count,), strides=(1,), axes=(0,), in_bounds=True)


def _unraveled(flat: Tensor, shape: Sequence[Dim]) -> list[Tensor]:
    """Indices by axis of places in row-major order."""
    made = []
    for axis, d in enumerate(shape):
        below = product(shape[axis + 1 :])
        place = flat if below == 1 else flat / _whole(flat, below)
        made.append(place if axis == 0 else place.call("mod", _whole(flat, d), fmod=False))
    return made


def _whole(like: Tensor, d: Dim) -> Operand:
    return size(like.node, d, INT64)


# --- suppression of overlapping boxes ---------------------------------------------------------------------------------


def _corners(boxes: Tensor, center: bool) -> list[Tensor]:
    """Low and high ends by axis: y, x, each (batches, boxes)."""
    a, b, c, d = (boxes.part(2, i) for i in range(4))
    if center:
        return [b - d * 0.5, a - c * 0.5, b + d * 0.5, a + c * 0.5]
    return [a.call("minimum", c), b.call("minimum", d), a.call("maximum", c), b.call("maximum", d)]


def _suppression(node: Node) -> Result:
    """Boxes in order of their scores, each kept unless it overlaps one kept before: one step a box, all batches and
    classes at once."""
    boxes, scores = operand(node, 0), operand(node, 1)
    batches, classes, count = scores.shape
    every = (batches, classes, count)
    if not node.has(2):
        return node.constant(np.zeros((0, 3), np.int64))
    best, order = (Tensor(node, t) for t in node.calls("topk", scores.x, k=count, axis=2, largest=True))

    def by_score(t: Tensor) -> Tensor:
        return t.reshape(batches, 1, count).expand(*every).call("gather_elements", order, axis=2)

    low_y, low_x, high_y, high_x = (by_score(t) for t in _corners(boxes, node.flag("center_point_box")))
    area = (high_y - low_y) * (high_x - low_x)
    eligible = best > operand(node, 4).reshape() if node.has(4) else best.call("isnan").call("logical_not")
    limit = operand(node, 3).reshape() if node.has(3) else constant(node, 0.0)
    steps = _steps(node, count)

    def step(number: Symbol, state: list[GraphExpr]) -> tuple[None, list[GraphExpr], list[GraphExpr]]:
        chosen = Tensor(node, state[0])
        place = constant(node, 0, INT64) + size(node, number, INT64)
        row = place.reshape(1)

        def at(t: Tensor) -> Tensor:
            return t.call("gather", row, axis=2)

        height = high_y.call("minimum", at(high_y)) - low_y.call("maximum", at(low_y))
        width = high_x.call("minimum", at(high_x)) - low_x.call("maximum", at(low_x))
        shared = height.call("maximum", 0.0) * width.call("maximum", 0.0)
        union = area + at(area) - shared
        overlaps = (shared > union * limit.to(shared.dtype)) & (chosen > 0) & (steps < place)
        hidden = overlaps.to(INT64).call("reduce_max", axes=(2,), keepdims=True)
        mine = (hidden.equals(0) & at(eligible.to(INT64)).equals(1)).to(INT64)
        return None, [steps.equals(place).choose(mine.expand(*every), chosen).x], []

    start = constant(node, 0, INT64).expand(*every)
    (last,), _ = repeat(node, [start.x], step, trips=count)
    chosen = Tensor(node, last)
    within = chosen.call("cumsum", axis=2) <= operand(node, 2).to(INT64).reshape()
    places = marked(((chosen > 0) & within).reshape(product(every)))
    box = order.reshape(product(every)).call("gather", places, axis=0)
    return stack([*_unraveled(places, every)[:2], box], axis=1).x


# --- distinct values --------------------------------------------------------------------------------------------------


def _unique(node: Node) -> Result:
    x = operand(node, 0)
    if node.has_attribute("axis") and len(x.shape) > 1:
        return _unique_rows(node, x, node.axis(len(x.shape)))
    return unique_values(node, x.reshape(product(x.shape)), in_order=not node.flag("sorted", True))


def unique_values(node: Node, x: Tensor, *, in_order: bool) -> list[GraphExpr]:
    """The distinct values of a vector, sorted or in the order in which they come; where each stands first, the numbers
    of all, how often each is there. Values are sorted; one that differs from the one before is new."""
    length = x.shape[0]
    wide = x.to("int32") if x.dtype == "bool" else x
    values, order = (Tensor(node, t) for t in node.calls("topk", wide.x, k=length, axis=0, largest=False))
    steps = _steps(node, length)
    before = values.call("gather", (steps - 1).call("maximum", 0), axis=0)
    new = steps.equals(0).call("logical_or", values.call("not_equal", before))
    number = _running(new) - 1
    starts = marked(new)
    count = starts.shape[0]
    found, first = (t.call("gather", starts, axis=0) for t in (values, order))
    ones = steps * 0 + 1
    counts = _head((steps * 0).call("scatter_elements", number, ones, axis=0, reduction="add"), count)
    inverse = (steps * 0).call("scatter_elements", order, number, axis=0)
    if in_order:
        _, by_place = (Tensor(node, t) for t in node.calls("topk", first.x, k=count, axis=0, largest=False))
        ranks = _steps(node, count)
        rank = (ranks * 0).call("scatter_elements", by_place, ranks, axis=0)
        found, first, counts = (t.call("gather", by_place, axis=0) for t in (found, first, counts))
        inverse = rank.call("gather", inverse, axis=0)
    return [t.x for t in (found.to(x.dtype), first, inverse, counts)]


def _unique_rows(node: Node, x: Tensor, axis: int) -> Result:
    """Slices along an axis, every one compared with every other."""
    rank, length = len(x.shape), x.shape[axis]
    moved = x.transpose(axis, *(i for i in range(rank) if i != axis))
    width = product(moved.shape[1:])
    rows = moved.reshape(length, width)
    rows = rows.to("int32") if rows.dtype == "bool" else rows
    square = (length, length, width)
    a, b = rows.reshape(length, 1, width).expand(*square), rows.reshape(1, length, width).expand(*square)
    differ = a.call("not_equal", b).to("int32")
    at = differ.call("argmax", axis=2, keepdims=True)
    mine, other = (t.call("gather_elements", at, axis=2).reshape(length, length) for t in (a, b))
    after, same = other < mine, mine.equals(other)
    steps = _steps(node, length)
    leader = same.to("int32").call("argmax", axis=1, keepdims=False)
    first_flags = leader.equals(steps)
    if node.flag("sorted", True):
        smaller = after & first_flags.reshape(1, length)
        number = smaller.to(INT64).call("reduce_sum", axes=(1,), keepdims=False)
    else:
        number = (_running(first_flags) - 1).call("gather", leader, axis=0)
    leaders = marked(first_flags)
    count = leaders.shape[0]
    slots = number.call("gather", leaders, axis=0)
    first = (leaders * 0).call("scatter_elements", slots, leaders, axis=0)
    counts = _head((steps * 0).call("scatter_elements", number, steps * 0 + 1, axis=0, reduction="add"), count)
    return [t.x for t in (x.call("gather", first, axis=axis), first, number, counts)]


COUNTED: dict[str, Callable[[Node], Result]] = {
    "NonMaxSuppression": _suppression,
    "Unique": _unique,
}
