"""Attention for the operators of com.microsoft: heads, all kinds of masks, capped scores, sinks, states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.common.sizes import arithmetic, product
from weft.frontends.onnx.converters.numbers import Traced, constant, size
from weft.frontends.onnx.node import Node
from weft.graph.types import Dim
from weft.support.dtypes import FLOAT32, INT64, DType


def whole(d: Dim, what: str) -> int:
    """A size that must be known. Raises Unsupported."""
    if not isinstance(d, int):
        raise Unsupported(f"{what} must be known when the model is compiled, but is {d}")
    return d


def want_rank(t: Traced, ranks: Sequence[int], what: str) -> None:
    """Raise Malformed if ``t`` has another number of dimensions."""
    if len(t.shape) not in ranks:
        raise Malformed(f"its input '{what}' is {t.x.tensor}; it must have {' or '.join(map(str, ranks))} dimensions")


def counted(node: Node, count: Dim, start: Dim = 0) -> Traced:
    """The int64 vector start, start + 1, …"""
    return Traced(node, node.call("arange", start=start, count=count, dtype=INT64))


def split_heads(x: Traced, heads: int) -> Traced:
    """[batch, length, heads · width] → [batch, heads, length, width]. Raises Malformed if it does not divide."""
    batch, length, hidden = x.shape
    return x.reshape(batch, length, heads, head_width(hidden, heads)).transpose(0, 2, 1, 3)


def head_width(hidden: Dim, heads: int) -> int:
    """The size of one head. Raises Malformed if the heads do not divide the hidden size."""
    total = whole(hidden, "the hidden size")
    if heads < 1 or total % heads:
        raise Malformed(f"its hidden size {total} does not divide into {heads} heads")
    return total // heads


def join_heads(x: Traced) -> Traced:
    """[batch, heads, length, width] → [batch, length, heads · width]"""
    batch, heads, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, product([heads, width]))


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """How scores become weights.

    ``scale`` None means 1 / sqrt(width). ``bias`` is added; where ``keep`` (bool) is false, the weight of a key is 0.
    Both have four dimensions and broadcast to [batch, heads, queries, keys]. ``softcap`` > 0 first limits scores to
    ±softcap. ``sink`` ([heads]) is an additional score, whose weight is dropped.
    """

    scale: float | None = None
    bias: Traced | None = None
    keep: Traced | None = None
    softcap: float = 0.0
    sink: Traced | None = None

    @property
    def plain(self) -> bool:
        return self.softcap == 0 and self.sink is None


def attended(query: Traced, key: Traced, value: Traced, how: Scores) -> Traced:
    """Weighted means of values. The key has as many heads as the query, or one head for each group of query heads."""
    node, heads, shared = query.node, whole(query.shape[1], "the number of heads"), whole(key.shape[1], "key heads")
    if heads % shared:
        raise Malformed(f"its {heads} heads do not divide into groups for {shared} heads of keys")
    if not how.plain:
        return mixed(weights(scores(query, key, how), how), value)
    group = heads // shared
    batch, _, length, width = query.shape
    rows = product([group, length])
    folded = query.reshape(batch, shared, rows, width)
    mask = _combined(how)
    operands = [folded.x, key.x, value.x]
    if mask is not None:
        operands.append(_grouped(mask, shared, group, length, key.shape[2]).x)
    made = node.call("scaled_dot_product_attention", *operands, causal=False, scale=how.scale)
    return Traced(node, made).reshape(batch, heads, length, value.shape[3])


def _combined(how: Scores) -> Traced | None:
    """Bias and mask combined."""
    if how.bias is None or how.keep is None:
        return how.bias if how.keep is None else how.keep
    return how.keep.choose(how.bias, -math.inf)


def _grouped(mask: Traced, shared: int, group: int, queries: Dim, keys: Dim) -> Traced:
    """A mask over [batch, heads, queries, keys] for queries whose groups of heads are rows of one head."""
    if group == 1:
        return mask
    batch, heads, rows, columns = mask.shape
    if heads == 1:
        raised = mask.reshape(batch, 1, 1, rows, columns).expand(batch, 1, group, queries, columns)
        return raised.reshape(batch, 1, product([group, queries]), columns)
    raised = mask.expand(batch, heads, queries, columns)
    return raised.reshape(batch, shared, product([group, queries]), columns)


def repeated(x: Traced, heads: int) -> Traced:
    """Each head of keys or values for all heads of queries that share it."""
    batch, shared, length, width = x.shape
    group = heads // whole(shared, "the number of heads of keys")
    if group == 1:
        return x
    return x.reshape(batch, shared, 1, length, width).expand(batch, shared, group, length, width).reshape(
        batch, heads, length, width
    )  # fmt: skip


def scores(query: Traced, key: Traced, how: Scores) -> Traced:
    """query · keyᵀ, scaled, capped, biased and masked, in float32: [batch, heads, queries, keys]"""
    wide = query.to(FLOAT32), repeated(key, whole(query.shape[1], "the number of heads")).to(FLOAT32)
    scale = how.scale if how.scale is not None else 1 / math.sqrt(whole(query.shape[3], "the size of a head"))
    made = wide[0].call("matmul", wide[1].transpose(0, 1, 3, 2)) * scale
    if how.softcap > 0:
        made = (made * (1 / how.softcap)).call("tanh") * how.softcap
    if how.bias is not None:
        made = made + how.bias.to(FLOAT32)
    return made if how.keep is None else how.keep.choose(made, -math.inf)


def weights(made: Traced, how: Scores) -> Traced:
    """Scores → weights."""
    if how.sink is None:
        return made.call("softmax", axis=-1)
    sink = how.sink.to(FLOAT32).reshape(1, how.sink.shape[0], 1, 1)
    top = made.call("reduce_max", axes=(-1,), keepdims=True).call("maximum", sink)
    powers = (made - top).call("exp")
    total = powers.call("reduce_sum", axes=(-1,), keepdims=True) + (sink - top).call("exp")
    return powers / total


def mixed(by: Traced, value: Traced) -> Traced:
    """Values weighted, in their dtype."""
    values = repeated(value, whole(by.shape[1], "the number of heads"))
    return by.call("matmul", values.to(FLOAT32)).to(value.dtype)


# --- masks ------------------------------------------------------------------------------------------------------------


def causal_hidden(node: Node, queries: Dim, keys: Dim) -> Traced:
    """Where a key comes after the query, with the last query beside the last key: bool [1, 1, queries, keys]"""
    row = counted(node, queries, arithmetic("sub", keys, queries)).reshape(queries, 1)
    return (counted(node, keys).reshape(1, keys) > row).reshape(1, 1, queries, keys)


def padding_hidden(mask: Traced, batch: Dim, keys: Dim) -> Traced:
    """True where a mask of numbers hides a key: bool that broadcasts to [batch, heads, queries, keys].

    The shape of the mask says what it contains. [batch, keys] and [batch, queries, keys]: 0 for hidden keys.
    [batch]: the number of visible keys of each entry. [2 · batch]: these numbers, then the first visible key of each
    entry. [3 · batch + 2]: it begins with the numbers of visible keys.
    """
    node = mask.node
    if len(mask.shape) == 4:
        raise Unsupported(
            "masks of four dimensions are not supported; use a mask of [batch, queries, keys] or an attention_bias"
        )
    if len(mask.shape) == 3:
        return (mask <= 0).call("unsqueeze", axes=(1,))
    if len(mask.shape) == 2:
        return (mask <= 0).call("unsqueeze", axes=(1, 2))
    place = counted(node, keys).reshape(1, keys)
    whole_batch, entries = whole(batch, "the batch"), whole(mask.shape[0], "the length of the mask")
    if entries not in (whole_batch, 2 * whole_batch, 3 * whole_batch + 2):
        raise Malformed(f"its mask {mask.x.tensor} does not fit a batch of {whole_batch}")
    ends = mask.part(0, 0, whole_batch).to(INT64).reshape(batch, 1)
    hidden = place >= ends
    if entries == 2 * whole_batch:
        starts = mask.part(0, whole_batch, entries).to(INT64).reshape(batch, 1)
        hidden = hidden.call("logical_or", place < starts)
    return hidden.reshape(batch, 1, 1, keys)


def filled_bias(hidden: Sequence[Traced], filler: float, dtype: str) -> Traced:
    """The bias that masks add to scores: ``filler`` for each mask that hides the key, within the range of ``dtype``."""
    limits = DType(dtype).limits()
    value = float(np.clip(filler, *limits))
    total = hidden[0].to(FLOAT32) * value
    for other in hidden[1:]:
        total = (total + other.to(FLOAT32) * value).limited(*limits)
    return total.to(dtype)


def added(one: Traced | None, other: Traced | None) -> Traced | None:
    """The sum of two terms that may be absent."""
    if one is None or other is None:
        return one if other is None else other
    return one + other


def four_dimensions(bias: Traced) -> Traced:
    """An attention bias, which must have four dimensions."""
    want_rank(bias, (4,), "attention_bias")
    return bias


# --- states -----------------------------------------------------------------------------------------------------------


def appended(past: Traced | None, new: Traced, filled: Dim | None = None) -> tuple[Traced, Traced]:
    """Keys or values of earlier runs followed by the new ones, and the state for the next run.

    Without ``filled`` the state is the past followed by the new ones. With ``filled``, ``past`` is a buffer whose first
    ``filled`` places are used; the state is the buffer with the new ones after these places.
    """
    if past is None:
        return new, new
    want_rank(past, (4,), "past")
    if filled is None:
        joined = past.call("concat", new, axis=2)
        return joined, joined
    end = arithmetic("add", filled, new.shape[2])
    used = past.part(2, 0, filled).call("concat", new, axis=2)
    return used, used.call("concat", past.part(2, end, past.shape[2]), axis=2)


def scalar_size(node: Node, i: int, what: str) -> Dim:
    """Operand ``i``, one number, as a size."""
    found = node.dims(i, what)
    if len(found) != 1:
        raise Malformed(f"its input '{what}' holds {len(found)} numbers, not one")
    return found[0]


def number(node: Node, d: Dim) -> Traced:
    """A size as an int64 tensor without dimensions."""
    made = size(node, d, INT64)
    return made if isinstance(made, Traced) else constant(node, made, INT64)
