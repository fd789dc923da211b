"""GroupQueryAttention: several heads of queries share one head of keys; a buffer holds the states of each sequence.

A batch entry has seqlens_k + 1 keys: first those in the buffer, then the new ones. Rows of new tokens after that end
(padding of a first prompt) are undefined.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.common.sizes import arithmetic, product
from weft.frontends.onnx.converters.contrib.rotary import turned
from weft.frontends.onnx.converters.contrib.scores import (
    Scores,
    attended,
    counted,
    four_dimensions,
    head_width,
    join_heads,
    mixed,
    number,
    scalar_size,
    scores,
    want_rank,
    weights,
    whole,
)
from weft.frontends.onnx.converters.index_range import checked
from weft.frontends.onnx.converters.numbers import Traced, operand
from weft.frontends.onnx.node import Node, Result
from weft.graph.types import Dim
from weft.support.dtypes import FLOAT32, INT64, DType

QUERY, KEY, VALUE, PAST_KEY, PAST_VALUE, LENGTHS, TOTAL, COS = range(8)
SIN, POSITIONS, BIAS, SINK, K_SCALE, V_SCALE, Q_NORM, K_NORM = range(8, 16)
"""Operands by number."""


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """The storage of a state: floats, or integers with a scale."""

    dtype: str
    scale: Traced | None

    def packed(self, x: Traced) -> Traced:
        """[batch, length, heads, width] in stored form."""
        if self.scale is None:
            return x.to(self.dtype)
        low, high = DType(self.dtype).limits()
        value = x.to(FLOAT32) / _by_channel(self.scale)
        whole_numbers = value.call("round") if self.dtype in ("int8", "uint8") else value
        return whole_numbers.limited(low, high).to(self.dtype)

    def plain(self, x: Traced, dtype: str) -> Traced:
        """[batch, heads, length, width] as floats, from stored form."""
        if self.scale is None:
            return x.to(dtype)
        scale = self.scale.reshape() if _single(self.scale) else self.scale
        return (x.to(FLOAT32) * scale).to(dtype)


def _single(scale: Traced) -> bool:
    return all(d == 1 for d in scale.shape)


def _by_channel(scale: Traced) -> Traced:
    """A scale of [1, heads, 1, width] for a tensor of [batch, length, heads, width]."""
    return scale.reshape() if _single(scale) else scale.transpose(0, 2, 1, 3)


def _split(node: Node) -> list[Traced]:
    """Queries, keys and values: [batch, length, heads, width] each."""
    heads, shared = node.integer("num_heads"), node.integer("kv_num_heads")
    query = operand(node, QUERY)
    want_rank(query, (3,), "query")
    hidden = query.shape[2]
    if heads < 1 or shared < 1 or heads % shared:
        raise Malformed(f"its {heads} heads do not divide into groups for {shared} heads of keys")
    if not node.has(KEY):
        width = head_width(hidden, heads + 2 * shared)
        ends = (0, heads * width, (heads + shared) * width, (heads + 2 * shared) * width)
        parts = [query.part(2, a, b) for a, b in itertools.pairwise(ends)]
    else:
        parts = [query, operand(node, KEY), operand(node, VALUE)]
        width = head_width(hidden, heads)
    out = []
    for part, count in zip(parts, (heads, shared, shared), strict=True):
        want_rank(part, (3,), "key or value")
        out.append(part.reshape(part.shape[0], part.shape[1], count, head_width(part.shape[2], count)))
    if any(p.shape[3] != width for p in out):
        raise Malformed(f"its heads of queries, keys and values have the sizes {[p.shape[3] for p in out]}")
    return out


def _normed(node: Node, x: Traced, i: int) -> Traced:
    """Root-mean-square normalization of each head, if a weight is given."""
    if not node.has(i):
        return x
    made = x.call("rms_norm", operand(node, i), axis=-1, epsilon=node.real("qk_norm_epsilon", 1e-6))
    return made


def _positions(node: Node, before: Traced, length: Dim, total: Dim) -> Traced:
    """The position of each new token: [batch, length]. In a first prompt only the first given position is used."""
    steps = counted(node, length).reshape(1, length)
    if not node.has(POSITIONS):
        return before + steps
    given = operand(node, POSITIONS)
    want_rank(given, (2,), "position_ids")
    if given.shape == (1, 1) and length != 1:
        return given + steps
    first = given.reshape(-1).part(0, 0, 1).reshape(1, 1) + steps
    is_first = number(node, total).equals(number(node, length))
    return is_first.choose(first.expand(*given.shape), given)


def _buffered(past: Traced | None, new: Traced, before: Traced, capacity: Dim, how: Stored) -> Traced:
    """The state [batch, heads, capacity, width]: the past, with new tokens at position ``before`` of each entry."""
    node, (batch, length, heads, width) = new.node, new.shape
    stored = how.packed(new)
    place = counted(node, capacity).reshape(1, capacity) - before
    source = place.limited(0, number(node, arithmetic("sub", length, 1))).reshape(batch, capacity, 1)
    flat = stored.reshape(batch, length, product([heads, width]))
    spread = flat.call("gather_nd", source, batch_dims=1).reshape(batch, capacity, heads, width).transpose(0, 2, 1, 3)
    if past is None:
        return spread
    kept = past
    if past.shape[2] != capacity:
        more = arithmetic("sub", capacity, past.shape[2])
        kept = past.call("pad", pads=(0, 0, 0, 0, 0, 0, more, 0), mode="constant", value=0)
    is_new = (place >= 0) & (place < number(node, length))
    return is_new.reshape(batch, 1, capacity, 1).choose(spread, kept)


def _visible(node: Node, before: Traced, ends: Traced, length: Dim, total: Dim) -> Traced:
    """Whether a key is visible to a query: bool [batch, 1, queries, keys]"""
    batch = ends.shape[0]
    key = counted(node, total).reshape(1, 1, 1, total)
    seen = key < ends.reshape(batch, 1, 1, 1)
    window = node.integer("local_window_size", -1)
    row = counted(node, length).reshape(1, 1, length, 1) + before.reshape(batch, 1, 1, 1)
    if node.flag("causal", True):
        seen = seen & (key <= row)
        if window > 0:
            seen = seen & (key > row - window)
    elif window != -1:
        raise Malformed("its attribute 'local_window_size' needs causal attention")
    return seen


def _stores(node: Node) -> tuple[Stored, Stored]:
    made = []
    for i, scale, name in ((PAST_KEY, K_SCALE, "k_quant_type"), (PAST_VALUE, V_SCALE, "v_quant_type")):
        kind = node.text(name, "NONE")
        dtype = node.dtype(i) if node.has(i) else node.dtype(QUERY)
        if kind not in ("NONE", "PER_TENSOR", "PER_CHANNEL"):
            raise Malformed(f"its attribute '{name}' is '{kind}', not NONE, PER_TENSOR or PER_CHANNEL")
        if kind != "NONE" and node.integer("kv_cache_bit_width", 8) != 8:
            raise Unsupported("its attribute 'kv_cache_bit_width' is not 8; states must be floats or have 8 bits")
        made.append(Stored(dtype, operand(node, scale) if kind != "NONE" else None))
    return made[0], made[1]


def _group_query(node: Node) -> Result:
    if node.flag("sliding_window_cache"):
        raise Unsupported(
            "its attribute 'sliding_window_cache' is not supported; use a whole buffer with local_window_size"
        )
    query, key, value = _split(node)
    batch, length, _, _ = query.shape
    total = scalar_size(node, TOTAL, "total_sequence_length")
    last = checked(operand(node, LENGTHS), LENGTHS, total)
    ends = last.to(INT64).reshape(batch, 1) + 1
    before = (ends - number(node, key.shape[1])).call("maximum", 0)
    query, key = _normed(node, query, Q_NORM), _normed(node, key, K_NORM)
    if node.flag("do_rotary"):
        places = _positions(node, before, length, total)
        cos, sin = (operand(node, i) for i in (COS, SIN))
        node.importer.assume("le", total, cos.shape[0], f"{node.name}: its total_sequence_length")
        if node.has(POSITIONS):  # computed positions are always in range
            places = checked(places, POSITIONS, cos.shape[0])
        cos, sin = (t.call("gather", places, axis=0) for t in (cos, sin))
        query, key = (turned(x, cos, sin, interleaved=node.flag("rotary_interleaved")) for x in (query, key))
    past = [operand(node, i) if node.has(i) else None for i in (PAST_KEY, PAST_VALUE)]
    capacity = total if past[0] is None else arithmetic("max", total, past[0].shape[2])
    stores = _stores(node)
    states = [_buffered(p, n, before, capacity, how) for p, n, how in zip(past, (key, value), stores, strict=True)]
    keys, values = (
        how.plain(s if total == capacity else s.part(2, 0, total), query.dtype)
        for s, how in zip(states, stores, strict=True)
    )
    how = Scores(
        node.real("scale", 0.0) or None,
        bias=four_dimensions(operand(node, BIAS)) if node.has(BIAS) else None,
        keep=_visible(node, before, ends, length, total),
        softcap=node.real("softcap", 0.0),
        sink=_sink(node, query),
    )
    return _results(node, query.transpose(0, 2, 1, 3), keys, values, how, states)


def _sink(node: Node, query: Traced) -> Traced | None:
    if node.has(SINK):
        return operand(node, SINK)
    if node.integer("smooth_softmax", -1) == 1:
        heads = whole(query.shape[2], "the number of heads")
        return Traced(node, node.constant([0.0] * heads, FLOAT32))
    return None


def _results(node: Node, query: Traced, keys: Traced, values: Traced, how: Scores, states: list[Traced]) -> Result:
    kept = tuple(s.x for s in states)
    kind = node.integer("qk_output", 0)
    if kind not in (0, 1, 2):
        raise Malformed(f"its attribute 'qk_output' is {kind}, not 0, 1 or 2")
    if node.output_count < 4 or not kind:
        return (join_heads(attended(query, keys, values, how)).x, *kept)
    made = scores(query, keys, how)
    by = weights(made, how)
    return (join_heads(mixed(by, values)).x, *kept, (made if kind == 1 else by).to(query.dtype).x)


GROUP_QUERY: dict[str, Callable[[Node], Result]] = {"GroupQueryAttention": _group_query}
