"""Contractions with instructions that add several adjacent products at a time: two of bfloat16, or four of unsigned and
signed bytes.

For each lane, such an instruction needs a group of elements that are adjacent along the reduction, next to each other
in both operands. The scalar operand is read as words of one group. The vector operand is packed as
``[…, reduction // group, lanes, group]``. The graph already packs weights like this. Operands computed at run time are
copied here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Cast, Expr, Load
from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.intrinsics.dot_products import DEPTH, DOT_BF16, DOT_BYTES, PAIR
from weft.schedule.refs import BlockRef
from weft.schedule.rules.common.access import Access, View, static_extent
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.cpu.packing import packable


@dataclass(frozen=True, slots=True)
class ProductGroup:
    """``intrinsic`` adds ``size`` products of elements of the dtypes ``left`` and ``right``, in this order, to a sum of
    dtype ``total``. ``tile`` is the kind of matrix tiles that multiply the same."""

    left: str
    right: str
    total: str
    size: int
    intrinsic: TensorIntrinsic
    tile: str


PAIRS: Final = ProductGroup("bfloat16", "bfloat16", "float32", PAIR, DOT_BF16, "bf16")
BYTES: Final = ProductGroup("uint8", "int8", "int32", DEPTH, DOT_BYTES, "u8s8")


def group_of(view: View) -> ProductGroup | None:
    """The instruction that suits the block: it sums products of two loads without a condition, which might hold for a
    part of a group only. Machines without the instruction also use groups, because a word is the cheapest way to read
    several elements."""
    if view.product is None or not view.is_simple:
        return None
    total = view.output.buffer.dtype
    for group in (PAIRS, BYTES):
        factors = zip(_factors(view), (group.left, group.right), strict=False)
        if total == group.total and all(_is_widened(e, dtype, group.total) for e, dtype in factors):
            return group
    return None


def suits_pairs(view: View) -> bool:
    """Whether the block sums products of bfloat16 in float32, without a condition."""
    return group_of(view) is PAIRS


def _factors(view: View) -> tuple[Expr, Expr]:
    """The two sides of the product, with their casts. Only of a view that has a ``product``."""
    value = view.stores[0].value
    assert isinstance(value, Binary)
    term = next((t for t in (value.a, value.b) if isinstance(t, Binary) and t.op == "mul"), value)
    return term.a, term.b


def _is_widened(e: Expr, dtype: str, to: str) -> bool:
    return isinstance(e, Cast) and e.dtype == to and isinstance(e.a, Load) and e.a.dtype == dtype


def group_axis(view: View, group: ProductGroup) -> IterVar | None:
    """The reduction axis whose adjacent elements are contiguous in both operands, if it has more than one group."""
    operands = view.product
    assert operands is not None
    total = prod(static_extent(axis) or group.size * group.size for axis in view.reduce)
    for axis in reversed(view.reduce):
        extent = static_extent(axis)
        whole = extent is not None and extent % group.size == 0 and total > group.size
        if whole and _adjacent(view, axis, group, *operands):
            return axis
    return None


def _adjacent(view: View, axis: IterVar, group: ProductGroup, *operands: Access) -> bool:
    return all(view.stride(x, axis, group.size) == 1 for x in operands)


def pack_groups(
    context: Context, block: BlockRef, view: View, group: ProductGroup, scalar: Access, vector: IterVar, lanes: int
) -> bool:
    """Make ``block`` read a copy of its vector operand with contiguous groups. With m the dimension of ``vector`` and k
    that of the reduction: ``[…, m, …, k] → […, m // lanes, k // group, m % lanes, k % group]``. False if the operands
    do not allow it."""
    operands = view.product
    assert operands is not None
    moving = operands[0] if operands[1] is scalar else operands[1]
    axis = next((a for a in view.reduce if _fits(view, a, group, scalar, moving)), None)
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
        return (*others, m // lanes, k // group.size, m % lanes, k % group.size)

    s.transform_layout(copy, packed, panels, pad=0.0)
    context.separate.add(copy.name)
    return True


def _fits(view: View, axis: IterVar, group: ProductGroup, scalar: Access, moving: Access) -> bool:
    extent = static_extent(axis)
    groups = extent is not None and extent % group.size == 0 and extent > group.size
    return groups and packable(moving, axis) and _adjacent(view, axis, group, scalar)


def _dimension(access: Access, axis: IterVar) -> int:
    return next(d for d, i in enumerate(access.indices) if i is axis.var)
