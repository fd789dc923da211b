"""Operators that rearrange, sample and transform arrays; most have a similar standard operator."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from weft.expr.nodes import Var as Symbol
from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.onnx.converters.contraction import conv_transpose
from weft.frontends.onnx.converters.contrib.scores import counted, number, want_rank, whole
from weft.frontends.onnx.converters.counted import unique_values
from weft.frontends.onnx.converters.index_range import checked, indices
from weft.frontends.onnx.converters.loops import repeat
from weft.frontends.onnx.converters.movement import MOVEMENT
from weft.frontends.onnx.converters.numbers import Operand, Traced, constant, operand, size
from weft.frontends.onnx.converters.padding import PADDING
from weft.frontends.onnx.converters.sampling import SAMPLING, interpolated, lookup, pixels
from weft.frontends.onnx.converters.spectral import transformed
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import GraphExpr
from weft.support.dtypes import FLOAT32, INT64

STANDARD = 16
"""Default version of the standard operator set whose operators these converters use."""


def _as_standard(convert: Callable[[Node], Result], opset: int = STANDARD) -> Callable[[Node], Result]:
    return lambda node: convert(node.altered(opset=opset))


def _pad(node: Node) -> Result:
    if node.has(1) and len(node.shape(1)) == 2:
        flat = node.call("reshape", node.data(1), shape=(2 * len(node.shape(0)),))
        return PADDING["Pad"](node.altered((node.value(0), flat, *node.inputs[2:]), STANDARD))
    return PADDING["Pad"](node.altered(opset=STANDARD))


def _unique(node: Node) -> Result:
    """Distinct values in order of appearance, the number of the distinct value for each element, and the counts."""
    x = operand(node, 0)
    want_rank(x, (1,), "x")
    values, _, numbers, counts = unique_values(node, x, in_order=True)
    return values, numbers, counts


def _range(node: Node) -> Result:
    inputs = tuple(_scalar(node, i) for i in range(2))
    step = _scalar(node, 2) if node.has(2) else node.scalar(1, node.data(0))
    return MOVEMENT["Range"](node.altered((*inputs, step), STANDARD))


def _scalar(node: Node, i: int) -> GraphExpr:
    return node.call("reshape", node.data(i), shape=()) if node.shape(i) else node.data(i)


def _expand_dims(node: Node) -> Result:
    (axis,) = node.numbers(1, "axis")
    return operand(node, 0).call("unsqueeze", axes=(axis,)).x


def _embedding(node: Node) -> Result:
    table = operand(node, 0)
    return node.call("gather", table.x, indices(node, 1, table.shape[0]), axis=0)


def _unfold(node: Node) -> Result:
    """All slices of a dimension, ``step`` apart; the elements of a slice are in a new last dimension."""
    x = operand(node, 0)
    axis, length, step = node.axis(len(x.shape), -1, "dim"), node.integer("size"), node.integer("step", 1)
    extent = whole(x.shape[axis], "the unfolded dimension")
    if length < 1 or step < 1 or length > extent:
        raise Malformed(f"slices of {length}, {step} apart, do not fit a dimension of {extent}")
    starts = np.arange((extent - length) // step + 1) * step
    places = constant(node, starts[:, None] + np.arange(length), INT64)
    made = x.call("gather", places, axis=axis)
    rank = len(made.shape)
    order = [i for i in range(rank) if i != axis + 1]
    return made.transpose(*order, axis + 1).x


# --- linear algebra ---------------------------------------------------------------------------------------------------


def _inverse(node: Node) -> Result:
    """Inverse: Gauss-Jordan elimination with row pivoting, as a loop over columns."""
    x = operand(node, 0)
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
        raise Malformed(f"its input {x.x.tensor} holds no square matrices")
    n, rank = x.shape[-1], len(x.shape)
    dtype = "float64" if x.dtype == "float64" else FLOAT32
    unit = Traced(node, node.call("eye", rows=n, columns=n, dtype=dtype)).expand(*x.shape)
    wide = x.to(dtype)
    start = wide.call("concat", unit, axis=rank - 1)
    rows = counted(node, n).reshape(n, 1)

    def step(column: Symbol, state: list[GraphExpr]) -> tuple[None, list[GraphExpr], list[GraphExpr]]:
        a, here = Traced(node, state[0]), number(node, column)
        one = a.part(rank - 1, column, column + 1)
        size_ = (rows >= here).choose(one.call("abs"), -1.0)
        best = size_.call("argmax", axis=rank - 2, keepdims=True)
        chosen, current = rows.equals(best), rows.equals(here)
        pivot = chosen.choose(a, 0.0).call("reduce_sum", axes=(-2,), keepdims=True)
        swapped = chosen.choose(a.part(rank - 2, column, column + 1).expand(*a.shape), a)
        unit_row = pivot / pivot.part(rank - 1, column, column + 1)
        rest = swapped - swapped.part(rank - 1, column, column + 1) * unit_row
        return None, [current.choose(unit_row.expand(*a.shape), rest).x], []

    (last,), _ = repeat(node, [start.x], step, trips=n)
    return Traced(node, last).part(rank - 1, n, start.shape[-1]).to(x.dtype).x


def _distances(node: Node) -> Result:
    """Distances between all rows of two matrices."""
    a, b = operand(node, 0), operand(node, 1)
    metric = node.text("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise Unsupported(f"its attribute 'metric' is '{metric}'; euclidean and sqeuclidean are supported")
    gap = a.call("unsqueeze", axes=(1,)) - b.call("unsqueeze", axes=(0,))
    made = gap.call("reduce_sum_square", axes=(2,), keepdims=False)
    return (made.call("sqrt") if metric == "euclidean" else made).x


def _real_transform(node: Node) -> Result:
    """The one-sided spectrum of real signals; real and imaginary parts are in a new last dimension."""
    _check_transform(node)
    x = operand(node, 0)
    raised = x.call("unsqueeze", axes=(-1,))
    return transformed(raised, len(x.shape) - 1, None, onesided=True).x


def _inverse_transform(node: Node) -> Result:
    _check_transform(node)
    x = operand(node, 0)
    made = transformed(x, len(x.shape) - 2, None, inverse=True, onesided=True)
    return made.reshape(*made.shape[:-1]).x


def _check_transform(node: Node) -> None:
    if node.integer("signal_ndim", 1) != 1 or node.integer("normalized", 0) or not node.integer("onesided", 1):
        raise Unsupported("only one-sided transforms of one dimension without normalization are supported")


# --- images -----------------------------------------------------------------------------------------------------------


def _crop_and_resize(node: Node) -> Result:
    """CropAndResize: boxes in relative coordinates (y, x, y, x) with aligned corners, sampled to one size."""
    x, boxes, which = (operand(node, i) for i in range(3))
    want_rank(x, (4,), "X")
    want_rank(boxes, (2,), "rois")
    height, width = node.numbers(3, "crop_size")
    mode = node.text("mode", "bilinear")
    if mode not in ("bilinear", "nearest"):
        raise Malformed(f"its attribute 'mode' is '{mode}', not bilinear or nearest")
    source = x.to(FLOAT32).transpose(0, 2, 3, 1).call("gather", checked(which, 2, x.shape[0]), axis=0)
    count = boxes.shape[0]
    places = []
    for axis, cells in enumerate((height, width)):
        low, high = (boxes.part(1, i).reshape(count, 1) for i in (axis, axis + 2))
        last = size(node, x.shape[2 + axis]) - 1
        if cells > 1:
            at = low * last + constant(node, np.arange(cells) / (cells - 1)).reshape(1, cells) * (high - low) * last
        else:
            at = (low + high) * 0.5 * last
        shape = (count, cells, 1) if axis == 0 else (count, 1, cells)
        places.append(at.reshape(*shape, 1).expand(count, height, width, 1))
    return _sampled(node, source, places, x, mode).transpose(0, 3, 1, 2).to(x.dtype).x


def _sampled(node: Node, source: Traced, places: list[Traced], x: Traced, mode: str) -> Traced:
    """Values at ``places``; the extrapolation value outside of the image."""
    sizes = [size(node, d) for d in x.shape[2:]]
    found = lookup("border", sizes)
    if mode == "nearest":
        near = [found((p + 0.5).call("floor"), axis)[0] for axis, p in enumerate(places)]
        made = pixels(source, near, (None, None))
    else:
        made = interpolated(source, places, found)
    inside = (places[0] >= 0.0) & (places[0] <= sizes[0] - 1) & (places[1] >= 0.0) & (places[1] <= sizes[1] - 1)
    return inside.choose(made, node.real("extrapolation_value", 0.0))


def _conv_transpose(node: Node) -> Result:
    """ConvTransposeWithDynamicPads: the pads are an operand."""
    plain = node.altered((*node.inputs[:2], *node.inputs[3:]))
    if not node.has(2):
        return conv_transpose(plain)
    pads = node.numbers(2, "Pads")
    if len(pads) != 2 * (len(node.shape(0)) - 2):
        raise Malformed(f"its pads hold {len(pads)} numbers, not two for each spatial dimension")
    return conv_transpose(plain, pads)


# --- attention and text -----------------------------------------------------------------------------------------------


def _relative_bias(node: Node) -> Result:
    """A bias for each head by the distance of query and key. Distances are grouped in buckets; far ones are larger."""
    table = operand(node, 0)
    want_rank(table, (2,), "bias_table")
    (queries,), (keys,) = node.dims(1, "query_length"), node.dims(2, "key_length")
    buckets, both = whole(table.shape[0], "the number of buckets"), node.flag("is_bidirectional")
    gap = counted(node, keys).reshape(1, keys) - counted(node, queries).reshape(queries, 1)
    base: Operand = 0
    if both:
        buckets //= 2
        base = (gap > 0).to(INT64) * buckets
        distance = gap.call("abs")
    else:
        distance = gap.call("neg").call("maximum", 0)
    near = buckets // 2
    far = (distance.to(FLOAT32).call("maximum", 1.0) / float(near)).call("log")
    steps = far * ((buckets - near) / math.log(node.integer("max_distance") / near))
    wide = (steps.to(INT64) + near).call("minimum", buckets - 1)
    bucket = (distance < near).choose(distance, wide) + base
    return table.call("gather", bucket, axis=0).transpose(2, 0, 1).call("unsqueeze", axes=(0,)).x


def _gated_relative_bias(node: Node) -> Result:
    """The bias of relative positions, weighted by gates that are computed from the queries."""
    if node.has(6):
        raise Unsupported("its input 'token_offset' (packed sequences) is not supported")
    query, bias, places, weight, shift, factor = (operand(node, i) for i in range(6))
    want_rank(query, (3,), "query_layer")
    heads = node.integer("num_heads")
    batch, length, hidden = query.shape
    split = (query + bias).reshape(batch, length, heads, whole(hidden, "the hidden size") // heads)
    gates = split.transpose(0, 2, 1, 3).call("matmul", weight) + shift
    width = whole(gates.shape[-1], "the number of gates")
    two = gates.reshape(batch, heads, length, 2, width // 2).call("reduce_sum", axes=(-1,), keepdims=False)
    u, r = (two.call("sigmoid").part(3, i, i + 1) for i in (0, 1))
    return ((u * (r * factor - 1.0) + 2.0) * places).x


def _no_repeats(node: Node) -> Result:
    """Scores become -inf for tokens that would repeat an n-gram of the row."""
    ids, found = operand(node, 0), operand(node, 1)
    n, length = node.integer("ngram_size"), whole(operand(node, 0).shape[1], "the length of the sequence")
    if n < 1:
        raise Malformed(f"its attribute 'ngram_size' is {n}")
    if length < n:
        return found.x
    starts = length - n + 1
    same: Traced | None = None
    for i in range(n - 1):
        equal = ids.part(1, i, i + starts).equals(ids.part(1, length - n + 1 + i, length - n + 2 + i))
        same = equal if same is None else same & equal
    following = ids.part(1, n - 1, n - 1 + starts)
    words = counted(node, found.shape[1]).reshape(1, 1, found.shape[1])
    hit = following.call("unsqueeze", axes=(-1,)).equals(words)
    if same is not None:
        hit = hit & same.call("unsqueeze", axes=(-1,))
    return hit.call("reduce_max", axes=(1,), keepdims=False).choose(found * 0.0 - math.inf, found).x


ARRAYS: dict[str, Callable[[Node], Result]] = {
    "CDist": _distances,
    "ConvTransposeWithDynamicPads": _conv_transpose,
    "CropAndResize": _crop_and_resize,
    "ExpandDims": _expand_dims,
    "GatedRelativePositionBias": _gated_relative_bias,
    "GatherND": _as_standard(MOVEMENT["GatherND"]),
    "GridSample": _as_standard(SAMPLING["GridSample"]),
    "Inverse": _inverse,
    "Irfft": _inverse_transform,
    "NGramRepeatBlock": _no_repeats,
    "Pad": _pad,
    "Range": _range,
    "RelativePositionBias": _relative_bias,
    "Rfft": _real_transform,
    "TorchEmbedding": _embedding,
    "Trilu": _as_standard(MOVEMENT["Trilu"]),
    "UnfoldTensor": _unfold,
    "Unique": _unique,
}
