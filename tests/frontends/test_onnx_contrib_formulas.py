"""Operators of com.microsoft that onnxruntime does not run on the CPU, against their formulas in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from one_node import RNG, Array, OneNode, by_compiler, by_interpreter, by_onnxruntime, f, i8, n, s, u8, z

X = f(2, 3, 8)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def group_normed(x: Array, gamma: Array, beta: Array, groups: int, silu: bool) -> Array:
    """Channels last."""
    count, channels = x.shape[0], x.shape[-1]
    split = x.reshape(count, -1, groups, channels // groups)
    mean, variance = split.mean((1, 3), keepdims=True), split.var((1, 3), keepdims=True)
    made = ((split - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape) * gamma + beta
    return made * sigmoid(made) if silu else made


def fast_gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def buckets(queries: int, keys: int, count: int, far: int, both: bool) -> Array:
    out = np.zeros((queries, keys), int)
    for q in range(queries):
        for k in range(keys):
            gap, base, total = k - q, 0, count
            if both:
                total //= 2
                base = total if gap > 0 else 0
                gap = abs(gap)
            else:
                gap = max(-gap, 0)
            near = total // 2
            wide = near + int(math.log(max(gap, 1) / near) / math.log(far / near) * (total - near))
            out[q, k] = base + (gap if gap < near else min(wide, total - 1))
    return out


def gated_positions(q: Array, b: Array, places: Array, w: Array, shift: Array, eco: Array) -> Array:
    heads = eco.shape[1]
    layer = (q + b).reshape(*q.shape[:2], heads, -1).transpose(0, 2, 1, 3)
    gates = sigmoid((layer @ w + shift).reshape(*layer.shape[:3], 2, -1).sum(-1))
    u, r = gates[..., :1], gates[..., 1:]
    return np.asarray((u * (r * eco - 1) + 2) * places)


NHWC, KERNEL = f(1, 6, 6, 3), f(4, 3, 3, 3)


def convolved(x: Array, w: Array) -> Array:
    rows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    return np.einsum("nyxcij,ocij->nyxo", rows, w)


GAMMA, BETA = f(8), f(8)
SKIP, EMB = f(2, 8), f(2, 3, 4)
STATES = [f(2, 2, 3, 4).astype(np.float16) for _ in range(4)]
TABLE, COMPLEX = f(8, 2), (f(3, 4, 2), f(4, 2))
Case = tuple[str, tuple[Any, ...], dict[str, Any], Callable[..., Any]]

CASES: dict[str, Case] = {
    "BiasAdd": ("BiasAdd", (X, GAMMA, f(2, 3, 8)), {}, lambda x, b, s: x + b + s),
    "BiasDropout": (
        "BiasDropout",
        (X, GAMMA, f(2, 3, 8)),
        {},
        lambda x, b, r: (x + b + r, np.ones(x.shape, bool)),
    ),
    "BiasSoftmax-inner": (
        "BiasSoftmax",
        (f(2, 3, 4, 5), f(2, 1, 5)),
        {"axis": 3, "is_inner_broadcast": 1},
        lambda x, b: softmax(x + b[:, None]),
    ),
    "BiasSoftmax-outer": (
        "BiasSoftmax",
        (f(2, 3, 4, 5), f(4, 5)),
        {"axis": 2, "is_inner_broadcast": 0},
        lambda x, b: softmax((x + b).reshape(2, 3, 20)).reshape(2, 3, 4, 5),
    ),
    "BiasSplitGelu": ("BiasSplitGelu", (X, GAMMA), {}, lambda x, b: (x + b)[..., :4] * gelu((x + b)[..., 4:])),
    "ComplexMul": (
        "ComplexMul",
        COMPLEX,
        {},
        lambda a, b: pairs(complex_of(a) * complex_of(b)),
    ),
    "ComplexMulConj": (
        "ComplexMulConj",
        COMPLEX,
        {},
        lambda a, b: pairs(complex_of(a) * complex_of(b).conj()),
    ),
    "GatedRelativePositionBias": (
        "GatedRelativePositionBias",
        (f(2, 3, 8), GAMMA, f(1, 2, 3, 3), f(4, 6), f(6), f(1, 2, 1, 1)),
        {"num_heads": 2},
        gated_positions,
    ),
    "GemmFastGelu": ("GemmFastGelu", (X, f(8, 5), f(5)), {}, lambda x, w, b: fast_gelu(x @ w + b)),
    "GemmaRotaryEmbedding": (
        "GemmaRotaryEmbedding",
        (EMB, *STATES),
        {},
        lambda e, q, qr, k, kr: tuple(a * np.cos(e)[:, None] + b * np.sin(e)[:, None] for a, b in ((q, qr), (k, kr))),
    ),
    "GroupNorm": (
        "GroupNorm",
        (f(2, 3, 3, 8), GAMMA, BETA),
        {"groups": 4, "activation": 1},
        lambda x, g, b: group_normed(x, g, b, 4, True),
    ),
    "GroupNorm-first": (
        "GroupNorm",
        (f(2, 8, 3, 3), GAMMA, BETA),
        {"groups": 2, "activation": 0, "channels_last": 0},
        lambda x, g, b: group_normed(x.transpose(0, 2, 3, 1), g, b, 2, False).transpose(0, 3, 1, 2),
    ),
    "SkipGroupNorm": (
        "SkipGroupNorm",
        (f(2, 3, 3, 8), GAMMA, BETA, SKIP, f(8)),
        {"groups": 4, "activation": 0},
        lambda x, g, b, k, o: (
            group_normed(x + k[:, None, None] + o, g, b, 4, False),
            x + k[:, None, None] + o,
        ),
    ),
    "IsAllFinite": ("IsAllFinite", (X, GAMMA), {}, lambda *_: np.array(True)),
    "IsAllFinite-not": ("IsAllFinite", (X, np.array([1, np.inf], np.float32)), {}, lambda *_: np.array(False)),
    "IsAllFinite-nan": (
        "IsAllFinite",
        (X, np.array([1, np.inf], np.float32)),
        {"isnan_only": 1},
        lambda *_: np.array(True),
    ),
    "MulInteger": (
        "MulInteger",
        (u8(3, 4), z(7), u8(4), z(100)),
        {},
        lambda a, p, b, q: (a.astype(np.int32) - p) * (b.astype(np.int32) - q),
    ),
    "NhwcConv": ("NhwcConv", (NHWC, KERNEL, f(4)), {}, lambda x, w, b: convolved(x, w) + b),
    "NhwcFusedConv": (
        "NhwcFusedConv",
        (NHWC, KERNEL, f(4), f(1, 4, 4, 4)),
        {"activation": "Relu"},
        lambda x, w, b, r: np.maximum(convolved(x, w) + b + r, 0),
    ),
    "QLinearReduceMean": (
        "QLinearReduceMean",
        (u8(3, 4, 5), s(0.02), z(120), s(0.0137), z(100)),
        {"axes": [1], "keepdims": 0},
        lambda x, a, p, b, q: np.clip(np.rint((a * (x.astype(np.float32) - p)).mean(1) / b) + q, 0, 255),
    ),
    "ReduceSumInteger": (
        "ReduceSumInteger",
        (i8(3, 4),),
        {"axes": [1], "keepdims": 1},
        lambda x: x.astype(np.int32).sum(1, keepdims=True),
    ),
    "RelativePositionBias": (
        "RelativePositionBias",
        (TABLE, n(9, dtype=np.int64), n(9, dtype=np.int64)),
        {"max_distance": 20, "is_bidirectional": 1},
        lambda t, *_: t[buckets(9, 9, 8, 20, True)].transpose(2, 0, 1)[None],
    ),
    "RelativePositionBias-one": (
        "RelativePositionBias",
        (TABLE, n(9, dtype=np.int64), n(9, dtype=np.int64)),
        {"max_distance": 20},
        lambda t, *_: t[buckets(9, 9, 8, 20, False)].transpose(2, 0, 1)[None],
    ),
    "Rfft": ("Rfft", (f(3, 8),), {"signal_ndim": 1}, lambda x: pairs(np.fft.rfft(x))),
    "Irfft": ("Irfft", (f(3, 5, 2),), {"signal_ndim": 1}, lambda x: np.fft.irfft(complex_of(x))),
    "TorchEmbedding": ("TorchEmbedding", (TABLE, n(3, 1, 3, dtype=np.int64)), {}, lambda t, i: t[i]),
}


def complex_of(x: Array) -> Array:
    return np.asarray(x[..., 0] + 1j * x[..., 1])


def pairs(x: Array) -> Array:
    return np.stack([x.real, x.imag], axis=-1)


@pytest.mark.parametrize("name", CASES)
def test_formula(name: str) -> None:
    op, operands, attrs, formula = CASES[name]
    expected = formula(*operands)
    expected = expected if isinstance(expected, tuple) else (expected,)
    known = (1, 2) if op == "RelativePositionBias" else ()
    case = OneNode(op, operands, attrs, len(expected), known)
    for made in (by_interpreter(case), by_compiler(case)):
        assert len(made) == len(expected)
        for a, b in zip(made, expected, strict=True):
            assert a.shape == b.shape
            loose = a.dtype == np.float16
            np.testing.assert_allclose(
                a.astype(np.float64), b, rtol=2e-2 if loose else 1e-4, atol=2e-2 if loose else 1e-4
            )


def test_states_in_a_buffer() -> None:
    """Attention with a buffer of states does what it does with states that are appended."""
    batch, length, taken, room, heads, width = 2, 2, 3, 6, 2, 4
    hidden = heads * width
    x, w, b = f(batch, length, hidden), f(hidden, 3 * hidden), f(3 * hidden)
    buffer = f(2, batch, heads, room, width)
    past = np.ascontiguousarray(buffer[:, :, :, :taken])
    plain = OneNode("Attention", (x, w, b, None, past), {"num_heads": heads, "unidirectional": 1}, 2)
    shared = OneNode(
        "Attention",
        (x, w, b, None, buffer, None, n(taken)),
        {"num_heads": heads, "unidirectional": 1, "past_present_share_buffer": 1},
        2,
    )
    result, present = by_onnxruntime(plain)
    for made in (by_interpreter(shared), by_compiler(shared)):
        np.testing.assert_allclose(made[0], result, rtol=1e-4, atol=1e-5)
        assert made[1].shape == buffer.shape
        np.testing.assert_allclose(made[1][:, :, :, : taken + length], present, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(made[1][:, :, :, taken + length :], buffer[:, :, :, taken + length :])


def test_group_query_attention_of_whole_numbers() -> None:
    """States of 8 bits with a scale for each channel: as the plain operator on the numbers that they stand for."""
    batch, taken, heads, width = 1, 3, 2, 16
    q, k, v = (f(batch, 1, heads * width) for _ in range(3))
    scale = (abs(f(1, heads, 1, width)) * 0.02 + 0.01).astype(np.float32)
    past = [RNG.integers(-90, 90, (batch, heads, taken, width)).astype(np.int8) for _ in range(2)]
    total = taken + 1
    lengths = (n(total - 1), n(total))
    attrs = {"num_heads": heads, "kv_num_heads": heads}
    kinds = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": 8}
    packed = OneNode(
        "GroupQueryAttention", (q, k, v, *past, *lengths, *(None,) * 5, scale, scale), {**attrs, **kinds}, 3
    )
    stored = [np.clip(np.rint(t.reshape(batch, heads, 1, width) / scale), -128, 127).astype(np.int8) for t in (k, v)]
    real = [p * scale for p in past]
    key, value = ((t * scale).reshape(batch, 1, heads * width) for t in stored)
    plain = OneNode("GroupQueryAttention", (q, key, value, *real, *lengths), attrs, 3)
    expected = by_onnxruntime(plain)
    for made in (by_interpreter(packed), by_compiler(packed)):
        np.testing.assert_allclose(made[0], expected[0], rtol=1e-3, atol=1e-4)
        for state, old, new in zip(made[1:], past, stored, strict=True):
            np.testing.assert_array_equal(state, np.concatenate([old, new], axis=2))


def decoder() -> OneNode:
    """One new token with states of three in a buffer of six."""
    batch, taken, heads, width = 2, 3, 2, 16
    q, k, v = (f(batch, 1, heads * width) for _ in range(3))
    past = [f(batch, heads, 6, width) for _ in range(2)]
    bias = f(3 * heads * width)
    extra = (n(taken), None, None, bias)
    attrs = {"num_heads": heads, "past_present_share_buffer": 1}
    return OneNode("DecoderMaskedMultiHeadAttention", (q, k, v, None, None, *past, *extra), attrs, 3)


def test_decoder() -> None:
    case = decoder()
    expected = by_onnxruntime(case)
    for made in (by_interpreter(case), by_compiler(case)):
        np.testing.assert_allclose(made[0], expected[0], rtol=1e-4, atol=1e-5)
        for a, b in zip(made[1:], expected[1:], strict=True):
            np.testing.assert_allclose(a[:, :, :4], b[:, :, :4], rtol=1e-4, atol=1e-5)
