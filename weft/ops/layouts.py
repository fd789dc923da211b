"""Layouts of operators: cost estimates, and the trait of operators that carry blocked channels along."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft.graph.layout import parse
from weft.graph.operator import Attrs, LayoutChoice
from weft.graph.types import Dim, TensorType
from weft.support.dtypes import FLOAT32

PLAIN_CONTRACTION = 1 / 8e9
"""Seconds for one multiply-add of a contraction whose operands are not packed for vectors."""
ROW_CONTRACTION = 1 / 35e9
"""Seconds for one multiply-add of a contraction whose vectors run along rows of pixels."""
POINTWISE_CONTRACTION = 1 / 42e9
"""Seconds for one multiply-add of a product whose vectors run over all pixels of an image."""
BLOCKED_CONTRACTION = 1 / 60e9
"""Seconds for one multiply-add of a contraction over packed operands."""
STRAIGHT_CONTRACTION = 1 / 56e9
"""Seconds for one multiply-add of a product whose vectors lie side by side in each row of the second operand: the
kernel copies panels of a large one into a cache as it goes."""
STREAM = 1 / 10e9
"""Seconds for moving one byte."""
SYMBOLIC = 8
"""What a symbolic size counts in estimates."""


def size(shape: Sequence[Dim]) -> int:
    """Number of elements, for estimates."""
    return math.prod(d if isinstance(d, int) else SYMBOLIC for d in shape)


def nbytes(*types: TensorType) -> int:
    """Bytes of all ``types`` together, for estimates."""
    return sum(size(t.shape) * t.dtype.nbytes for t in types)


def straight_cost(types: Sequence[TensorType]) -> float:
    """Seconds for one multiply-add over a second operand as it lies, its columns side by side."""
    return STRAIGHT_CONTRACTION if all(t.dtype == FLOAT32 for t in types) else PLAIN_CONTRACTION


HALF_SPEED = 0.5
"""Time of packed products of half precision, as a part of that of float32."""
PAIRED = "bfloat16"
"""The dtype whose products are packed in pairs along the sum (the instructions of CPUs add two at a time)."""


TILED_CONTRACTION = 1 / 600e9
"""Seconds for one multiply-add of half precision in a matrix unit whose tiles are full."""
TILE_ROWS = 16
"""Rows of a full tile."""


def are_pairs(types: Sequence[TensorType]) -> bool:
    """Whether the operands are of the dtype whose products are packed in pairs."""
    return all(t.dtype == PAIRED for t in types)


def tiled_cost(rows: Dim) -> float:
    """Seconds for one multiply-add in a matrix unit, of lines of ``rows`` rows: tiles of one height that divides them;
    vectors where none of at least two rows does. A tile of weights is loaded in the time of eight rows, and serves one
    or two tiles of rows."""
    heights = [h for h in range(2, TILE_ROWS + 1) if rows % h == 0] if isinstance(rows, int) else []
    return TILED_CONTRACTION * max(1.0, 0.25 + TILE_ROWS / 2 / max(heights)) if heights else BLOCKED_CONTRACTION


def pairs(types: Sequence[TensorType], depth: Dim, letter: str = "k") -> str:
    """The block of pairs in a packed layout, ``"2k"``, where operands of :data:`PAIRED` make whole ones."""
    paired = are_pairs(types) and isinstance(depth, int) and depth % 2 == 0 and depth > 2
    return f"2{letter}" if paired else ""


def packed_cost(types: Sequence[TensorType], tile: int = 0) -> float:
    """Seconds for one multiply-add over packed operands of these types. Where there is a matrix unit (``tile``), pairs
    gain nothing."""
    return BLOCKED_CONTRACTION * (HALF_SPEED if are_pairs(types) and not tile else 1.0)


def follow_channels(
    infer: Callable[..., TensorType], blocked_attrs: Callable[[Attrs, TensorType, int], Attrs | None] | None = None
) -> Callable[[Attrs, tuple[TensorType, ...], int, str], LayoutChoice | None]:
    """The ``follows`` trait of operators that treat every channel (dimension 1) alike and map zero channels to zero
    channels: pooling, resizing, padding and reducing over space.

    ``blocked_attrs(attrs, type, block)`` gives the attributes for the operand with a further, innermost dimension, or
    None where the call does not suit a blocked layout; left out, the attributes stay.
    """

    def follows(attrs: Attrs, types: tuple[TensorType, ...], operand: int, layout: str) -> LayoutChoice | None:
        known = parse(layout)
        data = types[0]
        if operand != 0 or known.rank != data.rank or len(known.dims) != data.rank + 1 or known.dims[-1][0] != 1:
            return None
        if [d for d, _ in known.dims[:-1]] != list(range(data.rank)):
            return None
        result = infer(attrs, *types)
        if not isinstance(result, TensorType) or result.rank != data.rank:
            return None
        there = attrs if blocked_attrs is None else blocked_attrs(attrs, data, known.dims[-1][1] or 1)
        if there is None:
            return None
        return LayoutChoice((layout, *(None,) * (len(types) - 1)), (layout,), there)

    return follows
