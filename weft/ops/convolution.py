"""Convolution over any number of spatial dimensions, plain and in blocked layouts, and its transpose."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.cost import Rates, products
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, index
from weft.graph.operator import Attribute, Attrs, LayoutChoice
from weft.graph.types import Dim, TensorType, Type
from weft.ops import layouts
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import NUMBER, Array
from weft.ops.packing import LetterLayout, pack, parse_layout, unpack
from weft.ops.stages import accumulator, narrowed, padded
from weft.support.dtypes import DType

WINDOW = (
    Attribute("strides", None, "steps between windows, one a spatial dimension; None means 1"),
    Attribute("pads", None, "zeros before each spatial dimension, then after each; None means 0"),
    Attribute("dilations", None, "steps between elements of a window; None means 1"),
)
MIN_ROW_PIXELS = 32
"""Pixels of a row from which on vectors along rows pay."""
MIN_IMAGE_PIXELS = 16
"""Pixels of an image from which on vectors over all pixels pay."""
MIN_INPUT_BLOCK = 4
"""Smallest block of a kernel's input channels: a loop over fewer of them costs more than its padding."""
MIN_PADDED_SHARE = 1.05
"""By how much products with padding must exceed those of smaller blocks."""
SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
VOLUME = 3
"""Spatial dimensions of a volume: slices of lines of points."""


def split_pads(op: str, pads: Any, n: int) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Amounts before and after each of ``n`` spatial dimensions."""
    full = rel.per_axis(op, pads, 2 * n, "pads", 0)
    return full[:n], full[n:]


def window_extent(op: str, size: Dim, kernel: Dim, stride: int, dilation: int, total_pad: Dim, axis: int) -> Dim:
    """How many windows fit."""
    if stride < 1 or dilation < 1:
        rel.fail(op, f"stride {stride} and dilation {dilation} must be positive", "T015")
    room = rel.add(size, total_pad, rel.multiply((rel.add(kernel, -1), -dilation)), -1)
    count = rel.add(rel.divide(room, stride), 1)
    if isinstance(count, int) and count < 0:
        rel.fail(
            op, f"the window of {kernel} (dilation {dilation}) is larger than dimension {axis} of size {size}", "T013"
        )
    return count


def _conv_layouts(attrs: Attrs, n: int) -> tuple[str, str, str]:
    """Layouts of data, kernel and result, defaults filled in."""
    spatial = SPATIAL[n]
    data = attrs.data_layout or "NC" + spatial
    return data, attrs.kernel_layout or "OI" + spatial, attrs.out_layout or ("NC" + spatial)


def _spatial_rank(attrs: Attrs, data: TensorType) -> int:
    """The number of spatial dimensions; checks the rank of the data."""
    blocked = attrs.data_layout is not None and "C" in parse_layout(attrs.data_layout).blocks
    n = data.rank - 2 - blocked
    if n not in SPATIAL:
        rel.fail("conv", f"the data must have 1 to 3 spatial dimensions: {data}", "T012", "shape [N, C, spatial…]")
    return n


def _conv_infer(attrs: Attrs, *types: Type) -> TensorType:
    data, kernel = rel.tensors("conv", types, 2)
    rel.want_kind("conv", data, NUMBER, "the data")
    dtype = DType(attrs.out_dtype) if attrs.out_dtype is not None else rel.same_dtype("conv", (data, kernel))
    n = _spatial_rank(attrs, data)
    data_layout, kernel_layout, out_layout = (parse_layout(text) for text in _conv_layouts(attrs, n))
    if len(kernel_layout.dims) != kernel.rank:
        rel.fail(
            "conv",
            f"the kernel {kernel} has not the {len(kernel_layout.dims)} dimensions of {kernel_layout.text}",
            "T012",
        )
    for layout, t in ((data_layout, data), (kernel_layout, kernel)):
        for (_, block), extent in zip(layout.dims, t.shape, strict=True):
            if block is not None and extent != block:
                rel.fail("conv", f"{t} is not in layout {layout.text}", "T013")
    _check_channels(attrs, data, kernel, data_layout.blocks.get("C"), kernel_layout.blocks)
    strides = rel.per_axis("conv", attrs.strides, n, "strides")
    dilations = rel.per_axis("conv", attrs.dilations, n, "dilations")
    before, after = split_pads("conv", attrs.pads, n)
    spatial = [
        window_extent(
            "conv",
            data.shape[2 + d],
            kernel.shape[2 + d],
            strides[d],
            dilations[d],
            rel.add(before[d], after[d]),
            2 + d,
        )
        for d in range(n)
    ]
    block = out_layout.blocks.get("C")
    tail = () if block is None else (block,)
    if block != kernel_layout.blocks.get("O"):
        rel.fail(
            "conv", f"kernel layout {kernel_layout.text} does not give the result layout {out_layout.text}", "T015"
        )
    return TensorType((data.shape[0], kernel.shape[0], *spatial, *tail), dtype)


def _check_channels(attrs: Attrs, data: TensorType, kernel: TensorType, block: int | None, blocks: Any) -> None:
    """Check that data, kernel and groups fit."""
    groups = attrs.groups
    if not isinstance(groups, int) or groups < 1:
        rel.fail("conv", f"groups must be a positive integer, not {groups!r}", "T015")
    if block is None:
        wanted = rel.multiply((kernel.shape[1], groups))
        rel.join_dim(
            "conv", data.shape[1], wanted, f"the channels of data {data} and kernel {kernel} with {groups} groups"
        )
        if "O" not in blocks and isinstance(kernel.shape[0], int) and kernel.shape[0] % groups:
            rel.fail("conv", f"{kernel.shape[0]} output channels do not split into {groups} groups", "T013")
    elif "I" in blocks:
        if block % blocks["I"] or (groups > 1 and block != blocks["I"]):
            rel.fail("conv", f"channel blocks of {block} in the data and {blocks['I']} in the kernel", "T013")
        wanted = rel.ceil_divide(rel.multiply((kernel.shape[1], groups)), block // blocks["I"])
        rel.join_dim("conv", data.shape[1], wanted, f"the channel blocks of data {data} and kernel {kernel}")
    else:  # depthwise: the lane is the channel
        if groups == 1 or kernel.shape[1] != 1 or blocks.get("O") != block:
            rel.fail("conv", f"a kernel {kernel} without blocked input channels must be depthwise", "T015")
        rel.join_dim("conv", data.shape[1], kernel.shape[0], "the channel blocks of data and depthwise kernel")


def _conv_compute(attrs: Attrs, out: TensorType, data: te.Tensor, kernel: te.Tensor) -> Any:
    n = _spatial_rank(attrs, TensorType.of(data.shape, data.dtype))
    data_layout, kernel_layout, _ = (parse_layout(text) for text in _conv_layouts(attrs, n))
    before, after = split_pads("conv", attrs.pads, n)
    rest = data.ndim - 2 - n
    sizes = data.shape[2 : 2 + n]
    data = padded(data, (0, 0, *before, *(0,) * rest), (0, 0, *after, *(0,) * rest), name="conv_pad")
    strides = rel.per_axis("conv", attrs.strides, n, "strides")
    dilations = rel.per_axis("conv", attrs.dilations, n, "dilations")
    wide = accumulator(out.dtype)
    window = [te.reduce_axis((0, kernel.shape[2 + d]), name=f"k{'dhw'[d - n]}") for d in range(n)]
    channels = te.reduce_axis((0, kernel.shape[1]), name="ic")
    blocks = [b for letter, b in kernel_layout.dims if letter == "I" and b is not None]
    inner = [te.reduce_axis((0, b), name="ici") for b in blocks]
    depthwise = "C" in data_layout.blocks and not inner
    part = kernel_layout.blocks.get("I", 1)
    parts = data_layout.blocks["C"] // part if inner else 1
    per_group = kernel.shape[0] // attrs.groups

    def element(batch: Expr, oc: Expr, *rest: Expr) -> Expr:
        space, lane = rest[:n], rest[n:]
        at = [v * s + index(k.var) * d for v, s, k, d in zip(space, strides, window, dilations, strict=True)]
        taps = tuple(k.var for k in window)
        if depthwise:
            product = te.cast(data[(batch, oc, *at, *lane)], wide) * te.cast(kernel[(oc, 0, *taps, *lane)], wide)
            return te.sum(product, axis=window)
        c = channels.var if attrs.groups == 1 else (oc // per_group) * kernel.shape[1] + channels.var
        place = _joined(inner)
        if parts > 1:  # a block of the data is several of the kernel's
            c, place = c // parts, (c % parts * part + place[0],)
        value = te.cast(data[(batch, c, *at, *place)], wide)
        places = {("I", k): axis.var for k, axis in enumerate(inner)} | {("O", k): v for k, v in enumerate(lane)}
        weight = te.cast(kernel[(oc, channels.var, *taps, *_block_indices(kernel_layout, places))], wide)
        return te.sum(
            value * weight,
            axis=[channels, *window, *inner],
            where=_in_data(at, sizes, before, after, data.dtype == wide),
        )

    return narrowed(te.compute(out.shape, element, name="conv"), out.dtype, "conv_narrow")


def _in_data(
    at: Sequence[Expr], sizes: Sequence[Expr], before: Sequence[Dim], after: Sequence[Dim], unwidened: bool
) -> Expr | None:
    """Whether a place of the padded volume has a slice and a line that are not padding, which adds nothing: volumes
    have few slices, so padding is up to a third of the work. None where it is not worth a condition: pictures, and
    sizes that are not known, and numbers that are widened, whose dot products
    take no condition."""
    if (
        len(at) != VOLUME
        or not unwidened
        or not all(isinstance(s, Const) for s in sizes)
        or not _known(before)
        or not _known(after)
    ):
        return None
    inside = [i >= b for i, b in zip(at[:-1], before, strict=False) if b]
    inside += [i < s + b for i, s, b, a in zip(at[:-1], sizes, before, after, strict=False) if a]
    return te.all(*inside) if inside else None


def _known(pads: Sequence[Dim]) -> bool:
    """Whether all amounts are numbers, and none crops."""
    return all(isinstance(p, int) and p >= 0 for p in pads)


def _joined(axes: list[IterVar]) -> tuple[Expr, ...]:
    """The position inside a block that was split further."""
    if not axes:
        return ()
    at: Expr = axes[0].var
    for axis in axes[1:]:
        at = at * axis.extent + axis.var
    return (at,)


def _block_indices(layout: LetterLayout, places: dict[tuple[str, int], Expr]) -> list[Expr]:
    """The indices of the blocks of a layout: ``places`` by letter and number of the block among its letter's."""
    seen: dict[str, int] = {}
    found = []
    for letter, block in layout.dims:
        if block is not None:
            found.append(places[letter, seen.get(letter, 0)])
            seen[letter] = seen.get(letter, 0) + 1
    return found


def _conv_reference(attrs: Attrs, data: Array, kernel: Array) -> Array:
    blocked = attrs.data_layout is not None and "C" in parse_layout(attrs.data_layout).blocks
    n = data.ndim - 2 - blocked
    texts = _conv_layouts(attrs, n)
    plain = "NC" + SPATIAL[n], "OI" + SPATIAL[n]
    dtype = DType(attrs.out_dtype) if attrs.out_dtype is not None else DType(data.dtype)
    data, kernel = unpack(data, texts[0], plain[0]), unpack(kernel, texts[1], plain[1])
    groups = data.shape[1] if blocked and "I" not in parse_layout(texts[1]).blocks else attrs.groups
    wide = np.float64 if dtype.is_float else np.int64
    if blocked and groups == 1:
        data = data[:, : kernel.shape[1]]  # what the kernel has no blocks for is padding
    out = _plain_conv(data.astype(wide), kernel.astype(wide), attrs, n, groups)
    return pack(out.astype(dtype.numpy), plain[0], texts[2])


def _plain_conv(data: Array, kernel: Array, attrs: Attrs, n: int, groups: int) -> Array:
    strides, dilations = attrs.strides or (1,) * n, attrs.dilations or (1,) * n
    before, after = map(rel.known, split_pads("conv", attrs.pads, n))
    data = np.pad(data, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    extents = [
        (size - (k - 1) * d - 1) // s + 1
        for size, k, d, s in zip(data.shape[2:], kernel.shape[2:], dilations, strides, strict=True)
    ]
    batch, outputs = data.shape[0], kernel.shape[0]
    data = data.reshape(batch, groups, data.shape[1] // groups, *data.shape[2:])
    kernel = kernel.reshape(groups, outputs // groups, *kernel.shape[1:])
    out = np.zeros((batch, groups, outputs // groups, *extents), data.dtype)
    for tap in product(*map(range, kernel.shape[3:])):
        cut = tuple(
            slice(t * d, t * d + (e - 1) * s + 1, s)
            for t, d, e, s in zip(tap, dilations, extents, strides, strict=True)
        )
        at: Any = (..., *tap)
        out += np.einsum("ngi...,goi->ngo...", data[:, :, :, *cut], kernel[at])
    return out.reshape(batch, outputs, *extents)


def is_pointwise(attrs: Attrs, data: TensorType, kernel: TensorType) -> bool:
    """Whether the call, in the plain layout, is a product of matrices: a window of one element, unit steps, no padding,
    several channels a group and enough pixels to fill a vector."""
    pixels = rel.multiply(data.shape[2:])
    several = not isinstance(kernel.shape[0], int) or kernel.shape[0] > attrs.groups
    return (
        all(k == 1 for k in kernel.shape[2:])
        and all(s == 1 for s in attrs.strides or ())
        and all(p == 0 for p in attrs.pads or ())
        and several
        and (not isinstance(pixels, int) or pixels >= MIN_IMAGE_PIXELS)
    )


def _plain_cost(
    attrs: Attrs, data: TensorType, kernel: TensorType, result: TensorType, block: int, rates: Rates
) -> float:
    """Seconds for one multiply-add in the plain layout: long rows of adjacent pixels make good vectors."""
    if is_pointwise(attrs, data, kernel):
        return products.pixel_seconds(rates, layouts.size(result.shape[2:]), block)
    width = result.shape[-1]
    step = (attrs.strides or (1,))[-1]
    rows = step == 1 and attrs.groups == 1 and isinstance(width, int) and width >= MIN_ROW_PIXELS
    return products.row_seconds(rates) if rows else products.unpacked_seconds(rates)


def _conv_layout(
    attrs: Attrs, types: tuple[TensorType, ...], block: int, tile: int, rates: Rates
) -> list[LayoutChoice]:
    data, kernel = types
    result = _conv_infer(attrs, data, kernel)
    if any((attrs.data_layout, attrs.kernel_layout, attrs.out_layout)):
        return [LayoutChoice((None, None), (None,), attrs)]
    n = data.rank - 2
    x, w = "NC" + SPATIAL[n], "OI" + SPATIAL[n]
    work = layouts.size(result.shape) * layouts.size(kernel.shape[1:])
    choices = [LayoutChoice((x, w), (x,), attrs, work * _plain_cost(attrs, data, kernel, result, block, rates))]
    outputs, inputs = kernel.shape[0], kernel.shape[1]
    if not isinstance(outputs, int) or not isinstance(inputs, int) or 0 in (inputs, outputs):
        return choices

    def packed(data_layout: str, kernel_layout: str, out_layout: str, cost: float) -> None:
        there = attrs.replace(data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout)
        choices.append(LayoutChoice((data_layout, kernel_layout), (out_layout,), there, cost))

    for size in (block, tile) if tile else (block,):
        around = _around(types, size)
        part = size if layouts.groups(types, size, "i") else _input_block(inputs, size)
        tiled = size == tile and layouts.are_pairs(types)
        cost = _tiled_cost(rates, result.shape[-1]) if tiled else layouts.packed_cost(types, rates, tile)
        each = work * cost
        c, whole_outputs = f"{x}{size}c", _filled(outputs, size)
        if attrs.groups > 1 and inputs == 1 and outputs == attrs.groups:
            packed(c, f"{w}{size}o", c, each * whole_outputs)
        elif attrs.groups == 1:
            few = layouts.group_size(types)
            if inputs < block and few == layouts.BYTE_GROUP:
                packed(f"{x}{few}c", f"{w}{size}o{few}i", c, each * whole_outputs * _filled(inputs, few))
            elif inputs < block:
                packed(x, f"{w}{size}o", c, work * whole_outputs * layouts.packed_cost(types, rates))
            few_padded = f"{w}{part}i{size}o" if part < size else f"{w}{around}"
            packed(c, few_padded, c, each * whole_outputs * _filled(inputs, part))
        elif inputs % size == 0 and (outputs // attrs.groups) % size == 0:
            packed(c, f"{w}{around}", c, each)
    return choices


def _tiled_cost(rates: Rates, rows: Dim) -> float:
    """Seconds for one multiply-add in a matrix unit, of lines of ``rows`` pixels."""
    return products.tiled_seconds(rates, rows if isinstance(rows, int) else None)


def _filled(channels: int, block: int) -> float:
    """By how much blocks of channels exceed the channels."""
    return -(-channels // block) * block / max(channels, 1)


def _input_block(inputs: int, block: int) -> int:
    """The block of the kernel's input channels for data in blocks of ``block``. Channels that fill up the last block of
    the data would be multiplied too, so the kernel has smaller blocks if these hold fewer channels of padding."""
    sizes = [n for n in range(block, MIN_INPUT_BLOCK - 1, -1) if block % n == 0]
    least = min(sizes, key=lambda n: _filled(inputs, n), default=block)
    return least if _filled(inputs, block) >= MIN_PADDED_SHARE * _filled(inputs, least) else block


def _around(types: tuple[TensorType, ...], block: int) -> str:
    """Blocks of input channels and of output channels, groups of input channels innermost where that is faster."""
    grouped = layouts.groups(types, block, "i")
    return f"{block // layouts.group_size(types)}i{block}o{grouped}" if grouped else f"{block}i{block}o"


MIN_HALVED_CHANNELS = 8
"""Input channels of a group from which on a convolution is computed in half precision. With fewer (the channels of an
image, or one channel at a time) arithmetic is not what takes time, and networks that work channel by channel lose most
by rounding."""


def _conv_halves(attrs: Attrs, types: tuple[TensorType, ...]) -> tuple[int, ...]:
    kernel = types[1]
    inputs = kernel.shape[1]
    if any((attrs.data_layout, attrs.kernel_layout, attrs.out_layout)) or not isinstance(inputs, int):
        return ()
    return (0, 1) if inputs >= MIN_HALVED_CHANNELS else ()


def _f(*shape: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return shape, dtype


_BLOCKED = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i4o", "out_layout": "NCHW4c"}
_PARTS = {"data_layout": "NCHW4c", "kernel_layout": "OIHW2i4o", "out_layout": "NCHW4c"}
_VOLUME_PARTS = {"data_layout": "NCDHW4c", "kernel_layout": "OIDHW2i4o", "out_layout": "NCDHW4c"}
_PAIRED = {"data_layout": "NCHW4c", "kernel_layout": "OIHW2i4o2i", "out_layout": "NCHW4c"}
_FIRST = {"kernel_layout": "OIHW4o", "out_layout": "NCHW4c"}
_UNEVEN = {"pads": (2, 0, 1, 0, 1, 0), "strides": (1, 2, 1), "dilations": (1, 2, 1)}
_DEPTHWISE = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4o", "out_layout": "NCHW4c"}

CONV = OpDef(
    "conv",
    (
        *WINDOW,
        Attribute("groups", 1, "number of groups of channels that do not mix"),
        Attribute("data_layout", None, "None for N, C, spatial; or with blocked channels, such as NCHW16c"),
        Attribute(
            "kernel_layout",
            None,
            "None for O, I, spatial; OIHW16i16o; OIHW8i16o (parts of the blocks of the data); OIHW16o (plain data, or "
            "depthwise)",
        ),
        Attribute("out_layout", None, "None for N, C, spatial; or with blocked channels"),
        Attribute("out_dtype", None, "the dtype of result and sums; None means the operands' (half: sums in float32)"),
    ),
    _conv_infer,
    _conv_reference,
    layout=_conv_layout,
    halves=_conv_halves,
    compute=_conv_compute,
    cases=(
        Case((_f(1, 3, 6, 5), _f(4, 3, 3, 3)), {}),
        Case((_f(2, 3, 7, 6), _f(4, 3, 3, 2)), {"strides": (2, 1), "pads": (1, 0, 2, 1), "dilations": (1, 2)}),
        Case((_f(1, 4, 5, 5), _f(6, 2, 3, 3)), {"groups": 2, "pads": (1, 1, 1, 1)}),
        Case((_f(1, 4, 5, 5), _f(4, 1, 3, 3)), {"groups": 4, "pads": (1, 1, 1, 1)}),
        Case((_f(2, 3, 9), _f(2, 3, 4)), {"strides": (2,)}),
        Case((_f(1, 2, 3, 4, 3), _f(3, 2, 2, 2, 2)), {}),
        Case((_f(1, 2, 3, 5, 4), _f(3, 2, 3, 3, 3)), {"pads": (1,) * 6}),
        Case((_f(1, 4, 2, 6, 3), _f(4, 2, 3, 2, 2)), {**_UNEVEN, "groups": 2}),
        Case((_f(1, 1, 1, 2, 3), _f(2, 1, 2, 2, 2)), {"pads": (3, 0, 0, 0, 4, 1)}),
        Case((_f(1, 2, 5, 5, 4), _f(2, 2, 3, 3, 4, 4)), {**_BLOCKED, "pads": (1, 1, 1, 1)}, atol=1e-5),
        Case((_f(1, 2, 5, 5, 4), _f(2, 3, 3, 3, 2, 4)), {**_PARTS, "pads": (1, 1, 1, 1)}, atol=1e-5),
        Case((_f(2, 1, 5, 5, 4), _f(1, 1, 1, 1, 2, 4)), {**_PARTS, "strides": (2, 2)}, atol=1e-5),
        Case((_f(1, 2, 3, 4, 5, 4), _f(1, 3, 3, 3, 3, 2, 4)), {**_VOLUME_PARTS, "pads": (1,) * 6}, atol=1e-5),
        Case((_f(1, 2, 5, 5, 4), _f(2, 1, 3, 3, 4, 4)), {**_BLOCKED, "groups": 2, "strides": (2, 2)}, atol=1e-5),
        Case((_f(1, 2, 5, 5, 4), _f(2, 2, 3, 3, 2, 4, 2)), {**_PAIRED, "pads": (1, 1, 1, 1)}, atol=1e-5),
        Case(
            (_f(1, 2, 5, 5, 4, dtype="bfloat16"), _f(3, 2, 1, 1, 2, 4, 2, dtype="bfloat16")),
            {**_PAIRED, "strides": (2, 2), "out_dtype": "float32"},
            atol=1e-5,
        ),
        Case(
            (_f(1, 2, 5, 5, 4, dtype="bfloat16"), _f(2, 1, 3, 3, 4)),
            {**_DEPTHWISE, "groups": 8, "pads": (1, 1, 1, 1), "out_dtype": "float32"},
        ),
        Case((_f(1, 3, 6, 6), _f(2, 3, 3, 3, 4)), {**_FIRST, "strides": (2, 2), "pads": (0, 0, 1, 1)}, atol=1e-5),
        Case((_f(1, 2, 5, 5, 4), _f(2, 1, 3, 3, 4)), {**_DEPTHWISE, "groups": 7, "pads": (1, 1, 1, 1)}),
        Case((_f(1, 8, 4, 4, dtype="float16"), _f(4, 8, 3, 3, dtype="float16")), {}, -1, 1, 4e-3, 4e-3),
        Case((_f(1, 2, 4, 4, dtype="int8"), _f(3, 2, 3, 3, dtype="int8")), {"out_dtype": "int32"}, -100, 100),
    ),
    doc="sum over input channels and a window of data times kernel; operands data [N, C, …], kernel [O, C/groups, …]",
    source="ONNX Conv-22, ConvInteger-10",
)


def _transpose_infer(attrs: Attrs, *types: Type) -> TensorType:
    name = "conv_transpose"
    data, kernel = rel.tensors(name, types, 2)
    rel.want_kind(name, data, NUMBER, "the data")
    dtype = rel.same_dtype(name, (data, kernel))
    n = data.rank - 2
    if n not in SPATIAL:
        rel.fail(name, f"the data must have 1 to 3 spatial dimensions: {data}", "T012")
    rel.want_rank(name, kernel, data.rank, "the kernel")
    rel.join_dim(name, data.shape[1], kernel.shape[0], f"the channels of data {data} and kernel {kernel}")
    if isinstance(data.shape[1], int) and (attrs.groups < 1 or data.shape[1] % attrs.groups):
        rel.fail(name, f"{data.shape[1]} channels do not split into {attrs.groups} groups", "T015")
    strides = rel.per_axis(name, attrs.strides, n, "strides")
    dilations = rel.per_axis(name, attrs.dilations, n, "dilations")
    extra = rel.per_axis(name, attrs.output_padding, n, "output_padding", 0)
    before, after = split_pads(name, attrs.pads, n)
    spatial = [
        rel.add(
            rel.multiply((rel.add(data.shape[2 + d], -1), strides[d])),
            rel.multiply((rel.add(kernel.shape[2 + d], -1), dilations[d])),
            1 + extra[d],
            rel.multiply((rel.add(before[d], after[d]), -1)),
        )
        for d in range(n)
    ]
    rel.nonnegative(name, spatial)
    return TensorType((data.shape[0], rel.multiply((kernel.shape[1], attrs.groups)), *spatial), dtype)


def _transpose_compute(attrs: Attrs, out: TensorType, data: te.Tensor, kernel: te.Tensor) -> Any:
    n = data.ndim - 2
    strides = rel.per_axis("conv_transpose", attrs.strides, n, "strides")
    dilations = rel.per_axis("conv_transpose", attrs.dilations, n, "dilations")
    before, _ = split_pads("conv_transpose", attrs.pads, n)
    wide = accumulator(out.dtype)
    per_group_in, per_group_out = kernel.shape[0] // attrs.groups, kernel.shape[1]
    channels = te.reduce_axis((0, per_group_in), name="ic")
    window = [te.reduce_axis((0, kernel.shape[2 + d]), name=f"k{'dhw'[d - n]}") for d in range(n)]

    def element(batch: Expr, oc: Expr, *space: Expr) -> Expr:
        inside: list[Expr] = []
        at: list[Expr] = []
        for v, s, d, b, k, size in zip(space, strides, dilations, before, window, data.shape[2:], strict=True):
            offset = v + index(b) - k.var * d
            place = offset // s
            at.append(place)
            inside += [place >= 0, place < size]
            if s != 1:
                inside.append(offset % s == 0)
        c = channels.var if attrs.groups == 1 else (oc // per_group_out) * per_group_in + channels.var
        o = oc if attrs.groups == 1 else oc % per_group_out
        value = te.cast(data[(batch, c, *at)], wide) * te.cast(kernel[(c, o, *(k.var for k in window))], wide)
        return te.sum(te.if_then_else(te.all(*inside), value, te.const(0, wide)), axis=[channels, *window])

    return narrowed(te.compute(out.shape, element, name="conv_transpose"), out.dtype, "conv_transpose_narrow")


def _transpose_reference(attrs: Attrs, data: Array, kernel: Array) -> Array:
    n, groups = data.ndim - 2, attrs.groups
    strides, dilations = attrs.strides or (1,) * n, attrs.dilations or (1,) * n
    before, after = map(rel.known, split_pads("conv_transpose", attrs.pads, n))
    extra = attrs.output_padding or (0,) * n
    full = [
        (size - 1) * s + (k - 1) * d + 1 + e
        for size, k, s, d, e in zip(data.shape[2:], kernel.shape[2:], strides, dilations, extra, strict=True)
    ]
    batch = data.shape[0]
    inputs = data.shape[1] // groups
    grouped: Any = data.astype(np.float64).reshape(batch, groups, inputs, *data.shape[2:])
    weights = kernel.astype(np.float64).reshape(groups, inputs, *kernel.shape[1:])
    out = np.zeros((batch, groups, kernel.shape[1], *full))
    for tap in product(*map(range, kernel.shape[2:])):
        cut = tuple(
            slice(t * d, t * d + (e - 1) * s + 1, s)
            for t, d, e, s in zip(tap, dilations, data.shape[2:], strides, strict=True)
        )
        at: Any = (..., *tap)
        out[:, :, :, *cut] += np.einsum("ngi...,gio->ngo...", grouped, weights[at])
    out = out.reshape(batch, groups * kernel.shape[1], *full)
    crop = tuple(slice(b, size - a) for b, a, size in zip(before, after, full, strict=True))
    return np.ascontiguousarray(out[(slice(None), slice(None), *crop)]).astype(data.dtype)


CONV_TRANSPOSE = OpDef(
    "conv_transpose",
    (
        *WINDOW,
        Attribute("groups", 1, "number of groups of channels that do not mix"),
        Attribute("output_padding", None, "zeros added after each spatial dimension of the result; None means 0"),
    ),
    _transpose_infer,
    _transpose_reference,
    compute=_transpose_compute,
    cases=(
        Case((_f(1, 3, 4, 3), _f(3, 2, 3, 3)), {}),
        Case(
            (_f(1, 2, 3, 3), _f(2, 2, 3, 2)),
            {"strides": (2, 3), "pads": (1, 0, 0, 1), "output_padding": (1, 1), "dilations": (2, 1)},
        ),
        Case((_f(1, 4, 3, 3), _f(4, 1, 2, 2)), {"groups": 2, "strides": (2, 2)}, atol=1e-5),
        Case((_f(2, 2, 5), _f(2, 3, 3)), {"strides": (2,)}),
    ),
    doc="the transpose (adjoint) of conv in its data; operands data [N, C, …], kernel [C, O/groups, …]",
    source="ONNX ConvTranspose-22",
)

CONVOLUTIONS: tuple[OpDef, ...] = (CONV, CONV_TRANSPOSE)
