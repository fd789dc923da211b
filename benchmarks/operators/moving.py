"""Recipes of operators that move, select, order and accumulate numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.movement import Node
from benchmarks.operators.notation import FLOATS, Made, Make, Maker, Recipe, longs, node

MOVED = ("float32", "float16", "int64", "uint8")


def _every(rank: int) -> tuple[int, ...]:
    return tuple(range(rank))


def plain(op: str, weights: Any = None, open: tuple[int, ...] | None = None, **attrs: Any) -> Make:
    """One operand; ``weights`` makes the others from the maker and the shape of the first."""

    def make(m: Maker) -> Made:
        dims = m.dims()
        made = {} if weights is None else weights(m, dims)
        return node(op, {"x": m.x(*dims)}, made, open=_every(m.rank) if open is None else open, **attrs)

    return make


def transpose(perm: Sequence[int]) -> Make:
    return lambda m: node("Transpose", {"x": m.x(*m.dims(len(perm)))}, open=_every(len(perm)), perm=list(perm))


def pictures(perm: Sequence[int]) -> Make:
    def make(m: Maker) -> Made:
        c, h, w = m.image()
        dims = (2, c, h, w) if perm[1] != 3 else (2, h, w, c)
        return node("Transpose", {"x": m.x(*dims)}, open=(0, 2, 3) if perm[1] != 3 else (0, 1, 2), perm=list(perm))

    return make


def concat(axis: int) -> Make:
    def make(m: Maker) -> Made:
        dims = m.dims()
        return node("Concat", {"a": m.x(*dims), "b": m.x(*dims)}, open=(0,) if axis else (1,) * (m.rank > 1), axis=axis)

    return make


def split(axis: int) -> Make:
    def make(m: Maker) -> Made | None:
        dims = m.dims()
        size = dims[axis]
        if size < 2:
            return None
        parts = longs(size // 2, size - size // 2)
        return node(
            "Split", {"x": m.x(*dims)}, {"parts": parts}, outputs=("y", "z"), open=(1 if axis == 0 else 0,), axis=axis
        )

    return make


def cut(step: int) -> Make:
    def make(m: Maker) -> Made | None:
        dims = m.dims()
        if dims[-1] < 4:
            return None
        starts, ends = (1, dims[-1] - 1) if step > 0 else (-1, -dims[-1] - 1)
        weights = {"starts": longs(starts), "ends": longs(ends), "axes": longs(m.rank - 1), "steps": longs(step)}
        return node("Slice", {"x": m.x(*dims)}, weights)

    return make


def pad(mode: str) -> Make:
    def make(m: Maker) -> Made | None:
        dims = m.dims()
        if min(dims[-2:]) < 3:
            return None
        pads = [0] * (m.rank - 2) + [1, 1]
        return node("Pad", {"x": m.x(*dims)}, {"pads": longs(*pads, *pads)}, open=_every(m.rank - 2), mode=mode)

    return make


def gather(axis: int) -> Make:
    def make(m: Maker) -> Made:
        dims = m.dims()
        ids = m.x(max(1, dims[axis]), low=0, high=dims[axis] - 1, dtype="int64")
        return node("Gather", {"x": m.x(*dims), "ids": ids}, open=(), axis=axis)

    return make


def embedding(m: Maker) -> Made:
    width = 64 if m.size.numbers > 4096 else 8
    table = m.x(1000, width)
    ids = m.x(1, max(1, m.size.numbers // width), low=0, high=999, dtype="int64")
    return Made((Node("Gather", ("table", "ids"), attrs={"axis": 0}),), {"ids": ids}, {"table": table}, (0, 1))


def gather_elements(m: Maker) -> Made:
    dims = m.dims()
    ids = m.x(*dims, low=0, high=dims[-1] - 1, dtype="int64")
    return node("GatherElements", {"x": m.x(*dims), "ids": ids}, axis=m.rank - 1)


def gather_nd(m: Maker) -> Made:
    dims = m.dims()
    return node("GatherND", {"x": m.x(*dims), "ids": m.x(dims[0], 1, low=0, high=dims[0] - 1, dtype="int64")}, open=())


def scatter_elements(reduction: str, op: str = "ScatterElements") -> Make:
    def make(m: Maker) -> Made:
        dims = m.dims()
        ids = np.broadcast_to(m.rng.permutation(dims[-1]), dims).astype(np.int64)
        inputs = {"x": m.x(*dims), "ids": ids, "updates": m.x(*dims)}
        return node(op, inputs, axis=m.rank - 1, reduction=reduction)

    return make


def scatter_nd(reduction: str) -> Make:
    def make(m: Maker) -> Made:
        dims = m.dims()
        ids = m.rng.permutation(dims[0]).astype(np.int64)[:, None]
        return node("ScatterND", {"x": m.x(*dims), "ids": ids, "updates": m.x(*dims)}, open=(), reduction=reduction)

    return make


def tensor_scatter(m: Maker) -> Made:
    b, h, s, d = m.dims(4)
    part = max(1, s // 2)
    inputs = {"past": m.x(b, h, s, d), "update": m.x(b, h, part, d), "at": np.zeros(b, np.int64)}
    return node("TensorScatter", inputs, open=())


def expand(m: Maker) -> Made:
    dims = m.dims(2)
    return node("Expand", {"x": m.x(dims[0], 1)}, {"shape": longs(*dims)}, open=())


def expand_rows(m: Maker) -> Made:
    dims = m.dims(2)
    return node("Expand", {"x": m.x(1, dims[1])}, {"shape": longs(*dims)}, open=())


def accumulate(op: str, axis: int, **attrs: Any) -> Make:
    return plain(op, lambda m, dims: {"axis": np.array(axis if axis >= 0 else m.rank - 1, np.int64)}, **attrs)


def rows_sorted(m: Maker) -> Made:
    rows = max(1, m.size.numbers // 300)
    return node("TopK", {"x": m.x(rows, 300 + m.size.odd)}, {"k": longs(300)}, outputs=("y", "i"), axis=-1)


def top_k(k: int, axis: int = -1, **attrs: Any) -> Make:
    def make(m: Maker) -> Made | None:
        dims = m.dims()
        if dims[axis] < k:
            return None
        if k == 0:
            size = dims[axis]
            return node("TopK", {"x": m.x(*dims)}, {"k": longs(size)}, outputs=("y", "i"), axis=axis, **attrs)
        return node("TopK", {"x": m.x(*dims)}, {"k": longs(k)}, outputs=("y", "i"), axis=axis, **attrs)

    return make


def blocks(op: str, **attrs: Any) -> Make:
    def make(m: Maker) -> Made | None:
        c, h, w = m.image()
        if op == "DepthToSpace":
            c = max(4, c // 4 * 4)
        else:
            h, w = h + h % 2, w + w % 2
        return node(op, {"x": m.x(1, c, h, w)}, open=(0,) if op == "SpaceToDepth" else (0, 2, 3), blocksize=2, **attrs)

    return make


def one_hot(m: Maker) -> Made:
    depth = 128 if m.size.numbers > 4096 else 8
    ids = m.x(max(1, m.size.numbers // depth), low=0, high=depth - 1, dtype="int64")
    weights = {"depth": np.array(depth, np.int64), "values": np.array([0, 1], m.dtype)}
    return node("OneHot", {"ids": ids}, weights)


def reverse_sequence(m: Maker) -> Made:
    steps, batch, width = m.dims(3)
    lens = m.x(batch, low=1, high=steps, dtype="int64")
    return node("ReverseSequence", {"x": m.x(steps, batch, width), "lens": lens}, open=())


def compress(m: Maker) -> Made:
    dims = m.dims()
    return node("Compress", {"x": m.x(*dims), "c": m.x(dims[0], dtype="bool")}, open=(), axis=0)


def col2im(m: Maker) -> Made | None:
    c, h, w = m.image()
    if min(h, w) < 3:
        return None
    weights = {"image": longs(h, w), "block": longs(3, 3)}
    return node("Col2Im", {"x": m.x(1, c * 9, (h - 2) * (w - 2))}, weights)


def crop(m: Maker) -> Made:
    dims = m.dims()
    return node("CenterCropPad", {"x": m.x(*dims)}, {"shape": longs(*(max(1, d // 2) for d in dims))}, open=())


def ranged(m: Maker) -> Made:
    inputs = {"start": np.array(0, m.dtype), "limit": np.array(m.size.numbers, m.dtype), "delta": np.array(1, m.dtype)}
    return node("Range", inputs, open=())


def filled(m: Maker) -> Made:
    return node("ConstantOfShape", {"shape": longs(*m.dims())}, open=())


def eye(m: Maker) -> Made:
    return node("EyeLike", {"x": m.x(*m.dims(2))}, open=(0, 1))


def reshape(m: Maker) -> Made:
    dims = m.dims()
    return node("Reshape", {"x": m.x(*dims)}, {"shape": longs(-1, dims[-1])}, open=(0,))


def recipes() -> Iterator[Recipe]:
    for perm in ((1, 0), (0, 2, 1), (1, 0, 2), (0, 2, 1, 3), (0, 2, 3, 1), (3, 2, 1, 0), (0, 3, 1, 2, 4)):
        yield Recipe("Transpose", "".join(map(str, perm)), transpose(perm), (len(perm),), MOVED)
    yield Recipe("Transpose", "NCHW to NHWC", pictures((0, 2, 3, 1)), (4,), MOVED)
    yield Recipe("Transpose", "NHWC to NCHW", pictures((0, 3, 1, 2)), (4,), MOVED)
    for axis in (0, 1, -1):
        yield Recipe("Concat", f"axis {axis}", concat(axis), (2, 4), MOVED)
        yield Recipe("Split", f"axis {axis}", split(axis), (2, 4), MOVED)
        yield Recipe("Gather", f"axis {axis}", gather(axis), (2, 4), MOVED)
    yield Recipe("Gather", "embedding", embedding, (2,), ("float32", "float16"))
    for step in (1, 2, -1):
        yield Recipe("Slice", f"step {step}", cut(step), (1, 2, 4), MOVED)
    for mode in ("constant", "reflect", "edge", "wrap"):
        yield Recipe("Pad", mode, pad(mode), (2, 4), ("float32", "uint8"))
    yield Recipe("GatherElements", "", gather_elements, (2, 3))
    yield Recipe("GatherND", "rows", gather_nd, (2, 3))
    for reduction in ("none", "add", "max"):
        yield Recipe("ScatterElements", reduction, scatter_elements(reduction), (2, 3))
        yield Recipe("ScatterND", reduction, scatter_nd(reduction), (2, 3))
    yield Recipe("TensorScatter", "", tensor_scatter)
    yield Recipe("Expand", "columns", expand, (2,), MOVED)
    yield Recipe("Expand", "rows", expand_rows, (2,), MOVED)
    yield Recipe("Tile", "last axis", plain("Tile", lambda m, d: {"r": longs(*[1] * (m.rank - 1), 2)}), (2, 4))
    yield Recipe("Tile", "first axis", plain("Tile", lambda m, d: {"r": longs(2, *[1] * (m.rank - 1))}), (2, 4))
    for op in ("CumSum", "CumProd"):
        for axis in (0, -1):
            yield Recipe(
                op,
                f"axis {axis}",
                accumulate(op, axis),
                (1, 2, 3),
                ("float32", "int64") if op == "CumSum" else ("float32",),
            )
    yield Recipe("CumSum", "exclusive, reverse", accumulate("CumSum", -1, exclusive=1, reverse=1), (2,))
    for k in (1, 5, 50, 500):
        yield Recipe("TopK", f"{k}", top_k(k), (1, 2), ("float32", "int64"))
    yield Recipe("TopK", "5, first axis", top_k(5, 0), (2,))
    yield Recipe("TopK", "rows of 300: a sort", rows_sorted, (2,))
    yield Recipe("TopK", "all: a sort", top_k(0), (1, 2), ("float32", "int64"))
    for mode in ("DCR", "CRD"):
        yield Recipe("DepthToSpace", mode, blocks("DepthToSpace", mode=mode))
    yield Recipe("SpaceToDepth", "", blocks("SpaceToDepth"))
    yield Recipe("OneHot", "", one_hot, (2,))
    yield Recipe("ReverseSequence", "", reverse_sequence, (3,))
    yield Recipe("Compress", "", compress, (2,))
    yield Recipe("Col2Im", "3 × 3", col2im)
    yield Recipe("CenterCropPad", "", crop, (2, 4))
    yield Recipe("Range", "", ranged, (1,), ("float32", "int64"))
    yield Recipe("ConstantOfShape", "", filled, (2,))
    yield Recipe("EyeLike", "", eye, (2,))
    yield Recipe("Trilu", "upper", plain("Trilu", upper=1), (2, 4))
    yield Recipe("Trilu", "lower", plain("Trilu", upper=0), (2, 4))
    yield Recipe("Reshape", "", reshape, (2, 4), FLOATS)
    yield Recipe("Flatten", "", plain("Flatten", axis=1), (2, 4))
    yield Recipe("Squeeze", "", lambda m: node("Squeeze", {"x": m.x(1, *m.dims())}, {"a": longs(0)}, open=(1,)), (2,))
    yield Recipe("Unsqueeze", "", plain("Unsqueeze", lambda m, d: {"a": longs(0)}), (2,))
    yield Recipe("Shape", "", plain("Shape"), (2,))
    yield Recipe("Size", "", plain("Size"), (2,))
    yield Recipe("NonZero", "", plain("NonZero"), (1, 2))
    yield Recipe("Unique", "", plain("Unique"), (1,), ("int64", "float32"))
