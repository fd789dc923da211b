"""Transposed convolutions become ordinary convolutions, which have faster schedules. Applied before layouts are chosen.

Along one dimension of stride *s* and dilation *d*, element q of the result (counted before cropping) is the sum over
the taps k with q - k·d divisible by s. So the results form s phases, by q modulo s. Each phase is a small convolution
of the input with some taps of the flipped kernel. All phases of all dimensions together are one convolution with more
channels; ``depth_to_space`` puts its results in place. If a phase has fewer taps than another, its kernel is filled
with zeros. An infinite input may therefore make a neighbouring result NaN, which the transposed form would not. Phases
without taps (the kernel is smaller than the stride) are not computed; their results are zero.

Source: W. Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.graph.nodes import Constant, GraphExpr, call
from weft.graph.pattern import GraphMatch, GraphRule, anything, op
from weft.graph.types import Dim
from weft.ops.catalogue import op as operator
from weft.ops.relations import known
from weft.ops.rules.parts import CONV, CONV_TRANSPOSE, GATHER, PAD, RESHAPE, SLICE, TRANSPOSE, attrs_of, fold

DEPTH_TO_SPACE = operator("depth_to_space")


@dataclass(frozen=True, slots=True)
class AxisPhases:
    """The ordinary convolution of one spatial dimension of a transposed convolution.

    ``taps[phase][position]``: the tap of the kernel that a phase uses at a position of the new window; the number of
    taps means zero. ``pads``: elements added to the input (negative: removed). ``crop``: elements removed from the
    result after the phases are in place.
    """

    stride: int
    taps: tuple[tuple[int, ...], ...]
    dilation: int
    pads: tuple[int, int]
    crop: tuple[int, int]


def axis_phases(
    kernel: int, stride: int, dilation: int, pads: tuple[int, int], extra: int, size: Dim | None = None
) -> AxisPhases:
    """The phases for ``kernel`` taps and the output padding ``extra``, all in elements. If the ``size`` of the input is
    1, the stride has no effect, and the whole kernel becomes phases of one tap each."""
    if size == 1:
        stride = (kernel - 1) * dilation + 1 + extra
    places = [divmod(k * dilation, stride) for k in range(kernel)]
    used = sorted({phase for _, phase in places})
    count = len(used) if used == list(range(len(used))) else stride
    far = max(distance for distance, _ in places)
    step = math.gcd(*(distance for distance, _ in places)) or 1
    last = far // step
    taps = [[kernel] * (last + 1) for _ in range(count)]
    for tap, (distance, phase) in enumerate(places):
        taps[phase][last - distance // step] = tap
    low, high = pads
    end = (kernel - 1) * dilation + extra - high
    return AxisPhases(
        stride,
        tuple(map(tuple, taps)),
        step,
        (far - low // stride, end // stride),
        (low % stride, stride - 1 - end % stride),
    )


def _whole(values: Any) -> bool:
    return all(isinstance(v, int) for v in values)


def _fits(m: GraphMatch) -> bool:
    attrs, data, kernel = attrs_of(m, "conv"), m.x.tensor, m.w.tensor
    return (
        _whole((data.shape[1], *kernel.shape, *(attrs.pads or ())))
        and min(data.shape[1], *kernel.shape) >= 1
        and all(not isinstance(d, int) or d >= 1 for d in (*data.shape, *m.root.tensor.shape))
    )


def _axes(m: GraphMatch) -> list[AxisPhases]:
    attrs, kernel = attrs_of(m, "conv"), m.w.tensor.shape[2:]
    n = len(kernel)
    pads = attrs.pads or (0,) * 2 * n
    return [
        axis_phases(taps, stride, dilation, (low, high), extra, size)
        for taps, stride, dilation, low, high, extra, size in zip(
            kernel,
            attrs.strides or (1,) * n,
            attrs.dilations or (1,) * n,
            pads[:n],
            pads[n:],
            attrs.output_padding or (0,) * n,
            m.x.tensor.shape[2:],
            strict=True,
        )
    ]


def _weights(kernel: GraphExpr, axes: list[AxisPhases], groups: int) -> GraphExpr:
    """The kernel [G·I, O, taps…] of the transposed convolution as [G·O·phases, I, window…]; computed at once if it is
    constant."""
    inputs, outputs, *taps = known(kernel.tensor.shape)
    made = fold(RESHAPE, [kernel], {"shape": (groups, inputs // groups, outputs, *taps)})
    if any(size in tap for size, axis in zip(taps, axes, strict=True) for tap in axis.taps):
        zeros = [(0, 0)] * 3 + [(0, 1)] * len(taps)
        made = fold(PAD, [made], {"pads": tuple(pair[side] for side in (0, 1) for pair in zeros)})
    for d, axis in enumerate(axes):
        made = fold(GATHER, [made, Constant(np.asarray(axis.taps, np.int64))], {"axis": 3 + 2 * d})
    n = len(axes)
    phases, window = [3 + 2 * d for d in range(n)], [4 + 2 * d for d in range(n)]
    made = fold(TRANSPOSE, [made], {"perm": (0, 2, *phases, 1, *window)})
    shape = (
        groups * outputs * math.prod(len(axis.taps) for axis in axes),
        inputs // groups,
        *(len(axis.taps[0]) for axis in axes),
    )
    return fold(RESHAPE, [made], {"shape": shape})


def _as_convolution(m: GraphMatch) -> GraphExpr | None:
    attrs, data, axes = attrs_of(m, "conv"), m.x, _axes(m)
    removed = [tuple(min(p, 0) for p in axis.pads) for axis in axes]
    if any(map(any, removed)):
        kept = [
            size + sum(p) if isinstance(size, int) else 0
            for size, p in zip(data.tensor.shape[2:], removed, strict=True)
            if any(p)
        ]
        if min(kept) < 1:
            return None  # nothing remains, or the size is symbolic
        data = _padded(data, 2, removed)
    added = [tuple(max(p, 0) for p in axis.pads) for axis in axes]
    made: GraphExpr = call(
        CONV,
        [data, _weights(m.w, axes, attrs.groups)],
        {
            "pads": tuple(pair[side] for side in (0, 1) for pair in added),
            "dilations": tuple(axis.dilation for axis in axes),
            "groups": attrs.groups,
        },
    )
    channels = m.root.tensor.shape[1]
    counts, strides = tuple(len(axis.taps) for axis in axes), tuple(axis.stride for axis in axes)
    if counts != strides:
        batch, _, *space = made.tensor.shape
        made = call(RESHAPE, [made], {"shape": (batch, channels, *counts, *space)})
        gaps = [(0, stride - count) for count, stride in zip(counts, strides, strict=True)]
        made = _padded(made, 2, [*gaps, *[(0, 0)] * len(axes)])
        made = call(RESHAPE, [made], {"shape": (batch, channels * math.prod(strides), *space)})
    if any(stride > 1 for stride in strides):
        made = call(DEPTH_TO_SPACE, [made], {"block_size": strides, "mode": "CRD"})
    if any(map(any, (axis.crop for axis in axes))):
        begin = tuple(axis.crop[0] for axis in axes)
        end = tuple(-axis.crop[1] or None for axis in axes)
        made = call(SLICE, [made], {"begin": begin, "end": end, "axes": tuple(range(2, 2 + len(axes)))})
    return made


def _padded(data: GraphExpr, first: int, pads: list[tuple[int, ...]]) -> GraphExpr:
    """``data`` with zeros around its dimensions from ``first`` on; negative amounts remove elements."""
    none = (0,) * first
    return call(PAD, [data], {"pads": (*none, *(p[0] for p in pads), *none, *(p[1] for p in pads))})


TRANSPOSED_RULES: tuple[GraphRule, ...] = (
    GraphRule(
        "transposed-convolution",
        op(CONV_TRANSPOSE, anything("x"), anything("w"), name="conv"),
        _as_convolution,
        when=_fits,
    ),
)
