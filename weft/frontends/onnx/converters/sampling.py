"""Operators that read or write at computed places: sampling on grids, regions of interest, deformed windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.common.sizes import arithmetic, divide_products, product
from weft.frontends.onnx.converters.computed_axes import require
from weft.frontends.onnx.converters.contraction import with_bias
from weft.frontends.onnx.converters.index_range import checked
from weft.frontends.onnx.converters.numbers import Operand, Traced, constant, operand, size, stack
from weft.frontends.onnx.converters.windows import SlidingWindow, window
from weft.frontends.onnx.node import Node, Result
from weft.graph.types import Dim
from weft.support.dtypes import BOOL, FLOAT32, INDEX, INT32, UINT32

MAX_SAMPLES = 1 << 14
"""Most samples along a bin of a box, if the size of the box decides their number."""

MAX_SMALL_PLACES = 1 << 30
"""Most positions whose numbers are computed with 32 bits."""

FEW_CHANNELS = 4
"""Most channels for which vectors hold positions rather than the channels of one."""

# A position along one axis (float or integer) → (an integer position inside the axis, whether data exists; None: yes).
Lookup = Callable[[Traced, int], "tuple[Traced, Traced | None]"]


def _reflected(x: Traced, low: Operand, high: Operand) -> Traced:
    """``x`` reflected at the borders until it is inside them."""
    span = high - low
    if not isinstance(span, Traced) and span <= 0:
        return x * 0 + low
    distance = (x - low).call("abs")
    turns = (distance / span).call("floor")
    rest = distance - turns * span
    pairs = turns * 0.5
    inner = pairs.equals(pairs.call("floor")).choose(rest + low, high - rest)
    return ((x >= low) & (x <= high)).choose(x, inner)


def _reflected_once(place: Traced, last: Operand, at_centers: bool) -> Traced:
    """An integer position outside of 0 … ``last`` by no more than the axis is long, reflected at the centers of the
    outer pixels or at their outer edges."""
    if at_centers:
        inside = place.call("abs")
        return inside.call("minimum", last * 2 - inside).call("abs")
    inside = place.call("maximum", -1.0 - place)
    return inside.call("minimum", last * 2 + 1 - inside)


def pixels(data: Traced, places: Sequence[Traced], inside: Sequence[Traced | None], lead: int = 1) -> Traced:
    """``data`` (batch, spatial …, channels) at integer ``places`` (batch, …, 1) by axis: (batch, …, channels); 0 where
    ``inside`` is false. The first ``lead`` dimensions are no places: with 2 of them, ``data`` is (batch, channels,
    spatial …, 1), and places are (batch, 1, …, 1)."""
    spatial = data.shape[lead:-1]
    count = product(spatial)
    # A vector holds twice as many places of 32 bits, which are enough for all but huge or open sizes.
    small = isinstance(count, int) and count <= MAX_SMALL_PLACES
    dtype = INT32 if small else INDEX
    place = places[0].to(dtype)  # in the row of all positions: one number to look up instead of one for each axis
    for p, extent in zip(places[1:], spatial[1:], strict=True):
        place = place * size(data.node, extent, dtype) + p.to(dtype)
    rows = data.reshape(*data.shape[:lead], count, data.shape[-1])
    place = place.to(UINT32) if small else place  # that none is negative saves a choice for each look-up
    place = place.expand(*data.shape[:lead], *place.shape[lead:])
    picked = rows.call("gather_nd", place, batch_dims=lead)
    known = [i for i in inside if i is not None]
    return reduce(lambda a, b: a & b, known).choose(picked, 0.0) if known else picked


def _cubic(t: Traced) -> list[Traced]:
    """Weights of four neighbours for the cubic convolution of Keys with a = -0.75."""
    a = -0.75

    def far(s: Traced) -> Traced:
        return ((s * a - 5 * a) * s + 8 * a) * s - 4 * a

    def near(s: Traced) -> Traced:
        return (s * (a + 2) - (a + 3)) * s * s + 1.0

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


def interpolated(
    data: Traced,
    coordinates: Sequence[Traced],
    find: Lookup,
    cubic: bool = False,
    exact: Sequence[Traced] = (),
    lead: int = 1,
) -> Traced:
    """Linear or cubic interpolation of ``data`` at float coordinates by axis. ``exact`` are integer positions along the
    last spatial axes, which are not interpolated. The shapes are those of :func:`pixels`."""
    axes = []
    for axis, x in enumerate(coordinates):
        base = x.call("floor")
        t = x - base
        weights = _cubic(t) if cubic else [1.0 - t, t]
        start = -1.0 if cubic else 0.0
        neighbours = [base + (start + k) if start + k else base for k in range(len(weights))]
        axes.append([(w, *find(place, axis)) for w, place in zip(weights, neighbours, strict=True)])

    def total(axis: int, places: tuple[Traced, ...], inside: tuple[Traced | None, ...]) -> Traced:
        """The weighted sum along the axes from ``axis`` on, where the places along those before it are chosen."""
        if axis == len(axes):
            return pixels(data, [*places, *exact], inside, lead)
        terms = [total(axis + 1, (*places, place), (*inside, there)) * weight for weight, place, there in axes[axis]]
        return reduce(lambda a, b: a + b, terms)

    return total(0, (), ())


def lookup(padding: str, sizes: Sequence[Operand], at_centers: bool = False) -> Lookup:
    """Functions from positions to integer positions, for the padding modes zeros, border and reflection (of positions
    that are near: at the centers of the outer pixels or at their outer edges)."""

    def find(place: Traced, axis: int) -> tuple[Traced, Traced | None]:
        last = sizes[axis] - 1
        if padding == "reflection":
            return _reflected_once(place, last, at_centers).limited(0.0, last), None
        within = place.limited(0.0, last)
        return within, (place.equals(within) if padding == "zeros" else None)

    return find


def _channels_last(x: Traced) -> Traced:
    rank = len(x.shape)
    return x.transpose(0, *range(2, rank), 1)


def _channels_first(x: Traced) -> Traced:
    rank = len(x.shape)
    return x.transpose(0, rank - 1, *range(1, rank - 1))


def _grid_sample(node: Node) -> Result:
    data, grid = operand(node, 0), operand(node, 1).to(FLOAT32)
    spatial = data.shape[2:]
    n = len(spatial)
    if n < 1 or len(grid.shape) != n + 2 or grid.shape[-1] != n:
        raise Malformed(f"its grid {grid.x.tensor} does not fit the data {data.x.tensor}")
    modes = {"bilinear": "linear", "bicubic": "cubic"}
    mode = node.text("mode", "linear")
    mode = modes.get(mode, mode)
    padding = node.text("padding_mode", "zeros")
    if mode not in ("linear", "cubic", "nearest") or padding not in ("zeros", "border", "reflection"):
        raise Malformed(f"its mode is '{mode}' with padding '{padding}'")
    corners = node.flag("align_corners")
    sizes = [size(node, d) for d in spatial]
    borders = [(0.0, s - 1) if corners else (-0.5, s - 0.5) for s in sizes]
    few = isinstance(data.shape[1], int) and data.shape[1] <= FEW_CHANNELS
    grid = grid.call("unsqueeze", axes=(1,)) if few else grid
    places = []
    for axis in range(n):
        g = grid.part(len(grid.shape) - 1, n - 1 - axis, n - axis) + 1.0
        x = g * 0.5 * (sizes[axis] - 1) if corners else (g * sizes[axis] - 1.0) * 0.5
        x = x.call("round") if mode == "nearest" else x
        if padding == "border":  # positions inside the outer pixels stay, because cubic weights depend on them
            low, high = borders[axis]
            x = ((x >= low) & (x <= high)).choose(x, x.limited(0.0, sizes[axis] - 1))
        elif padding == "reflection":
            x = _reflected(x, *borders[axis])
        places.append(x)
    source = data.to(FLOAT32)
    source, lead = (source.call("unsqueeze", axes=(-1,)), 2) if few else (_channels_last(source), 1)
    find = lookup(padding, sizes, bool(corners))
    if mode == "nearest":
        found = [find(x.call("trunc"), axis) for axis, x in enumerate(places)]
        made = pixels(source, [f[0] for f in found], [f[1] for f in found], lead)
    else:
        made = interpolated(source, places, find, cubic=mode == "cubic", lead=lead)
    made = made.reshape(*made.shape[:-1]) if few else _channels_first(made)
    return made.to(data.dtype).x


# --- regions of interest ----------------------------------------------------------------------------------------------


def _roi_align(node: Node) -> Result:
    data, rois = operand(node, 0), operand(node, 1)
    if len(data.shape) != 4 or len(rois.shape) != 2 or rois.shape[1] != 4:
        raise Malformed(f"its data {data.x.tensor} and boxes {rois.x.tensor} must be [N, C, H, W] and [boxes, 4]")
    batch = checked(operand(node, 2), 2, data.shape[0])
    ratio = node.integer("sampling_ratio", 0)
    half = node.text("coordinate_transformation_mode", "half_pixel" if node.opset >= 16 else "output_half_pixel")
    offset = 0.5 if half == "half_pixel" else 0.0
    shape = node.integer("output_height", 1), node.integer("output_width", 1)
    rois = rois.to(FLOAT32) * node.real("spatial_scale", 1.0) - offset
    start = [rois.part(1, 1), rois.part(1, 0)]
    extent = [rois.part(1, 3) - start[0], rois.part(1, 2) - start[1]]
    if half != "half_pixel":
        extent = [e.call("maximum", 1.0) for e in extent]
    source = data.to(FLOAT32).transpose(0, 2, 3, 1)
    mode = node.text("mode", "avg").lower()
    if ratio > 0:
        made = _aligned(source, start, extent, batch, shape, (ratio, ratio), mode)
        return made.to(data.dtype).x
    counts = [(e / float(n)).call("ceil").call("maximum", 1.0) for e, n in zip(extent, shape, strict=True)]
    return _aligned(source, start, extent, batch, shape, counts, mode).to(data.dtype).x


def _most(counts: Traced, what: str) -> Dim:
    """The largest number of samples of all boxes."""
    node = counts.node
    require(
        node, (counts <= MAX_SAMPLES).reshape(*counts.shape), f"a box is too large: more than {MAX_SAMPLES} samples"
    )
    every = counts.limited(1.0, MAX_SAMPLES).call("concat", constant(node, [1.0]), axis=0)
    return node.bound(every.call("reduce_max", axes=(0,), keepdims=True).to(INDEX).x, what, 1)[0]


def _sample_steps(node: Node, bins: int, samples: int | Traced, most: Dim) -> tuple[Traced, Traced | None]:
    """Positions of samples in a box, from 0 to 1: [boxes or 1, bins · most], and which of them are used (None: all)."""
    if isinstance(samples, int):
        known = (np.arange(bins * samples) + 0.5) / (samples * bins)
        return constant(node, known).reshape(1, bins * samples), None
    boxes = samples.shape[0]
    sample = Traced(node, node.call("arange", count=most, dtype=FLOAT32)).reshape(1, 1, most)
    count = samples.reshape(boxes, 1, 1)
    steps = (constant(node, np.arange(bins)).reshape(1, bins, 1) + (sample + 0.5) / count) / float(bins)
    full = (boxes, bins, most)
    counts = (sample < count).expand(*full)
    return steps.reshape(boxes, product([bins, most])), counts.reshape(boxes, product([bins, most]))


def _aligned(
    source: Traced,
    start: Sequence[Traced],
    extent: Sequence[Traced],
    batch: Traced,
    shape: tuple[int, int],
    samples: Sequence[int | Traced],
    mode: str,
) -> Traced:
    """Averages (or maxima) of bilinear samples of ``source`` (batch, rows, columns, channels) in each bin of boxes.
    ``samples`` by axis, along a bin: a number, or one for each box."""
    (count,) = batch.shape
    most = [n if isinstance(n, int) else _most(n, "samples") for n in samples]
    full = (count, product([shape[0], most[0]]), product([shape[1], most[1]]))
    sides = [_side(source, axis, start, extent, shape[axis], samples[axis], most[axis]) for axis in range(2)]

    def spread(t: Traced, axis: int) -> Traced:
        return t.reshape(count, full[1], 1) if axis == 0 else t.reshape(count, 1, full[2])

    (rows, columns), wide = sides, source.shape[3]
    valid = spread(rows.inside, 0) & spread(columns.inside, 1)
    terms = []
    for y_place, y_weight in rows.ends:
        for x_place, x_weight in columns.ends:
            places = (batch.to(INDEX).reshape(count, 1, 1), spread(y_place, 0).to(INDEX), spread(x_place, 1).to(INDEX))
            picked = source.call("gather_nd", stack([p.expand(*full) for p in places]), batch_dims=0)
            weight = valid.choose(spread(y_weight, 0) * spread(x_weight, 1), 0.0)
            terms.append(picked * weight.call("unsqueeze", axes=(-1,)))
    largest = mode == "max"
    total = reduce(lambda a, b: a.call("maximum" if largest else "add", b), terms)
    for axis, side in enumerate(sides):
        if side.counts is not None:
            there = spread(side.counts, axis).call("unsqueeze", axes=(-1,)).expand(*full, wide)
            total = there.choose(total, -math.inf if largest else 0.0)
    binned = total.reshape(count, shape[0], most[0], shape[1], most[1], wide)
    made = binned.call("reduce_max" if largest else "reduce_sum", axes=(2, 4), keepdims=False)
    if not largest:
        for n in samples:
            made = made / (float(n) if isinstance(n, int) else n.reshape(count, 1, 1, 1))
    return made.transpose(0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class _Side:
    """Samples along one axis: [boxes, samples] each. ``ends`` are the two neighbours and their weights; ``inside``:
    whether the sample is near the data; ``counts``: whether the sample is used (None: all are)."""

    ends: tuple[tuple[Traced, Traced], tuple[Traced, Traced]]
    inside: Traced
    counts: Traced | None


def _side(
    source: Traced,
    axis: int,
    start: Sequence[Traced],
    extent: Sequence[Traced],
    bins: int,
    samples: int | Traced,
    most: Dim,
) -> _Side:
    node, (count,) = source.node, start[axis].shape
    steps, counts = _sample_steps(node, bins, samples, most)
    y = start[axis].reshape(count, 1) + extent[axis].reshape(count, 1) * steps
    last = size(node, source.shape[1 + axis]) - 1
    inside = (y >= -1.0) & (y <= last + 1)
    y = y.limited(0.0, last)
    low = y.call("floor")
    rest = y - low
    return _Side(((low, 1.0 - rest), ((low + 1.0).call("minimum", last), rest)), inside, counts)


def _max_roi_pool(node: Node) -> Result:
    """The maximum in each bin of boxes whose corners are rounded to pixels; 0 in empty bins. Rows are reduced first,
    then columns."""
    data, rois = operand(node, 0), operand(node, 1).to(FLOAT32)
    bins = node.integers("pooled_shape")
    if len(data.shape) != 4 or len(rois.shape) != 2 or rois.shape[1] != 5:
        raise Malformed(f"its data {data.x.tensor} and boxes {rois.x.tensor} must be [N, C, H, W] and [boxes, 5]")
    if len(bins) != 2 or min(bins) < 1:
        raise Malformed(f"its attribute 'pooled_shape' is {list(bins)}, not two positive numbers")
    corners = (rois.part(1, 1, 5) * node.real("spatial_scale", 1.0) + 0.5).call("floor")
    count, channels = rois.shape[0], data.shape[1]
    taken = data.to(FLOAT32).call("gather", checked(rois.part(1, 0).to(INDEX), 1, data.shape[0]), axis=0)
    rows, columns = (
        _in_bins(corners.part(1, low), corners.part(1, low + 2), n, data.shape[axis])
        for low, n, axis in ((1, bins[0], 2), (0, bins[1], 3))
    )
    across = columns.reshape(count, 1, 1, bins[1], data.shape[3])
    wide = across.choose(taken.call("unsqueeze", axes=(3,)), -math.inf).call("reduce_max", axes=(4,), keepdims=False)
    down = rows.reshape(count, 1, bins[0], data.shape[2], 1)
    made = down.choose(wide.reshape(count, channels, 1, data.shape[2], bins[1]), -math.inf)
    made = made.call("reduce_max", axes=(3,), keepdims=False)
    filled = rows.call("reduce_max", axes=(2,), keepdims=False).reshape(count, 1, bins[0], 1)
    filled = filled & columns.call("reduce_max", axes=(2,), keepdims=False).reshape(count, 1, 1, bins[1])
    return filled.choose(made, 0.0).to(data.dtype).x


def _in_bins(start: Traced, end: Traced, bins: int, size_: Dim) -> Traced:
    """Whether a pixel of an axis is in a bin of a box: bool [boxes, bins, pixels]"""
    node, count = start.node, start.shape[0]
    first = start.reshape(count, 1, 1)
    width = ((end - start + 1.0).call("maximum", 1.0) / float(bins)).reshape(count, 1, 1)
    number = constant(node, np.arange(bins)).reshape(1, bins, 1)
    pixel = Traced(node, node.call("arange", count=size_, dtype=FLOAT32)).reshape(1, 1, size_)
    low, high = (number * width).call("floor") + first, ((number + 1.0) * width).call("ceil") + first
    return (pixel >= low) & (pixel < high)


# --- windows ----------------------------------------------------------------------------------------------------------


def _deform_conv(node: Node) -> Result:
    """DeformConv: samples at the taps of each window, displaced by the offsets, then a product with the kernel."""
    data, kernel, offset = (operand(node, i) for i in range(3))
    if len(data.shape) != 4 or len(kernel.shape) != 4:
        raise Unsupported("deformable convolutions of other than two spatial dimensions are not supported")
    n, height, width = data.shape[0], *data.shape[2:]
    known = [d for d in (data.shape[1], *kernel.shape, *offset.shape[2:]) if isinstance(d, int)]
    if len(known) != 7:
        raise Unsupported("deformable convolutions of symbolic sizes are not supported")
    channels, out_channels, _, rows, columns, *out = known
    groups, offset_groups = node.integer("group", 1), node.integer("offset_group", 1)
    w = window(node, (height, width), (rows, columns))
    # Channels are innermost everywhere: a sample of all channels of an offset group is a row, and the samples of a
    # window are the rows of a matrix. So only the offsets, which are few, are turned.
    shifts = offset.to(FLOAT32).reshape(n, offset_groups, rows, columns, 2, *out).transpose(0, 5, 6, 2, 3, 1, 4)
    places = [
        shifts.part(6, axis) + _tap_places(node, axis, (rows, columns)[axis], out[axis], w) - _fixed(w.pads[axis])
        for axis in range(2)
    ]
    source = data.to(FLOAT32).transpose(0, 2, 3, 1)
    group: list[Traced] = []
    if offset_groups > 1:
        source = source.reshape(n, height, width, offset_groups, channels // offset_groups)
        group = [constant(node, np.arange(offset_groups).reshape(-1, 1), "int64")]
    find = lookup("zeros", [size(node, height), size(node, width)])
    sampled = interpolated(source, [p.call("unsqueeze", axes=(-1,)) for p in places], find, exact=group)
    if node.has(4):
        mask = operand(node, 4).to(FLOAT32).reshape(n, offset_groups, rows, columns, *out)
        sampled = sampled * mask.transpose(0, 4, 5, 2, 3, 1).call("unsqueeze", axes=(-1,))
    depth, taps, pixel_count = channels // groups, rows * columns, out[0] * out[1]
    patches = sampled.reshape(n, pixel_count, taps, groups, depth)
    patches = patches.transpose(0, 3, 1, 2, 4).reshape(n, groups, pixel_count, taps * depth)
    weights = kernel.to(FLOAT32).reshape(1, groups, out_channels // groups, depth, taps).transpose(0, 1, 4, 3, 2)
    made = patches.call("matmul", weights.reshape(1, groups, taps * depth, out_channels // groups))
    made = made.transpose(0, 1, 3, 2).reshape(n, out_channels, *out).to(data.dtype)
    return with_bias(node, made.x, node.optional(3))


def _fixed(d: Dim) -> int:
    if not isinstance(d, int):
        raise Unsupported("padding of symbolic size is not supported")
    return d


def _tap_places(node: Node, axis: int, taps: int, outputs: int, w: SlidingWindow) -> Traced:
    """Positions of the taps of all windows along an axis, in a shape that broadcasts to (batch, out rows, out columns,
    rows, columns, offset groups)."""
    places = np.arange(outputs)[:, None] * w.strides[axis] + np.arange(taps) * w.dilations[axis]
    return constant(node, places.reshape((1, outputs, 1, taps, 1, 1) if axis == 0 else (1, 1, outputs, 1, taps, 1)))


def _max_unpool(node: Node) -> Result:
    data, places = operand(node, 0), operand(node, 1)
    shape = data.shape
    w = window(node, shape[2:], node.integers("kernel_shape"))
    full: list[Dim] = list(shape[:2])
    n = len(shape) - 2
    for i in range(n):
        reach = arithmetic("add", arithmetic("mul", arithmetic("sub", shape[2 + i], 1), w.strides[i]), w.kernel[i])
        full.append(arithmetic("sub", reach, arithmetic("add", w.pads[i], w.pads[n + i])))
    zeros = constant(node, 0, data.dtype).expand(product(full))
    places = checked(places, 1, product(full)).reshape(product(shape))
    flat = zeros.call("scatter_elements", places, data.reshape(product(shape)), axis=0)
    made = flat.reshape(*full)
    if node.has(2):
        wanted = node.dims(2, "output_shape")
        extra = tuple(arithmetic("sub", a, b) for a, b in zip(wanted, full, strict=True))
        made = made.call("pad", pads=(*(0,) * len(full), *extra), mode="constant", value=0)
    return made.x


def _col2im(node: Node) -> Result:
    data = operand(node, 0)
    image, block = node.dims(1, "image_shape"), node.dims(2, "block_shape")
    n = len(image)
    strides, dilations = (node.integers(k, ()) or (1,) * n for k in ("strides", "dilations"))
    pads = node.integers("pads", ()) or (0,) * (2 * n)
    if len(data.shape) != 3 or len(block) != n or len(strides) != n or len(dilations) != n or len(pads) != 2 * n:
        raise Malformed(f"its blocks {list(block)} and attributes do not fit an image of {n} dimensions")
    for size_ in block:
        node.importer.assume("ge", size_, 1, f"{node.name}: a size of its block")
    taps = arithmetic("max", product(block), 1)
    if isinstance(taps, int) and isinstance(data.shape[1], int) and data.shape[1] % taps:
        raise Malformed(f"the channels of its data {data.x.tensor} do not divide into blocks of {list(block)}")
    channels = divide_products([data.shape[1]], [taps])
    whole = data.to(INT32) if data.dtype == BOOL else data  # for bools the sum is "any"
    made = whole.call(
        "col2im", image=image, block=block, channels=channels, strides=strides, dilations=dilations, pads=pads
    )
    return made.to(data.dtype).x


def _tensor_scatter(node: Node) -> Result:
    past, update = operand(node, 0), operand(node, 1)
    rank = len(past.shape)
    axis = node.axis(rank, -2)
    length, room = update.shape[axis], past.shape[axis]
    circular = node.text("mode", "linear") == "circular"
    steps = node.call("arange", start=0, step=1, count=room, dtype="int64")
    place = Traced(node, steps).reshape(*(1,) * axis, room, *(1,) * (rank - 1 - axis))
    if node.has(2):
        written_at = operand(node, 2)
        # After the last start with enough space nothing fits; a circular cache continues at its beginning.
        starts = room if circular else arithmetic("add", arithmetic("sub", room, length), 1)
        written_at = checked(written_at, 2, starts)
        place = place - written_at.to(INDEX).reshape(past.shape[0], *(1,) * (rank - 1))
    if circular:
        place = place.call("mod", size(node, room, INDEX), fmod=False)
    last = size(node, length, INDEX) - 1
    within = (place >= 0) & (place <= last)
    written = update.call("gather_elements", place.limited(0, last).expand(*past.shape), axis=axis)
    return within.choose(written, past).x


def _affine_grid(node: Node) -> Result:
    """The images [batch, …space, n] of a regular grid from -1 to 1 under an affine map ``theta`` [batch, n, n + 1].
    (The function in the specification removes a batch dimension of size 1.)"""
    theta, shape = operand(node, 0), node.dims(1, "size")
    space = shape[2:]
    n = len(space)
    if n not in (2, 3) or tuple(theta.shape[1:]) != (n, n + 1):
        raise Malformed(f"its map is {theta.x.tensor} and its size has {n + 2} numbers, not those of 2 or 3 dimensions")
    batch, corners = theta.shape[0], node.flag("align_corners")
    made = theta.part(2, n).reshape(batch, *(1,) * n, n)
    for i, extent in enumerate(space):
        column = theta.part(2, n - 1 - i).reshape(batch, *(1,) * n, n)
        steps = Traced(node, node.call("arange", start=0, step=1, count=extent, dtype="int64")).to(theta.dtype)
        count = size(node, extent, theta.dtype)
        place = steps * 2.0 + (0.0 if corners else 1.0)
        if corners:
            count = count - 1
            count = count.call("maximum", 1.0) if isinstance(count, Traced) else max(count, 1)
        place = place / count - 1.0
        made = made + column * place.reshape(*(extent if k == i else 1 for k in range(n)), 1)
    return made.x


SAMPLING: dict[str, Callable[[Node], Result]] = {
    "AffineGrid": _affine_grid,
    "Col2Im": _col2im,
    "DeformConv": _deform_conv,
    "GridSample": _grid_sample,
    "MaxRoiPool": _max_roi_pool,
    "MaxUnpool": _max_unpool,
    "RoiAlign": _roi_align,
    "TensorScatter": _tensor_scatter,
}
