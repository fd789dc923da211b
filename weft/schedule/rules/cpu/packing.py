"""Packed copies of operands: panels that a register tile reads sequentially."""

from __future__ import annotations

from math import gcd

from weft.cost.caches import CACHE_LINE_BYTES, L1_WAYS, PAGE_BYTES
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Expr
from weft.expr.visit import occurs
from weft.schedule.index_map import IndexMap
from weft.schedule.refs import BlockRef
from weft.schedule.rules.common.access import Access, View, static_extent
from weft.schedule.rules.common.context import Context


def packable(access: Access, axis: IterVar) -> bool:
    """Whether ``axis`` alone indexes one dimension of the operand and does not occur in any other dimension."""
    return sum(i is axis.var for i in access.indices) == 1 and sum(_uses(i, axis) for i in access.indices) == 1


def _uses(index: Expr, axis: IterVar) -> bool:
    return occurs(axis.var, index)


def conflicts(context: Context, view: View, access: Access, axis: IterVar, rows: int) -> bool:
    """Whether ``rows`` consecutive positions along ``axis`` map to too few sets of the first-level cache.

    The reduction reads each row along another axis, one cache line after another. The lines of all rows must stay in
    the cache until all their elements are used.
    """
    stride = view.stride(access, axis)
    extent = static_extent(axis)
    if stride is None or rows < 2 or (extent is not None and extent < 4 * rows):
        return False
    nbytes = stride * access.buffer.dtype.nbytes
    if nbytes < CACHE_LINE_BYTES:
        return False
    sets = PAGE_BYTES // CACHE_LINE_BYTES
    distinct = sets // gcd(max(1, nbytes // CACHE_LINE_BYTES), sets) if nbytes % CACHE_LINE_BYTES == 0 else sets
    return rows > distinct * (L1_WAYS // 2)


def pack(context: Context, block: BlockRef, access: Access, axis: IterVar, factor: int) -> BlockRef:
    """Make ``block`` read a copy of the operand in which the dimension of ``axis`` is split into panels of ``factor``.

    Where m is that dimension: ``[…, m, …] → […, m // factor, …, m % factor]``. Returns the copying block, which is
    computed completely before ``block``.
    """
    s = context.schedule
    reads = [r.buffer for r in context.block(block).reads]
    position = next(d for d, i in enumerate(access.indices) if i is axis.var)
    copy = s.cache_read(block, reads.index(access.buffer), "global")
    packed = context.block(copy).writes[0].buffer.name

    def panels(*indices: Expr, width: Expr) -> tuple[Expr, ...]:
        m = indices[position]
        return (*indices[:position], m // width, *indices[position + 1 :], m % width)

    s.transform_layout(copy, packed, IndexMap.of(panels, len(access.indices), width=factor), pad=0.0)
    context.separate.add(copy.name)
    return copy
