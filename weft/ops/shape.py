"""Operators that move elements without computing: transpose, broadcast, repeat, reverse, channels to space and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Expr, index
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array, read
from weft.ops.joining import CONCAT, SPLIT
from weft.ops.padding import PAD
from weft.ops.reshape import RESHAPE, SQUEEZE, UNSQUEEZE
from weft.ops.scan import CUMPROD, CUMSUM, LINEAR_RECURRENCE
from weft.ops.slicing import DYNAMIC_SLICE, SLICE
from weft.support.dtypes import DType


def _f(*shape: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return shape, dtype


def _one(op: str, types: Sequence[Type]) -> TensorType:
    return rel.tensors(op, types, 1)[0]


def _perm(attrs: Attrs, rank: int) -> tuple[int, ...]:
    if attrs.perm is None:
        return tuple(reversed(range(rank)))
    perm = tuple(rel.axis_of("transpose", a, rank, "perm") for a in attrs.perm)
    if sorted(perm) != list(range(rank)):
        rel.fail("transpose", f"{attrs.perm} is no permutation of {rank} dimensions", "T015")
    return perm


def _transpose_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("transpose", types)
    return TensorType(tuple(data.shape[a] for a in _perm(attrs, data.rank)), data.dtype)


def _transpose_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    perm = _perm(attrs, data.ndim)
    return te.compute(out.shape, lambda *i: data[tuple(i[perm.index(d)] for d in range(data.ndim))], name="transpose")


TRANSPOSE = OpDef(
    "transpose",
    (Attribute("perm", None, "for each dimension of the result that of the operand; None reverses them"),),
    _transpose_infer,
    lambda attrs, data: np.transpose(data, attrs.perm),
    moves=True,
    turns=lambda attrs: attrs.perm is None or (len(attrs.perm) > 0 and attrs.perm[-1] != len(attrs.perm) - 1),
    compute=_transpose_compute,
    cases=(
        Case((_f(2, 3, 4),), {}),
        Case((_f(2, 3, 4, 5),), {"perm": (0, 2, 3, 1)}),
        Case((_f(2, 3),), {"perm": (0, 1)}),
        Case((_f(),), {}),
    ),
    doc="dimensions in another order",
    source="ONNX Transpose-21",
)


def _broadcast_to_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("broadcast_to", types)
    shape = tuple(rel.simplified(d) for d in attrs.shape)
    return TensorType(rel.broadcast("broadcast_to", data.shape, shape), data.dtype)


def _broadcast_to_reference(attrs: Attrs, data: Array) -> Array:
    return np.ascontiguousarray(np.broadcast_to(data, np.broadcast_shapes(data.shape, attrs.shape))).reshape(
        np.broadcast_shapes(data.shape, attrs.shape)
    )


BROADCAST_TO = OpDef(
    "broadcast_to",
    (Attribute("shape", REQUIRED, "the shape to broadcast with; sizes of 1 keep the operand's"),),
    _broadcast_to_infer,
    _broadcast_to_reference,
    cheap=True,
    moves=True,
    compute=lambda attrs, out, data: te.compute(out.shape, lambda *i: read(data, i, out.shape), name="broadcast_to"),
    cases=(
        Case((_f(3, 1),), {"shape": (2, 1, 4)}),
        Case((_f(),), {"shape": (2, 3)}),
        Case((_f(2, 3),), {"shape": (1,)}),
    ),
    doc="the NumPy broadcast of the operand with a shape",
    source="ONNX Expand-13",
)


def _tile_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("tile", types)
    repeats = rel.per_axis("tile", attrs.repeats, data.rank, "repeats")
    return TensorType(tuple(rel.multiply((s, r)) for s, r in zip(data.shape, repeats, strict=True)), data.dtype)


def _tile_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    def element(*i: Expr) -> Expr:
        return data[tuple(v if r == 1 else v % s for v, r, s in zip(i, attrs.repeats, data.shape, strict=True))]

    return te.compute(out.shape, element, name="tile")


TILE = OpDef(
    "tile",
    (Attribute("repeats", REQUIRED, "how often each dimension is repeated"),),
    _tile_infer,
    lambda attrs, data: np.tile(data, attrs.repeats),
    moves=True,
    compute=_tile_compute,
    cases=(
        Case((_f(2, 3),), {"repeats": (2, 1)}),
        Case((_f(2, 3),), {"repeats": (1, 3)}),
        Case((_f(2),), {"repeats": (0,)}),
    ),
    doc="the operand repeated along its dimensions",
    source="ONNX Tile-13",
)


def _flip_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("flip", types)
    rel.axes_of("flip", attrs.axes, data.rank)
    return data


def _flip_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    axes = rel.axes_of("flip", attrs.axes, data.ndim)

    def element(*i: Expr) -> Expr:
        return data[tuple(data.shape[d] - 1 - v if d in axes else v for d, v in enumerate(i))]

    return te.compute(out.shape, element, name="flip")


FLIP = OpDef(
    "flip",
    (Attribute("axes", None, "the axes to reverse; None means all"),),
    _flip_infer,
    lambda attrs, data: np.ascontiguousarray(np.flip(data, attrs.axes)),
    moves=True,
    compute=_flip_compute,
    cases=(Case((_f(2, 3),), {"axes": (1,)}), Case((_f(2, 3),), {})),
    doc="the operand with axes reversed",
    source="ONNX Slice-13 with step -1",
)


def _block(op: str, attrs: Attrs) -> int:
    if not isinstance(attrs.block_size, int) or attrs.block_size < 1:
        rel.fail(op, f"block_size must be a positive integer, not {attrs.block_size!r}", "T015")
    return attrs.block_size


def _blocks(attrs: Attrs, data: TensorType) -> tuple[int, ...]:
    """The block of ``depth_to_space`` along each spatial dimension."""
    rel.want_rank_at_least("depth_to_space", data, 3)
    if not isinstance(attrs.block_size, tuple):
        return (_block("depth_to_space", attrs),) * (data.rank - 2)
    blocks: tuple[int, ...] = rel.per_axis("depth_to_space", attrs.block_size, data.rank - 2, "block_size")
    if any(not isinstance(b, int) or b < 1 for b in blocks):
        rel.fail("depth_to_space", f"block_size must be positive integers, not {blocks!r}", "T015")
    return blocks


def _depth_to_space_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("depth_to_space", types)
    blocks = _blocks(attrs, data)
    n, c, *space = data.shape
    if isinstance(c, int) and c % math.prod(blocks):
        text = "×".join(map(str, blocks))
        rel.fail("depth_to_space", f"{c} channels do not split into blocks of {text}", "T013")
    if attrs.mode not in ("DCR", "CRD"):
        rel.fail("depth_to_space", f"unknown mode '{attrs.mode}'", "T015", "DCR or CRD")
    wide = (rel.multiply((size, b)) for size, b in zip(space, blocks, strict=True))
    return TensorType((n, rel.divide(c, math.prod(blocks)), *wide), data.dtype)


def _depth_to_space_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    blocks = _blocks(attrs, TensorType.of(data.shape, data.dtype))
    depth = index(out.shape[1])

    def element(n: Expr, c: Expr, *space: Expr) -> Expr:
        place: Expr = index(0)
        for v, b in zip(space, blocks, strict=True):
            place = place * b + v % b
        channel = place * depth + c if attrs.mode == "DCR" else c * math.prod(blocks) + place
        return data[(n, channel, *(v // b for v, b in zip(space, blocks, strict=True)))]

    return te.compute(out.shape, element, name="depth_to_space")


def _depth_to_space_reference(attrs: Attrs, data: Array) -> Array:
    blocks = _blocks(attrs, TensorType.of(data.shape, DType(data.dtype)))
    n, c, *space = data.shape
    depth, rank = c // math.prod(blocks), len(blocks)
    if attrs.mode == "DCR":
        split, channel, first = data.reshape(n, *blocks, depth, *space), 1 + rank, 1
    else:
        split, channel, first = data.reshape(n, depth, *blocks, *space), 1, 2
    order = [axis for d in range(rank) for axis in (2 + rank + d, first + d)]
    wide = [size * b for size, b in zip(space, blocks, strict=True)]
    return np.ascontiguousarray(split.transpose(0, channel, *order)).reshape(n, depth, *wide)


DEPTH_TO_SPACE = OpDef(
    "depth_to_space",
    (
        Attribute("block_size", REQUIRED, "elements made of each along a spatial dimension; or one number for each"),
        Attribute("mode", "DCR", "DCR or CRD: whether the block's place counts slower or faster than the channel"),
    ),
    _depth_to_space_infer,
    _depth_to_space_reference,
    moves=True,
    compute=_depth_to_space_compute,
    cases=(
        Case((_f(1, 8, 2, 3),), {"block_size": 2}),
        Case((_f(1, 8, 2, 3),), {"block_size": 2, "mode": "CRD"}),
        Case((_f(2, 6, 3),), {"block_size": 3, "mode": "CRD"}),
        Case((_f(1, 12, 2, 1, 3),), {"block_size": (3, 1, 2)}),
        Case((_f(2, 12, 2, 3),), {"block_size": (2, 3), "mode": "CRD"}),
    ),
    doc="channels rearranged into blocks of space; operand [N, C, spatial…]",
    source="ONNX DepthToSpace-13, of any number of spatial dimensions",
)


def _space_to_depth_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("space_to_depth", types)
    rel.want_rank("space_to_depth", data, 4)
    b = _block("space_to_depth", attrs)
    n, c, h, w = data.shape
    for d, s in ((2, h), (3, w)):
        if isinstance(s, int) and s % b:
            rel.fail("space_to_depth", f"dimension {d} of size {s} does not split into blocks of {b}", "T013")
    return TensorType((n, rel.multiply((c, b * b)), rel.divide(h, b), rel.divide(w, b)), data.dtype)


def _space_to_depth_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    b = attrs.block_size

    def element(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        place, channel = c // data.shape[1], c % data.shape[1]
        return data[n, channel, h * b + place // b, w * b + place % b]

    return te.compute(out.shape, element, name="space_to_depth")


def _space_to_depth_reference(attrs: Attrs, data: Array) -> Array:
    b = attrs.block_size
    n, c, h, w = data.shape
    out = data.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
    return np.ascontiguousarray(out).reshape(n, c * b * b, h // b, w // b)


SPACE_TO_DEPTH = OpDef(
    "space_to_depth",
    (Attribute("block_size", REQUIRED, "rows and columns that become one pixel"),),
    _space_to_depth_infer,
    _space_to_depth_reference,
    moves=True,
    compute=_space_to_depth_compute,
    cases=(Case((_f(1, 2, 4, 6),), {"block_size": 2}),),
    doc="blocks of space rearranged into channels",
    source="ONNX SpaceToDepth-13",
)

SHAPES: tuple[OpDef, ...] = (
    RESHAPE,
    SQUEEZE,
    UNSQUEEZE,
    TRANSPOSE,
    BROADCAST_TO,
    CONCAT,
    SPLIT,
    SLICE,
    DYNAMIC_SLICE,
    PAD,
    TILE,
    FLIP,
    DEPTH_TO_SPACE,
    SPACE_TO_DEPTH,
    CUMSUM,
    CUMPROD,
    LINEAR_RECURRENCE,
)
