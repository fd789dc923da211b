"""3×3 convolutions by Winograd's minimal filtering, F(2×2, 3×3) and F(4×4, 3×3), over channel blocks.

A tile of 4×4 results takes 36 multiplications a channel pair instead of 144, one of 2×2 takes 16 instead of 36.
Overlapping tiles of the input are transformed, multiplied with transformed weights as 36 or 16 independent matrix
products, and transformed back. Small tiles waste less at the edges of small pictures, have fewer weights to read and
simpler transforms; ``weft.ops.rules.winograd`` estimates which form is the fastest.

Rounding: F(4, 3) has coefficients up to 8, which cost two of the 24 bits of a float32 on average and three in the worst
element, compared with the direct form. F(2, 3) only adds and subtracts, and its sums are nine times shorter: it is more
exact than the direct form. Measured with normal inputs and weights, in parts of the root mean square of the result;
``Options(winograd=2)`` allows F(2, 3) alone, ``Options(winograd=False)`` keeps the direct form. F(6, 3) would round
twice as much as F(4, 3) and is not offered.

    channels × pixels   direct: rms, largest   F(2, 3): rms, largest   F(4, 3): rms, largest
    64 × 56²            4.2e-7   4.0e-6        2.6e-7   1.6e-6         1.7e-6   3.1e-5
    128 × 28²           6.0e-7   5.5e-6        3.6e-7   2.3e-6         2.3e-6   3.7e-5
    256 × 14²           8.4e-7   7.7e-6        5.1e-7   3.2e-6         2.9e-6   4.9e-5
    512 × 14²           1.2e-6   1.1e-5        6.9e-7   3.7e-6         4.1e-6   9.4e-5
    512 × 7²            1.1e-6   1.1e-5        6.7e-7   4.2e-6         3.4e-6   5.2e-5

Results of a tile are sums and differences of products that all of its inputs went into. So an infinite or NaN input may
make NaN of every result of its tiles, also of those whose window does not see it, where the direct form would give
infinity or a number.

Source: A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2016.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Expr, select
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.cook_toom import Filtering, Matrix, cook_toom
from weft.ops.definition import Case, OpDef
from weft.ops.stages import padded
from weft.support.memory import aligned_empty
from weft.support.threads import for_each

Array = np.ndarray[Any, Any]

WINDOW = 3
"""Weights of the window in each direction."""
POINTS: dict[int, tuple[int, ...]] = {2: (0, 1, -1), 4: (0, 1, -1, 2, -2)}
"""Tiles on offer: results of one in each direction, and the points at which its polynomials are multiplied."""
_BLOCKS_AT_A_TIME = 16
"""Channel blocks of weights that are transformed together."""


def filtering(tile: int) -> Filtering:
    """The transforms of F(``tile``, 3)."""
    return cook_toom(tile, WINDOW, POINTS[tile])


def span(tile: int) -> int:
    """Inputs of one tile in each direction."""
    return tile + WINDOW - 1


def tiles(size: int, tile: int) -> int:
    """Tiles needed for ``size`` results."""
    return -(-size // tile)


def as_floats(matrix: Matrix) -> Array:
    """The entries in float64."""
    return np.array(matrix, np.float64)


def transform_weights(kernel: Array, tile: int) -> Array:
    """``OIHW16i16o`` weights [O, I, 3, 3, i, o] → [tile + 2, tile + 2, O, I, i, o], evaluated in float64.

    Some blocks at a time, so that the wide numbers stay in the cache.
    """
    outer, inner, height, width, *block = kernel.shape
    matrix, side = as_floats(filtering(tile).weights), span(tile)
    both = np.kron(matrix, matrix)
    source = kernel.reshape(outer * inner, height * width, math.prod(block))
    made = aligned_empty((side * side, outer * inner, math.prod(block)), kernel.dtype)

    def transform(at: int) -> None:
        products = np.matmul(both, source[at : at + _BLOCKS_AT_A_TIME].astype(np.float64))
        made[:, at : at + _BLOCKS_AT_A_TIME] = products.transpose(1, 0, 2)

    for_each(transform, range(0, outer * inner, _BLOCKS_AT_A_TIME))
    return made.reshape(side, side, outer, inner, *block)


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
    side = matrix.shape[1]
    columns = [_case(i, [_combine(row, [at(a, b) for a in range(side)]) for row in matrix]) for b in range(side)]
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
    if weights.rank != 6 or not any(weights.shape[:2] == (span(t), span(t)) for t in POINTS):
        rel.fail("winograd_conv", f"{weights} are no transformed weights", "T012")
    rel.join_dim("winograd_conv", data.shape[1], weights.shape[3], "the channel blocks")
    height, width = _sizes(attrs, data)
    if min(height, width) < 1:
        rel.fail("winograd_conv", f"{data} is smaller than the window", "T013")
    return TensorType((data.shape[0], weights.shape[2], height, width, weights.shape[5]), data.dtype)


def _compute(attrs: Attrs, out: TensorType, data: te.Tensor, weights: te.Tensor) -> Any:
    source, kernel = TensorType.of(data.shape, data.dtype), TensorType.of(weights.shape, weights.dtype)
    side = int(kernel.shape[0])  # type: ignore[arg-type]  # constant
    tile = side - WINDOW + 1
    forward, back = (as_floats(m) for m in (filtering(tile).input, filtering(tile).output))
    height, width = (tiles(s, tile) for s in _sizes(attrs, source))
    after = (
        tile * t + 2 - int(size) - low  # type: ignore[arg-type]  # constant
        for t, size, low in zip((height, width), source.shape[2:4], attrs.pads[:2], strict=True)
    )
    wide = padded(data, (0, 0, *attrs.pads[:2], 0), (0, 0, *after, 0), 0.0, "winograd_pad")

    def transformed(i: Expr, j: Expr, c: Expr, p: Expr, lane: Expr) -> Expr:
        n, y, x = p // (height * width), p // width % height, p % width
        return _both(forward, i, j, lambda a, b: wide[n, c, y * tile + a, x * tile + b, lane])

    count = data.shape[0] * (height * width)
    moved = te.compute((side, side, data.shape[1], count, data.shape[4]), transformed, name="winograd_input")
    c, inner = te.reduce_axis((0, data.shape[1]), "c"), te.reduce_axis((0, data.shape[4]), "ci")

    def multiplied(i: Expr, j: Expr, o: Expr, p: Expr, lane: Expr) -> Expr:
        return te.sum(moved[i, j, c.var, p, inner.var] * weights[i, j, o, c.var, inner.var, lane], axis=[c, inner])

    blocks, lanes = weights.shape[2], weights.shape[5]
    products = te.compute((side, side, blocks, count, lanes), multiplied, name="winograd_multiply")

    def element(n: Expr, o: Expr, h: Expr, w: Expr, lane: Expr) -> Expr:
        p = n * (height * width) + h // tile * width + w // tile
        return _both(back, h % tile, w % tile, lambda a, b: products[a, b, o, p, lane])

    return te.compute(out.shape, element, name="winograd_output")


def _reference(attrs: Attrs, data: Array, weights: Array) -> Array:
    """Tile by tile in float64."""
    side = weights.shape[0]
    tile = side - WINDOW + 1
    forward, back = (as_floats(m) for m in (filtering(tile).input, filtering(tile).output))
    n, c, h, w, lanes = data.shape
    height, width = h + attrs.pads[0] + attrs.pads[2] - 2, w + attrs.pads[1] + attrs.pads[3] - 2
    rows, columns = tile * tiles(height, tile), tile * tiles(width, tile)
    wide = np.zeros((n, c, rows + 2 + h, columns + 2 + w, lanes))
    wide[:, :, attrs.pads[0] : attrs.pads[0] + h, attrs.pads[1] : attrs.pads[1] + w] = data
    out = np.zeros((n, weights.shape[2], rows, columns, weights.shape[5]))
    for y in range(0, rows, tile):
        for x in range(0, columns, tile):
            patch = wide[:, :, y : y + side, x : x + side]
            moved = np.einsum("ia,ncabx,jb->ijncx", forward, patch, forward, optimize=True)
            products = np.einsum("ijncx,ijocxl->ijnol", moved, weights.astype(np.float64), optimize=True)
            made = np.einsum("ia,abnol,jb->noijl", back, products, back, optimize=True)
            out[:, :, y : y + tile, x : x + tile] = made
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
        Case((_f(1, 2, 8, 8, 4), _f(4, 4, 2, 2, 4, 4)), {"pads": (1, 1, 1, 1)}, rtol=1e-4, atol=1e-3),
        Case((_f(2, 1, 7, 9, 4), _f(4, 4, 1, 1, 4, 4)), {"pads": (1, 0, 1, 2)}, rtol=1e-4, atol=1e-3),
    ),
    doc="A 3×3 convolution of stride 1 over NCHW16c with weights [t + 2, t + 2, O, I, 16i, 16o] that are "
    "transformed for tiles of t × t results, t = 2 or 4.",
    source="Lavin and Gray 2016",
)
