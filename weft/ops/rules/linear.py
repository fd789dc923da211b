"""Products with constant matrices: views move behind the products, and parts of a result become separate products.

Exact up to the order of additions, which the schedule chooses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.graph.nodes import Call, Constant, GraphExpr, Project, call
from weft.graph.pattern import GraphMatch, GraphRule, anything, constant, either, op, project
from weft.graph.types import Dim
from weft.ops.relations import stretch_of
from weft.ops.rules.movement import groups
from weft.ops.rules.parts import ADD, MATMUL, RESHAPE, SPLIT, VIEWS, plain_contraction, same_type, try_call

MIN_PART_COLUMNS = 16
"""Fewest columns of a part for which a separate product is faster. Smaller parts are sliced from the whole product."""

_x, _w, _term = anything("x"), constant("w", lambda w: w.ndim == 2), constant("term")


def _flattens_rows(source: Sequence[Dim], flat: Sequence[Dim]) -> bool:
    """Whether a reshape keeps the last dimension."""
    runs = groups(source, flat) if len(source) > 1 and len(flat) > 1 and source[-1] == flat[-1] else None
    return runs is not None and len(runs[-1][0]) == 1 == len(runs[-1][1])


def _view_behind(m: GraphMatch) -> GraphExpr | None:
    """matmul(reshape(x), w) → reshape(matmul(x, w)): later operators then have the shape that the model computes in."""
    root = m.call
    if root.attrs.transpose_a or not _flattens_rows(m.x.tensor.shape, m.view.tensor.shape):
        return None
    product = call(MATMUL, [m.x, m.w], root.attrs)
    return try_call(RESHAPE, [product], {"shape": root.tensor.shape}, root)


def _view_before(m: GraphMatch) -> GraphExpr | None:
    """reshape(matmul(reshape(x), w)), a product between views of rows → the product in the shape of the result."""
    product: Call = m.product
    shape = m.root.tensor.shape
    if product.attrs.transpose_a or product.tensor.rank < 2 or len(shape) < 2 or shape[-1] != product.tensor.shape[-1]:
        return None
    rows = call(RESHAPE, [m.x], {"shape": (*shape[:-1], m.view.tensor.shape[-1])})
    return try_call(MATMUL, [rows, m.w], product.attrs, m.root)


def _part(values: Constant, axis: int, begin: int, end: int) -> Constant:
    """Entries ``begin..end`` of a constant along an axis; the constant itself if it does not vary along the axis."""
    if axis >= -values.data.ndim and values.data.shape[axis] != 1:
        cut = np.take(values.data, np.arange(begin, end), axis)
        return Constant(np.ascontiguousarray(cut), values.origin)
    return values


def _split_product(m: GraphMatch) -> GraphExpr | None:
    """A part of a product's columns → the product with these columns of the matrix, so that nothing is cut out.

    Parts of a single row lie in memory as they are needed, and its product is faster as a whole.
    """
    split, product = m.split, m.product
    sizes, rank = split.attrs.sizes, product.tensor.rank
    if rank < 2 or split.attrs.axis % rank != rank - 1 or stretch_of(product.tensor, rank - 1) is not None:
        return None
    if not all(isinstance(s, int) and s >= MIN_PART_COLUMNS for s in sizes):
        return None
    assert isinstance(m.root, Project)
    index = m.root.index
    begin = sum(sizes[:index])
    end = begin + sizes[index]
    columns = _part(m.w, -2 if product.attrs.transpose_b else -1, begin, end)
    made: GraphExpr = call(MATMUL, [m.x, columns], product.attrs)
    if "term" in m:
        made = call(ADD, [made, _part(m.term, -1, begin, end)])
    return same_type(made, m.root)


_product = op(MATMUL, _x, _w, name="product", once=True, attrs=plain_contraction)

LINEAR_RULES: tuple[GraphRule, ...] = (
    GraphRule(
        "view-behind-product",
        op(MATMUL, op(VIEWS, _x, name="view"), _w, attrs=plain_contraction),
        _view_behind,
    ),
    GraphRule(
        "view-before-product",
        op(VIEWS, op(MATMUL, op(VIEWS, _x, name="view"), _w, name="product", once=True, attrs=plain_contraction)),
        _view_before,
    ),
    GraphRule(
        "part-of-product",
        project(op(SPLIT, either(_product, op(ADD, _product, _term, once=True)), name="split")),
        _split_product,
    ),
)
"""Rules on products with constant matrices."""
