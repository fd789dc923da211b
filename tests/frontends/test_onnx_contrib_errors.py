"""Malformed nodes of com.microsoft: each error names the node and what is wrong with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from one_node import Array, OneNode, f, make_model, n, s, u8, z

import weft
from weft.frontends import onnx as frontend

X, W, BIAS = f(2, 3, 16), f(16, 48), f(48)
HEADS = {"num_heads": 2}
GROUPS = {"num_heads": 4, "kv_num_heads": 2}
BITS = {"K": 64, "N": 8, "bits": 4, "block_size": 32}
PACKED, SCALES = u8(8, 2, 16), f(8, 2)
LENGTHS = (n(2, 2), n(3))


def node(op: str, *operands: Array | None, known: tuple[int, ...] = (), **attrs: Any) -> OneNode:
    return OneNode(op, operands, attrs, known=known)


def group(*operands: Array | None, **attrs: Any) -> OneNode:
    return node("GroupQueryAttention", *operands, **{**GROUPS, **attrs})


QKV = (f(2, 3, 64), f(2, 3, 32), f(2, 3, 32))

EXPERTS = (f(5, 8), f(5, 4), f(4, 6, 8), None, f(4, 8, 6), None)
LAYER = (f(4, 2, 3), f(1, 5, 3), f(1, 5, 5))


def layer(*operands: Array | None, **attrs: Any) -> OneNode:
    return OneNode("RNN", operands, {"hidden_size": 5, **attrs}, domain="")


WRONG: dict[str, tuple[OneNode, str]] = {
    "more experts than there are": (node("MoE", *EXPERTS, k=5), "'k' is 5 of 4 experts"),
    "sparse mixer": (node("MoE", *EXPERTS, k=2, use_sparse_mixer=1), "sparse mixers are not supported"),
    "activation of experts": (node("MoE", *EXPERTS, activation_type="sine"), "'sine' is none of relu"),
    "no third layer": (node("MoE", *EXPERTS, activation_type="swiglu"), "no third layer"),
    "kind of experts": (
        node("QMoE", *EXPERTS[:2], u8(4, 6, 4), f(4, 6), None, u8(4, 8, 3), f(4, 8), quant_type="fp4"),
        "'quant_type' is 'fp4'; only 'int' is supported",
    ),
    "table of weights": (
        node("MatMulBnb4", f(2, 16), u8(128), f(16), N=16, K=16, block_size=16, quant_type=2),
        "'quant_type' is 2",
    ),
    "size of a table": (
        node("MatMulBnb4", f(2, 16), u8(100), f(16), N=16, K=16, block_size=16, quant_type=1),
        "do not hold 16×16 numbers",
    ),
    "activation of a layer": (layer(*LAYER, activations=["Sine"]), "'sine' is none of affine, elu"),
    "too few activations": (
        OneNode("GRU", (f(4, 2, 3), f(1, 15, 3), f(1, 15, 5)), {"hidden_size": 5, "activations": ["Tanh"]}, domain=""),
        "2 activations",
    ),
    "gates of a quantized layer": (
        node("DynamicQuantizeLSTM", f(4, 2, 5), u8(1, 5, 24), u8(1, 6, 23), *(None,) * 5, f(1), u8(1), f(1), u8(1)),
        "do not hold 4 gates",
    ),
    "attention without heads": (node("Attention", X, W, BIAS), "num_heads"),
    "heads that do not divide": (node("Attention", X, W, BIAS, num_heads=3), "16 does not divide into 3 heads"),
    "no heads": (node("Attention", X, W, BIAS, num_heads=0), "0 heads"),
    "rank of the input": (node("Attention", f(3, 16), W, BIAS, **HEADS), "'input'.*must have 3 dimensions"),
    "sizes of the projection": (node("Attention", X, W, BIAS, qkv_hidden_sizes=[16, 8, 24], **HEADS), "does not split"),
    "four-dimensional mask": (
        node("Attention", X, W, BIAS, np.ones((2, 1, 3, 3), np.int32), **HEADS),
        "attention_bias",
    ),
    "mask of another batch": (node("Attention", X, W, BIAS, n(1, 2, 3), **HEADS), "does not fit a batch of 2"),
    "rank of the bias": (node("Attention", X, W, BIAS, None, None, f(3, 3), **HEADS), "'attention_bias'.*4 dimensions"),
    "rotary inside": (
        node("Attention", X, W, BIAS, do_rotary=1, **HEADS),
        "'do_rotary' is not supported; RotaryEmbedding",
    ),
    "wrong weights": (node("Attention", X, f(15, 48), **HEADS), "contracted dimensions"),
    "beams": (
        node("MultiHeadAttention", X, X, X, *(None,) * 6, np.zeros((2, 1, 3), np.int32), **HEADS),
        "'cache_indirection'.*not supported",
    ),
    "half a past": (node("MultiHeadAttention", X, X, X, None, None, None, f(2, 2, 4, 8), **HEADS), "together"),
    "short mask": (
        node("MultiHeadAttention", X, X, X, None, np.ones((2, 3), np.int32), None, *(f(2, 2, 4, 8),) * 2, **HEADS),
        "must cover all 7 keys",
    ),
    "groups that do not divide": (group(*QKV, None, None, *LENGTHS, kv_num_heads=3), "4 heads do not divide"),
    "heads of several sizes": (group(QKV[0], f(2, 3, 16), QKV[2], None, None, *LENGTHS), r"\[16, 8, 16\]"),
    "window without order": (group(*QKV, None, None, *LENGTHS, causal=0, local_window_size=2), "needs causal"),
    "sliding buffer": (
        group(*QKV, None, None, *LENGTHS, sliding_window_cache=1),
        "whole buffer with local_window_size",
    ),
    "kind of scale": (group(*QKV, None, None, *LENGTHS, k_quant_type="PER_MOON"), "'k_quant_type' is 'PER_MOON'"),
    "rotary tables": (node("RotaryEmbedding", X, n(0, dtype=np.int64), f(9), f(9)), "'cos_cache'.*2 dimensions"),
    "rotary width": (
        node("RotaryEmbedding", X, n(0, dtype=np.int64), f(9, 4), f(9, 4), num_heads=2, rotary_embedding_dim=6),
        "'rotary_embedding_dim' is 6",
    ),
    "sections": (
        node(
            "MRotaryEmbedding", X, np.zeros((3, 2, 3), np.int64), f(9, 4), f(9, 4), mrope_section=[1, 1, 1], num_heads=2
        ),
        "'mrope_section' is .* split 4 pairs",
    ),
    "shape of packed weights": (node("MatMulNBits", f(1, 64), u8(8, 3, 16), SCALES, **BITS), r"ask for \[8, 2, 16\]"),
    "width of bits": (node("MatMulNBits", f(1, 64), PACKED, SCALES, **{**BITS, "bits": 3}), "'bits' is 3; 2, 4 and 8"),
    "size of blocks": (node("MatMulNBits", f(1, 64), PACKED, SCALES, **{**BITS, "block_size": 24}), "power of two"),
    "depth": (node("MatMulNBits", f(1, 60), PACKED, SCALES, **BITS), "must end in K = 64"),
    "layout of weights": (
        node("MatMulNBits", f(1, 64), PACKED, SCALES, **BITS, weight_prepacked=1),
        "'weight_prepacked'",
    ),
    "missing K": (node("MatMulNBits", f(1, 64), PACKED, SCALES, N=8, bits=4, block_size=32), "attribute 'K'"),
    "half a triple": (node("QLinearConcat", s(0.1), z(0), u8(2, 3), s(0.1), axis=0), "three for each tensor"),
    "missing operand": (node("QLinearAdd", u8(2), s(0.1), z(0)), "needs input"),
    "activation": (node("FusedConv", f(1, 3, 6, 6), f(4, 3, 3, 3), activation="Cube"), "'Cube' is not supported"),
    "kind of attribute": (node("FusedMatMul", f(2, 3), f(3, 2), alpha=1), "'alpha' must be of type FLOAT"),
    "odd halves": (node("BiasSplitGelu", f(2, 3, 5), f(5)), "even number, not 5"),
    "distance": (node("CDist", f(2, 3), f(4, 3), metric="cosine"), "'metric' is 'cosine'; euclidean"),
    "no square": (node("Inverse", f(2, 3)), "no square matrices"),
    "long slices": (node("UnfoldTensor", f(2, 3), size=4), "do not fit a dimension of 3"),
    "groups of channels": (node("GroupNorm", f(1, 2, 2, 8), f(8), f(8), groups=3, activation=0), "groups|group_norm"),
    "norm activation": (node("GroupNorm", f(1, 2, 2, 8), f(8), f(8), groups=2, activation=7), "'activation' is 7"),
    "gate": (node("GatedRMSNorm", X, f(16), X, activation="cube"), "'activation' is 'cube'"),
    "branches": (node("BranchwiseRMSNorm", f(2, 10), num_branches=3), "10 does not divide into 3"),
    "known twice": (node("IsAllFinite", X, isnan_only=1, isinf_only=1), "exclude each other"),
}


@pytest.mark.parametrize("name", WRONG)
def test_error(name: str) -> None:
    case, words = WRONG[name]
    with pytest.raises(weft.UserError, match=words) as caught:
        frontend.load(make_model(case))
    assert f"{case.domain}.{case.op} '{case.op}_0'".lstrip(".") in str(caught.value)
    assert "do not fit its operator" not in str(caught.value)


def test_an_operator_that_is_missing() -> None:
    with pytest.raises(weft.UserError, match=r"com.microsoft.Snpe ×1"):
        frontend.load(make_model(node("Snpe", X)))
