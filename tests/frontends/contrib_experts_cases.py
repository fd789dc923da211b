"""Cases for mixtures of experts, weights from tables of 16 numbers, and recurrent layers with every attribute."""

from __future__ import annotations

from typing import Any

import numpy as np
from one_node import RNG, Array, OneNode, f, i8, n, u8

EXPERTS, WIDTH, INNER = 4, 32, 48
E, H, M = EXPERTS, WIDTH, INNER


def moe(name: str, *operands: Array | None, **attrs: Any) -> OneNode:
    return OneNode("MoE", operands, attrs, name=name, known=tuple(range(2, 8)), rtol=1e-4, atol=2e-5)


def qmoe(name: str, *operands: Array | None, **attrs: Any) -> OneNode:
    """onnxruntime multiplies 8 bits with quantized operands, and lets k decide how weights are normalized."""
    return OneNode("QMoE", operands, attrs, name=name, known=tuple(range(2, 14)), rtol=1e-3, atol=2e-3)


def w(*shape: int) -> Array:
    return f(*shape, scale=0.2)


MIXTURES = (
    moe("one", f(6, H), f(6, E), w(E, M, H), None, w(E, H, M), None, k=1, activation_type="relu"),
    moe("two", f(6, H), f(6, E), w(E, M, H), w(E, M), w(E, H, M), w(E, H), k=2, activation_type="gelu",
        normalize_routing_weights=1),
    moe("few", f(1, H), f(1, E), w(E, M, H), w(E, M), w(E, H, M), w(E, H), k=2, activation_type="silu",
        normalize_routing_weights=1),
    moe("cube", f(2, 3, H), f(6, E), w(E, M, H), w(E, M), w(E, H, M), w(E, H), k=3, activation_type="identity"),
    moe("interleaved", f(5, H), f(5, E), w(E, 2 * M, H), w(E, 2 * M), w(E, H, M), w(E, H), k=2,
        activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=0.7,
        normalize_routing_weights=1),
)  # fmt: skip


def packed_experts(name: str, tokens: int, bits: int, block: int = 0, zeros: bool = False, **attrs: Any) -> OneNode:
    def scales(rows: int, columns: int) -> Array:
        shape = (E, rows, columns // block) if block else (E, rows)
        return np.asarray(RNG.uniform(0.01, 0.03, shape), np.float32)

    def zero(rows: int, columns: int) -> Array | None:
        if not zeros:
            return None
        return u8(E, rows, -(-(columns // block) * bits // 8)) if block else u8(E, rows * bits // 8)

    fusion = 2 if attrs.get("activation_type") == "swiglu" else 1
    operands = (
        f(tokens, H), f(tokens, E), u8(E, fusion * M, H * bits // 8), scales(fusion * M, H), w(E, fusion * M),
        u8(E, H, M * bits // 8), scales(H, M), w(E, H), None, None, None, zero(fusion * M, H), zero(H, M),
    )  # fmt: skip
    given = {"k": 2, "expert_weight_bits": bits, "normalize_routing_weights": 1, **attrs}
    if block:
        given["block_size"] = block
    return qmoe(name, *operands, **given)


PACKED_MIXTURES = (
    packed_experts("4", 5, 4, activation_type="silu"),
    packed_experts("4_blocks", 5, 4, 16, activation_type="gelu"),
    packed_experts("4_zeros", 1, 4, 16, zeros=True, activation_type="silu"),
    packed_experts("swiglu", 3, 4, activation_type="swiglu", swiglu_fusion=1),
    packed_experts("8", 5, 8, activation_type="silu"),
)

TABLES = tuple(
    OneNode(
        "MatMulBnb4",
        (f(2, 3, 24), u8(20 * 24 // 2), np.asarray(RNG.uniform(0.1, 1, 20 * 24 // 16), np.float32)),
        {"N": 20, "K": 24, "block_size": 16, "quant_type": kind, "transB": 1},
        name=("fp4", "nf4")[kind],
        known=known,
    )
    for kind in (0, 1)
    for known in ((1, 2), ())
)


def layer(op: str, name: str, functions: list[str], *more: Array | None, length: int = 4, **attrs: Any) -> OneNode:
    gates, states = {"LSTM": (4, 2), "GRU": (3, 1), "RNN": (1, 1)}[op]
    both = 2 if attrs.get("direction") == "bidirectional" else 1
    operands = (f(length, 2, 3), w(both, gates * 5, 3), w(both, gates * 5, 5), w(both, 2 * gates * 5), *more)
    given = {"hidden_size": 5, **({"activations": functions} if functions else {}), **attrs}
    return OneNode(op, operands, given, name=name, outputs=1 + states, domain="")


LAYERS = (
    layer("LSTM", "coupled", [], input_forget=1),
    layer("LSTM", "coupled_peepholes", [], None, None, None, w(1, 15), input_forget=1, clip=0.4),
    layer("LSTM", "hard", ["HardSigmoid", "Softsign", "ScaledTanh"], activation_alpha=[0.3, 1.5],
          activation_beta=[0.4, 0.7]),
    layer("LSTM", "hard_default", ["HardSigmoid", "Tanh", "Tanh"], length=20),
    layer("LSTM", "affine", ["Sigmoid", "Affine", "LeakyRelu", "Sigmoid", "Elu", "Tanh"], direction="bidirectional",
          activation_alpha=[0.5, 0.1, 0.8], activation_beta=[0.25]),
    layer("GRU", "hard", ["HardSigmoid", "Softsign"], activation_alpha=[0.25], activation_beta=[0.45]),
    layer("GRU", "thresholded", ["Sigmoid", "ThresholdedRelu"], activation_alpha=[0.05], linear_before_reset=1),
    layer("RNN", "scaled", ["ScaledTanh"], activation_alpha=[1.7], activation_beta=[0.6], clip=0.8),
    layer("RNN", "both", ["Elu", "Softplus"], activation_alpha=[0.4], direction="bidirectional"),
)  # fmt: skip


def quantized_lstm(name: str, both: int = 1, columns: bool = False, signed: bool = True, **more: Any) -> OneNode:
    hidden, width = 6, 5
    draw = i8 if signed else u8
    shape = (both, 4 * hidden) if columns else (both,)
    zero = np.zeros(shape, np.int8) if signed else np.full(shape, 120, np.uint8)
    scale = np.asarray(RNG.uniform(0.002, 0.004, shape), np.float32)
    operands = (
        f(more.pop("length", 4), 2, width), draw(both, width, 4 * hidden), draw(both, hidden, 4 * hidden),
        w(both, 8 * hidden), more.pop("lengths", None), w(both, 2, hidden), w(both, 2, hidden), None,
        scale, zero, scale * np.float32(0.9), zero,
    )  # fmt: skip
    if both == 2:
        more["direction"] = "bidirectional"
    given = {"hidden_size": hidden, **more}
    return OneNode("DynamicQuantizeLSTM", operands, given, 3, (1, 2, 8, 9, 10, 11), name=name, rtol=1e-3, atol=4e-3)


QUANTIZED_LAYERS = (
    quantized_lstm("plain"),
    quantized_lstm("both", 2),
    quantized_lstm("columns", 1, True, length=20),
    quantized_lstm("unsigned", 2, signed=False),
    quantized_lstm("lengths", lengths=n(4, 2)),
)

EXPERTS_CASES = (*MIXTURES, *PACKED_MIXTURES, *TABLES, *LAYERS, *QUANTIZED_LAYERS)
