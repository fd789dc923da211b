"""Fourier transforms as products with constant matrices, mel filters, determinants."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.frontend.onnx.converters.numbers import Tensor, constant, operand
from weft.frontend.onnx.node import Node, Result
from weft.frontend.onnx.problems import Malformed, Unsupported
from weft.frontend.onnx.tensors import Array, dtype_of
from weft.graph.types import Dim

MAX_LENGTH = 1 << 14
"""Transforms of longer signals would need matrices out of proportion."""


def _known(d: Dim, what: str) -> int:
    if not isinstance(d, int):
        raise Unsupported(f"{what} must be known, but is {d}")
    if d > MAX_LENGTH:
        raise Unsupported(f"{what} is {d}; up to {MAX_LENGTH} is supported")
    return d


def _angles(rows: int, columns: int, length: int) -> Array:
    """2π · row · column / length, reduced first so that nothing is lost."""
    return np.outer(np.arange(rows), np.arange(columns)) % length * (2 * np.pi / length)


def transform_matrix(used: int, length: int, parts: int, *, inverse: bool, onesided: bool) -> Array:
    """The matrix of a discrete Fourier transform, (used · parts) × (outputs · parts out): ``used`` samples of ``parts``
    (1: real, 2: real and imaginary, neighbours) to spectra, real and imaginary parts neighbours."""
    if inverse and onesided:  # half of a Hermitian spectrum to a real signal
        weight = np.full((used, 1), 2.0)
        weight[0] = 1.0
        if length % 2 == 0 and used > length // 2:
            weight[length // 2] = 1.0
        angles = _angles(used, length, length)
        made = np.stack([weight * np.cos(angles), -weight * np.sin(angles)], axis=1)[:, :parts]
        return made.reshape(used * parts, length) / length
    outputs = length // 2 + 1 if onesided else length
    angles = _angles(used, outputs, length) * (-1 if inverse else 1)
    cos, sin = np.cos(angles), np.sin(angles)
    rows = np.stack([np.stack([cos, -sin], axis=-1), np.stack([sin, cos], axis=-1)], axis=1)[:, :parts]
    made = rows.reshape(used * parts, outputs * 2)
    return made / length if inverse else made


def transformed(x: Tensor, axis: int, length: int | None, *, inverse: bool = False, onesided: bool = False) -> Tensor:
    """The transform along ``axis`` of a signal whose last axis holds its real (and imaginary) parts."""
    rank = len(x.shape)
    parts = _known(x.shape[-1], "the number of parts")
    given = _known(x.shape[axis], "the length of the signal")
    if parts not in (1, 2) or axis == rank - 1:
        raise Malformed(f"it transforms axis {axis} of {x.x.tensor}, whose last axis must hold one or two parts")
    if length is None:
        length = 2 * (given - 1) if inverse and onesided else given
    length = _known(length, "the length of the transform")
    used = min(given, length // 2 + 1 if inverse and onesided else length)
    if length < 1:
        raise Malformed(f"the length of the transform is {length}")
    if used < given:
        x = x.part(axis, 0, used)
    order = (*(i for i in range(rank - 1) if i != axis), axis, rank - 1)
    moved = x.transpose(*order)
    matrix = transform_matrix(used, length, parts, inverse=inverse, onesided=onesided)
    parts_out = 1 if inverse and onesided else 2
    outer = moved.shape[:-2]
    flat = moved.reshape(*outer, used * parts).call("matmul", constant(x.node, matrix, x.dtype))
    back = [0] * rank
    for i, o in enumerate(order):
        back[o] = i
    return flat.reshape(*outer, matrix.shape[1] // parts_out, parts_out).transpose(*back)


def _dft(node: Node) -> Result:
    x = operand(node, 0)
    rank = len(x.shape)
    axis = node.integer("axis", 1 if node.opset < 20 else -2)
    if node.has(2):
        (axis,) = node.numbers(2, "axis")
    length = node.numbers(1, "dft_length")[0] if node.has(1) else None
    return transformed(
        x, node.checked_axis(axis, rank), length, inverse=node.flag("inverse"), onesided=node.flag("onesided")
    ).x


def _stft(node: Node) -> Result:
    signal = operand(node, 0)
    (step,) = node.numbers(1, "frame_step")
    shaped = operand(node, 2) if node.has(2) else None
    if node.has(3):
        length = node.numbers(3, "frame_length")[0]
    elif shaped is not None:
        length = _known(shaped.shape[0], "the length of the window")
    else:
        raise Malformed("it needs a window or a frame length")
    samples = _known(signal.shape[1], "the length of the signal")
    if step < 1 or not 0 < length <= samples:
        raise Malformed(f"frames of {length} samples, {step} apart, do not fit a signal of {samples}")
    starts = np.arange((samples - length) // step + 1) * step
    frames = signal.call("gather", constant(node, starts[:, None] + np.arange(length), "int64"), axis=1)
    if shaped is not None:
        frames = frames * shaped.reshape(length, 1)
    return transformed(frames, 2, None, onesided=node.flag("onesided", True)).x


def _mel_weights(node: Node) -> Result:
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    bins, length, rate, low, high = (node.known(i, n).reshape(-1)[0] for i, n in enumerate(names))
    ends = 2595 * np.log1p(np.array([low, high], np.float64) / 700) / np.log(10)
    places = ends[0] + np.arange(bins + 2) * ((ends[1] - ends[0]) / (bins + 2))
    hertz = 700 * np.expm1(places / 2595 * np.log(10))
    edges = ((int(length) + 1) * hertz // rate).astype(int)
    made = np.zeros((int(length) // 2 + 1, int(bins)))
    for i, (left, middle, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        if left == middle:
            made[middle, i] = 1
        else:
            made[left : middle + 1, i] = np.arange(middle - left + 1) / (middle - left)
        if right > middle:
            made[middle:right, i] = (right - np.arange(middle, right)) / (right - middle)
    return node.constant(made.astype(dtype_of(node.integer("output_datatype", 1)).numpy))


def _det(node: Node) -> Result:
    """Elimination with row pivoting, unrolled over the (known) size of the matrices."""
    x = operand(node, 0)
    *batch, rows, n = x.shape
    if rows != n or not isinstance(n, int) or n > 64:
        raise Unsupported("determinants are supported of square matrices up to 64 × 64")
    a = x.to("float64") if x.dtype.bits > 32 else x.to("float32")
    total = constant(node, 1, a.dtype).expand(*batch)
    for left in range(n, 0, -1):
        places = constant(node, np.arange(left), "int64")
        best = a.part(len(batch) + 1, 0).call("abs").call("argmax", axis=-1, keepdims=True)
        chosen = places.equals(best).call("unsqueeze", axes=(-1,))
        pivot = chosen.choose(a, 0.0).call("reduce_sum", axes=(-2,), keepdims=True)
        first = a.part(len(batch), 0, 1)
        swapped = chosen.choose(first.expand(*a.shape), a)
        head = pivot.part(len(batch) + 1, 0, 1)
        sign = best.equals(0).to(a.dtype) * 2.0 - 1.0
        total = total * head.reshape(*batch) * sign.reshape(*batch)
        if left == 1:
            break
        rest = swapped.part(len(batch), 1, left)
        safe = head.equals(0.0).choose(head * 0.0 + 1.0, head)
        a = (rest - rest.part(len(batch) + 1, 0, 1) / safe * pivot).part(len(batch) + 1, 1, left)
    return total.to(x.dtype).x


SPECTRAL: dict[str, Callable[[Node], Result]] = {
    "DFT": _dft,
    "Det": _det,
    "MelWeightMatrix": _mel_weights,
    "STFT": _stft,
}
