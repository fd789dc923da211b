"""Blocked layouts: the meaning of layout strings.

Capital letters name the dimensions of a tensor; a number with a small letter is an inner block of that dimension.
``NCHW16c`` of a logical ``[N, C, H, W]`` has shape ``[N, ceil(C/16), H, W, 16]``, and element ``(n, c, h, w)`` is at
``(n, c // 16, h, w, c % 16)``. Partial blocks are padded with zeros. Capital letters are usually in logical order.
Otherwise the plain layout defines that order: ``NK16n`` of a plain ``KN`` is a matrix packed in panels of
16 columns, ``[ceil(N/16), K, 16]``. Letters are only names: ``NCHW16c`` and ``ABCD16b`` are the same layout.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from weft.expr.nodes import Expr, ExprLike, const, index
from weft.graph.operator import Attrs, LayoutChoice
from weft.graph.types import Dim, TensorType, dim
from weft.support.errors import UserError

_PARTS = re.compile(r"([A-Z])|(\d+)([a-z])")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Layout:
    """A parsed layout: for each physical dimension the logical one and the block size (None: the outer dimension).

    Layouts that differ only in letters are equal.
    """

    dims: tuple[tuple[int, int | None], ...]

    @property
    def rank(self) -> int:
        """The number of logical dimensions."""
        return sum(f is None for _, f in self.dims)

    @property
    def is_plain(self) -> bool:
        return all(f is None and d == i for i, (d, f) in enumerate(self.dims))

    def factor(self, dimension: int) -> int:
        """The product of the block sizes of one logical dimension."""
        out = 1
        for d, f in self.dims:
            if d == dimension and f is not None:
                out *= f
        return out

    @property
    def blocked(self) -> tuple[int, ...]:
        """The logical dimensions that have blocks."""
        return tuple(dict.fromkeys(d for d, f in self.dims if f is not None))

    def shape(self, logical: Sequence[Dim]) -> tuple[Dim, ...]:
        """The physical shape of a tensor of ``logical`` shape."""
        return tuple(f if f is not None else _ceil_div(logical[d], self.factor(d)) for d, f in self.dims)

    def type(self, logical: TensorType) -> TensorType:
        return TensorType(self.shape(logical.shape), logical.dtype)

    def pads(self, logical: Sequence[Dim]) -> bool:
        """Whether some block may be partial."""
        for d in self.blocked:
            n = logical[d]
            if self.factor(d) > 1 and not (isinstance(n, int) and n % self.factor(d) == 0):
                return True
        return False

    def origin(self, indices: Sequence[ExprLike]) -> tuple[Expr, ...]:
        """Logical indices of the physical element ``indices``; they may be out of range in a partial block."""
        out: list[Expr] = [const(0)] * self.rank
        for k, (d, f) in enumerate(self.dims):
            out[d] = out[d] + index(indices[k]) * (self.factor(d) if f is None else self._below(k))
        return tuple(out)

    def _below(self, k: int) -> int:
        """The stride of block ``k``, in elements of its dimension."""
        out = 1
        for d, f in self.dims[k + 1 :]:
            if d == self.dims[k][0] and f is not None:
                out *= f
        return out

    def text(self, letters: str = _LETTERS) -> str:
        """The layout as text; ``letters`` name the logical dimensions in order."""
        return "".join(letters[d] if f is None else f"{f}{letters[d].lower()}" for d, f in self.dims)

    def __str__(self) -> str:
        return self.text()


def _ceil_div(d: Dim, factor: int) -> Dim:
    if isinstance(d, int):
        return -(-d // factor)
    return d if factor == 1 else dim((d + (factor - 1)) // factor)


@cache
def letters_of(text: str) -> str:
    """The capitals of a layout string, in order."""
    return "".join(c for c in text if c.isupper())


@cache
def parse(text: str, letters: str | None = None) -> Layout:
    """The layout that ``text`` describes; ``letters`` are the capitals in logical order (None: in the text's order).

    Raises UserError (code L001) if the text is not a layout.
    """
    order = letters_of(text) if letters is None else letters
    dims: list[tuple[int, int | None]] = []
    position = 0
    while position < len(text):
        found = _PARTS.match(text, position)
        if found is None or (found[1] or found[3].upper()) not in order or (found[2] and int(found[2]) < 1):
            raise _bad(text)
        made = (order.index(found[1] or found[3].upper()), int(found[2]) if found[2] else None)
        if made[1] is None and made in dims:
            raise _bad(text)
        dims.append(made)
        position = found.end()
    if sum(f is None for _, f in dims) != len(order):
        raise _bad(text)
    return Layout(tuple(dims))


def _bad(text: str) -> UserError:
    return UserError(
        f"'{text}' is not a layout",
        code="L001",
        hint="capitals name the dimensions in order, then blocks: NCHW16c, OIHW16i16o",
    )


@cache
def plain(rank: int) -> Layout:
    """The plain layout of a rank."""
    return Layout(tuple((d, None) for d in range(rank)))


def convert(array: np.ndarray[Any, Any], source: Layout, target: Layout, logical: Sequence[int]) -> Any:
    """``array`` of ``logical`` shape converted from one layout to another, as a NumPy array."""
    return pack(unpack(array, source, logical), target)


def pack(array: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """A plain array in ``layout``; padding is zero."""
    widths = [(0, -array.shape[d] % layout.factor(d)) for d in range(layout.rank)]
    array = np.pad(array, widths)
    split: list[int] = []
    place: list[int] = [0] * len(layout.dims)
    for d in range(layout.rank):
        own = sorted(
            (k for k, (b, _) in enumerate(layout.dims) if b == d), key=lambda k: (layout.dims[k][1] is not None, k)
        )
        for k in own:
            place[k] = len(split)
            block = layout.dims[k][1]
            split.append(array.shape[d] // layout.factor(d) if block is None else block)
    return np.ascontiguousarray(array.reshape(split).transpose(place))


def unpack(array: np.ndarray[Any, Any], layout: Layout, logical: Sequence[int]) -> np.ndarray[Any, Any]:
    """An array in ``layout`` as a plain one of ``logical`` shape."""
    order = sorted(range(len(layout.dims)), key=lambda k: (layout.dims[k][0], layout.dims[k][1] is not None, k))
    outer = {d: array.shape[k] for k, (d, f) in enumerate(layout.dims) if f is None}
    whole = array.transpose(order).reshape([outer[d] * layout.factor(d) for d in range(layout.rank)])
    return np.ascontiguousarray(whole[tuple(slice(0, n) for n in logical)])


def broadcast_layout(layout: str, shape: Sequence[Dim], operand: Sequence[Dim]) -> str | None:
    """The layout in which an operand of shape ``operand`` broadcasts to a tensor of ``shape`` in ``layout``.

    Dimensions of size 1 get blocks of 1. ``""`` if the operand needs no conversion (all sizes are 1). None if there is
    no such layout: the operand lacks a dimension that is blocked or moved.
    """
    if all(_is_one(d) for d in operand):
        return ""
    letters = letters_of(layout)
    known = parse(layout)
    shift = known.rank - len(operand)
    out = ""
    for d, f in known.dims:
        if d >= shift:
            stretched = _is_one(operand[d - shift]) and not _is_one(shape[d])
            out += letters[d] if f is None else f"{1 if stretched else f}{letters[d].lower()}"
        elif f is not None or out:
            return None
    return out


def follow_elementwise(attrs: Attrs, types: Sequence[TensorType], operand: int, layout: str) -> LayoutChoice | None:
    """The ``follows`` trait of element-wise operators with NumPy broadcasting: every operand is converted to the layout
    of operand ``operand``, which must have the rank of the result, and its sizes in the blocked dimensions."""
    lead = types[operand]
    known = parse(layout)
    rank = max(t.rank for t in types)
    if lead.rank != rank or known.rank != rank:
        return None
    if any(_wider(t, lead, d - rank) for d in known.blocked for t in types):
        return None
    inputs: list[str | None] = []
    for i, t in enumerate(types):
        made = layout if i == operand else broadcast_layout(layout, lead.shape, t.shape)
        if made is None:
            return None
        inputs.append(made or None)
    return LayoutChoice(tuple(inputs), (layout,), attrs)


def follow_concat(attrs: Attrs, types: Sequence[TensorType], operand: int, layout: str) -> LayoutChoice | None:
    """The ``follows`` trait of concatenation along ``attrs.axis``: all operands have one layout; if the axis is
    blocked, every operand but the last must fill its blocks."""
    known = parse(layout)
    if any(t.rank != known.rank for t in types):
        return None
    axis = attrs.axis % known.rank
    for t in types[:-1]:
        n = t.shape[axis]
        if known.factor(axis) > 1 and not (isinstance(n, int) and n % known.factor(axis) == 0):
            return None
    place = known.dims.index((axis, None))
    return LayoutChoice((layout,) * len(types), (layout,), attrs.replace(axis=place))


def _wider(t: TensorType, lead: TensorType, axis: int) -> bool:
    """Whether broadcasting would stretch ``lead`` along ``axis`` (counted from the end)."""
    return -axis <= t.rank and _is_one(lead.shape[axis]) and not _is_one(t.shape[axis])


def _is_one(d: Dim) -> bool:
    return isinstance(d, int) and d == 1
