"""3×3 convolutions by Winograd's minimal filtering, F(4×4, 3×3), over channel blocks.

A tile of 4×4 results takes 36 multiplications a channel pair instead of 144. Overlapping 6×6 tiles of the input are
transformed, multiplied with transformed weights as 36 independent matrix products, and transformed back.

Rounding: the transforms have coefficients up to 8, which costs two of the 24 bits of a float32 on average and three in
the worst element, compared with the direct form. Measured with normal inputs and weights, in parts of the root mean
square of the result; ``Options(winograd=False)`` keeps the direct form.

    channels × pixels   direct: rms, largest   F(4, 3): rms, largest
    64 × 56²            4.2e-7   4.0e-6        1.7e-6   3.1e-5
    128 × 28²           6.0e-7   5.5e-6        2.3e-6   3.7e-5
    256 × 14²           8.4e-7   7.7e-6        2.9e-6   4.9e-5
    512 × 14²           1.2e-6   1.1e-5        4.1e-6   9.4e-5

Source: A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2016.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.expr.nodes import Expr, select
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.stages import padded
from weft.support.memory import aligned_empty

Array = np.ndarray[Any, Any]

TILE = 4
"""Results of one tile in each direction."""
SPAN = TILE + 2
"""Inputs of one tile in each direction."""
_BLOCKS = 16
"""Channel blocks of weights that are transformed together."""

INPUT: Array = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
    np.float64,
)
OUTPUT: Array = np.array(
    [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], np.float64
)
WEIGHTS: Array = np.array(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ],
    np.float64,
)


def tiles(size: int) -> int:
    """Tiles needed for ``size`` results."""
    return -(-size // TILE)


def transform_weights(kernel: Array) -> Array:
    """``OIHW16i16o`` weights [O, I, 3, 3, i, o] → [6, 6, O, I, i, o], evaluated in float64.

    Some blocks at a time, so that the wide numbers stay in the cache.
    """
    outer, inner, height, width, *block = kernel.shape
    both = np.kron(WEIGHTS, WEIGHTS)
    source = kernel.reshape(outer * inner, height * width, math.prod(block))
    made = aligned_empty((SPAN * SPAN, outer * inner, math.prod(block)), kernel.dtype)
    for at in range(0, outer * inner, _BLOCKS):
        products = np.matmul(both, source[at : at + _BLOCKS].astype(np.float64))
        made[:, at : at + _BLOCKS] = products.transpose(1, 0, 2)
    return made.reshape(SPAN, SPAN, outer, inner, *block)


def _combine(row: Sequence[float], terms: Sequence[Expr]) -> Expr:
    """The sum of ``terms`` with small integer coefficients."""
    total: Expr | None = None
    for c, t in zip(row, terms, strict=True):
        if c == 0:
            continue
        if total is None:
            total = t if c == 1 else t * te.const(float(c), t.dtype)
        elif abs(c) == 1:
            total = total + t if c > 0 else total - t
        else:
            total = total + t * te.const(float(c), t.dtype)
    assert total is not None
    return total


def _case(which: Expr, values: Sequence[Expr]) -> Expr:
    """``values[which]``: loops over ``which`` are unrolled, so that only one remains."""
    made = values[-1]
    for position in range(len(values) - 2, -1, -1):
        made = select(which == position, values[position], made)
    return made


def _both(matrix: Array, i: Expr, j: Expr, at: Any) -> Expr:
    """Element (i, j) of ``matrix @ D @ matrix.T`` where ``at(a, b)`` is D."""
    span = matrix.shape[1]
    columns = [_case(i, [_combine(row, [at(a, b) for a in range(span)]) for row in matrix]) for b in range(span)]
    return _case(j, [_combine(row, columns) for row in matrix])


def _sizes(attrs: Attrs, data: TensorType) -> tuple[int, int]:
    """Height and width of the result."""
    before_h, before_w, after_h, after_w = attrs.pads
    height, width = (int(d) for d in data.shape[2:4])  # type: ignore[arg-type]  # constant
    return height + before_h + after_h - 2, width + before_w + after_w - 2


def _infer(attrs: Attrs, *types: Type) -> TensorType:
    data, weights = rel.tensors("winograd_conv", types, 2)
    if data.rank != 5 or not all(isinstance(d, int) for d in data.shape[1:]):
        rel.fail("winograd_conv", f"{data} is no tensor in channel blocks of static size", "T012")
    if weights.rank != 6 or weights.shape[:2] != (SPAN, SPAN):
        rel.fail("winograd_conv", f"{weights} are no transformed weights", "T012")
    rel.join_dim("winograd_conv", data.shape[1], weights.shape[3], "the channel blocks")
    height, width = _sizes(attrs, data)
    if min(height, width) < 1:
        rel.fail("winograd_conv", f"{data} is smaller than the window", "T013")
    return TensorType((data.shape[0], weights.shape[2], height, width, weights.shape[5]), data.dtype)


def _compute(attrs: Attrs, out: TensorType, data: te.Tensor, weights: te.Tensor) -> Any:
    source = TensorType.of(data.shape, data.dtype)
    height, width = (tiles(s) for s in _sizes(attrs, source))
    after = (
        TILE * t + 2 - int(size) - low  # type: ignore[arg-type]  # constant
        for t, size, low in zip((height, width), source.shape[2:4], attrs.pads[:2], strict=True)
    )
    wide = padded(data, (0, 0, *attrs.pads[:2], 0), (0, 0, *after, 0), 0.0, "winograd_pad")

    def transformed(i: Expr, j: Expr, c: Expr, p: Expr, lane: Expr) -> Expr:
        n, y, x = p // (height * width), p // width % height, p % width
        return _both(INPUT, i, j, lambda a, b: wide[n, c, y * TILE + a, x * TILE + b, lane])

    count = data.shape[0] * (height * width)
    moved = te.compute((SPAN, SPAN, data.shape[1], count, data.shape[4]), transformed, name="winograd_input")
    c, inner = te.reduce_axis((0, data.shape[1]), "c"), te.reduce_axis((0, data.shape[4]), "ci")

    def multiplied(i: Expr, j: Expr, o: Expr, p: Expr, lane: Expr) -> Expr:
        return te.sum(moved[i, j, c.var, p, inner.var] * weights[i, j, o, c.var, inner.var, lane], axis=[c, inner])

    blocks, lanes = weights.shape[2], weights.shape[5]
    products = te.compute((SPAN, SPAN, blocks, count, lanes), multiplied, name="winograd_multiply")

    def element(n: Expr, o: Expr, h: Expr, w: Expr, lane: Expr) -> Expr:
        p = n * (height * width) + h // TILE * width + w // TILE
        return _both(OUTPUT, h % TILE, w % TILE, lambda a, b: products[a, b, o, p, lane])

    return te.compute(out.shape, element, name="winograd_output")


def _reference(attrs: Attrs, data: Array, weights: Array) -> Array:
    """Tile by tile in float64."""
    n, c, h, w, lanes = data.shape
    height, width = h + attrs.pads[0] + attrs.pads[2] - 2, w + attrs.pads[1] + attrs.pads[3] - 2
    rows, columns = tiles(height), tiles(width)
    wide = np.zeros((n, c, TILE * rows + 2 + h, TILE * columns + 2 + w, lanes))
    wide[:, :, attrs.pads[0] : attrs.pads[0] + h, attrs.pads[1] : attrs.pads[1] + w] = data
    out = np.zeros((n, weights.shape[2], TILE * rows, TILE * columns, weights.shape[5]))
    for y in range(0, TILE * rows, TILE):
        for x in range(0, TILE * columns, TILE):
            patch = wide[:, :, y : y + SPAN, x : x + SPAN]
            moved = np.einsum("ia,ncabx,jb->ijncx", INPUT, patch, INPUT, optimize=True)
            products = np.einsum("ijncx,ijocxl->ijnol", moved, weights.astype(np.float64), optimize=True)
            made = np.einsum("ia,abnol,jb->noijl", OUTPUT, products, OUTPUT, optimize=True)
            out[:, :, y : y + TILE, x : x + TILE] = made
    return np.ascontiguousarray(out[:, :, :height, :width]).astype(data.dtype)


def _f(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, "float32"


WINOGRAD_CONV = OpDef(
    "winograd_conv",
    (Attribute("pads", REQUIRED, "padding before height and width, then after"),),
    _infer,
    _reference,
    compute=_compute,
    cases=(
        Case((_f(1, 2, 8, 8, 4), _f(6, 6, 2, 2, 4, 4)), {"pads": (1, 1, 1, 1)}, rtol=1e-4, atol=2e-2),
        Case((_f(2, 1, 7, 9, 4), _f(6, 6, 1, 1, 4, 4)), {"pads": (1, 0, 1, 2)}, rtol=1e-4, atol=2e-2),
        Case((_f(1, 1, 5, 3, 4), _f(6, 6, 2, 1, 4, 4)), {"pads": (0, 0, 0, 0)}, rtol=1e-4, atol=2e-2),
    ),
    doc="A 3×3 convolution of stride 1 over NCHW16c with transformed weights [6, 6, O, I, 16i, 16o].",
    source="Lavin and Gray 2016",
)
