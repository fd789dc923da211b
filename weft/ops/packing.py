"""Layouts of arrays: reading layout strings, packing and unpacking, and the operator that converts layouts.

A layout string names the dimensions of a tensor (capitals) and blocks of them (a number and a small letter):
``NCHW16c`` of a logical ``NCHW`` has the shape ``[N, ceil(C/16), H, W, 16]``; the order of capitals may differ
from the logical one (``NK16n`` packs a matrix ``KN`` by panels of 16 columns: ``[ceil(N/16), K, 16]``). A dimension may
be split several times, the outer block first: ``OIHW8i16o2i`` has 8 pairs of input channels around 16 output channels.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Expr, index, select
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import Dim, TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.support.memory import aligned_empty, assign, compact

_TOKEN = re.compile(r"([A-Z])|(\d+)([a-z])")


@dataclass(frozen=True, slots=True)
class LetterLayout:
    """``dims`` are the physical dimensions in order: a letter and, for a block, its size (None for the outer one).
    ``blocks`` holds, for each letter that is split, the product of its blocks."""

    text: str
    dims: tuple[tuple[str, int | None], ...]
    blocks: Mapping[str, int]

    @property
    def letters(self) -> tuple[str, ...]:
        """The logical dimensions, in the order of the layout string."""
        return tuple(letter for letter, block in self.dims if block is None)

    def physical(self, sizes: Mapping[str, Dim]) -> tuple[Dim, ...]:
        """The shape of a tensor with the given logical sizes."""
        return tuple(
            block if block is not None else rel.ceil_divide(sizes[letter], self.blocks.get(letter, 1))
            for letter, block in self.dims
        )

    def below(self, place: int) -> int:
        """Elements of its letter that one step of the physical dimension ``place`` skips."""
        step = 1
        for letter, block in self.dims[place + 1 :] if self.dims[place][1] is not None else self.dims:
            if letter == self.dims[place][0] and block is not None:
                step *= block
        return step


@cache
def parse_layout(text: str) -> LetterLayout:
    """Read a layout string. Raises TypeRelationError T015 if it is malformed."""
    dims: list[tuple[str, int | None]] = []
    blocks: dict[str, int] = {}
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            break
        position = found.end()
        if found.group(1):
            dims.append((found.group(1), None))
        else:
            letter, factor = found.group(3).upper(), int(found.group(2))
            if factor < 1:
                rel.fail("layout", f"'{text}' splits '{letter}' by nothing", "T015")
            blocks[letter] = blocks.get(letter, 1) * factor
            dims.append((letter, factor))
    outer = [letter for letter, block in dims if block is None]
    if position != len(text) or len(set(outer)) != len(outer) or not set(blocks) <= set(outer):
        rel.fail("layout", f"'{text}' is not a layout", "T015", "such as NCHW or NCHW16c")
    return LetterLayout(text, tuple(dims), blocks)


def pack(array: Array, source: str, target: str) -> Array:
    """``array``, which has the plain layout ``source``, in the layout ``target``; padding is zero."""
    plain, packed = parse_layout(source), parse_layout(target)
    sizes = dict(zip(plain.letters, array.shape, strict=True))
    array = np.transpose(array, [plain.letters.index(letter) for letter in packed.letters])
    order = _split_order(packed)
    blocks = [packed.blocks.get(letter, 1) for letter in packed.letters]
    counts = [-(-sizes[letter] // block) for letter, block in zip(packed.letters, blocks, strict=True)]
    if all(n * block == size for n, block, size in zip(counts, blocks, array.shape, strict=True)):
        return compact(np.transpose(_split(array, packed), order))
    count_of = dict(zip(packed.letters, counts, strict=True))
    made = aligned_empty([count_of[letter] if block is None else block for letter, block in packed.dims], array.dtype)
    places = {letter: i for i, (letter, block) in enumerate(packed.dims) if block is None}
    for outer, piece in _whole_blocks(array, blocks):
        at = [slice(None)] * made.ndim
        for letter, part in zip(packed.letters, outer, strict=True):
            at[places[letter]] = part
        assign(made[tuple(at)], np.transpose(_split(piece, packed), order))
    return made


def _split(array: Array, packed: LetterLayout) -> Array:
    """``array``, whose sizes are multiples of the blocks, as "outer, blocks, outer, blocks, …" by letter."""
    shape: list[int] = []
    for size, letter in zip(array.shape, packed.letters, strict=True):
        own = _own_blocks(packed, letter)
        shape += [size // math.prod(own), *own]
    return array.reshape(shape)


def _whole_blocks(array: Array, blocks: Sequence[int]) -> Iterator[tuple[list[slice], Array]]:
    """``array`` in pieces whose sizes are multiples of ``blocks``, each with its position counted in blocks. The part
    that fills whole blocks is a view; the remainder at the end of each dimension is padded with zeros."""
    choices = []
    for size, block in zip(array.shape, blocks, strict=True):
        whole, rest = divmod(size, block)
        parts = [(slice(0, whole), slice(0, whole * block), 0)] if whole or not rest else []
        choices.append(parts + ([(slice(whole, whole + 1), slice(whole * block, size), block - rest)] if rest else []))
    for chosen in itertools.product(*choices):
        piece = array[tuple(inside for _, inside, _ in chosen)]
        widths = [(0, after) for _, _, after in chosen]
        yield [outer for outer, _, _ in chosen], np.pad(piece, widths) if any(after for _, after in widths) else piece


def unpack(array: Array, source: str, target: str, sizes: Sequence[int] | None = None) -> Array:
    """``array``, in the layout ``source``, in the plain layout ``target`` and cropped to the logical ``sizes`` (in the
    order of ``target``; None: nothing is cropped)."""
    packed, plain = parse_layout(source), parse_layout(target)
    order = _split_order(packed)
    array = np.transpose(array, np.argsort(order))
    position, merged = 0, []
    for letter in packed.letters:
        count = 1 + len(_own_blocks(packed, letter))
        merged.append(math.prod(array.shape[position : position + count]))
        position += count
    array = array.reshape(merged)
    array = np.transpose(array, [packed.letters.index(letter) for letter in plain.letters])
    if sizes is not None:
        array = array[tuple(slice(0, n) for n in sizes)]
    return array


def _own_blocks(packed: LetterLayout, letter: str) -> list[int]:
    return [block for other, block in packed.dims if other == letter and block is not None]


def _split_order(packed: LetterLayout) -> list[int]:
    """For each physical dimension its place in the order "outer, blocks, outer, blocks, …" by letter."""
    place: dict[int, int] = {}
    for letter in packed.letters:
        own = [i for i, (other, _) in enumerate(packed.dims) if other == letter]
        for i in sorted(own, key=lambda i: packed.dims[i][1] is not None):
            place[i] = len(place)
    return [place[i] for i in range(len(packed.dims))]


def _logical_sizes(attrs: Attrs, data: TensorType, source: LetterLayout, target: LetterLayout) -> dict[str, Dim]:
    """Logical sizes by letter; ``attrs.sizes`` gives them in the order of the letters of the source."""
    name = "layout_transform"
    if len(source.dims) != data.rank:
        rel.fail(name, f"{data} has not the {len(source.dims)} dimensions of layout {source.text}", "T012")
    if set(source.letters) != set(target.letters):
        rel.fail(name, f"layouts {source.text} and {target.text} have different dimensions", "T015")
    sizes: dict[str, Dim] = {}
    for (letter, block), extent in zip(source.dims, data.shape, strict=True):
        if block is None:
            sizes[letter] = rel.multiply((extent, source.blocks.get(letter, 1)))
        elif extent != block:
            rel.fail(name, f"the block of {letter} has size {extent} in {data} but {block} in {source.text}", "T013")
    if attrs.sizes is not None:
        given = rel.per_axis(name, attrs.sizes, len(source.letters), "sizes")
        for letter, n in zip(source.letters, given, strict=True):
            count = rel.ceil_divide(n, source.blocks.get(letter, 1))
            outer = rel.divide(sizes[letter], source.blocks.get(letter, 1))
            rel.join_dim(name, count, outer, f"the number of blocks of {letter} by the data and by 'sizes'")
            sizes[letter] = n
    return sizes


def _infer(attrs: Attrs, *types: Type) -> TensorType:
    (data,) = rel.tensors("layout_transform", types, 1)
    source, target = parse_layout(attrs.src_layout), parse_layout(attrs.dst_layout)
    return TensorType(target.physical(_logical_sizes(attrs, data, source, target)), data.dtype)


def _compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    source, target = parse_layout(attrs.src_layout), parse_layout(attrs.dst_layout)
    sizes = _logical_sizes(attrs, TensorType.of(data.shape, data.dtype), source, target)

    def element(*i: Expr) -> Expr:
        logical: dict[str, Expr] = dict.fromkeys(target.letters, te.const(0))
        for place, ((letter, _), v) in enumerate(zip(target.dims, i, strict=True)):
            logical[letter] = logical[letter] + v * target.below(place)
        at: list[Expr] = []
        for place, (letter, block) in enumerate(source.dims):
            outer = logical[letter] // source.below(place)
            at.append(outer if block is None else outer % block)
        inside = [
            logical[letter] < index(sizes[letter])
            for letter in target.letters
            if not _divides(target.blocks.get(letter, 1), sizes[letter])
        ]
        value = data[tuple(at)]
        return select(te.all(*inside), value, te.const(0, data.dtype)) if inside else value

    return te.compute(out.shape, element, name="layout_transform")


def _divides(block: int, size: Dim) -> bool:
    return block == 1 or (isinstance(size, int) and size % block == 0)


def _reference(attrs: Attrs, data: Array) -> Array:
    source, target = parse_layout(attrs.src_layout), parse_layout(attrs.dst_layout)
    plain = "".join(source.letters)
    return pack(unpack(data, source.text, plain, attrs.sizes), plain, target.text)


LAYOUT_TRANSFORM = OpDef(
    "layout_transform",
    (
        Attribute("src_layout", REQUIRED, "the layout of the operand"),
        Attribute("dst_layout", REQUIRED, "the layout of the result"),
        Attribute("sizes", None, "logical sizes, in the order of src_layout's capitals, where it is padded"),
    ),
    _infer,
    _reference,
    moves=True,
    compute=_compute,
    cases=(
        Case((((2, 6, 3, 2), "float32"),), {"src_layout": "NCHW", "dst_layout": "NCHW4c"}),
        Case((((2, 2, 3, 2, 4), "float32"),), {"src_layout": "NCHW4c", "dst_layout": "NCHW", "sizes": (2, 6, 3, 2)}),
        Case((((2, 2, 3, 4), "float32"),), {"src_layout": "NCW4c", "dst_layout": "NWC"}),
        Case((((5, 7), "float32"),), {"src_layout": "KN", "dst_layout": "NK4n"}),
        Case((((6, 5, 3, 3), "float32"),), {"src_layout": "OIHW", "dst_layout": "OIHW4i4o"}),
        Case((((6, 5, 3, 2), "float32"),), {"src_layout": "OIHW", "dst_layout": "OIHW2i4o2i"}),
        Case((((2, 3, 2, 4, 2), "bfloat16"),), {"src_layout": "NK2k4n2k", "dst_layout": "KN", "sizes": (7, 11)}),
        Case((((1, 2, 3, 8), "float32"),), {"src_layout": "NCW8c", "dst_layout": "NCW4c", "sizes": (1, 13, 3)}),
    ),
    doc="the same tensor in another layout; padding of the result is zero",
    source="docs/design.md, Layouts",
)


def _mask_infer(attrs: Attrs, *types: Type) -> TensorType:
    (data,) = rel.tensors("mask_channels", types, 1)
    layout = parse_layout(attrs.layout)
    if len(layout.dims) != data.rank or "C" not in layout.blocks:
        rel.fail("mask_channels", f"{data} is not in a layout {attrs.layout} with blocked channels", "T012")
    return data


def _mask_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    layout = parse_layout(attrs.layout)
    outer, inner = (layout.dims.index(d) for d in (("C", None), ("C", layout.blocks["C"])))

    def element(*i: Expr) -> Expr:
        channel = i[outer] * layout.blocks["C"] + i[inner]
        return select(channel < index(attrs.channels), data[i], te.const(0, data.dtype))

    return te.compute(out.shape, element, name="mask_channels")


def _mask_reference(attrs: Attrs, data: Array) -> Array:
    layout = parse_layout(attrs.layout)
    plain = "".join(layout.letters)
    logical = unpack(data, attrs.layout, plain)
    cut = tuple(slice(0, attrs.channels) if letter == "C" else slice(None) for letter in plain)
    return pack(logical[cut], plain, attrs.layout)


MASK_CHANNELS = OpDef(
    "mask_channels",
    (
        Attribute("layout", REQUIRED, "the layout, with blocked channels"),
        Attribute("channels", REQUIRED, "the number of channels that are not padding"),
    ),
    _mask_infer,
    _mask_reference,
    moves=True,
    compute=_mask_compute,
    cases=(Case((((2, 2, 3, 4), "float32"),), {"layout": "NCW4c", "channels": 6}),),
    doc="zero in the padded channels of a blocked tensor, the operand elsewhere",
    source="docs/design.md, Layouts",
)

PACKING: tuple[OpDef, ...] = (LAYOUT_TRANSFORM, MASK_CHANNELS)
