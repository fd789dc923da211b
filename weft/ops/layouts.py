"""Layouts of operators: cost estimates, and the trait of operators that carry blocked channels along."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft.cost import Rates, products
from weft.cost.assumed import GRAPH_SIZE
from weft.graph.layout import parse
from weft.graph.operator import Attrs, LayoutChoice
from weft.graph.types import Dim, TensorType
from weft.support.dtypes import FLOAT32


def size(shape: Sequence[Dim]) -> int:
    """Number of elements, for estimates."""
    return math.prod(d if isinstance(d, int) else GRAPH_SIZE for d in shape)


PAIRED = "bfloat16"
"""The dtype whose products are packed in pairs along the sum (the instructions of CPUs add two at a time)."""
BYTE_GROUP = 4
BYTE_TILE = 64
"""Depth of the tiles of bytes that matrix units multiply."""
"""How many products of bytes an instruction adds at a time."""
GROUPS = {("bfloat16", "bfloat16"): 2, ("uint8", "int8"): BYTE_GROUP}
"""How many products along the sum an instruction adds at a time, by the dtypes of both operands."""


def straight_cost(types: Sequence[TensorType], rates: Rates) -> float:
    """Seconds for one multiply-add over a second operand as it lies, its columns side by side."""
    floats = all(t.dtype == FLOAT32 for t in types)
    return products.panel_seconds(rates) if floats else products.unpacked_seconds(rates)


def are_pairs(types: Sequence[TensorType]) -> bool:
    """Whether the operands are of the dtype whose products are packed in pairs."""
    return all(t.dtype == PAIRED for t in types)


def group_size(types: Sequence[TensorType]) -> int:
    """How many products of the operands an instruction adds at a time; 1 if there is no such instruction."""
    return GROUPS.get((str(types[0].dtype), str(types[1].dtype)), 1) if len(types) == 2 else 1


def groups(types: Sequence[TensorType], depth: Dim, letter: str = "k") -> str:
    """The block of groups in a packed layout, such as ``"2k"``, where operands of :data:`GROUPS` make whole ones."""
    size = group_size(types)
    whole = size > 1 and isinstance(depth, int) and depth % size == 0 and depth > size
    return f"{size}{letter}" if whole else ""


def packed_cost(types: Sequence[TensorType], rates: Rates, tile: int = 0) -> float:
    """Seconds for one multiply-add over packed operands of these types. Where there is a matrix unit (``tile``), pairs
    gain nothing."""
    grouped = group_size(types) > 1 and not (are_pairs(types) and tile)
    return products.packed_seconds(rates, grouped)


def follow_channels(
    infer: Callable[..., TensorType], blocked_attrs: Callable[[Attrs, TensorType, int], Attrs | None] | None = None
) -> Callable[[Attrs, tuple[TensorType, ...], int, str], LayoutChoice | None]:
    """The ``follows`` trait of operators that treat every channel (dimension 1) alike and map zero channels to zero
    channels: pooling, resizing, padding and reducing over space.

    ``blocked_attrs(attrs, type, block)`` gives the attributes for the operand with one more, innermost dimension, or
    None where the call cannot run in a blocked layout. Without it the attributes stay as they are.
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
