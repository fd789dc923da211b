"""Mixtures of experts: a router chooses a few networks for each token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.onnx.converters.contrib.packed import unpacked
from weft.frontends.onnx.converters.contrib.scores import whole
from weft.frontends.onnx.converters.numbers import Traced, constant, operand
from weft.frontends.onnx.node import Node, Result
from weft.support.dtypes import FLOAT32


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One layer of all experts: ``weights`` [experts, outputs, inputs] and ``bias`` [experts, outputs] or None."""

    weights: Traced
    bias: Traced | None

    def chosen(self, places: Traced) -> Layer:
        """The layer of the chosen experts only."""
        bias = None if self.bias is None else self.bias.call("gather", places, axis=0)
        return Layer(self.weights.call("gather", places, axis=0), bias)

    def apply(self, x: Traced) -> Traced:
        """x [experts or 1, tokens, inputs] → [experts, tokens, outputs]"""
        made = x.call("matmul", self.weights.to(x.dtype), transpose_b=True)
        if self.bias is None:
            return made
        count, width = self.bias.shape
        return made + self.bias.to(x.dtype).reshape(count, 1, width)


def _plain(weights: int, bias: int) -> Callable[[Node], Layer | None]:
    def read(node: Node) -> Layer | None:
        if not node.has(weights):
            return None
        return Layer(operand(node, weights), operand(node, bias) if node.has(bias) else None)

    return read


def _quantized(number: int, weights: int, zero: int) -> Callable[[Node], Layer | None]:
    """Layer ``number``: packed weights, scales and bias start at operand ``weights``; zero points are operand
    ``zero``."""

    def read(node: Node) -> Layer | None:
        if not node.has(weights):
            return None
        bits = node.integer(f"fc{number}_expert_weight_bits", node.integer("expert_weight_bits", 4))
        if bits not in (2, 4, 8):
            raise Unsupported(f"its weights have {bits} bits; 2, 4 and 8 are supported")
        numbers, scales = unpacked(operand(node, weights), bits).to(FLOAT32), operand(node, weights + 1).to(FLOAT32)
        experts, rows, columns = numbers.shape
        if len(scales.shape) not in (2, 3):
            raise Malformed(f"its scales are {scales.x.tensor}, not of 2 or 3 dimensions")
        blocks = 1 if len(scales.shape) == 2 else whole(scales.shape[2], "the number of blocks")
        shift = _zero(node, zero, bits, blocks, numbers) if node.has(zero) else float(1 << (bits - 1))
        if whole(columns, "the width of the weights") % blocks:
            raise Malformed(f"{columns} columns do not fall into {blocks} blocks")
        split = numbers.reshape(experts, rows, blocks, columns // blocks) - shift
        made = (split * scales.reshape(experts, rows, blocks, 1)).reshape(experts, rows, columns)
        return Layer(made, operand(node, weights + 2) if node.has(weights + 2) else None)

    return read


def _zero(node: Node, i: int, bits: int, blocks: int, numbers: Traced) -> Traced:
    """Zero points [experts, rows, blocks, 1], packed along the rows or along the blocks of each row."""
    experts, rows, _ = numbers.shape
    given = unpacked(operand(node, i), bits)
    given = given.part(1, 0, rows) if len(given.shape) == 2 else given.part(2, 0, blocks)
    return given.to(FLOAT32).reshape(experts, rows, blocks, 1)


PLAIN = (_plain(2, 3), _plain(4, 5), _plain(6, 7))
QUANTIZED = (_quantized(1, 2, 11), _quantized(2, 5, 12), _quantized(3, 8, 13))


def _routed(node: Node, logits: Traced, weights: Traced | None) -> tuple[Traced, Traced]:
    """The experts of each token and the weights of their results: both [tokens, k]."""
    k = node.integer("k", 1)
    experts = whole(logits.shape[1], "the number of experts")
    if not 1 <= k <= experts:
        raise Malformed(f"its attribute 'k' is {k} of {experts} experts")
    if node.flag("use_sparse_mixer"):
        raise Unsupported("sparse mixers are not supported")
    values, places = (Traced(node, t) for t in node.calls("topk", logits.x, k=k, axis=1, largest=True))
    if weights is not None:
        shares = weights.call("gather_elements", places, axis=1)
        if node.flag("normalize_routing_weights"):
            shares = shares / shares.call("reduce_sum", axes=(1,), keepdims=True)
        return places, shares
    if node.flag("normalize_routing_weights"):
        return places, values.call("softmax", axis=1)
    return places, logits.call("softmax", axis=1).call("gather_elements", places, axis=1)


_SIMPLE = ("relu", "gelu", "silu", "identity")


def _hidden(node: Node, x: Traced, first: Layer, third: Layer | None) -> Traced:
    """The input of the second layer."""
    kind, fusion = node.text("activation_type", "relu").lower(), node.integer("swiglu_fusion", 0)
    made = first.apply(x)
    if kind != "swiglu":
        if kind not in _SIMPLE:
            raise Malformed(f"its activation '{kind}' is none of {', '.join((*_SIMPLE, 'swiglu'))}")
        active = made.call("gelu", approximate="tanh") if kind == "gelu" else made.call(kind)
        return active if third is None else active * third.apply(x)
    if fusion == 0:
        if third is None:
            raise Malformed("its attribute 'swiglu_fusion' is 0, and it has no third layer")
        return _swiglu(node, made, third.apply(x))
    experts, tokens, wide = made.shape
    half = whole(wide, "the width of the first layer") // 2
    if fusion == 1:
        pairs = made.reshape(experts, tokens, half, 2)
        return _swiglu(node, pairs.part(3, 0), pairs.part(3, 1))
    return _swiglu(node, made.part(2, 0, half), made.part(2, half, 2 * half))


def _swiglu(node: Node, gate: Traced, linear: Traced) -> Traced:
    limit = node.real("swiglu_limit", inf)
    if limit < inf:
        gate, linear = gate.call("minimum", limit), linear.limited(-limit, limit)
    alpha, beta = node.real("activation_alpha", 1.0), node.real("activation_beta", 0.0)
    return gate * (gate * alpha).call("sigmoid") * (linear + beta)


def _experts(layers: tuple[Callable[[Node], Layer | None], ...], routing: int | None) -> Callable[[Node], Result]:
    def convert(node: Node) -> Result:
        if node.text("quant_type", "int") != "int":
            raise Unsupported(f"its attribute 'quant_type' is '{node.text('quant_type')}'; only 'int' is supported")
        if node.integer("weights_prepacked", 0) == 1:
            raise Unsupported("its attribute 'weights_prepacked' is 1; only 0, the specified layout, is supported")
        given = operand(node, 0)
        width = given.shape[-1]
        x = given.reshape(-1, width) if len(given.shape) != 2 else given
        first, second, third = (read(node) for read in layers)
        if first is None or second is None:
            raise Malformed("it needs the weights of two layers, and one is missing")
        logits = operand(node, 1)
        weights = operand(node, routing) if routing is not None and node.has(routing) else None
        places, shares = _routed(node, logits, weights)
        experts, (tokens, k) = whole(logits.shape[1], "the number of experts"), places.shape
        if isinstance(tokens, int) and isinstance(k, int) and 0 < tokens * k <= experts:
            made = _few(node, x, places, shares, first, second, third)
        else:
            made = _all(node, x, places, shares, first, second, third)
        return made.reshape(*given.shape).x

    return convert


def _few(
    node: Node, x: Traced, places: Traced, shares: Traced, first: Layer, second: Layer, third: Layer | None
) -> Traced:
    """For few tokens: reads only the weights of the chosen experts."""
    tokens, k = places.shape
    count = whole(tokens, "the number of tokens") * whole(k, "k")
    flat = places.reshape(count)
    rows = x.reshape(tokens, 1, x.shape[1]).expand(tokens, k, x.shape[1]).reshape(count, 1, x.shape[1])
    hidden = _hidden(node, rows, first.chosen(flat), None if third is None else third.chosen(flat))
    made = second.chosen(flat).apply(hidden).reshape(tokens, k, x.shape[1])
    return (made * shares.reshape(tokens, k, 1)).call("reduce_sum", axes=(1,), keepdims=False)


def _all(
    node: Node, x: Traced, places: Traced, shares: Traced, first: Layer, second: Layer, third: Layer | None
) -> Traced:
    """For many tokens: computes all experts for all tokens; results of experts that were not chosen have weight 0."""
    (tokens, k), experts = places.shape, whole(first.weights.shape[0], "the number of experts")
    hidden = _hidden(node, x.reshape(1, tokens, x.shape[1]), first, third)
    made = second.apply(hidden)
    numbers = constant(node, range(experts), "int64").reshape(1, 1, experts)
    marks = (
        places.reshape(tokens, k, 1)
        .equals(numbers)
        .choose(shares.reshape(tokens, k, 1).expand(tokens, k, experts), 0.0)
    )
    share = marks.call("reduce_sum", axes=(1,), keepdims=False).transpose(1, 0).reshape(experts, tokens, 1)
    return share.call("not_equal", 0.0).choose(made * share, 0.0).call("reduce_sum", axes=(0,), keepdims=False)


EXPERTS: dict[str, Callable[[Node], Result]] = {
    "MoE": _experts(PLAIN, None),
    "QMoE": _experts(QUANTIZED, 14),
}
