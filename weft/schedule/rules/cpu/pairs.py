"""Contractions of bfloat16 with instructions that add two adjacent products at a time.

For each lane, such an instruction needs two elements that are adjacent along the reduction, next to each other in both
operands. The scalar operand is read as words of two elements. The vector operand is packed as
``[…, reduction // 2, lanes, 2]``. The graph already packs weights like this. Operands computed at run time are copied
here.
"""

from __future__ import annotations

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Expr
from weft.schedule.intrinsics.dot_products import PAIR
from weft.schedule.refs import BlockRef
from weft.schedule.rules.common.access import Access, View, static_extent
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.cpu.packing import packable
from weft.support.dtypes import DType

BFLOAT16 = DType("bfloat16")


def suits_pairs(view: View) -> bool:
    """Whether the block sums products of bfloat16 in float32, without a condition: a condition might hold for one
    element of a pair only. Machines without the instruction also use pairs, because a pair in one word is the cheapest
    way to read two elements."""
    operands = view.product
    return (
        operands is not None
        and view.is_simple
        and all(x.buffer.dtype == BFLOAT16 for x in operands)
        and view.output.buffer.dtype == "float32"
    )


def pair_axis(view: View) -> IterVar | None:
    """The reduction axis whose adjacent elements are contiguous in both operands, if it has more than one pair."""
    operands = view.product
    assert operands is not None
    total = 1
    for axis in view.reduce:
        total *= static_extent(axis) or PAIR * PAIR
    for axis in reversed(view.reduce):
        extent = static_extent(axis)
        if extent is not None and extent % PAIR == 0 and total > PAIR and _adjacent(view, axis, *operands):
            return axis
    return None


def _adjacent(view: View, axis: IterVar, *operands: Access) -> bool:
    return all(view.stride(x, axis, PAIR) == 1 for x in operands)


def pack_pairs(context: Context, block: BlockRef, view: View, scalar: Access, vector: IterVar, lanes: int) -> bool:
    """Make ``block`` read a copy of its vector operand with contiguous pairs. With m the dimension of ``vector`` and k
    that of the reduction: ``[…, m, …, k] → […, m // lanes, k // 2, m % lanes, k % 2]``. False if the operands do not
    allow it."""
    operands = view.product
    assert operands is not None
    moving = operands[0] if operands[1] is scalar else operands[1]
    axis = next((a for a in view.reduce if _fits(view, a, scalar, moving)), None)
    if axis is None or not packable(moving, vector):
        return False
    across, along = _dimension(moving, vector), _dimension(moving, axis)
    s = context.schedule
    reads = [r.buffer for r in context.block(block).reads]
    copy = s.cache_read(block, reads.index(moving.buffer), "global")
    packed = context.block(copy).writes[0].buffer.name

    def panels(*indices: Expr) -> tuple[Expr, ...]:
        m, k = indices[across], indices[along]
        others = (x for d, x in enumerate(indices) if d not in (across, along))
        return (*others, m // lanes, k // PAIR, m % lanes, k % PAIR)

    s.transform_layout(copy, packed, panels, pad=0.0)
    context.separate.add(copy.name)
    return True


def _fits(view: View, axis: IterVar, scalar: Access, moving: Access) -> bool:
    extent = static_extent(axis)
    pairs = extent is not None and extent % PAIR == 0 and extent > PAIR
    return pairs and packable(moving, axis) and _adjacent(view, axis, scalar)


def _dimension(access: Access, axis: IterVar) -> int:
    return next(d for d, i in enumerate(access.indices) if i is axis.var)
