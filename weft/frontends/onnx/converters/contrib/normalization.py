"""Normalizations fused with other operators: embeddings, skip connections, groups, gates, branches."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontends.common.problems import Malformed
from weft.frontends.onnx.converters.contrib.channels_last import channels_first, in_channels_first
from weft.frontends.onnx.converters.contrib.scores import want_rank, whole
from weft.frontends.onnx.converters.index_range import checked
from weft.frontends.onnx.converters.normalization import MICROSOFT_NORMALIZATION
from weft.frontends.onnx.converters.numbers import Traced, operand
from weft.frontends.onnx.node import Node, Result
from weft.support.dtypes import FLOAT32


def _words(node: Node, mask: Traced | None, rows: Traced) -> Traced:
    """The number of non-zero elements in each row of a mask; zeros without a mask."""
    if mask is None:
        return Traced(node, node.constant(0, "int32")).expand(rows.shape[0])
    return mask.call("not_equal", 0).to("int32").call("reduce_sum", axes=(1,), keepdims=False)


def _embedded(node: Node, ids: Traced, word: Traced, position: Traced, places: Traced | None) -> Traced:
    """Word and position embeddings added."""
    want_rank(ids, (2,), "input_ids")
    total = word.call("gather", checked(ids, 0, word.shape[0]), axis=0)
    if places is None:
        node.importer.assume("le", ids.shape[1], position.shape[0], f"{node.name}: the length of its input_ids")
        return total + position.part(0, 0, ids.shape[1])
    return total + position.call("gather", checked(places, 8, position.shape[0]), axis=0)


def _embed_norm(node: Node) -> Result:
    ids = operand(node, 0)
    places = operand(node, 8) if node.has(8) else None
    total = _embedded(node, ids, operand(node, 2), operand(node, 3), places)
    if node.has(1) and node.has(4):
        segments = operand(node, 4)
        total = total + segments.call("gather", checked(operand(node, 1), 1, segments.shape[0]), axis=0)
    made = total.call("layer_norm", operand(node, 5), operand(node, 6), axis=-1, epsilon=node.real("epsilon", 1e-12))
    return made.x, _words(node, operand(node, 7) if node.has(7) else None, ids).x, total.x


def _quantized_embed_norm(node: Node) -> Result:
    """Tables and parameters of 8 bits: data 2 … 6, scales 8 … 12, zero points 13 … 17."""

    def table(i: int) -> Traced:
        values, scale, zero = operand(node, 2 + i), operand(node, 8 + i), operand(node, 13 + i)
        return (values.to(FLOAT32) - zero.to(FLOAT32).reshape()) * scale.reshape()

    ids = operand(node, 0)
    total = _embedded(node, ids, table(0), table(1), None)
    if node.has(1):
        segments = table(2)
        total = total + segments.call("gather", checked(operand(node, 1), 1, segments.shape[0]), axis=0)
    made = total.call("layer_norm", table(3), table(4), axis=-1, epsilon=node.real("epsilon", 1e-12))
    return made.x, _words(node, operand(node, 7) if node.has(7) else None, ids).x


def _grouped(node: Node, x: Traced) -> Traced:
    """The normalization of GroupNorm with its activation."""
    last = node.flag("channels_last", True)
    first = channels_first(x) if last else x
    scale, shift = (operand(node, i).to(x.dtype) for i in (1, 2))
    groups, epsilon = node.integer("groups"), node.real("epsilon", 1e-5)
    made = first.call("group_norm", scale, shift, num_groups=groups, epsilon=epsilon)
    activation = node.integer("activation")
    if activation not in (0, 1):
        raise Malformed(f"its attribute 'activation' is {activation}, not 0 (none) or 1 (SiLU)")
    made = made.call("silu") if activation else made
    return in_channels_first(made) if last else made


def _group_norm(node: Node) -> Result:
    return _grouped(node, operand(node, 0)).x


def _skip_group_norm(node: Node) -> Result:
    x, skip = operand(node, 0), operand(node, 3)
    last, rank = node.flag("channels_last", True), len(x.shape)
    if len(skip.shape) == 2:
        ones = (1,) * (rank - 2)
        skip = skip.reshape(skip.shape[0], *ones, skip.shape[1]) if last else skip.reshape(*skip.shape, *ones)
    total = x + skip
    if node.has(4):
        bias = operand(node, 4)
        total = total + (bias if last else bias.reshape(*bias.shape, *(1,) * (rank - 2)))
    return _grouped(node, total).x, total.x


def _gated_rms(node: Node) -> Result:
    """Normalizes groups of adjacent elements, as many as there are scales, and multiplies them with gates."""
    x, scale, gate = (operand(node, i).to(FLOAT32) for i in range(3))
    names = {"silu": "silu", "swish": "silu", "sigmoid": "sigmoid"}
    activation = node.text("activation", "silu")
    if activation not in names:
        raise Malformed(f"its attribute 'activation' is '{activation}', not one of {', '.join(names)}")
    width, total = whole(scale.shape[0], "the number of scales"), whole(x.shape[-1], "the last dimension")
    if width < 1 or total % width:
        raise Malformed(f"its last dimension {total} does not divide into groups of {width}")
    split = x.reshape(*x.shape[:-1], total // width, width)
    made = split.call("rms_norm", scale, axis=-1, epsilon=node.real("epsilon", 1e-5)).reshape(*x.shape)
    return (made * gate.call(names[activation])).to(node.dtype(0)).x


def _branch_rms(node: Node) -> Result:
    """Normalizes each of several branches, which are concatenated or in a separate dimension."""
    x = operand(node, 0).to(FLOAT32)
    shape, branches = x.shape, node.integer("num_branches", 0)
    if branches:
        total = whole(shape[-1], "the last dimension")
        if branches < 0 or total % branches:
            raise Malformed(f"its last dimension {total} does not divide into {branches} branches")
        x = x.reshape(*shape[:-1], branches, total // branches)
    made = x.call("rms_norm", axis=-1, epsilon=node.real("epsilon", 1e-5))
    if node.has(1):
        scale = operand(node, 1).to(FLOAT32)
        if len(scale.shape) == 1 and scale.shape[0] != x.shape[-1]:
            scale = scale.reshape(*x.shape[-2:])
        made = made * scale
    return made.reshape(*shape).to(node.dtype(0)).x


CONTRIB_NORMALIZATION: dict[str, Callable[[Node], Result]] = {
    **MICROSOFT_NORMALIZATION,
    "BranchwiseRMSNorm": _branch_rms,
    "EmbedLayerNormalization": _embed_norm,
    "GatedRMSNorm": _gated_rms,
    "GroupNorm": _group_norm,
    "QEmbedLayerNormalization": _quantized_embed_norm,
    "SkipGroupNorm": _skip_group_norm,
}
