"""Sums over windows whose size may be known at run time only: resampling by weights, and blocks put back in place."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Expr, index, make, maximum, minimum, select
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import Dim, TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.ops.stages import accumulator, narrowed
from weft.support.dtypes import INDEX

# --- resampling -----------------------------------------------------------------------------------------------------


def _resample_infer(attrs: Attrs, *types: Type) -> TensorType:
    data, first, weights = rel.tensors("resample", types, 3)
    rel.want_kind("resample", data, "float", "data")
    rel.want_kind("resample", first, "int", "the first places")
    rel.want_rank("resample", first, 1)
    rel.want_rank("resample", weights, 2)
    if weights.dtype != data.dtype:
        rel.fail("resample", f"data and weights have different dtypes, {data.dtype} and {weights.dtype}", "T011")
    axis = rel.axis_of("resample", attrs.axis, data.rank)
    count = rel.join_dim("resample", first.shape[0], weights.shape[0], "first places and rows of weights")
    return data.with_shape((*data.shape[:axis], count, *data.shape[axis + 1 :]))


def _resample_compute(attrs: Attrs, out: TensorType, data: te.Tensor, first: te.Tensor, weights: te.Tensor) -> Any:
    axis = rel.axis_of("resample", attrs.axis, out.rank)
    tap, wide = te.reduce_axis((0, weights.shape[1]), name="tap"), accumulator(out.dtype)

    def element(*i: Expr) -> Expr:
        place = te.cast(first[i[axis]], INDEX) + tap.var
        inside = maximum(minimum(place, data.shape[axis] - 1), 0)
        value = te.cast(data[(*i[:axis], inside, *i[axis + 1 :])], wide)
        return te.sum(te.cast(weights[i[axis], tap.var], wide) * value, axis=tap)

    return narrowed(te.compute(out.shape, element, name="resample"), out.dtype, "resample_narrow")


def _resample_reference(attrs: Attrs, data: Array, first: Array, weights: Array) -> Array:
    moved = np.moveaxis(data.astype(np.float64), attrs.axis, -1)
    places = np.clip(first[:, None] + np.arange(weights.shape[1]), 0, max(0, moved.shape[-1] - 1))
    made = (moved[..., places] * weights).sum(-1)
    return np.ascontiguousarray(np.moveaxis(made, -1, attrs.axis)).astype(data.dtype)


RESAMPLE = OpDef(
    "resample",
    (Attribute("axis", REQUIRED, "the axis that is resampled"),),
    _resample_infer,
    _resample_reference,
    compute=_resample_compute,
    cases=(
        Case((((2, 5, 3), "float32"), np.array([-1, 0, 3, 9]), ((4, 3), "float32")), {"axis": 1}),
        Case((((2, 6), "float16"), np.array([1, 0]), ((2, 4), "float16")), {"axis": -1}, rtol=4e-3, atol=1e-2),
        Case((((4, 3), "float32"), np.array([2, 0, 1]), ((3, 0), "float32")), {"axis": 0}),
    ),
    doc="sums of neighbours along an axis; operands data, for each element of the result the first place, and the"
    " weights [elements, neighbours]; the ends of the data continue beyond them",
    source="ONNX Resize-19 (antialias)",
)

# --- blocks put back in place ---------------------------------------------------------------------------------------


def _window_counts(attrs: Attrs) -> list[Dim]:
    """How many windows there are along each dimension of the image."""
    n, out = len(attrs.image), list[Dim]()
    for i in range(n):
        span = rel.add(rel.multiply((rel.add(attrs.block[i], -1), attrs.dilations[i])), 1)
        room = rel.add(attrs.image[i], attrs.pads[i], attrs.pads[n + i], rel.multiply((span, -1)))
        out.append(rel.add(rel.divide(room, attrs.strides[i]), 1))
    return out


def _fold_infer(attrs: Attrs, *types: Type) -> TensorType:
    (data,) = rel.tensors("col2im", types, 1)
    rel.want_rank("col2im", data, 3)
    n = len(attrs.image)
    for name, count in (("block", n), ("strides", n), ("dilations", n), ("pads", 2 * n)):
        rel.per_axis("col2im", attrs[name], count, name)
    rows = rel.multiply((attrs.channels, *attrs.block))
    rel.join_dim("col2im", data.shape[1], rows, "the rows and the elements of a block in all channels")
    columns = rel.nonnegative("col2im", _window_counts(attrs), "the grid of blocks")
    rel.join_dim("col2im", data.shape[2], rel.multiply(columns), "the columns and the number of blocks")
    return data.with_shape((data.shape[0], rel.simplified(attrs.channels), *map(rel.simplified, attrs.image)))


def _flat(places: list[Expr], sizes: list[Dim]) -> Expr:
    total = index(0)
    for place, size in zip(places, sizes, strict=True):
        total = total * index(size) + place
    return total


def _fold_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    n, counts, block = len(attrs.image), _window_counts(attrs), list(attrs.block)
    taps: list[IterVar] = [te.reduce_axis((0, index(b)), name=f"tap{i}") for i, b in enumerate(block)]

    def element(batch: Expr, channel: Expr, *at: Expr) -> Expr:
        windows, inside = [], []
        for i in range(n):
            place = at[i] + attrs.pads[i] - taps[i].var * attrs.dilations[i]
            window = place // attrs.strides[i]
            inside += [place >= 0, window < index(counts[i])]
            if attrs.strides[i] != 1:
                inside.append(make("eq", place % attrs.strides[i], index(0)))
            windows.append(window)
        row = _flat([channel, *(t.var for t in taps)], [1, *block])
        value = data[batch, row, _flat(windows, counts)]
        return te.sum(select(te.all(*inside), value, te.const(0, data.dtype)), axis=taps)

    return te.compute(out.shape, element, name="col2im")


def _fold_reference(attrs: Attrs, data: Array) -> Array:
    n, counts, block = len(attrs.image), rel.known(_window_counts(attrs)), rel.known(attrs.block)
    size = [attrs.image[i] + attrs.pads[i] + attrs.pads[n + i] for i in range(n)]
    room = np.zeros((len(data), attrs.channels, *size), data.dtype)
    blocks = data.reshape(len(data), attrs.channels, *block, *counts)
    for tap in itertools.product(*map(range, block)):
        steps = zip(tap, attrs.dilations, counts, attrs.strides, strict=True)
        where: Any = (..., *(slice(t * d, t * d + (c - 1) * s + 1, s) for t, d, c, s in steps))
        room[where] += np.moveaxis(blocks, range(2, 2 + n), range(n))[tap]
    inner: Any = (..., *(slice(attrs.pads[i], attrs.pads[i] + attrs.image[i]) for i in range(n)))
    return np.ascontiguousarray(room[inner])


def _fold_case(shape: tuple[int, ...], **attrs: Any) -> Case:
    n = len(attrs["image"])
    usual = {"strides": (1,) * n, "dilations": (1,) * n, "pads": (0,) * 2 * n}
    return Case(((shape, "float32"),), usual | attrs)


COL2IM = OpDef(
    "col2im",
    (
        Attribute("image", REQUIRED, "the sizes of the image"),
        Attribute("block", REQUIRED, "the sizes of a block"),
        Attribute("channels", REQUIRED, "how many channels the rows hold"),
        Attribute("strides", REQUIRED, "how far blocks are apart"),
        Attribute("dilations", REQUIRED, "how far elements of a block are apart"),
        Attribute("pads", REQUIRED, "how far blocks reach beyond the image: all amounts before, then all after"),
    ),
    _fold_infer,
    _fold_reference,
    compute=_fold_compute,
    cases=(
        _fold_case((2, 3 * 4, 12), image=(4, 5), block=(2, 2), channels=3),
        _fold_case((1, 6, 4), image=(5, 6), block=(2, 3), channels=1, strides=(3, 2), pads=(0, 0, 1, 0)),
        _fold_case(
            (1, 6, 15), image=(5, 7), block=(3, 1), channels=2, dilations=(2, 1), pads=(1, 0, 1, 2), strides=(1, 2)
        ),
        _fold_case((1, 4, 6), image=(3, 3, 3), block=(1, 2, 2), channels=1, strides=(1, 2, 1)),
    ),
    doc="columns [batch, channels · elements, blocks] added up to the image that blocks were taken from",
    source="ONNX Col2Im-18",
)

WINDOWS: tuple[OpDef, ...] = (RESAMPLE, COL2IM)
