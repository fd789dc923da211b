"""Attention, MultiHeadAttention and their quantized and decoding forms."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.common.sizes import decide
from weft.frontends.onnx.converters.contrib.scores import (
    Scores,
    added,
    appended,
    attended,
    causal_hidden,
    filled_bias,
    four_dimensions,
    head_width,
    join_heads,
    mixed,
    padding_hidden,
    scalar_size,
    scores,
    split_heads,
    want_rank,
    weights,
    whole,
)
from weft.frontends.onnx.converters.integers import matmul_integer
from weft.frontends.onnx.converters.numbers import Traced, operand, stack
from weft.frontends.onnx.node import Node, Result
from weft.graph.types import Dim

FILLER = -10000.0


def _scale(node: Node) -> float | None:
    scale = node.real("scale", 0.0)
    return scale or None


def _given(node: Node, i: int) -> Traced | None:
    return operand(node, i) if node.has(i) else None


def _masking(
    node: Node, mask: Traced | None, bias: Traced | None, batch: Dim, queries: Dim, keys: Dim, like: Traced
) -> Traced | None:
    """The masks and biases that are added to the scores."""
    hidden = []
    if mask is not None:
        hidden.append(padding_hidden(mask, batch, keys))
    if node.flag("unidirectional"):
        hidden.append(causal_hidden(node, queries, keys))
    filler = node.real("mask_filter_value", FILLER)
    made = filled_bias(hidden, filler, like.dtype) if hidden else None
    return added(made, None if bias is None else four_dimensions(bias))


def _self_attention(node: Node, projected: Traced, mask: int, past: int, bias: int, filled: int) -> Result:
    """Self-attention; ``projected`` has queries, keys and values concatenated.

    The other arguments are the operand numbers of the mask, the past, the bias of scores and the number of filled
    positions."""
    if node.flag("do_rotary"):
        raise Unsupported("its attribute 'do_rotary' is not supported; RotaryEmbedding and MultiHeadAttention are")
    want_rank(projected, (3,), "input")
    heads = node.integer("num_heads")
    sizes = node.integers("qkv_hidden_sizes", ())
    total = whole(projected.shape[2], "the hidden size")
    if not sizes:
        sizes = (total // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != total or sizes[0] != sizes[1]:
        raise Malformed(f"its projection to {total} does not split into queries, keys and values of {list(sizes)}")
    ends = (0, sizes[0], sizes[0] + sizes[1], total)
    query, key, value = (split_heads(projected.part(2, a, b), heads) for a, b in itertools.pairwise(ends))
    earlier = _given(node, past)
    share = node.flag("past_present_share_buffer") and earlier is not None
    taken = scalar_size(node, filled, "past_sequence_length") if share else None
    states = [None, None] if earlier is None else [earlier.part(0, 0), earlier.part(0, 1)]
    (keys, kept_keys), (values, kept_values) = (
        appended(p, n, taken) for p, n in zip(states, (key, value), strict=True)
    )
    batch, _, queries, _ = query.shape
    made = _masking(node, _given(node, mask), _given(node, bias), batch, queries, keys.shape[2], query)
    result = join_heads(attended(query, keys, values, Scores(_scale(node), made)))
    if node.output_count < 2:
        return result.x
    return result.x, stack((kept_keys, kept_values), 0).x


def _attention(node: Node) -> Result:
    x, projection = operand(node, 0), operand(node, 1)
    want_rank(x, (3,), "input")
    projected = x.call("matmul", projection)
    if node.has(2):
        projected = projected + operand(node, 2)
    return _self_attention(node, projected, mask=3, past=4, bias=5, filled=6)


def _quantized_attention(node: Node) -> Result:
    """QAttention: the projection in integers."""
    bias, scale, column_scale = operand(node, 2), operand(node, 3), operand(node, 4)
    product = Traced(node, matmul_integer(node, 0, 1, 6, 7)).to(bias.dtype)
    factor = scale.reshape() * column_scale.reshape(*(d for d in column_scale.shape if d != 1))
    return _self_attention(node, product * factor + bias, mask=5, past=8, bias=99, filled=99)


def _inputs(node: Node) -> tuple[Traced, Traced, Traced]:
    """Queries, keys and values of MultiHeadAttention by head, with their biases."""
    heads, query = node.integer("num_heads"), operand(node, 0)
    want_rank(query, (3, 5), "query")
    if len(query.shape) == 5 and not node.has(1):
        parts = [_packed(query, i) for i in range(3)]
    elif node.has(1) and len(operand(node, 1).shape) == 5:
        both = operand(node, 1)
        parts = [split_heads(query, heads), _packed(both, 0), _packed(both, 1)]
    else:
        parts = [split_heads(query, heads), *(_by_head(operand(node, i), heads) for i in (1, 2))]
    if node.has(3):
        parts = _biased(node, parts, heads, 3)
    return parts[0], parts[1], parts[2]


def _packed(x: Traced, i: int) -> Traced:
    """Queries, keys or values, by head, from [batch, length, heads, 2 or 3, width]."""
    return x.part(3, i).transpose(0, 2, 1, 3)


def _by_head(x: Traced, heads: int) -> Traced:
    return x if len(x.shape) == 4 else split_heads(x, heads)


def _biased(node: Node, parts: list[Traced], heads: int, i_bias: int) -> list[Traced]:
    """The parts with the bias of the input projections; keys of an encoder (four dimensions) already include it."""
    bias, start, out = operand(node, i_bias), 0, []
    for i, part in enumerate(parts):
        width = whole(part.shape[3], "the size of a head")
        end = start + heads * width
        if i and node.has(i) and len(operand(node, i).shape) == 4:
            out.append(part)
        else:
            out.append(part + bias.part(0, start, end).reshape(1, heads, 1, width))
        start = end
    return out


def _multi_head(node: Node) -> Result:
    query, key, value = _inputs(node)
    if node.has(9):
        raise Unsupported("its input 'cache_indirection' (beam search) is not supported; reorder the states before")
    past = _given(node, 6), _given(node, 7)
    if (past[0] is None) != (past[1] is None):
        raise Malformed("it needs past_key and past_value together")
    taken = scalar_size(node, 8, "past_sequence_length") if node.has(8) and past[0] is not None else None
    return _decoded(node, query, (key, value), past, taken, (4, 5))


def _decoded(
    node: Node,
    query: Traced,
    new: tuple[Traced, Traced],
    past: tuple[Traced | None, Traced | None],
    taken: Dim | None,
    masks: tuple[int, int],
) -> Result:
    """The outputs of MultiHeadAttention: result, states, scores."""
    (keys, kept_keys), (values, kept_values) = (appended(p, n, taken) for p, n in zip(past, new, strict=True))
    batch, _, queries, _ = query.shape
    mask, bias = (_given(node, i) for i in masks)
    if mask is not None and len(mask.shape) == 2 and decide("eq", mask.shape[1], keys.shape[2]) is False:
        raise Malformed(f"its key padding mask {mask.x.tensor} must cover all {keys.shape[2]} keys, past ones included")
    how = Scores(_scale(node), _masking(node, mask, bias, batch, queries, keys.shape[2], query))
    if node.output_count < 4:
        return join_heads(attended(query, keys, values, how)).x, kept_keys.x, kept_values.x
    made = scores(query, keys, how)
    result = join_heads(mixed(weights(made, how), values))
    return result.x, kept_keys.x, kept_values.x, made.to(query.dtype).x


def _decoder(node: Node) -> Result:
    """DecoderMaskedMultiHeadAttention: one new token; the states are in a buffer."""
    if node.has(9):
        raise Unsupported("its input 'cache_indirection' (beam search) is not supported; reorder the states before")
    heads, query = node.integer("num_heads"), operand(node, 0)
    want_rank(query, (3,), "query")
    if not node.has(1):
        width = head_width(query.shape[2], 3 * heads) * heads
        parts = [split_heads(query.part(2, i * width, (i + 1) * width), heads) for i in range(3)]
    else:
        parts = [split_heads(query, heads), *(_by_head(operand(node, i), heads) for i in (1, 2))]
    if node.has(10):
        parts = _biased(node, parts, heads, 10)
    past = _given(node, 5), _given(node, 6)
    share = node.flag("past_present_share_buffer") and past[0] is not None
    taken = scalar_size(node, 7, "past_sequence_length") if share else None
    return _decoded(node, parts[0], (parts[1], parts[2]), past, taken, (3, 4))


ATTENTION: dict[str, Callable[[Node], Result]] = {
    "Attention": _attention,
    "DecoderMaskedMultiHeadAttention": _decoder,
    "MultiHeadAttention": _multi_head,
    "QAttention": _quantized_attention,
}
