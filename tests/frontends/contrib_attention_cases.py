"""Cases for the attention operators of com.microsoft."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from one_node import RNG, Array, OneNode, f, i8, n, s, u8, z

B, S, P, N, H = 2, 3, 4, 2, 8
D = N * H
PAST = f(2, B, N, P, H)


def mask(*shape: int) -> Array:
    """Ones and zeros; the first key is always seen."""
    made = (RNG.random(shape) > 0.3).astype(np.int32)
    made[..., 0] = 1
    return made


X, W, BIAS = f(B, S, D), f(D, 3 * D, scale=0.3), f(3 * D)
MASK2 = mask(B, S)
MASK2P = mask(B, S + P)
MASK3P = mask(B, S, S + P)


def attention(name: str, *operands: Array | None, outputs: int = 1, **attrs: Any) -> OneNode:
    return OneNode("Attention", operands, {"num_heads": N, **attrs}, outputs, name=name)


ATTENTION = (
    attention("plain", X, W, BIAS),
    replace(attention("no_bias", X, W), instead=attention("", X, W, 0 * BIAS)),
    attention("causal", X, W, BIAS, unidirectional=1),
    attention("scale", X, W, BIAS, scale=0.7),
    attention("mask2", X, W, BIAS, MASK2),
    attention("mask2_filter", X, W, BIAS, MASK2, mask_filter_value=-5.0),
    attention("mask2_causal", X, W, BIAS, MASK2, unidirectional=1),
    attention("mask_ends", X, W, BIAS, n(2, 3)),
    attention("mask_starts", X, W, BIAS, n(3, 3, 1, 0)),
    attention("past", X, W, BIAS, None, PAST, outputs=2),
    attention("past_causal", X, W, BIAS, None, PAST, outputs=2, unidirectional=1),
    attention("past_mask2", X, W, BIAS, MASK2P, PAST, outputs=2),
    attention("past_mask3", X, W, BIAS, MASK3P, PAST, outputs=2, unidirectional=1),
    attention("bias", X, W, BIAS, MASK2, None, f(B, N, S, S)),
    attention("bias_shared", X, W, BIAS, None, None, f(1, 1, S, S)),
    attention("present", X, W, BIAS, outputs=2),
    attention("value_size", X, f(D, 3 * D + D), f(4 * D), qkv_hidden_sizes=[D, D, 2 * D]),
)

Q, K, V = f(B, S, D), f(B, P, D), f(B, P, 2 * D)
MK = mask(B, P)


def multi(name: str, *operands: Array | None, outputs: int = 1, **attrs: Any) -> OneNode:
    return OneNode("MultiHeadAttention", operands, {"num_heads": N, **attrs}, outputs, name=name)


def split(packed: Array) -> list[Array]:
    """[batch, length, heads, parts, width] as parts of three dimensions."""
    return [np.ascontiguousarray(packed[..., i, :]).reshape(*packed.shape[:2], -1) for i in range(packed.shape[3])]


QKV5, KV5 = f(B, S, N, 3, H), f(B, P, N, 2, H)
KP, VP = f(B, N, P, H), f(B, N, P, H)
MULTI_HEAD = (
    multi("plain", Q, K, V),
    multi("bias", Q, K, V, f(4 * D)),
    replace(multi("packed_qkv", QKV5), instead=multi("", *split(QKV5))),
    replace(multi("packed_qkv_causal", QKV5, unidirectional=1), instead=multi("", *split(QKV5), unidirectional=1)),
    replace(multi("packed_kv", Q, KV5), instead=multi("", Q, *split(KV5))),
    multi("cross", Q, KP, VP),
    multi("cross_bias", Q, KP, VP, f(3 * D)),
    multi("mask", Q, K, V, None, MK),
    multi("mask_ends", Q, K, V, None, n(2, 4)),
    multi("mask3", Q, K, V, None, mask(B, S, P)),
    multi("attention_bias", Q, K, V, None, None, f(1, N, S, P)),
    multi("scale", Q, K, V, scale=0.2),
    multi("causal", Q, f(B, S, D), f(B, S, D), unidirectional=1),
    multi("past", Q, f(B, S, D), f(B, S, D), None, None, None, KP, VP, outputs=3),
    multi("past_mask", Q, f(B, S, D), f(B, S, D), f(3 * D), MASK2P, None, KP, VP, outputs=3),
    multi("past_causal", Q, f(B, S, D), f(B, S, D), None, None, f(B, 1, S, S + P), KP, VP, outputs=3, unidirectional=1),
    replace(multi("scores", Q, K, V, None, MK, None, outputs=4), declared={3: np.float32}),
)

QZ, WQ = u8(B, S, D), i8(D, 3 * D)
QUANTIZED_ATTENTION = tuple(
    OneNode("QAttention", operands, {"num_heads": N, **attrs}, outputs, name=name, known=(1,), rtol=1e-3, atol=1e-4)
    for name, operands, attrs, outputs in (
        ("plain", (QZ, WQ, BIAS, s(0.01), s(0.01)), {}, 1),
        ("zeros", (QZ, WQ, BIAS, s(0.01), s(0.01), None, z(120), z(3, np.int8)), {}, 1),
        ("mask", (QZ, WQ, BIAS, s(0.01), s(0.01), n(2, 3), z(120), z(3, np.int8)), {"unidirectional": 1}, 1),
        ("past", (QZ, WQ, BIAS, s(0.01), s(0.01), None, z(120), z(3, np.int8), PAST), {}, 2),
        ("columns", (QZ, WQ, BIAS, s(0.01), abs(f(3 * D)) * np.float32(0.01), None, z(120), i8(3 * D)), {}, 1),
    )
)

MAX = 16
COS, SIN = f(MAX, H // 2), f(MAX, H // 2)


def rotary(name: str, x: Array, places: Array, cos: Array = COS, sin: Array = SIN, **attrs: Any) -> OneNode:
    return OneNode("RotaryEmbedding", (x, places, cos, sin), attrs, name=name)


PLACES = RNG.integers(0, MAX, (B, S))
ROTARY = (
    rotary("one", Q, n(2, dtype=np.int64)),
    rotary("each", Q, PLACES),
    rotary("interleaved", Q, PLACES, interleaved=1),
    rotary("four", f(B, N, S, H), PLACES),
    rotary("four_interleaved", f(B, N, S, H), n(3, dtype=np.int64), interleaved=1),
    rotary("partial", Q, PLACES, COS[:, :2].copy(), SIN[:, :2].copy(), num_heads=N, rotary_embedding_dim=4),
    rotary(
        "partial_interleaved",
        Q,
        PLACES,
        COS[:, :3].copy(),
        SIN[:, :3].copy(),
        num_heads=N,
        rotary_embedding_dim=6,
        interleaved=1,
    ),
    *(
        OneNode("MRotaryEmbedding", (x, RNG.integers(0, MAX, (3, B, S)), COS, SIN), attrs, name=f"{i}")
        for i, (x, attrs) in enumerate(
            (
                (Q, {"mrope_section": [2, 1, 1], "num_heads": N}),
                (f(B, N, S, H), {"mrope_section": [2, 1, 1], "mrope_layout": 1}),
                (Q, {"mrope_section": [1, 2, 1], "interleaved": 1, "num_heads": N}),
            )
        )
    ),
)

HEADS, SHARED, WIDTH = 4, 2, 16
GROUP_COS, GROUP_SIN = f(MAX, WIDTH // 2), f(MAX, WIDTH // 2)


def group(
    name: str,
    length: int,
    ends: tuple[int, ...],
    *,
    past: int | None = None,
    total: int | None = None,
    packed: bool = False,
    extra: dict[int, Array] | None = None,
    outputs: int = 3,
    dtype: Any = np.float32,
    rows: Any = None,
    **attrs: Any,
) -> OneNode:
    """``ends`` are the total lengths by batch entry, ``past`` is the capacity of the buffer."""
    batch = len(ends)
    total = max(ends) if total is None else total
    operands: list[Array | None] = [None] * 14
    if packed:
        operands[0] = f(batch, length, (HEADS + 2 * SHARED) * WIDTH, dtype=dtype)
    else:
        operands[0] = f(batch, length, HEADS * WIDTH, dtype=dtype)
        operands[1], operands[2] = (f(batch, length, SHARED * WIDTH, dtype=dtype) for _ in range(2))
    if past is not None:
        operands[3], operands[4] = (f(batch, SHARED, past, WIDTH, dtype=dtype) for _ in range(2))
    operands[5], operands[6] = n(*(e - 1 for e in ends)), n(total)
    if attrs.get("do_rotary"):
        operands[7], operands[8] = GROUP_COS.astype(dtype), GROUP_SIN.astype(dtype)
    for i, value in (extra or {}).items():
        operands[i] = value
    while operands[-1] is None:
        operands.pop()
    attrs = {"num_heads": HEADS, "kv_num_heads": SHARED, **attrs}
    room = max(total, past or 0)

    def filled(i: int, x: Array) -> Array:
        """Only what has a meaning: rows and places within the length of each entry."""
        parts = []
        for b, end in enumerate(ends):
            parts.append(x[b, : min(length, end)].reshape(-1) if i == 0 else x[b, :, :end].reshape(-1))
        return np.concatenate(parts)

    assert room
    return OneNode(
        "GroupQueryAttention", tuple(operands), attrs, outputs, name=name, rows=filled if rows is None else rows
    )


GROUP_QUERY = (
    group("prompt", S, (S, S)),
    group("prompt_padded", S, (2, S)),
    group("packed", S, (S, S), packed=True),
    group("rotary", S, (S, S), do_rotary=1),
    group("rotary_packed", S, (S, S), do_rotary=1, rotary_interleaved=1, packed=True),
    group(
        "rotary_positions",
        S,
        (S, S),
        do_rotary=1,
        extra={9: n(*range(2, 2 + S), *range(2, 2 + S), dtype=np.int64).reshape(2, S)},
    ),
    group("buffer", S, (S, S), past=8),
    group("next", 1, (5, 3), past=8),
    group("next_rotary", 1, (5, 3), past=8, do_rotary=1),
    group("next_grown", 1, (5, 5), past=4),
    group("next_rotary_positions", 1, (5, 3), past=8, do_rotary=1, extra={9: n(4, 2, dtype=np.int64).reshape(2, 1)}),
    group("more", S, (7,), past=8, do_rotary=1),
    group("window", 1, (7, 4), past=8, local_window_size=3),
    group("window_prompt", 5, (5, 5), local_window_size=2),
    group("softcap", S, (S, S), softcap=0.5),
    group("smooth", S, (S, S), smooth_softmax=1),
    group("sink", 1, (5, 3), past=8, extra={11: f(HEADS)}),
    group("bias", 1, (5, 3), past=8, extra={10: f(2, 1, 1, 5)}),
    group("bias_heads", S, (S, S), extra={10: f(1, HEADS, S, S)}),
    group("scale", S, (S, S), scale=0.1),
    group("bidirectional", S, (S, S), causal=0),
    group("half", S, (S, S), do_rotary=1, dtype=np.float16),
    group("scores", S, (S, S), outputs=4, qk_output=1, rows=lambda i, x: x if i < 3 else np.tril(x)),
    group("weights", S, (S, S), outputs=4, qk_output=2, rows=lambda i, x: x if i < 3 else np.tril(x)),
)

ATTENTION_CASES = (*ATTENTION, *MULTI_HEAD, *QUANTIZED_ATTENTION, *ROTARY, *GROUP_QUERY)
