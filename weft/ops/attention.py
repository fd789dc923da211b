"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.intrinsics import exp_nonpositive
from weft.expr.nodes import Expr, index, make, select
from weft.graph.operator import Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array, read
from weft.ops.stages import accumulator, narrowed, reduced
from weft.support.dtypes import BOOL, FLOAT32, DType

NAME = "scaled_dot_product_attention"


def _infer(attrs: Attrs, *types: Type) -> TensorType:
    query, key, value, *mask = rel.tensors(NAME, types, 3, 4)
    dtype = rel.same_dtype(NAME, (query, key, value))
    rel.want_kind(NAME, query, "float", "the query")
    for t, what in ((query, "query"), (key, "key"), (value, "value")):
        rel.want_rank_at_least(NAME, t, 2, f"the {what}")
        rel.want_rank(NAME, t, query.rank, f"the {what}")
    rel.join_dim(NAME, query.shape[-1], key.shape[-1], "the last dimensions of query and key")
    rel.join_dim(NAME, key.shape[-2], value.shape[-2], "the lengths of key and value")
    batch = query.shape[:-2]
    for t, what in ((key, "key"), (value, "value")):
        for d, (a, b) in enumerate(zip(batch, t.shape[:-2], strict=True)):
            rel.join_dim(NAME, a, b, f"batch dimension {d} of query and {what}")
    if mask:
        if mask[0].dtype not in (BOOL, dtype):
            rel.fail(NAME, f"the mask must be bool or {dtype}, not {mask[0].dtype}", "T011")
        rel.broadcast_onto(NAME, mask[0].shape, (*batch, query.shape[-2], key.shape[-2]), "the mask")
    return TensorType((*batch, query.shape[-2], value.shape[-1]), dtype)


def _scale(attrs: Attrs, width: Any) -> Any:
    if attrs.scale is not None:
        return attrs.scale
    size = rel.simplified(width)
    return usual_scale(size) if isinstance(size, int) else te.rsqrt(te.cast(size, FLOAT32))


def usual_scale(width: int) -> float:
    """That of no width is infinite, as in arithmetic, so that scores are NaN."""
    return 1 / math.sqrt(width) if width else math.inf


def _compute(
    attrs: Attrs, out: TensorType, query: te.Tensor, key: te.Tensor, value: te.Tensor, *mask: te.Tensor
) -> Any:
    wide = accumulator(query.dtype)
    k = te.reduce_axis((0, query.shape[-1]), name="k")
    shape = (*query.shape[:-1], key.shape[-2])
    factor = _scale(attrs, query.shape[-1])

    def product(*i: Expr) -> Expr:
        a, b = query[(*i[:-1], k.var)], key[(*i[:-2], i[-1], k.var)]
        return te.sum(te.cast(a, wide) * te.cast(b, wide), axis=k)

    products = te.compute(shape, product, name="attention_scores")

    def masked(*i: Expr) -> Expr:
        score = products[i] * (te.cast(factor, wide) if isinstance(factor, Expr) else te.const(factor, wide))
        lowest = te.infinity(wide, -1)
        if mask:
            entry = read(mask[0], i, shape)
            score = select(entry, score, lowest) if entry.dtype == BOOL else score + te.cast(entry, wide)
        return select(seen(i), score, lowest) if attrs.causal else score

    def seen(at: Sequence[Any]) -> Expr:
        return make("le", at[-1], at[-2] + index(attrs.offset))

    scores = te.compute(shape, masked, name="attention_masked")
    last, where = (len(shape) - 1,), seen if attrs.causal else None
    top = reduced(scores, last, te.max, where=where, name="attention_max")
    powers = te.compute(shape, lambda *i: exp_nonpositive(scores[i] - top[(*i[:-1], 0)]), name="attention_exp")
    total = reduced(powers, last, te.sum, where=where, name="attention_sum")
    j = te.reduce_axis((0, key.shape[-2]), name="j")

    def mixed(*i: Expr) -> Expr:
        at = (*i[:-1], j.var)
        product = powers[at] / total[(*i[:-1], 0)] * te.cast(value[(*i[:-2], j.var, i[-1])], wide)
        return te.sum(product, axis=j, where=seen(at) if attrs.causal else None)

    return narrowed(te.compute(out.shape, mixed, name="attention"), out.dtype, "attention_narrow")


def _reference(attrs: Attrs, query: Array, key: Array, value: Array, *mask: Array) -> Array:
    q, k, v = (t.astype(np.float64) for t in (query, key, value))
    scores = q @ np.swapaxes(k, -1, -2) * (attrs.scale if attrs.scale is not None else usual_scale(q.shape[-1]))
    if mask:
        scores = np.where(mask[0], scores, -np.inf) if DType(mask[0].dtype) == BOOL else scores + mask[0].astype(float)
    if not attrs.causal:
        return np.asarray(_weighted(scores, v).astype(query.dtype))
    seen = [max(0, i + attrs.offset + 1) for i in range(scores.shape[-2])]
    rows = [_weighted(scores[..., i, None, :n], v[..., :n, :]) for i, n in enumerate(seen)]
    return np.asarray(np.concatenate([v[..., :0, :], *rows], -2).astype(query.dtype))


def _weighted(scores: Array, value: Array) -> Array:
    """The softmax of rows of scores times the values."""
    with np.errstate(all="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        return np.asarray((powers / powers.sum(-1, keepdims=True)) @ value)


def _f(*shape: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return shape, dtype


ATTENTION = OpDef(
    NAME,
    (
        Attribute("causal", False, "whether query i sees only keys and values 0 … i + offset, and no NaN in others"),
        Attribute("offset", 0, "how many keys precede the first query's own, where causal"),
        Attribute("scale", None, "factor of the scores; None means 1 / sqrt(width)"),
    ),
    _infer,
    _reference,
    compute=_compute,
    cases=(
        Case((_f(1, 2, 3, 4), _f(1, 2, 5, 4), _f(1, 2, 5, 3)), {}),
        Case((_f(2, 3, 4), _f(2, 3, 4), _f(2, 3, 4)), {"causal": True, "scale": 0.3}),
        Case((_f(2, 5, 4), _f(2, 3, 4), _f(2, 3, 2)), {"causal": True}),
        Case((_f(1, 3, 4), _f(1, 7, 4), _f(1, 7, 2)), {"causal": True, "offset": 4}),
        Case((_f(1, 2, 3, 4), _f(1, 2, 5, 4), _f(1, 2, 5, 4), _f(1, 1, 3, 5)), {}),
        Case((_f(2, 4), _f(3, 4), _f(3, 4), np.array([[1, 0, 1], [1, 1, 0]], bool)), {}),
    ),
    doc="softmax(query · keyᵀ · scale + mask) · value; operands query, key, value, optional mask (bool or added)",
    source="ONNX Attention-23",
)

ATTENTIONS: tuple[OpDef, ...] = (ATTENTION,)
