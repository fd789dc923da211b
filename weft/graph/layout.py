"""Blocked layouts: what a layout string means.

Capitals are the logical dimensions in order, a number with a small letter an inner block of that dimension:
``NCHW16c`` of a logical ``[N, C, H, W]`` has shape ``[N, ceil(C/16), H, W, 16]``, and element ``(n, c, h, w)`` stands
at ``(n, c // 16, h, w, c % 16)``. Blocks that stick out are padded with zeros. Letters are only names: ``NCHW16c`` and
``ABCD16b`` are the same layout.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from weft.expr.nodes import Expr, ExprLike, index
from weft.graph.operator import Attrs, LayoutChoice
from weft.graph.types import Dim, TensorType, dim
from weft.support.errors import UserError

_PARTS = re.compile(r"([A-Z])|(\d+)([a-z])")


@dataclass(frozen=True, slots=True)
class Layout:
    """A parsed layout. ``rank`` logical dimensions; ``blocks`` are ``(dimension, factor)`` from the outermost inner
    block to the innermost. Layouts that differ only in letters are equal."""

    rank: int
    blocks: tuple[tuple[int, int], ...] = ()

    @property
    def is_plain(self) -> bool:
        return not self.blocks

    def factor(self, dimension: int) -> int:
        """The product of the block sizes of one dimension."""
        out = 1
        for d, f in self.blocks:
            if d == dimension:
                out *= f
        return out

    def shape(self, logical: Sequence[Dim]) -> tuple[Dim, ...]:
        """The physical shape of a tensor of ``logical`` shape."""
        outer = tuple(_ceil_div(d, self.factor(i)) for i, d in enumerate(logical))
        return outer + tuple(f for _, f in self.blocks)

    def type(self, logical: TensorType) -> TensorType:
        return TensorType(self.shape(logical.shape), logical.dtype)

    def pads(self, logical: Sequence[Dim]) -> bool:
        """Whether some block may stick out."""
        return any(not isinstance(logical[d], int) or logical[d] % self.factor(d) != 0 for d, _ in self.blocks)

    def locate(self, indices: Sequence[ExprLike]) -> tuple[Expr, ...]:
        """Physical indices of the logical element ``indices``."""
        outer = [index(i) // self.factor(d) for d, i in enumerate(indices)]
        inner: list[Expr] = []
        for k, (d, f) in enumerate(self.blocks):
            below = self._below(k)
            inner.append((index(indices[d]) // below) % f)
        return (*outer, *inner)

    def origin(self, indices: Sequence[ExprLike]) -> tuple[Expr, ...]:
        """Logical indices of the physical element ``indices``; they may lie outside where a block sticks out."""
        out = [index(i) * self.factor(d) for d, i in enumerate(indices[: self.rank])]
        for k, (d, _) in enumerate(self.blocks):
            out[d] = out[d] + index(indices[self.rank + k]) * self._below(k)
        return tuple(out)

    def _below(self, k: int) -> int:
        """Elements of its dimension that one step of block ``k`` skips."""
        out = 1
        for d, f in self.blocks[k + 1 :]:
            if d == self.blocks[k][0]:
                out *= f
        return out

    def __str__(self) -> str:
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: self.rank]
        return letters + "".join(f"{f}{letters[d].lower()}" for d, f in self.blocks)


def _ceil_div(d: Dim, factor: int) -> Dim:
    if isinstance(d, int):
        return -(-d // factor)
    return d if factor == 1 else dim((d + (factor - 1)) // factor)


@cache
def parse(text: str) -> Layout:
    """The layout that ``text`` means. Raises UserError (code L001) where it means none."""
    dimensions: list[str] = []
    blocks: list[tuple[int, int]] = []
    position = 0
    while position < len(text):
        found = _PARTS.match(text, position)
        if found is None or (found[1] and (blocks or found[1] in dimensions)):
            raise _bad(text)
        if found[1]:
            dimensions.append(found[1])
        elif found[3].upper() not in dimensions or int(found[2]) < 1:
            raise _bad(text)
        else:
            blocks.append((dimensions.index(found[3].upper()), int(found[2])))
        position = found.end()
    return Layout(len(dimensions), tuple(blocks))


def _bad(text: str) -> UserError:
    return UserError(
        f"'{text}' is not a layout",
        code="L001",
        hint="capitals name the dimensions in order, then blocks: NCHW16c, OIHW16i16o",
    )


def plain(rank: int) -> str:
    """The plain layout of a rank, as text."""
    return str(Layout(rank))


def same(a: str | None, b: str | None) -> bool:
    """Whether two layouts mean the same; None is the plain one."""
    first = None if a is None else parse(a)
    second = None if b is None else parse(b)
    if first is None or second is None:
        return all(x is None or x.is_plain for x in (first, second))
    return first == second


def convert(array: np.ndarray[Any, Any], source: str, target: str, logical: Sequence[int]) -> np.ndarray[Any, Any]:
    """``array`` of ``logical`` shape taken from one layout to another: the reference of a conversion operator."""
    return _pack(_unpack(array, parse(source), logical), parse(target))


def _pack(array: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    for d in range(layout.rank):
        short = -array.shape[d] % layout.factor(d)
        if short:
            array = np.pad(array, [(0, short if i == d else 0) for i in range(layout.rank)])
    split: list[int] = []
    outer: list[int] = []
    position: dict[int, int] = {}  # block -> axis after splitting
    for d in range(layout.rank):
        own = [k for k, (b, _) in enumerate(layout.blocks) if b == d]
        outer.append(len(split))
        split.append(array.shape[d] // layout.factor(d))
        for k in own:
            position[k] = len(split)
            split.append(layout.blocks[k][1])
    order = outer + [position[k] for k in range(len(layout.blocks))]
    return np.ascontiguousarray(array.reshape(split).transpose(order))


def _unpack(array: np.ndarray[Any, Any], layout: Layout, logical: Sequence[int]) -> np.ndarray[Any, Any]:
    order: list[int] = []
    for d in range(layout.rank):
        order.append(d)
        order.extend(layout.rank + k for k, (b, _) in enumerate(layout.blocks) if b == d)
    padded = [array.shape[d] * layout.factor(d) for d in range(layout.rank)]
    whole = array.transpose(order).reshape(padded)
    return np.ascontiguousarray(whole[tuple(slice(0, n) for n in logical)])


def broadcast_layout(layout: str, shape: Sequence[Dim], operand: Sequence[Dim]) -> str | None:
    """The layout in which an operand of shape ``operand`` broadcasts to ``shape`` laid out as ``layout``.

    Dimensions of size 1 get blocks of 1. ``""`` where the operand may stay as it is (all sizes are 1). None where no
    layout does it: the operand lacks a blocked dimension.
    """
    known = parse(layout)
    if all(_is_one(d) for d in operand):
        return ""
    shift = known.rank - len(operand)
    letters = plain(len(operand))
    blocks = ""
    for d, f in known.blocks:
        k = d - shift
        if k < 0:
            return None
        stretched = _is_one(operand[k]) and not _is_one(shape[d])
        blocks += f"{1 if stretched else f}{letters[k].lower()}"
    return letters + blocks


def follow_elementwise(attrs: Attrs, types: Sequence[TensorType], operand: int, layout: str) -> LayoutChoice | None:
    """The ``follows`` trait of element-wise operators with NumPy broadcasting: every operand is brought to the layout
    of operand ``operand``, which must have the full rank and sizes of the result in the blocked dimensions."""
    lead = types[operand]
    known = parse(layout)
    rank = max(t.rank for t in types)
    if lead.rank != rank or known.rank != rank:
        return None
    for d, _ in known.blocks:
        if any(_wider(t, lead, d - rank) for t in types):
            return None
    inputs: list[str | None] = []
    for i, t in enumerate(types):
        made = layout if i == operand else broadcast_layout(layout, lead.shape, t.shape)
        if made is None:
            return None
        inputs.append(made or None)
    return LayoutChoice(tuple(inputs), (layout,), attrs)


def _wider(t: TensorType, lead: TensorType, axis: int) -> bool:
    """Whether broadcasting would stretch ``lead`` along ``axis`` (counted from the end)."""
    return -axis <= t.rank and _is_one(lead.shape[axis]) and not _is_one(t.shape[axis])


def _is_one(d: Dim) -> bool:
    return isinstance(d, int) and d == 1
