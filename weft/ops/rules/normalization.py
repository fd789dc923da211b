"""Per-channel scales and shifts: batch normalization becomes them, and they are folded into weights of contractions.

Folding a factor into constant weights changes results by rounding; the product is evaluated in float64 and rounded
once. A factor before a convolution may be folded with any padding (zeros stay zeros), a term only without padding.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from weft.graph.nodes import Call, Constant, GraphExpr, call
from weft.graph.operator import Attrs, Operator
from weft.graph.pattern import GraphMatch, GraphRule, anything, constant, either, op
from weft.ops import relations as rel
from weft.ops.catalogue import op as operator
from weft.ops.rules.parts import (
    ADD,
    CONV,
    CONV_TRANSPOSE,
    MATMUL,
    MUL,
    PAD,
    Array,
    along,
    attrs_of,
    contraction,
    fold,
    is_float,
    rounded,
    same_type,
)
from weft.support.threads import MAX_THREADS, MIN_BYTES, for_each

BATCH_NORM = operator("batch_norm")
MAX_POOL, AVG_POOL = operator("max_pool"), operator("avg_pool")
WEIGHTED = (CONV, CONV_TRANSPOSE, MATMUL)


def _scale_and_shift(m: GraphMatch) -> GraphExpr | None:
    x: GraphExpr = m.x
    scale, bias, mean, variance = (m[name].data.astype(np.float64) for name in ("scale", "bias", "mean", "variance"))
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + attrs_of(m, "norm").epsilon)
        term = bias - mean * factor
    shape = (-1,) + (1,) * (x.tensor.rank - 2)
    factor, term = (v.reshape(shape).astype(x.tensor.dtype.numpy) for v in (factor, term))
    if not (np.all(np.isfinite(factor)) and np.all(np.isfinite(term))):
        return None
    scaled = call(MUL, [x, Constant(factor, m.scale.origin)])
    return same_type(call(ADD, [scaled, Constant(term, m.bias.origin)]), m.root)


def output_axis(target: Operator, result_rank: int) -> int:
    """The axis of a contraction's result that runs along the output channels of its weights."""
    return result_rank - 1 if target is MATMUL else 1


def scale_outputs(target: Operator, attrs: Attrs, weights: Array, factor: Array) -> Array:
    """``weights`` such that output channel ``c`` of the contraction is scaled by ``factor[c]``."""
    if target is MATMUL:
        return _scaled(weights, factor[:, None] if attrs.transpose_b else factor)
    spatial = (1,) * (weights.ndim - 2)
    if target is CONV:
        return _scaled(weights, factor.reshape(-1, 1, *spatial))
    by_group = weights.reshape(attrs.groups, -1, *weights.shape[1:])
    return _scaled(by_group, factor.reshape(attrs.groups, 1, -1, *spatial)).reshape(weights.shape)


def scale_inputs(target: Operator, attrs: Attrs, weights: Array, factor: Array) -> Array:
    """``weights`` such that input channel ``c`` of the contraction is scaled by ``factor[c]``."""
    if target is MATMUL:
        return _scaled(weights, factor if attrs.transpose_b else factor[:, None])
    spatial = (1,) * (weights.ndim - 2)
    if target is CONV_TRANSPOSE:
        return _scaled(weights, factor.reshape(-1, 1, *spatial))
    by_group = weights.reshape(attrs.groups, -1, *weights.shape[1:])
    return _scaled(by_group, factor.reshape(attrs.groups, 1, -1, *spatial)).reshape(weights.shape)


def _scaled(weights: Array, factor: Array) -> Array:
    """The product in float64, rounded once to the dtype of ``weights``: NumPy converts a piece at a time, so that no
    wide copy of the weights fills the memory."""
    made, factors = np.empty_like(weights), np.broadcast_to(factor, weights.shape)
    parts = MAX_THREADS if weights.nbytes >= MIN_BYTES else 1
    bounds = [len(weights) * i // parts for i in range(parts + 1)]

    def scale(part: slice) -> None:
        with np.errstate(all="ignore"):
            np.multiply(weights[part], factors[part], out=made[part], dtype=np.float64, casting="unsafe")

    for_each(scale, [slice(a, b) for a, b in pairwise(bounds)])
    return made


def _matrix_product(m: GraphMatch) -> bool:
    """Whether the operands have ranks that folding supports."""
    made: Call = m.made
    return is_float(made) and (made.target is not MATMUL or (m.x.tensor.rank >= 2 and m.w.tensor.rank >= 2))


def _with_weights(m: GraphMatch, x: GraphExpr, weights: Array) -> GraphExpr | None:
    made: Call = m.made
    assert isinstance(made.target, Operator)
    new = rounded(weights, m.w)
    return None if new is None else call(made.target, [x, new], made.attrs)


def _scaled_outputs(m: GraphMatch) -> GraphExpr | None:
    """The contraction with ``m.factor`` folded into its weights."""
    made: Call = m.made
    assert isinstance(made.target, Operator)
    axis = output_axis(made.target, made.tensor.rank)
    factor = along(m.factor.data, made.tensor.rank, axis, made.tensor.shape[axis])
    if factor is None:
        return None
    return _with_weights(m, m.x, scale_outputs(made.target, made.attrs, m.w.data, factor))


def _fold_scale(m: GraphMatch) -> GraphExpr | None:
    return same_type(_scaled_outputs(m), m.root)


def _fold_scale_of_sum(m: GraphMatch) -> GraphExpr | None:
    scaled = _scaled_outputs(m)
    if scaled is None:
        return None
    term = fold(MUL, [m.term, m.factor])
    if not isinstance(term, Constant) or not np.all(np.isfinite(term.data)):
        return None
    return same_type(call(ADD, [scaled, term]), m.root)


def _fold_terms(m: GraphMatch) -> GraphExpr | None:
    return same_type(call(ADD, [m.made, fold(ADD, [m.first, m.second])]), m.root)


def _fold_input_scale(m: GraphMatch) -> GraphExpr | None:
    made: Call = m.made
    assert isinstance(made.target, Operator)
    x: GraphExpr = m.x
    axis = x.tensor.rank - 1 if made.target is MATMUL else 1
    if made.target is MATMUL and made.attrs.transpose_a:
        return None
    if x.type != m.scaled.type:
        return None
    factor = along(m.factor.data, x.tensor.rank, axis, x.tensor.shape[axis])
    if factor is None:
        return None
    return same_type(_with_weights(m, x, scale_inputs(made.target, made.attrs, m.w.data, factor)), m.root)


def _spatial_pads(attrs: Attrs, rank: int) -> tuple[Any, ...] | None:
    """The pads in the notation of windows; None if something is cut off or other than spatial dimensions are padded."""
    pads = attrs.pads
    before, after = pads[:rank], pads[rank:]
    if any(p != 0 for p in (*before[:2], *after[:2])) or any(isinstance(p, int) and p < 0 for p in pads):
        return None
    return (*before[2:], *after[2:])


def _sum_pads(pads: tuple[Any, ...], more: tuple[Any, ...] | None) -> tuple[Any, ...]:
    return pads if more is None else tuple(rel.add(a, b) for a, b in zip(pads, more, strict=True))


def _affine_twice(m: GraphMatch) -> GraphExpr | None:
    """(x · c + d) · e → x · (c · e) + d · e, for constants by channel or single numbers."""
    rank, channels = m.root.tensor.rank, m.root.tensor.shape[1] if m.root.tensor.rank > 1 else None
    c, d, e = (along(m[name].data, rank, 1, channels) for name in ("factor", "term", "outer"))
    if c is None or d is None or e is None:
        return None
    dtype, shape = m.factor.data.dtype, (-1, *(1,) * (rank - 2))
    factor = rounded((c * e).reshape(shape), m.factor)
    term = rounded((d * e).reshape(shape).astype(dtype), m.term)
    if factor is None or term is None:
        return None
    return same_type(call(ADD, [call(MUL, [m.x, factor]), term]), m.root)


def _pad_into_window(m: GraphMatch) -> GraphExpr | None:
    window: Call = m.window
    assert isinstance(window.target, Operator)
    pad = attrs_of(m, "pad")
    pads = _spatial_pads(pad, m.x.tensor.rank)
    neutral = -np.inf if window.target is MAX_POOL else 0
    if pads is None or pad.value != neutral:
        return None
    attrs = window.attrs.replace(pads=_sum_pads(pads, window.attrs.pads))
    if window.target is AVG_POOL:
        own = window.attrs.pads is not None and any(p != 0 for p in window.attrs.pads)
        if own and not window.attrs.count_include_pad:
            return None
        attrs = attrs.replace(count_include_pad=True)
    return same_type(call(window.target, [m.x, *window.args[1:]], attrs), m.root)


_x, _w = anything("x"), constant("w")
_made = contraction(WEIGHTED, _x, _w, name="made")
_factor, _term = constant("factor"), constant("term")
_padded = op(PAD, _x, name="pad", attrs={"mode": "constant"})

NORMALIZATION_RULES: tuple[GraphRule, ...] = (
    GraphRule(
        "batch-norm-to-scale-and-shift",
        op(BATCH_NORM, _x, constant("scale"), constant("bias"), constant("mean"), constant("variance"), name="norm"),
        _scale_and_shift,
    ),
    GraphRule("scale-into-weights", op(MUL, _made, _factor), _fold_scale, _matrix_product),
    GraphRule(
        "scale-of-sum-into-weights",
        op(MUL, op(ADD, _made, _term, once=True), _factor),
        _fold_scale_of_sum,
        _matrix_product,
    ),
    GraphRule(
        "terms-after-contraction",
        op(ADD, op(ADD, op(WEIGHTED, _x, _w, name="made"), constant("first"), once=True), constant("second")),
        _fold_terms,
        lambda m: is_float(m.root),
    ),
    GraphRule(
        "affine-twice",
        op(MUL, op(ADD, op(MUL, _x, _factor, once=True), _term, once=True), constant("outer")),
        _affine_twice,
        lambda m: is_float(m.root, wide=True),
    ),
    GraphRule(
        "terms-after-scale",
        op(ADD, op(ADD, op(MUL, _x, _factor, name="made"), constant("first"), once=True), constant("second")),
        _fold_terms,
        lambda m: is_float(m.root),
    ),
    GraphRule(
        "input-scale-into-weights",
        contraction(WEIGHTED, op(MUL, _x, _factor, name="scaled", once=True), _w, name="made", once=False),
        _fold_input_scale,
        _matrix_product,
    ),
    GraphRule(
        "pad-into-window",
        either(
            op(CONV, _padded, anything(), name="window", attrs=lambda a: not a.data_layout),
            op((MAX_POOL, AVG_POOL), _padded, name="window", attrs=lambda a: not a.ceil_mode),
        ),
        _pad_into_window,
    ),
)
"""Batch normalization and per-channel arithmetic around contractions."""
