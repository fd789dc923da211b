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
    return rows > distinct * (L1_WAYS - 1)


def pack(context: Context, block: BlockRef, access: Access, axis: IterVar, factor: int) -> BlockRef:
    """Make ``block`` read a copy of the operand in which the dimension of ``axis`` is split into panels of ``factor``.

    Where m is that dimension and k those of the reduction: ``[…, k, m] → […, m // factor, k, m % factor]``.
    A panel is contiguous if m is the last dimension or k directly follows it. Returns the copying block, which is
    computed completely before ``block``.
    """
    reduce = context.view(block).reduce
    position = next(d for d, i in enumerate(access.indices) if i is axis.var)
    first = min([position, *(d for d, i in enumerate(access.indices) if any(occurs(a.var, i) for a in reduce))])

    def panels(*indices: Expr, width: Expr) -> tuple[Expr, ...]:
        m = indices[position]
        return (*indices[:first], m // width, *indices[first:position], *indices[position + 1 :], m % width)

    return _copied(context, block, access, IndexMap.of(panels, len(access.indices), width=factor))


def pack_rows(context: Context, block: BlockRef, access: Access, rows: IterVar, factor: int, steps: IterVar) -> int:
    """Make ``block`` read a copy of the operand in which the rows of a tile stand together, one cache line of each.

    Where m is the dimension of ``rows`` and k that of ``steps``, ``[…, m, …, k]`` becomes
    ``[…, m // factor, …, k // line, m % factor, k % line]``. Copying moves whole lines. Returns the elements of a line,
    or 0 if the elements of ``steps`` are not adjacent or do not fill whole lines: then nothing is copied.
    """
    line = CACHE_LINE_BYTES // access.buffer.dtype.nbytes
    extent, last = static_extent(steps), len(access.indices) - 1
    if access.indices[last] is not steps.var or not packable(access, steps) or extent is None or extent % line:
        return 0
    position = next(d for d, i in enumerate(access.indices) if i is rows.var)

    def lines(*indices: Expr, height: Expr, width: Expr) -> tuple[Expr, ...]:
        m, k = indices[position], indices[last]
        outer = (*indices[:position], m // height, *indices[position + 1 : last])
        return (*outer, k // width, m % height, k % width)

    _copied(context, block, access, IndexMap.of(lines, len(access.indices), height=factor, width=line))
    return line


def _copied(context: Context, block: BlockRef, access: Access, layout: IndexMap) -> BlockRef:
    s = context.schedule
    reads = [r.buffer for r in context.block(block).reads]
    copy = s.cache_read(block, reads.index(access.buffer), "global")
    s.transform_layout(copy, context.block(copy).writes[0].buffer.name, layout, pad=0.0)
    context.separate.add(copy.name)
    return copy
