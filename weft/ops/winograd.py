"""3×3 convolutions by Winograd's minimal filtering, F(4×4, 3×3), in three steps over channel blocks.

A tile of 4×4 results takes 36 multiplications a channel pair instead of 144. Overlapping 6×6 tiles of the input are
transformed (``winograd_input``), multiplied with transformed weights as 36 independent matrix products
(``winograd_multiply``) and transformed back (``winograd_output``). Rounding: the transforms have coefficients up to 8,
which costs about two of the 24 bits of a float32 compared with the direct form.

Source: A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2016.
"""

from __future__ import annotations

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

Array = np.ndarray[Any, Any]

TILE = 4
"""Results of one tile in each direction."""
SPAN = TILE + 2
"""Inputs of one tile in each direction."""

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
    """``OIHW16i16o`` weights [O, I, 3, 3, i, o] → [6, 6, O, I, i, o], evaluated in float64."""
    wide = kernel.astype(np.float64)
    made = np.einsum("ar,xyrsio,bs->abxyio", WEIGHTS, wide, WEIGHTS, optimize=True)
    return np.ascontiguousarray(made.astype(kernel.dtype))


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


# ---- the input ------------------------------------------------------------------------------------------------------


def _result_size(attrs: Attrs, data: TensorType) -> tuple[int, int]:
    before_h, before_w, after_h, after_w = attrs.pads
    return int(data.shape[2]) + before_h + after_h - 2, int(data.shape[3]) + before_w + after_w - 2  # type: ignore[arg-type]


def _input_infer(attrs: Attrs, *types: Type) -> TensorType:
    (data,) = rel.tensors("winograd_input", types, 1)
    if data.rank != 5 or not all(isinstance(d, int) for d in data.shape[1:]):
        rel.fail("winograd_input", f"{data} is no static tensor in channel blocks", "T012")
    height, width = _result_size(attrs, data)
    count = rel.multiply((data.shape[0], tiles(height) * tiles(width)))
    return TensorType((SPAN, SPAN, data.shape[1], count, data.shape[4]), data.dtype)


def _input_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    source = TensorType.of(data.shape, data.dtype)
    height, width = (tiles(s) for s in _result_size(attrs, source))
    before = (0, 0, attrs.pads[0], attrs.pads[1], 0)
    after = tuple(
        TILE * t + 2 - int(size) - low  # type: ignore[arg-type]
        for t, size, low in zip((height, width), source.shape[2:4], attrs.pads[:2], strict=True)
    )
    wide = padded(data, before, (0, 0, *after, 0), 0.0, "winograd_padded")

    def element(i: Expr, j: Expr, c: Expr, p: Expr, lane: Expr) -> Expr:
        n, y, x = p // (height * width), p // width % height, p % width
        return _both(INPUT, i, j, lambda a, b: wide[n, c, y * TILE + a, x * TILE + b, lane])

    return te.compute(out.shape, element, name="winograd_input")


def _cut(attrs: Attrs, data: Array) -> Array:
    """Tiles of the padded input: [C, P, l, 6, 6]."""
    n, c, h, w, lanes = data.shape
    rows, columns = tiles(h + attrs.pads[0] + attrs.pads[2] - 2), tiles(w + attrs.pads[1] + attrs.pads[3] - 2)
    wide = np.zeros((n, c, TILE * rows + 2, TILE * columns + 2, lanes), data.dtype)
    cut_h, cut_w = min(h, wide.shape[2] - attrs.pads[0]), min(w, wide.shape[3] - attrs.pads[1])
    wide[:, :, attrs.pads[0] : attrs.pads[0] + cut_h, attrs.pads[1] : attrs.pads[1] + cut_w] = data[
        :, :, :cut_h, :cut_w
    ]
    out = np.empty((c, n, rows, columns, lanes, SPAN, SPAN), data.dtype)
    for y in range(rows):
        for x in range(columns):
            patch = wide[:, :, TILE * y : TILE * y + SPAN, TILE * x : TILE * x + SPAN]
            out[:, :, y, x] = patch.transpose(1, 0, 4, 2, 3)
    return out.reshape(c, n * rows * columns, lanes, SPAN, SPAN)


def _input_reference(attrs: Attrs, data: Array) -> Array:
    cut = _cut(attrs, data).astype(np.float64)
    made: Array = np.einsum("ia,cplab,jb->ijcpl", INPUT, cut, INPUT, optimize=True).astype(data.dtype)
    return made


WINOGRAD_INPUT = OpDef(
    "winograd_input",
    (Attribute("pads", REQUIRED, "padding before height and width, then after"),),
    _input_infer,
    _input_reference,
    compute=_input_compute,
    cases=(
        Case((((1, 2, 8, 8, 4), "float32"),), {"pads": (1, 1, 1, 1)}, rtol=1e-4, atol=1e-4),
        Case((((2, 1, 7, 9, 4), "float32"),), {"pads": (1, 0, 1, 2)}, rtol=1e-4, atol=1e-4),
    ),
    doc="The transformed 6×6 input tiles of a 3×3 convolution of stride 1: NCHW16c → [6, 6, C, tiles, 16c].",
    source="Lavin and Gray 2016",
)


# ---- the products ---------------------------------------------------------------------------------------------------


def _multiply_infer(attrs: Attrs, *types: Type) -> TensorType:
    data, weights = rel.tensors("winograd_multiply", types, 2)
    rel.join_dim("winograd_multiply", data.shape[2], weights.shape[3], "the channels")
    return TensorType((SPAN, SPAN, weights.shape[2], data.shape[3], weights.shape[5]), data.dtype)


def _multiply_compute(attrs: Attrs, out: TensorType, data: te.Tensor, weights: te.Tensor) -> Any:
    c, inner = te.reduce_axis((0, data.shape[2]), "c"), te.reduce_axis((0, data.shape[4]), "ci")

    def element(i: Expr, j: Expr, o: Expr, p: Expr, lane: Expr) -> Expr:
        return te.sum(data[i, j, c.var, p, inner.var] * weights[i, j, o, c.var, inner.var, lane], axis=[c, inner])

    return te.compute(out.shape, element, name="winograd_multiply")


WINOGRAD_MULTIPLY = OpDef(
    "winograd_multiply",
    (),
    _multiply_infer,
    lambda attrs, data, weights: np.einsum(
        "ijcpx,ijocxl->ijopl", data.astype(np.float64), weights.astype(np.float64), optimize=True
    ).astype(data.dtype),
    compute=_multiply_compute,
    cases=(Case((((6, 6, 2, 3, 4), "float32"), ((6, 6, 2, 2, 4, 4), "float32")), {}, rtol=1e-4, atol=1e-4),),
    doc="36 products of transformed tiles [6, 6, C, P, ci] with transformed weights [6, 6, O, C, ci, l].",
    source="Lavin and Gray 2016",
)


# ---- the output -----------------------------------------------------------------------------------------------------


def _output_infer(attrs: Attrs, *types: Type) -> TensorType:
    (data,) = rel.tensors("winograd_output", types, 1)
    return TensorType((attrs.batch, data.shape[2], attrs.height, attrs.width, data.shape[4]), data.dtype)


def _output_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    rows, columns = tiles(attrs.height), tiles(attrs.width)

    def element(n: Expr, o: Expr, h: Expr, w: Expr, lane: Expr) -> Expr:
        p = n * (rows * columns) + h // TILE * columns + w // TILE
        return _both(OUTPUT, h % TILE, w % TILE, lambda a, b: data[a, b, o, p, lane])

    return te.compute(out.shape, element, name="winograd_output")


def _output_reference(attrs: Attrs, data: Array) -> Array:
    rows, columns = tiles(attrs.height), tiles(attrs.width)
    made = np.einsum("ia,abopl,jb->opijl", OUTPUT, data.astype(np.float64), OUTPUT, optimize=True)
    o, _, _, _, lanes = made.shape
    grid = made.reshape(o, -1, rows, columns, TILE, TILE, lanes).transpose(1, 0, 2, 4, 3, 5, 6)
    full = grid.reshape(-1, o, rows * TILE, columns * TILE, lanes)
    return np.ascontiguousarray(full[:, :, : attrs.height, : attrs.width]).astype(data.dtype)


WINOGRAD_OUTPUT = OpDef(
    "winograd_output",
    (
        Attribute("batch", REQUIRED, "number of images"),
        Attribute("height", REQUIRED, "height of the result"),
        Attribute("width", REQUIRED, "width of the result"),
    ),
    _output_infer,
    _output_reference,
    compute=_output_compute,
    cases=(
        Case((((6, 6, 2, 4, 4), "float32"),), {"batch": 1, "height": 8, "width": 7}, rtol=1e-4, atol=1e-3),
        Case((((6, 6, 1, 4, 4), "float32"),), {"batch": 2, "height": 4, "width": 6}, rtol=1e-4, atol=1e-3),
    ),
    doc="Transforms products back: [6, 6, O, tiles, 16o] → NCHW16c, what sticks out cut off.",
    source="Lavin and Gray 2016",
)

WINOGRAD = (WINOGRAD_INPUT, WINOGRAD_MULTIPLY, WINOGRAD_OUTPUT)
