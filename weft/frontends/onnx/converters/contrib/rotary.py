"""Rotary position embeddings: pairs of elements are rotated by angles that grow with the position in the sequence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.frontends.common.problems import Malformed
from weft.frontends.onnx.converters.contrib.scores import counted, head_width, want_rank, whole
from weft.frontends.onnx.converters.index_range import checked
from weft.frontends.onnx.converters.numbers import Traced, constant, operand, stack
from weft.frontends.onnx.node import Node, Result
from weft.support.dtypes import FLOAT32, INT64


def turned(x: Traced, cos: Traced, sin: Traced, *, interleaved: bool) -> Traced:
    """``x`` [batch, length, heads, width] with its first elements rotated in pairs; ``cos`` and ``sin`` are [batch or
    1, length, pairs]. The elements of a pair are adjacent (``interleaved``) or half the rotated width apart."""
    batch, length, heads, width = x.shape
    pairs = whole(cos.shape[-1], "the number of turned pairs")
    if 2 * pairs > whole(width, "the size of a head"):
        raise Malformed(f"it turns {pairs} pairs, but a head holds {width} numbers")
    c, s = (t.to(FLOAT32).call("unsqueeze", axes=(2,)) for t in (cos, sin))
    front = x.part(3, 0, 2 * pairs).to(FLOAT32)
    if interleaved:
        split = front.reshape(batch, length, heads, pairs, 2)
        a, b = split.part(4, 0), split.part(4, 1)
        made = stack((a * c - b * s, b * c + a * s)).reshape(batch, length, heads, 2 * pairs)
    else:
        a, b = front.part(3, 0, pairs), front.part(3, pairs, 2 * pairs)
        made = (a * c - b * s).call("concat", b * c + a * s, axis=3)
    made = made.to(x.dtype)
    return made if 2 * pairs == width else made.call("concat", x.part(3, 2 * pairs, width), axis=3)


def _by_place(node: Node, cos: Traced) -> tuple[Traced, bool]:
    """The input as [batch, length, heads, width], and whether heads precede the length in it."""
    x = operand(node, 0)
    want_rank(x, (3, 4), "input")
    if len(x.shape) == 4:
        return x.transpose(0, 2, 1, 3), True
    batch, length, hidden = x.shape
    heads = node.integer("num_heads", 0)
    width = head_width(hidden, heads) if heads else 2 * whole(cos.shape[1], "the width of cos_cache")
    total = whole(hidden, "the hidden size")
    if total % width:
        raise Malformed(f"its hidden size {total} does not divide into heads of {width}")
    return x.reshape(batch, length, total // width, width), False


def _turn(node: Node, cos: Traced, sin: Traced, places: Traced) -> Result:
    x, heads_first = _by_place(node, cos)
    rotary = node.integer("rotary_embedding_dim", 0)
    if rotary and cos.shape[-1] != rotary // 2:
        raise Malformed(f"its attribute 'rotary_embedding_dim' is {rotary}, but cos_cache is {cos.x.tensor}")
    if not rotary and 2 * whole(cos.shape[-1], "the width of cos_cache") != x.shape[3]:
        raise Malformed(f"its cos_cache {cos.x.tensor} must cover half a head of {x.shape[3]}")
    places = checked(places, 1, cos.shape[0])
    c, s = (t.call("gather", places, axis=0) for t in (cos, sin))
    made = turned(x, c, s, interleaved=node.flag("interleaved"))
    return made.transpose(0, 2, 1, 3).x if heads_first else made.reshape(*operand(node, 0).shape).x


def _tables(node: Node) -> tuple[Traced, Traced]:
    cos, sin = operand(node, 2), operand(node, 3)
    want_rank(cos, (2,), "cos_cache")
    want_rank(sin, (2,), "sin_cache")
    return cos, sin


def _rotary(node: Node) -> Result:
    """RotaryEmbedding. A single position is that of the first token; otherwise there is one for each token."""
    cos, sin = _tables(node)
    x, positions = operand(node, 0), operand(node, 1)
    if len(positions.shape) < 2:
        length = x.shape[2 if len(x.shape) == 4 else 1]
        positions = positions.reshape(1, 1) + counted(node, length).reshape(1, length)
    return _turn(node, cos, sin, positions)


def _sectioned(node: Node) -> Result:
    """MRotaryEmbedding: each pair uses the position from one of three streams (time, height, width)."""
    cos, sin = _tables(node)
    positions, pairs = operand(node, 1), whole(cos.shape[1], "the width of cos_cache")
    want_rank(positions, (3,), "position_ids")
    sections = node.integers("mrope_section")
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != pairs:
        raise Malformed(f"its attribute 'mrope_section' is {list(sections)}; it must split {pairs} pairs in three")
    stream = np.repeat(np.arange(3), sections)
    if node.integer("mrope_layout", 0) == 1:
        stream = np.zeros(pairs, np.int64)
        for i in (1, 2):
            stream[i : 3 * sections[i] : 3] = i
    x, heads_first = _by_place(node, cos)
    positions = checked(positions, 1, cos.shape[0])
    tables = []
    for table in (cos, sin):
        rows = table.call("gather", positions, axis=0)
        chosen = constant(node, stream, INT64).reshape(1, 1, 1, pairs).expand(1, *rows.shape[1:])
        tables.append(rows.call("gather_elements", chosen, axis=0).reshape(*rows.shape[1:]))
    made = turned(x, *tables, interleaved=node.flag("interleaved"))
    return made.transpose(0, 2, 1, 3).x if heads_first else made.reshape(*operand(node, 0).shape).x


def _gemma(node: Node) -> Result:
    """x · cos(angles) + rotated x · sin(angles), for queries and for keys."""
    angles = operand(node, 0).call("unsqueeze", axes=(1,))
    out = []
    for i in (1, 3):
        plain, turned_by = operand(node, i), operand(node, i + 1)
        cos, sin = (angles.call(f).to(plain.dtype) for f in ("cos", "sin"))
        out.append((plain * cos + turned_by * sin).x)
    return tuple(out)


ROTARY: dict[str, Callable[[Node], Result]] = {
    "GemmaRotaryEmbedding": _gemma,
    "MRotaryEmbedding": _sectioned,
    "RotaryEmbedding": _rotary,
}
