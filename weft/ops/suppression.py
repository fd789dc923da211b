"""Boxes that do not overlap a better one."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Expr, Not, maximum, minimum
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.ops.search import ahead
from weft.ops.sort_keys import sort_key
from weft.support.dtypes import INT64


def _infer(attrs: Attrs, *types: Type) -> TensorType:
    boxes, scores, *limits = rel.tensors("suppress", types, 3, 4)
    for t in (boxes, scores, *limits):
        rel.want_kind("suppress", t, "float")
    rel.want_rank("suppress", boxes, 3)
    rel.want_rank("suppress", scores, 3)
    wanted = (scores.shape[0], scores.shape[2], 4)
    if any(rel.equal_dims(a, b) is False for a, b in zip(boxes.shape, wanted, strict=True)):
        rel.fail("suppress", f"boxes {boxes} must have 4 numbers for each of the scores {scores}", "T012")
    for d, what in enumerate(("numbers of batches", "numbers of boxes and of scores", "a box, which has 4 numbers,")):
        rel.join_dim("suppress", boxes.shape[d], wanted[d], what)
    if any(t.shape for t in limits):
        rel.fail("suppress", "the limits must be single numbers", "T012")
    count, size = attrs.count, scores.shape[2]
    if isinstance(count, int) and (count < 0 or (isinstance(size, int) and count > size)):
        rel.fail("suppress", f"{count} of {size} boxes are wanted", "T013")
    return TensorType((*scores.shape[:2], rel.simplified(count)), INT64)


def _ends(boxes: te.Tensor, center: bool) -> list[te.Tensor]:
    """Low and high ends by axis: y, x, each [batches, boxes]."""

    def end(axis: int, high: bool) -> te.Tensor:
        def one(b: Expr, n: Expr) -> Expr:
            if center:
                half = boxes[b, n, 3 - axis] * te.const(0.5, boxes.dtype)
                return boxes[b, n, 1 - axis] + half if high else boxes[b, n, 1 - axis] - half
            ends = boxes[b, n, axis], boxes[b, n, axis + 2]
            return maximum(*ends) if high else minimum(*ends)

        made: te.Tensor = te.compute(boxes.shape[:2], one, name=f"{'high' if high else 'low'}_{'yx'[axis]}")
        return made

    return [end(axis, high) for high in (False, True) for axis in (0, 1)]


def _compute(attrs: Attrs, out: TensorType, boxes: te.Tensor, scores: te.Tensor, *limits: te.Tensor) -> Any:
    if 0 in (*out.shape, *scores.shape):
        return te.compute(out.shape, lambda *i: te.const(-1, INT64), name="suppress")
    low_y, low_x, high_y, high_x = _ends(boxes, attrs.center)
    sides = (low_y, high_y), (low_x, high_x)

    def area(b: Expr, n: Expr) -> Expr:
        return (high_y[b, n] - low_y[b, n]) * (high_x[b, n] - low_x[b, n])

    areas = te.compute(boxes.shape[:2], area, name="area")

    def hides(a: Expr, other: Expr, b: Expr, c: Expr) -> Expr:
        zero = te.const(0, boxes.dtype)
        height, width = (
            maximum(minimum(high[b, a], high[b, other]) - maximum(low[b, a], low[b, other]), zero)
            for low, high in sides
        )
        shared = height * width
        union: Expr = areas[b, a] + areas[b, other] - shared
        return shared > union * te.cast(limits[0](), boxes.dtype)

    def among(a: Expr, b: Expr, c: Expr) -> Expr:
        return scores[b, c, a] > limits[1]() if len(limits) > 1 else Not(te.isnan(scores[b, c, a]))

    def before(a: Expr, other: Expr, b: Expr, c: Expr) -> Expr:
        return ahead(scores[b, c, a], scores[b, c, other], True)

    def key(a: Expr, b: Expr, c: Expr) -> Expr:
        return sort_key(scores[b, c, a], descending=True, nan_first=True)

    shape, size = scores.shape[:2], scores.shape[2]
    return te.order(shape, out.shape[2], size, before, "suppress", among=among, hides=hides, key=key)


def _reference(attrs: Attrs, boxes: Array, scores: Array, *limits: Array) -> Array:
    batches, classes, _ = scores.shape
    made = np.full((batches, classes, attrs.count), -1, np.int64)
    for b, c in np.ndindex(batches, classes):
        row = scores[b, c]
        taken = row > limits[1] if len(limits) > 1 else ~np.isnan(row)
        kept: list[int] = []
        for n in sorted(np.flatnonzero(taken), key=lambda n: (-row[n], n)):
            if len(kept) < attrs.count and not any(_overlap(boxes[b, k], boxes[b, n], attrs, limits[0]) for k in kept):
                kept.append(int(n))
        made[b, c, : len(kept)] = kept
    return made


def _corners(box: Array, center: bool) -> tuple[Array, Array]:
    """Low and high corner, (y, x) each."""
    if center:
        middle, half = box[[1, 0]], box[[3, 2]] / 2
        return middle - half, middle + half
    return np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])


def _overlap(a: Array, b: Array, attrs: Attrs, limit: Array) -> bool:
    (low, high), (other_low, other_high) = _corners(a, attrs.center), _corners(b, attrs.center)
    shared = np.maximum(np.minimum(high, other_high) - np.maximum(low, other_low), 0).prod()
    both = (high - low).prod() + (other_high - other_low).prod()
    return bool(shared > (both - shared) * limit)


_GRID = np.array([[[y, x, y + 1.0, x + 1.0] for y in (0, 0.4, 2.0) for x in (0, 0.3, 1.5)]], np.float32)
_MARKS = np.array([[[3, 3, 1, 0, 5, 2, np.nan, 4, 4], [0, 0, 0, 0, 0, 0, 0, 0, 0]]], np.float32)
_HALF = np.array(0.5, np.float32)

SUPPRESS = OpDef(
    "suppress",
    (
        Attribute("count", REQUIRED, "how many boxes are chosen at most for each batch and class"),
        Attribute("center", False, "whether boxes are centers and sizes (x, y, width, height), else two corners"),
    ),
    _infer,
    _reference,
    compute=_compute,
    cases=(
        Case((_GRID, _MARKS, _HALF), {"count": 9}),
        Case((_GRID, _MARKS, _HALF, _HALF), {"count": 2}),
        Case((_GRID, _MARKS, np.array(0.1, np.float32), _HALF), {"count": 9}),
        Case((_GRID, _MARKS, _HALF, _HALF), {"count": 5, "center": True}),
        Case((((2, 70, 4), "float32"), ((2, 3, 70), "float32"), np.array(0.2, np.float32)), {"count": 20}),
        Case((((2, 70, 4), "float32"), ((2, 3, 70), "float32"), np.array(0.2, np.float32), _HALF), {"count": 70}),
        Case((((1, 4, 4), "float32"), ((1, 2, 4), "float32"), _HALF), {"count": 0}),
        Case((((1, 0, 4), "float32"), ((1, 2, 0), "float32"), _HALF), {"count": 0}),
    ),
    doc="for each batch and class the boxes in order of their scores, without those that overlap a chosen one by more "
    "than the first limit (intersection over union), and without scores up to the second; -1 where no box is left",
    source="ONNX NonMaxSuppression-11",
)
