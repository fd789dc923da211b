"""Products of computed matrices read transposed operands directly: transposes around them become labels of an einsum.

Attention written with transposes to [batch, heads, length, width] then needs no copies::

    matmul(transpose(q), transpose(k))   →   einsum(q, k, "bshd,bthd->bhst")
    transpose(matmul(p, transpose(v)))   →   einsum(p, v, "bhst,bthd->bshd")

Products with constant matrices stay matmul: these are packed ahead of time. Exact up to the order of additions, which
the schedule chooses, except for ``factor-behind-einsum``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.cost.assumed import EXTENT
from weft.graph.nodes import Call, Constant, GraphExpr, call
from weft.graph.operator import Operator
from weft.graph.pattern import GraphMatch, GraphRule, anything, constant, op, rest
from weft.ops.attention import usual_scale
from weft.ops.catalogue import op as operator
from weft.ops.rules.movement import permutation
from weft.ops.rules.parts import (
    ADD,
    EINSUM,
    MATMUL,
    MUL,
    TRANSPOSE,
    VIEWS,
    WHERE,
    is_float,
    number,
    plain_contraction,
    same_type,
    scalar,
    try_call,
)
from weft.support.dtypes import BOOL

ATTENTION, SOFTMAX, TRILU = (operator(name) for name in ("scaled_dot_product_attention", "softmax", "trilu"))
MIN_PRODUCTS_OF_A_MOVED_ELEMENT = 6
"""From how many products for each element of the operands and the result on it is worthwhile to move these elements,
so that tiles of sums can be in registers: 16 × 16 results of 64 products each are equally fast both ways."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

_a, _b = anything("a"), anything("b")


def _labels(m: GraphMatch, product: Call) -> tuple[str, str, str] | None:
    """The labels of a product's operands and result."""
    a, b = product.args
    if a.tensor.rank < 2 or b.tensor.rank < 2 or not is_float(product):
        return None
    batch = _LETTERS[: product.tensor.rank - 2]
    rows, columns, depth = "xyz"
    left = depth + rows if product.attrs.transpose_a else rows + depth
    right = columns + depth if product.attrs.transpose_b else depth + columns

    def leading(e: GraphExpr) -> str:
        return batch[len(batch) - (e.tensor.rank - 2) :]

    return leading(a) + left, leading(b) + right, batch + rows + columns


def _behind(e: GraphExpr, labels: str) -> tuple[GraphExpr, str]:
    """The operand of a transpose, with its labels; ``e`` itself if it is not a transpose."""
    if not isinstance(e, Call) or e.target is not TRANSPOSE:
        return e, labels
    source = [""] * len(labels)
    for label, p in zip(labels, permutation(e), strict=True):
        source[p] = label
    return e.args[0], "".join(source)


def _einsum(
    args: Sequence[GraphExpr], labels: Sequence[str], result: str, root: GraphExpr, limit: Any = None
) -> GraphExpr | None:
    return try_call(EINSUM, args, {"equation": f"{','.join(labels)}->{result}", "limit": limit}, root)


def _of_transposed(m: GraphMatch) -> GraphExpr | None:
    root = m.call
    labels = _labels(m, root)
    if labels is None:
        return None
    (a, left), (b, right) = (_behind(e, t) for e, t in zip(root.args, labels, strict=False))
    if isinstance(a, Constant) or isinstance(b, Constant):
        return None
    return _einsum([a, b], [left, right], labels[2], root)


def _transposed_product(m: GraphMatch) -> GraphExpr | None:
    product: Call = m.product
    labels = _labels(m, product)
    if labels is None or any(isinstance(a, Constant) for a in product.args) or product.tensor.rank < 3:
        return None
    result = "".join(labels[2][p] for p in permutation(m.call))
    if _shared_at_the_end(product.args, labels[:2], result):
        return None
    return _einsum(product.args, labels[:2], result, m.root)


def _transposed_einsum(m: GraphMatch) -> GraphExpr | None:
    product: Call = m.product
    terms, result = _terms(product)
    if terms is None:
        return None
    moved = "".join(result[p] for p in permutation(m.call))
    if _shared_at_the_end(product.args, terms, moved):
        return None
    return _einsum(product.args, terms, moved, m.root, product.attrs.limit)


def _einsum_of_transposed(m: GraphMatch) -> GraphExpr | None:
    root = m.call
    terms, result = _terms(root)
    if terms is None or not any(isinstance(a, Call) and a.target is TRANSPOSE for a in root.args):
        return None
    moved = [_behind(a, t) for a, t in zip(root.args, terms, strict=True)]
    return _einsum([a for a, _ in moved], [t for _, t in moved], result, root, root.attrs.limit)


def _terms(e: Call) -> tuple[list[str] | None, str]:
    """The terms of an equation; None if it has no arrow or an ellipsis."""
    left, arrow, right = e.attrs.equation.replace(" ", "").partition("->")
    return (None, "") if not arrow or "." in e.attrs.equation else (left.split(","), right)


def _shared_at_the_end(args: Sequence[GraphExpr], terms: Sequence[str], result: str) -> int:
    """How many labels at the end of ``result`` both operands have, if products of matrices with these labels first and
    a transpose of the result take less time; else 0.

    With such a label last, a vector of results is a vector of independent sums. If it is not last in both operands
    too, lanes of an operand are far apart. If it is, each product loads two vectors, where a tile of sums in
    registers loads each element of an operand once for many products.
    """
    sizes = [dict(zip(t, a.tensor.shape, strict=True)) for t, a in zip(terms, args, strict=True)]
    left, right = ({label for label, size in known.items() if size != 1} for known in sizes)
    both, one = left & right, left ^ right
    if not both - set(result) or not one & set(result):
        return 0  # nothing is summed, or each element is used once
    shared = next(i for i, label in enumerate(reversed(result)) if label in one)
    if not both & set(result[len(result) - shared :]):
        return 0
    ends = {next((label for label in reversed(t) if label in left | right), "") for t in (*terms, result)}
    if len(ends) > 1:
        return shared
    known = [{label: size if isinstance(size, int) else EXTENT for label, size in s.items()} for s in sizes]
    products = math.prod({**known[0], **{label: known[1][label] for label in right}}.values())
    moved = sum(math.prod(s.values()) for s in known) + math.prod(max(s.get(r, 1) for s in known) for r in result)
    return shared if products >= MIN_PRODUCTS_OF_A_MOVED_ELEMENT * moved else 0


def _shared_first(m: GraphMatch) -> GraphExpr | None:
    """Compute the products of each batch, then bring the batches to the end: two kernels, the first of them a product
    of matrices with tiles of sums in registers, take less time than one without."""
    root = m.call
    terms, result = _terms(root)
    if terms is None:
        return None
    count = _shared_at_the_end(root.args, terms, result)
    if not count:
        return None
    rank = len(result)
    equation = f"{','.join(terms)}->{result[-count:]}{result[:-count]}"
    product = call(EINSUM, root.args, {**root.attrs, "equation": equation})
    return try_call(TRANSPOSE, [product], {"perm": (*range(count, rank), *range(count))}, root)


def _heavy(e: GraphExpr) -> bool:
    """Whether ``e`` is a contraction, followed by element-wise operators or views: a factor there costs no kernel of
    its own."""
    while isinstance(e, Call) and isinstance(e.target, Operator):
        if e.target in (MATMUL, EINSUM):
            return True
        if not (e.target.elementwise or e.target in VIEWS) or not e.args:
            return False
        e = next((a for a in e.args if not isinstance(a, Constant)), e.args[0])
    return False


def _factor_behind(m: GraphMatch) -> GraphExpr | None:
    """einsum(a · c, b) → einsum(a, b) · c: before the einsum the factor would need a kernel of its own, after it it is
    fused.

    Changes results by rounding. Only factors between 2⁻¹⁶ and 2¹⁶ are moved, so that sums hardly overflow earlier.
    """
    root = m.call
    value = scalar(m.c)
    if value is None or not 2.0**-16 <= abs(value) <= 2.0**16 or _heavy(m.a) or m.a.type != m.scaled.type:
        return None
    place = next(i for i, e in enumerate(root.args) if e is m.scaled)  # the first, if both operands are a · c
    args = [*root.args[:place], m.a, *root.args[place + 1 :]]
    return same_type(call(MUL, [call(EINSUM, args, root.attrs), number(value, root)]), root)


def _expand_attention(m: GraphMatch) -> GraphExpr | None:
    """softmax(query · keyᵀ · scale + mask) · value as separate operators, each with a kernel and schedule of its
    own."""
    root = m.call
    query, key, value, *mask = root.args
    width = query.tensor.shape[-1]
    scale = root.attrs.scale
    if scale is None and isinstance(width, int):
        scale = usual_scale(width)
    if scale is None or not is_float(root, wide=True):
        return None
    scores: GraphExpr = call(MATMUL, [query, key], {"transpose_b": True})
    scores = call(MUL, [scores, number(scale, root)])
    if mask and mask[0].tensor.dtype == BOOL:
        scores = call(WHERE, [mask[0], scores, number(-np.inf, root)])
    elif mask:
        scores = call(ADD, [scores, mask[0]])
    if not root.attrs.causal:
        return same_type(call(MATMUL, [call(SOFTMAX, [scores], {"axis": -1}), value]), root)
    k = root.attrs.offset
    scores = call(TRILU, [scores], {"upper": False, "fill": -math.inf, "k": k})  # masked products are not computed
    weights = call(SOFTMAX, [scores], {"axis": -1, "limit": k})
    batch = _LETTERS[: root.tensor.rank - 2]
    equation = f"{batch}xy,{batch}yz->{batch}xz"
    return same_type(call(EINSUM, [weights, value], {"equation": equation, "limit": ("y", "x", k)}), root)


_product = op(MATMUL, _a, _b, name="product", once=True, attrs=plain_contraction)

_scaled = op(MUL, _a, constant("c"), name="scaled")


def _wide(m: GraphMatch) -> bool:
    return is_float(m.root, wide=True)


CONTRACTION_RULES: tuple[GraphRule, ...] = (
    GraphRule("attention-in-parts", op(ATTENTION, anything(), anything(), anything(), rest), _expand_attention),
    GraphRule("matmul-of-transposed-first", op(MATMUL, op(TRANSPOSE, _a), _b, attrs=plain_contraction), _of_transposed),
    GraphRule(
        "matmul-of-transposed-second", op(MATMUL, _a, op(TRANSPOSE, _b), attrs=plain_contraction), _of_transposed
    ),
    GraphRule("transpose-of-matmul", op(TRANSPOSE, _product), _transposed_product),
    GraphRule("transpose-of-einsum", op(TRANSPOSE, op(EINSUM, _a, _b, name="product", once=True)), _transposed_einsum),
    GraphRule("einsum-of-transposed", op(EINSUM, _a, _b), _einsum_of_transposed),
    GraphRule("shared-labels-first", op(EINSUM, _a, _b), _shared_first),
    GraphRule("factor-behind-einsum-first", op(EINSUM, _scaled, _b), _factor_behind, _wide),
    GraphRule("factor-behind-einsum-second", op(EINSUM, _b, _scaled), _factor_behind, _wide),
)
"""Rules on products of computed matrices."""
