"""Cases for the other operators of com.microsoft: fused formulas, normalizations, arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from one_node import RNG, Array, OneNode, f, n, s, u8, z


def c(
    op: str, name: str, *operands: Array | None, outputs: int = 1, known: tuple[int, ...] = (), **attrs: Any
) -> OneNode:
    return OneNode(op, operands, attrs, outputs, known, name=name)


X = f(2, 3, 8)
FUSED = (
    c("Gelu", "", X),
    c("FastGelu", "plain", X),
    c("FastGelu", "bias", X, f(8)),
    c("BiasGelu", "", X, f(8)),
    c("QuickGelu", "plain", X),
    c("QuickGelu", "alpha", X, alpha=0.5),
    c("FusedMatMul", "plain", f(2, 3, 4), f(2, 4, 5), alpha=0.5),
    c("FusedMatMul", "trans", f(2, 4, 3), f(2, 5, 4), transA=1, transB=1),
    c("FusedMatMul", "batch", f(3, 2, 4), f(2, 4, 5), transBatchA=1),
    c("FusedMatMul", "batch_both", f(4, 2, 3), f(4, 2, 5), transBatchA=1, transBatchB=1, transA=1),
    c("TransposeMatMul", "", f(4, 3), f(4, 5), transA=1, alpha=2.0),
    c("FusedGemm", "relu", f(3, 4), f(4, 5), f(5), activation="Relu"),
    c(
        "FusedGemm",
        "leaky",
        f(3, 4),
        f(5, 4),
        f(3, 1),
        activation="LeakyRelu",
        activation_alpha=0.2,
        transB=1,
        alpha=0.7,
        beta=2.0,
    ),
    c("FusedConv", "relu", f(1, 3, 6, 6), f(4, 3, 3, 3), f(4), activation="Relu", pads=[1, 1, 1, 1]),
    c("FusedConv", "add", f(1, 3, 6, 6), f(4, 3, 3, 3), f(4), f(1, 4, 4, 4), activation="Relu"),
    c("FusedConv", "clip", f(1, 3, 6, 6), f(4, 3, 3, 3), activation="Clip", activation_params=[-0.5, 0.5]),
    c(
        "FusedConv",
        "hard",
        f(1, 2, 6, 6),
        f(4, 1, 3, 3),
        activation="HardSigmoid",
        activation_params=[0.3, 0.4],
        group=2,
    ),
    c("GatedAdd", "", X, f(2, 3, 8), f(2, 3, 1)),
    c("ScaledSiLU", "alpha", X, alpha=1.5),
    c("ScaledSiLU", "scale", X, s(0.3)),
    c("LinearAttentionGate", "", f(2, 3, 4), f(4), f(4), f(2, 3, 4), outputs=2),
)

IDS, SEG = RNG.integers(0, 10, (2, 5)).astype(np.int32), RNG.integers(0, 2, (2, 5)).astype(np.int32)
MASK = n(1, 1, 1, 0, 0, 1, 1, 0, 0, 0).reshape(2, 5)
NORMALIZATION = (
    c("SkipLayerNormalization", "plain", X, f(2, 3, 8), f(8), f(8)),
    c("SkipLayerNormalization", "bias", X, f(2, 3, 8), f(8), f(8), f(8), epsilon=1e-3),
    c("SkipLayerNormalization", "no_beta", X, f(2, 3, 8), f(8)),
    c("SkipLayerNormalization", "broadcast", X, f(3, 8), f(8), f(8)),
    OneNode(
        "SkipLayerNormalization",
        (X, f(1, 3, 8), f(8), f(8), f(8)),
        {},
        4,
        name="sum",
        compared=(0, 3),
        declared={1: np.float32, 2: np.float32},
    ),
    c("SkipSimplifiedLayerNormalization", "plain", X, f(2, 3, 8), f(8)),
    c("SkipSimplifiedLayerNormalization", "bias", X, f(2, 3, 8), f(8), f(8), epsilon=1e-3),
    c("EmbedLayerNormalization", "plain", IDS, SEG, f(10, 8), f(6, 8), f(2, 8), f(8), f(8), MASK, outputs=2),
    c("EmbedLayerNormalization", "no_mask", IDS, SEG, f(10, 8), f(6, 8), f(2, 8), f(8), f(8), outputs=2),
    c("EmbedLayerNormalization", "no_segment", IDS, None, f(10, 8), f(6, 8), None, f(8), f(8), outputs=2, epsilon=1e-3),
    c(
        "EmbedLayerNormalization",
        "places",
        IDS,
        SEG,
        f(10, 8),
        f(6, 8),
        f(2, 8),
        f(8),
        f(8),
        MASK,
        n(0, 1, 2, 2, 1).reshape(1, 5),
        outputs=3,
    ),
    c(
        "QEmbedLayerNormalization",
        "plain",
        IDS,
        SEG,
        u8(10, 8),
        u8(6, 8),
        u8(2, 8),
        u8(8),
        u8(8),
        MASK,
        s(0.01),
        s(0.02),
        s(0.03),
        s(0.01),
        s(0.02),
        z(120),
        z(130),
        z(125),
        z(100),
        z(128),
        outputs=2,
    ),
    c("GatedRMSNorm", "silu", X, f(4), f(2, 3, 8)),
    c("GatedRMSNorm", "sigmoid", X, f(8), f(2, 3, 8), activation="sigmoid", epsilon=1e-2),
    c("BranchwiseRMSNorm", "grouped", f(2, 3, 4), f(3, 4)),
    c("BranchwiseRMSNorm", "flat", f(2, 12), f(12), num_branches=3),
    c("BranchwiseRMSNorm", "shared", f(2, 12), f(4), num_branches=3),
    c("BranchwiseRMSNorm", "no_scale", f(2, 3, 4), epsilon=1e-2),
)

SQUARE = f(2, 5, 5) + 3 * np.eye(5, dtype=np.float32)
IMAGE = f(2, 3, 6, 5)
BOXES = np.array([[0, 0, 1, 1], [0.2, 0.1, 0.9, 0.7], [-0.2, 0.5, 0.4, 1.3]], np.float32)
ARRAYS = (
    c("Pad", "constant", f(2, 3), n(1, 0, 0, 2, dtype=np.int64), s(0.5), known=(1, 2)),
    c("Pad", "two", f(2, 3), n(1, 0, 0, 2, dtype=np.int64).reshape(1, 4), known=(1,)),
    c("Pad", "edge", f(2, 3), n(1, 0, 0, 2, dtype=np.int64), known=(1,), mode="edge"),
    c("Pad", "reflect", f(4, 4), n(1, 0, 0, 2, dtype=np.int64), known=(1,), mode="reflect"),
    c("Unique", "", np.array([2, 1, 1, 3, 4, 3], np.float32), outputs=3),
    c("GatherND", "", f(2, 3, 4), np.array([[0, 1], [1, 2]], np.int64)),
    c("Range", "three", n(3), n(10), n(2), known=(0, 1, 2)),
    c("Range", "two", s(0.5), s(4.2), known=(0, 1)),
    c("Trilu", "upper", f(4, 5)),
    c("Trilu", "lower", f(4, 5), np.array(1, np.int64), known=(1,), upper=0),
    c("ExpandDims", "", f(2, 3), np.array(1, np.int32), known=(1,)),
    c("UnfoldTensor", "last", f(3, 7), size=3, step=2),
    c("UnfoldTensor", "first", f(7, 3), size=2, dim=0),
    c("Inverse", "batch", SQUARE),
    c("Inverse", "one", np.asarray(SQUARE[0]) - np.diag(np.diag(SQUARE[0]))),
    OneNode("CDist", (f(3, 4), f(5, 4)), {"metric": "sqeuclidean"}, name="squares", rtol=1e-3, atol=1e-4),
    OneNode("CDist", (f(3, 4), f(5, 4)), {"metric": "euclidean"}, name="lengths", rtol=1e-3, atol=1e-4),
    c("CropAndResize", "bilinear", IMAGE, BOXES, n(0, 1, 0), n(4, 3), known=(3,)),
    c(
        "CropAndResize",
        "nearest",
        IMAGE,
        BOXES,
        n(0, 1, 1),
        n(3, 3),
        known=(3,),
        mode="nearest",
        extrapolation_value=2.0,
    ),
    c("CropAndResize", "single", IMAGE, BOXES, n(0, 1, 1), n(1, 1), known=(3,)),
    c("GridSample", "bilinear", f(1, 2, 4, 4), np.tanh(f(1, 3, 3, 2))),
    c("GridSample", "bicubic", f(1, 2, 4, 4), np.tanh(f(1, 3, 3, 2)), mode="bicubic", padding_mode="border"),
    c("NGramRepeatBlock", "", RNG.integers(0, 3, (2, 7)), f(2, 4), ngram_size=2),
    c("NGramRepeatBlock", "one", RNG.integers(0, 3, (2, 7)), f(2, 4), ngram_size=1),
    c("ConvTransposeWithDynamicPads", "", f(1, 2, 5, 5), f(2, 3, 3, 3), n(1, 1, 0, 1, dtype=np.int64), known=(2,)),
    c(
        "ConvTransposeWithDynamicPads",
        "bias",
        f(1, 2, 5, 5),
        f(2, 3, 3, 3),
        n(1, 1, 0, 1, dtype=np.int64),
        f(3),
        known=(2,),
        strides=[2, 2],
    ),
)

ROIS = np.array([[0, 0, 0, 4, 5], [1, 1, 2, 3, 3], [0, 2, 2, 2, 2], [1, 3, 1, 12, 9]], np.float32)
WIDE_ROIS = ROIS * np.float32([1, 2, 2, 2, 2])
STANDARD = (
    OneNode("MaxRoiPool", (IMAGE, ROIS), {"pooled_shape": [2, 2]}, domain="", name="plain"),
    OneNode("MaxRoiPool", (IMAGE, WIDE_ROIS), {"pooled_shape": [3, 2], "spatial_scale": 0.5}, domain="", name="scaled"),
)

VARIOUS_CASES = (*FUSED, *NORMALIZATION, *ARRAYS, *STANDARD)
