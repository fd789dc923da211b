"""Operators that move elements without computing: reshape, transpose, join, cut, repeat, pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.expr.nodes import Expr, IterVar, index, maximum, minimum, select
from weft.graph.layout import follow_concat
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import Dim, TensorType, TupleType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array, read
from weft.ops.layouts import follow_channels
from weft.ops.slicing import SLICE
from weft.ops.stages import padded

AXIS = Attribute("axis", REQUIRED, "the axis; negative ones count from the back")


def _f(*shape: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return shape, dtype


def _one(op: str, types: Sequence[Type]) -> TensorType:
    return rel.tensors(op, types, 1)[0]


# reshape


def _reshape_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("reshape", types)
    shape = tuple(rel.simplified(d) for d in attrs.shape)
    total = rel.multiply(data.shape)
    unknown = [i for i, d in enumerate(shape) if isinstance(d, int) and d == -1]
    if len(unknown) > 1:
        rel.fail("reshape", f"only one size may be -1 in {shape}", "T015")
    if any(isinstance(d, int) and d < -1 for d in shape):
        rel.fail("reshape", f"negative size in {shape}", "T015")
    if unknown:
        rest = rel.multiply(d for i, d in enumerate(shape) if i != unknown[0])
        if rest == 0 or (isinstance(total, int) and isinstance(rest, int) and total % rest):
            rel.fail("reshape", f"{data} does not reshape to {_text(shape)}", "T013", f"{total} elements over {rest}")
        shape = (*shape[: unknown[0]], _quotient(data.shape, shape), *shape[unknown[0] + 1 :])
    elif rel.equal_dims(total, rel.multiply(shape)) is False:
        rel.fail("reshape", f"{data} does not reshape to {_text(shape)}", "T013", "the number of elements must stay")
    else:
        rel.join_dim("reshape", total, rel.multiply(shape), "numbers of elements")
    return TensorType(shape, data.dtype)


def _text(shape: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _quotient(have: Sequence[Dim], want: Sequence[Dim]) -> Dim:
    """The size that -1 stands for; factors common to both sides cancel, so that symbolic sizes stay simple."""
    left, right = list(have), [d for d in want if not (isinstance(d, int) and d == -1)]
    for d in list(right):
        if d in left and not isinstance(d, int):
            left.remove(d)
            right.remove(d)
    return rel.divide(rel.multiply(left), rel.multiply(right))


def reshape_groups(have: Sequence[Dim], want: Sequence[Dim]) -> list[tuple[list[int], list[int]]]:
    """Split both shapes into runs of dimensions that hold equally many elements, as small as can be proved."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(have) or j < len(want):
        left, right = ([i], [j]) if i < len(have) and j < len(want) else ([], [])
        if not left:
            groups.append((list(range(i, len(have))), list(range(j, len(want)))))
            break
        while True:
            a, b = rel.multiply(have[k] for k in left), rel.multiply(want[k] for k in right)
            if rel.equal_dims(a, b):
                break
            more_left, more_right = left[-1] + 1 < len(have), right[-1] + 1 < len(want)
            smaller = isinstance(a, int) and isinstance(b, int) and a < b
            if not more_left and not more_right:
                break
            if (
                more_left
                and (smaller or not more_right or not isinstance(a, int) < isinstance(b, int))
                and not (isinstance(a, int) and isinstance(b, int) and a > b and more_right)
            ):
                left.append(left[-1] + 1)
            else:
                right.append(right[-1] + 1)
        groups.append((left, right))
        i, j = left[-1] + 1, right[-1] + 1
    return groups


def _reshape_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    have = TensorType.of(data.shape, data.dtype).shape
    groups = reshape_groups(have, out.shape) if 0 not in have else [(list(range(len(have))), list(range(out.rank)))]

    def element(*i: Expr) -> Expr:
        at: list[Any] = [te.const(0)] * len(have)
        for left, right in groups:
            flat: Expr = te.const(0)
            for d in right:
                flat = flat * index(out.shape[d]) + i[d]
            real = [d for d in left if have[d] != 1]
            for d in reversed(real[1:]):
                at[d] = flat % index(have[d])
                flat = flat // index(have[d])
            if real:
                at[real[0]] = flat
        return data[tuple(at)]

    return te.compute(out.shape, element, name="reshape")


RESHAPE = OpDef(
    "reshape",
    (Attribute("shape", REQUIRED, "the new sizes, symbolic ones included; one may be -1: what is left"),),
    _reshape_infer,
    lambda attrs, data: data.reshape(attrs.shape).copy(),
    cheap=True,
    view=True,
    compute=_reshape_compute,
    cases=(
        Case((_f(2, 3, 4),), {"shape": (6, 4)}),
        Case((_f(2, 3, 4),), {"shape": (2, 2, 6)}),
        Case((_f(2, 6),), {"shape": (2, -1, 3)}),
        Case((_f(6, 4),), {"shape": (3, 8)}),
        Case((_f(1),), {"shape": ()}),
        Case((_f(),), {"shape": (1, 1)}),
        Case((_f(2, 3),), {"shape": (1, 2, 1, 3, 1)}),
        Case((_f(0, 3),), {"shape": (3, 0)}),
        Case((_f(4, 3, 2, dtype="int64"),), {"shape": (2, 6, 2)}, -9, 9),
    ),
    doc="the same elements in row-major order under another shape",
    source="ONNX Reshape-21",
)


# squeeze, unsqueeze


def _squeeze_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("squeeze", types)
    if attrs.axes is None:
        axes = tuple(i for i, d in enumerate(data.shape) if d == 1)
    else:
        axes = rel.axes_of("squeeze", attrs.axes, data.rank)
    for a in axes:
        rel.join_dim("squeeze", data.shape[a], 1, f"the size of dimension {a} and 1")
    return TensorType(tuple(d for i, d in enumerate(data.shape) if i not in axes), data.dtype)


def _squeeze_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    if attrs.axes is None:
        axes = tuple(i for i, d in enumerate(data.shape) if d == 1)
    else:
        axes = rel.axes_of("squeeze", attrs.axes, data.ndim)

    def element(*i: Expr) -> Expr:
        kept = iter(i)
        return data[tuple(0 if d in axes else next(kept) for d in range(data.ndim))]

    return te.compute(out.shape, element, name="squeeze")


SQUEEZE = OpDef(
    "squeeze",
    (Attribute("axes", None, "the axes to drop, of size 1; None means all of size 1"),),
    _squeeze_infer,
    lambda attrs, data: np.squeeze(data, attrs.axes).copy(),
    cheap=True,
    view=True,
    compute=_squeeze_compute,
    cases=(Case((_f(1, 3, 1, 2),), {"axes": (0, -2)}), Case((_f(1, 3, 1),), {})),
    doc="without dimensions of size 1",
    source="ONNX Squeeze-21",
)


def _unsqueeze_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("unsqueeze", types)
    rank = data.rank + len(attrs.axes)
    axes = rel.axes_of("unsqueeze", attrs.axes, rank)
    kept = iter(data.shape)
    return TensorType(tuple(1 if d in axes else next(kept) for d in range(rank)), data.dtype)


def _unsqueeze_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    axes = rel.axes_of("unsqueeze", attrs.axes, out.rank)
    return te.compute(out.shape, lambda *i: data[tuple(v for d, v in enumerate(i) if d not in axes)], name="unsqueeze")


UNSQUEEZE = OpDef(
    "unsqueeze",
    (Attribute("axes", REQUIRED, "where in the result the new dimensions stand"),),
    _unsqueeze_infer,
    lambda attrs, data: np.expand_dims(data, attrs.axes).copy(),
    cheap=True,
    view=True,
    compute=_unsqueeze_compute,
    cases=(Case((_f(3, 2),), {"axes": (0, -1)}), Case((_f(),), {"axes": (0,)})),
    doc="with new dimensions of size 1",
    source="ONNX Unsqueeze-21",
)


# transpose, broadcast


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
    lambda attrs, data: np.transpose(data, attrs.perm).copy(),
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
    compute=lambda attrs, out, data: te.compute(out.shape, lambda *i: read(data, i, out.shape), name="broadcast_to"),
    cases=(
        Case((_f(3, 1),), {"shape": (2, 1, 4)}),
        Case((_f(),), {"shape": (2, 3)}),
        Case((_f(2, 3),), {"shape": (1,)}),
    ),
    doc="the NumPy broadcast of the operand with a shape",
    source="ONNX Expand-13",
)


# concat, split


def _concat_infer(attrs: Attrs, *types: Type) -> TensorType:
    if not types:
        rel.fail("concat", "needs at least one operand", "T016")
    parts = rel.tensors("concat", types, 1, len(types))
    dtype = rel.same_dtype("concat", parts)
    axis = rel.axis_of("concat", attrs.axis, parts[0].rank)
    shape = list(parts[0].shape)
    for i, t in enumerate(parts[1:], 1):
        rel.want_rank("concat", t, len(shape), f"operand {i}")
        for d in range(len(shape)):
            if d != axis:
                shape[d] = rel.join_dim("concat", shape[d], t.shape[d], f"sizes of operands 0 and {i} in dimension {d}")
    shape[axis] = rel.add(*(t.shape[axis] for t in parts))
    return TensorType(tuple(shape), dtype)


def _concat_compute(attrs: Attrs, out: TensorType, *parts: te.Tensor) -> Any:
    axis = rel.axis_of("concat", attrs.axis, out.rank)
    starts: list[Dim] = [0]
    for t in parts:
        starts.append(rel.add(starts[-1], rel.simplified(t.shape[axis])))

    def element(*i: Expr) -> Expr:
        def load(p: int) -> Expr:
            return parts[p][(*i[:axis], i[axis] - index(starts[p]), *i[axis + 1 :])]

        value = load(len(parts) - 1)
        for p in range(len(parts) - 2, -1, -1):
            value = select(i[axis] < index(starts[p + 1]), load(p), value)
        return value

    return te.compute(out.shape, element, name="concat")


CONCAT = OpDef(
    "concat",
    (AXIS,),
    _concat_infer,
    lambda attrs, *parts: np.concatenate(parts, attrs.axis),
    follows=follow_concat,
    compute=_concat_compute,
    cases=(
        Case((_f(2, 3), _f(2, 1), _f(2, 4)), {"axis": 1}),
        Case((_f(2, 3), _f(1, 3)), {"axis": -2}),
        Case((_f(3),), {"axis": 0}),
        Case((_f(2, 0), _f(2, 2)), {"axis": 1}),
    ),
    doc="the operands one after the other along an axis",
    source="ONNX Concat-13",
)


def _split_infer(attrs: Attrs, *types: Type) -> TupleType:
    data = _one("split", types)
    axis = rel.axis_of("split", attrs.axis, data.rank)
    sizes = tuple(rel.simplified(s) for s in attrs.sizes)
    if not sizes or any(isinstance(s, int) and s < 0 for s in sizes):
        rel.fail("split", f"sizes must be a tuple of sizes, not {attrs.sizes!r}", "T015")
    rel.join_dim("split", data.shape[axis], rel.add(*sizes), f"the size of dimension {axis} and the sum of the parts")
    return TupleType(tuple(TensorType((*data.shape[:axis], s, *data.shape[axis + 1 :]), data.dtype) for s in sizes))


def _split_compute(attrs: Attrs, out: TupleType, data: te.Tensor) -> Any:
    axis = rel.axis_of("split", attrs.axis, data.ndim)
    made = []
    start: Dim = 0
    for p, t in enumerate(out.fields):
        assert isinstance(t, TensorType)
        begin = index(start)
        made.append(
            te.compute(
                t.shape,
                lambda *i, begin=begin: data[(*i[:axis], i[axis] + begin, *i[axis + 1 :])],
                name=f"split{p}",
            )
        )
        start = rel.add(start, t.shape[axis])
    return tuple(made)


def _split_reference(attrs: Attrs, data: Array) -> tuple[Array, ...]:
    cuts = np.cumsum(attrs.sizes)[:-1]
    return tuple(np.ascontiguousarray(p) for p in np.split(data, cuts, attrs.axis))


SPLIT = OpDef(
    "split",
    (AXIS, Attribute("sizes", REQUIRED, "the sizes of the parts")),
    _split_infer,
    _split_reference,
    compute=_split_compute,
    cases=(Case((_f(2, 6),), {"axis": 1, "sizes": (1, 3, 2)}), Case((_f(4, 2),), {"axis": -2, "sizes": (2, 2)})),
    doc="consecutive parts along an axis, as a tuple",
    source="ONNX Split-18",
)


# pad, tile, flip


def _pads(attrs: Attrs, rank: int) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    full = rel.per_axis("pad", attrs.pads, 2 * rank, "pads", 0)
    return full[:rank], full[rank:]


def _pad_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("pad", types)
    if attrs.mode not in ("constant", "reflect", "edge", "wrap"):
        rel.fail("pad", f"unknown mode '{attrs.mode}'", "T015", "one of constant, reflect, edge, wrap")
    before, after = _pads(attrs, data.rank)
    shape = rel.nonnegative("pad", (rel.add(s, b, a) for s, b, a in zip(data.shape, before, after, strict=True)))
    for d, (s, b, a) in enumerate(zip(data.shape, before, after, strict=True)):
        if attrs.mode != "constant" and s == 0 and (b, a) != (0, 0):
            rel.fail("pad", f"mode {attrs.mode} cannot pad the empty dimension {d} of {data}", "T013")
    return TensorType(shape, data.dtype)


def _pad_place(mode: str, place: Expr, size: Expr, near: bool) -> Expr:
    """Where in the data the element at ``place`` (negative or beyond the end) comes from; ``near``: closer than
    ``size``."""
    last = size - 1
    if mode == "edge":
        return minimum(maximum(place, 0), last)
    if mode == "wrap":
        return place % size
    if near:
        mirrored = maximum(place, -place)
        return minimum(mirrored, last * 2 - mirrored)
    period = maximum(last * 2, 1)
    folded = place % period
    return minimum(folded, period - folded)


def _pad_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    before, after = _pads(attrs, data.ndim)
    if attrs.mode == "constant":
        made = padded(data, before, after, attrs.value)
        return made if made is not data else te.compute(out.shape, lambda *i: data[i], name="pad")

    def element(*i: Expr) -> Expr:
        at: list[Expr] = []
        for v, b, a, size in zip(i, before, after, data.shape, strict=True):
            if b == 0 and a == 0:
                at.append(v)
                continue
            extent = rel.simplified(size)
            near = all(isinstance(p, int) and isinstance(extent, int) and p < extent for p in (b, a))
            at.append(_pad_place(attrs.mode, v - index(b), size, near))
        return data[tuple(at)]

    return te.compute(out.shape, element, name="pad")


def _pad_reference(attrs: Attrs, data: Array) -> Array:
    before, after = _pads(attrs, data.ndim)
    crop = tuple(slice(max(0, -b), s - max(0, -a)) for b, a, s in zip(before, after, data.shape, strict=True))
    widths = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
    if attrs.mode == "constant":
        return np.pad(data[crop], widths, constant_values=np.asarray(attrs.value).astype(data.dtype))
    return np.pad(data[crop], widths, mode=attrs.mode)


def _pad_blocked(attrs: Attrs, data: TensorType, block: int) -> Attrs | None:
    """The attributes for blocked channels, where zeros or copies are added in space only."""
    before, after = _pads(attrs, data.rank)
    if before[1] != 0 or after[1] != 0 or (attrs.mode == "constant" and attrs.value != 0):
        return None
    return attrs.replace(pads=(*before, 0, *after, 0))


PAD = OpDef(
    "pad",
    (
        Attribute("pads", REQUIRED, "elements added before each dimension, then after each; negative ones crop"),
        Attribute("mode", "constant", "constant, reflect (without the edge), edge or wrap"),
        Attribute("value", 0, "what constant mode adds"),
    ),
    _pad_infer,
    _pad_reference,
    follows=follow_channels(_pad_infer, _pad_blocked),
    compute=_pad_compute,
    cases=(
        Case((_f(2, 3),), {"pads": (1, 0, 2, 1), "value": 1.5}),
        Case((_f(4, 5),), {"pads": (-1, 1, 2, -2)}),
        Case((_f(3, 4),), {"pads": (2, 1, 1, 3), "mode": "reflect"}),
        Case((_f(2, 4),), {"pads": (3, 0, 0, 6), "mode": "reflect"}),
        Case((_f(3, 4),), {"pads": (2, 0, 1, 3), "mode": "edge"}),
        Case((_f(3, 4),), {"pads": (2, 5, 4, 3), "mode": "wrap"}),
        Case((_f(2, 2),), {"pads": (0, 0, 0, 0)}),
        Case((_f(2, 2, dtype="int32"),), {"pads": (0, 1, 0, 1), "value": 7}),
    ),
    doc="the operand surrounded by a constant or by its own values",
    source="ONNX Pad-21",
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
    compute=_flip_compute,
    cases=(Case((_f(2, 3),), {"axes": (1,)}), Case((_f(2, 3),), {})),
    doc="the operand with axes reversed",
    source="ONNX Slice-13 with step -1",
)


# depth_to_space, space_to_depth


def _block(op: str, attrs: Attrs) -> int:
    if not isinstance(attrs.block_size, int) or attrs.block_size < 1:
        rel.fail(op, f"block_size must be a positive integer, not {attrs.block_size!r}", "T015")
    return attrs.block_size


def _depth_to_space_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("depth_to_space", types)
    rel.want_rank("depth_to_space", data, 4)
    b = _block("depth_to_space", attrs)
    n, c, h, w = data.shape
    if isinstance(c, int) and c % (b * b):
        rel.fail("depth_to_space", f"{c} channels do not split into blocks of {b}×{b}", "T013")
    if attrs.mode not in ("DCR", "CRD"):
        rel.fail("depth_to_space", f"unknown mode '{attrs.mode}'", "T015", "DCR or CRD")
    return TensorType((n, rel.divide(c, b * b), rel.multiply((h, b)), rel.multiply((w, b))), data.dtype)


def _depth_to_space_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    b = attrs.block_size
    depth = index(out.shape[1])

    def element(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        place = (h % b) * b + w % b
        channel = place * depth + c if attrs.mode == "DCR" else c * (b * b) + place
        return data[n, channel, h // b, w // b]

    return te.compute(out.shape, element, name="depth_to_space")


def _depth_to_space_reference(attrs: Attrs, data: Array) -> Array:
    b = attrs.block_size
    n, c, h, w = data.shape
    if attrs.mode == "DCR":
        out = data.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        out = data.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return np.ascontiguousarray(out).reshape(n, c // (b * b), h * b, w * b)


DEPTH_TO_SPACE = OpDef(
    "depth_to_space",
    (
        Attribute("block_size", REQUIRED, "rows and columns made of each pixel"),
        Attribute("mode", "DCR", "DCR or CRD: whether the block's place counts slower or faster than the channel"),
    ),
    _depth_to_space_infer,
    _depth_to_space_reference,
    compute=_depth_to_space_compute,
    cases=(
        Case((_f(1, 8, 2, 3),), {"block_size": 2}),
        Case((_f(1, 8, 2, 3),), {"block_size": 2, "mode": "CRD"}),
    ),
    doc="channels rearranged into blocks of space",
    source="ONNX DepthToSpace-13",
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
    compute=_space_to_depth_compute,
    cases=(Case((_f(1, 2, 4, 6),), {"block_size": 2}),),
    doc="blocks of space rearranged into channels",
    source="ONNX SpaceToDepth-13",
)


# cumsum


def _cumsum_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("cumsum", types)
    rel.want_kind("cumsum", data, "int uint float")
    rel.axis_of("cumsum", attrs.axis, data.rank)
    return data


def _cumsum_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    axis = rel.axis_of("cumsum", attrs.axis, data.ndim)
    k: IterVar = te.reduce_axis((0, data.shape[axis]), name="k")

    def element(*i: Expr) -> Expr:
        here = i[axis]
        if attrs.reverse:
            counts = k.var > here if attrs.exclusive else k.var >= here
        else:
            counts = k.var < here if attrs.exclusive else k.var <= here
        value = data[(*i[:axis], k.var, *i[axis + 1 :])]
        return te.sum(select(counts, value, te.const(0, data.dtype)), axis=k)

    return te.compute(out.shape, element, name="cumsum")


def _cumsum_reference(attrs: Attrs, data: Array) -> Array:
    wide = np.flip(data, attrs.axis) if attrs.reverse else data
    out = np.cumsum(wide, attrs.axis, dtype=data.dtype)
    if attrs.exclusive:
        out = out - wide
    return np.ascontiguousarray(np.flip(out, attrs.axis) if attrs.reverse else out).astype(data.dtype)


CUMSUM = OpDef(
    "cumsum",
    (
        AXIS,
        Attribute("exclusive", False, "whether an element's own value is left out"),
        Attribute("reverse", False, "whether to sum from the end"),
    ),
    _cumsum_infer,
    _cumsum_reference,
    compute=_cumsum_compute,
    cases=(
        Case((_f(2, 5),), {"axis": 1}),
        Case(
            (
                _f(
                    5,
                ),
            ),
            {"axis": 0, "exclusive": True},
        ),
        Case((_f(2, 5),), {"axis": -1, "reverse": True}),
        Case((_f(4, 2, dtype="int64"),), {"axis": 0, "exclusive": True, "reverse": True}, -9, 9),
    ),
    doc="sums of all values up to each along an axis",
    source="ONNX CumSum-14",
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
    PAD,
    TILE,
    FLIP,
    DEPTH_TO_SPACE,
    SPACE_TO_DEPTH,
    CUMSUM,
)
