"""Transposed convolutions as ordinary ones, which have the faster schedules. Applied before layouts are chosen.

A result of stride *s* falls into s × s phases by its position modulo s; each phase is a small convolution of the input
with every s-th element of the flipped kernel. All phases together are one convolution with s² times the channels, whose
results are put in place by ``depth_to_space``. Kernels whose size is no multiple of s are padded with zeros, so an
infinite input may turn a neighbouring result into NaN that the transposed form does not change.

Source: W. Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.graph.nodes import Constant, GraphExpr, call
from weft.graph.pattern import GraphMatch, GraphRule, anything, constant, op
from weft.ops.catalogue import op as operator
from weft.ops.rules.parts import CONV, CONV_TRANSPOSE, SLICE, attrs_of

DEPTH_TO_SPACE = operator("depth_to_space")


def _fits(m: GraphMatch) -> bool:
    attrs, data, kernel = attrs_of(m, "conv"), m.x.tensor, m.w.tensor
    strides, pads = tuple(attrs.strides or (1, 1)), tuple(attrs.pads or (0,) * 4)
    return (
        data.rank == 4
        and data.dtype.is_float
        and all(isinstance(d, int) for d in (*data.shape[1:], *kernel.shape, *m.root.tensor.shape[2:], *pads))
        and attrs.groups == 1
        and len(set(strides)) == 1
        and tuple(attrs.dilations or (1, 1)) == (1, 1)
        and min(pads) >= 0
        and min(kernel.shape[2:]) >= strides[0]
        and min(data.shape[2:]) >= 1
    )


def phases(kernel: np.ndarray[Any, Any], stride: int) -> np.ndarray[Any, Any]:
    """``IOHW`` weights of a transposed convolution as ``OIHW`` weights whose output channels are (O, row, column)."""
    inputs, outputs, height, width = kernel.shape
    rows, columns = -(-height // stride), -(-width // stride)
    full = np.zeros((inputs, outputs, rows * stride, columns * stride), kernel.dtype)
    full[:, :, :height, :width] = kernel
    split = full.reshape(inputs, outputs, rows, stride, columns, stride)[:, :, ::-1, :, ::-1]
    ordered = split.transpose(1, 3, 5, 0, 2, 4)
    return np.ascontiguousarray(ordered.reshape(outputs * stride * stride, inputs, rows, columns))


def _as_convolution(m: GraphMatch) -> GraphExpr | None:
    attrs = attrs_of(m, "conv")
    stride = (attrs.strides or (1, 1))[0]
    before = (attrs.pads or (0,) * 4)[:2]
    sizes, results = m.x.tensor.shape[2:], m.root.tensor.shape[2:]
    weights = phases(m.w.data, stride)
    taps = weights.shape[2:]
    needed = [(low + size - 1) // stride + 1 for low, size in zip(before, results, strict=True)]
    after = [count - size for count, size in zip(needed, sizes, strict=True)]
    if min(after) < 0:
        return None
    pads = (taps[0] - 1, taps[1] - 1, *after)
    made: GraphExpr = call(CONV, [m.x, Constant(weights, m.w.origin)], {"pads": pads})
    if stride > 1:
        made = call(DEPTH_TO_SPACE, [made], {"block_size": stride, "mode": "CRD"})
    end = tuple(low + size for low, size in zip(before, results, strict=True))
    return call(SLICE, [made], {"begin": before, "end": end, "axes": (2, 3)})


TRANSPOSED_RULES: tuple[GraphRule, ...] = (
    GraphRule(
        "transposed-convolution",
        op(CONV_TRANSPOSE, anything("x"), constant("w"), name="conv"),
        _as_convolution,
        when=_fits,
    ),
)
