"""Padding by a constant or by the operand's own values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.folds import any_of
from weft.expr.nodes import Expr, index, make, maximum, minimum, select
from weft.graph.assume import assume
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import Dim, TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.ops.layouts import follow_channels
from weft.ops.stages import padded


def _f(*shape: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return shape, dtype


def _one(op: str, types: Sequence[Type]) -> TensorType:
    return rel.tensors(op, types, 1)[0]


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
        if attrs.mode != "constant" and isinstance(s, Expr) and (b, a) != (0, 0):
            some = any_of(make("ge", s, index(1)), make("eq", index(b) + index(a), index(0)))
            assume(some, f"pad: mode {attrs.mode} cannot pad the empty dimension {d}: its size {s} is 0")
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
            place = v - index(b)
            inner = te.all(place >= 0, place < size)  # loops are split there, and read the data as it lies
            at.append(select(inner, place, _pad_place(attrs.mode, place, size, near)))
        return data[tuple(at)]

    return te.compute(out.shape, element, name="pad")


def _pad_reference(attrs: Attrs, data: Array) -> Array:
    before, after = map(rel.known, _pads(attrs, data.ndim))
    widths = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
    filler = {"constant_values": np.asarray(attrs.value).astype(data.dtype)} if attrs.mode == "constant" else {}
    wide = np.pad(data, widths, mode=attrs.mode, **filler)  # first, for more may be cropped than there was
    return wide[tuple(slice(max(0, -b), s - max(0, -a)) for b, a, s in zip(before, after, wide.shape, strict=True))]


def _pad_blocked(attrs: Attrs, data: TensorType, block: int) -> Attrs | None:
    """The attributes for blocked channels, where elements are added in space only. Channels that fill up a block stay
    zero, so other values than zeros are added to whole blocks only."""
    before, after = _pads(attrs, data.rank)
    channels = data.shape[1]
    whole = isinstance(channels, int) and channels % block == 0
    if before[1] != 0 or after[1] != 0 or (attrs.mode == "constant" and attrs.value != 0 and not whole):
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
    moves=True,
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
