"""Operators as older versions of the operator set define them, against onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from one_node import RNG, Array, OneNode, agree, by_interpreter, by_onnxruntime, f, n

I64 = np.int64


def old(
    op: str, opset: int, *operands: Array | None, outputs: int = 1, known: tuple[int, ...] = (), **attrs: Any
) -> OneNode:
    return OneNode(op, operands, attrs, outputs, known, domain="", opset=opset, name=str(opset))


X, IMAGE = f(2, 3, 4), f(1, 2, 6, 5)
CASES = (
    old("Slice", 9, X, starts=[1, -3], ends=[9, -1], axes=[1, 2]),
    old("Slice", 9, X, starts=[0, 1], ends=[1, 3]),
    old("Slice", 10, X, n(1, dtype=I64), n(9, dtype=I64), n(2, dtype=I64), known=(1, 2, 3)),
    old("Pad", 10, X, pads=[0, 1, 0, 0, 2, 1], value=0.5),
    old("Pad", 10, X, pads=[0, 1, 0, 0, 1, 1], mode="reflect"),
    old("Pad", 11, X, n(0, 1, 0, 0, 2, 1, dtype=I64), np.float32([0.5]).reshape(()), known=(1, 2)),
    old("TopK", 9, X, outputs=2, k=2),
    old("TopK", 10, X, n(2, dtype=I64), outputs=2, known=(1,), axis=1),
    old("Squeeze", 11, f(2, 1, 3, 1), axes=[1]),
    old("Squeeze", 11, f(2, 1, 3, 1), axes=[-1, 1]),
    old("Unsqueeze", 11, X, axes=[0, 4]),
    old("Unsqueeze", 11, X, axes=[-1]),
    old("Split", 11, f(2, 6), outputs=2, axis=1, split=[2, 4]),
    old("Split", 11, f(2, 6), outputs=3, axis=-1),
    old("Split", 13, f(2, 6), outputs=3, axis=1),
    *(
        old(r, 12, X, axes=[1], keepdims=0)
        for r in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp")
    ),
    old("ReduceSum", 11, X, axes=[-1, 0]),
    old("ReduceMean", 17, X, axes=[0, 2]),
    old("Clip", 10, X, min=-0.5, max=0.5),
    old("Clip", 6, X, max=0.5),
    old("Clip", 11, X, np.float32(-0.5), None, known=(1,)),
    old("Dropout", 7, X, ratio=0.3),
    replace(old("Dropout", 10, X, ratio=0.3, outputs=2), compared=(0,)),  # what the mask holds is left open
    old("Dropout", 12, X, outputs=2),
    old("BatchNormalization", 7, IMAGE, f(2), f(2), f(2), abs(f(2)) + 1),
    old("BatchNormalization", 9, IMAGE, f(2), f(2), f(2), abs(f(2)) + 1, epsilon=1e-2),
    old("Gemm", 7, f(3, 4), f(4, 5), f(5)),
    old("Gemm", 9, f(4, 3), f(5, 4), f(3, 1), transA=1, transB=1, alpha=0.5, beta=2.0),
    *(old(s, v, X, axis=a) for s in ("Softmax", "LogSoftmax", "Hardmax") for v in (7, 11) for a in (1, 2)),
    old("Hardmax", 13, X, axis=-2),
    old("Flatten", 9, X, axis=2),
    old("OneHot", 9, n(0, 2, 1, dtype=I64), np.array(3, I64), f(2), known=(1,)),
    old("Scatter", 9, f(3, 3), n(1, 0, 2, 0, 2, 1, dtype=I64).reshape(2, 3), f(2, 3)),
    old("ScatterElements", 11, f(3, 3), n(1, 0, 2, 0, 2, 1, dtype=I64).reshape(2, 3), f(2, 3), axis=1),
    old("Upsample", 7, IMAGE, mode="nearest", scales=[1.0, 1.0, 2.0, 3.0]),
    old("Upsample", 9, IMAGE, np.float32([1, 1, 2, 2]), known=(1,), mode="linear"),
    old("Resize", 10, IMAGE, np.float32([1, 1, 2, 2]), known=(1,), mode="nearest"),
    old("Resize", 10, IMAGE, np.float32([1, 1, 1.5, 0.5]), known=(1,), mode="linear"),
    old("Resize", 11, IMAGE, np.zeros(0, np.float32), np.float32([1, 1, 2, 2]), known=(1, 2), mode="cubic"),
    old(
        "Resize",
        13,
        IMAGE,
        None,
        np.float32([1, 1, 2, 0.5]),
        known=(2,),
        mode="linear",
        coordinate_transformation_mode="asymmetric",
    ),
    old("MaxPool", 8, IMAGE, kernel_shape=[2, 2], outputs=2),
    old("MaxPool", 8, IMAGE, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
    old("MaxPool", 10, IMAGE, kernel_shape=[2, 2], dilations=[2, 1], ceil_mode=1),
    old("AveragePool", 7, IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    old("AveragePool", 10, IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    old("LpPool", 2, IMAGE, kernel_shape=[2, 2], p=2),
    old("CumSum", 11, X, np.array(1, np.int32), known=(1,), reverse=1),
    old("Cast", 9, X, to=7),
    old("Equal", 7, n(1, 2, 3), n(1, 5, 3)),
    old("ArgMax", 11, X, axis=1, keepdims=0),
    old("ArgMin", 12, X, axis=-1, select_last_index=1),
    old("PRelu", 7, IMAGE, f(2, 1, 1)),
    old("LRN", 1, IMAGE, size=3),
    old("InstanceNormalization", 6, IMAGE, f(2), f(2)),
    old("Tile", 6, X, n(1, 2, 1, dtype=I64), known=(1,)),
    old("Expand", 8, f(3, 1), n(2, 3, 4, dtype=I64), known=(1,)),
    old("Mod", 10, n(-7, 5, 8), n(3, -3, 5)),
    old("Where", 9, RNG.random((2, 3)) > 0.5, f(2, 3), f(3)),
    old("MatMulInteger", 10, RNG.integers(0, 9, (2, 3)).astype(np.uint8), RNG.integers(0, 9, (3, 2)).astype(np.int8)),
    old(
        "DequantizeLinear",
        10,
        RNG.integers(0, 9, (2, 3)).astype(np.uint8),
        np.array(0.5, np.float32),
        np.array(3, np.uint8),
    ),
    old("QuantizeLinear", 10, X, np.array(0.25, np.float32), np.array(100, np.uint8)),
    old("DepthToSpace", 1, f(1, 8, 2, 3), blocksize=2),
    old("DepthToSpace", 11, f(1, 8, 2, 3), blocksize=2, mode="CRD"),
    old("GatherND", 11, X, n(0, 1, 1, 2, dtype=I64).reshape(2, 2)),
    old("GatherND", 12, f(2, 3, 4), n(1, 2, dtype=I64).reshape(2, 1), batch_dims=1),
    old("Reshape", 5, X, n(0, -1, dtype=I64), known=(1,)),
    old("Sum", 8, f(2, 3), f(3), f(1, 1)),
    old("Max", 8, f(2, 3), f(3)),
    old("GroupNormalization", 18, f(1, 4, 3, 3), f(2), f(2), num_groups=2),
    old(
        "RoiAlign",
        10,
        IMAGE,
        np.float32([[0, 0, 4, 4]]),
        n(0, dtype=I64),
        output_height=2,
        output_width=2,
        sampling_ratio=2,
    ),
    old("GRU", 7, f(4, 2, 3), f(1, 15, 3), f(1, 15, 5), f(1, 30), outputs=2, hidden_size=5),
    old("LSTM", 7, f(4, 2, 3), f(1, 20, 3), f(1, 20, 5), outputs=3, hidden_size=5),
    old("RNN", 7, f(4, 2, 3), f(2, 5, 3), f(2, 5, 5), outputs=2, hidden_size=5, direction="bidirectional"),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_old(case: OneNode) -> None:
    agree(case, by_interpreter(case), by_onnxruntime(case))
