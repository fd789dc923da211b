"""Reductions of long columns, row by row: memory is read in its order.

A few rows at a time are added to all columns of a block, the results of which stay in the first-level cache. A loop
over the rows for each vector of columns would skip the rest of a row in each step: of data in memory, it would read
pieces of a few cache lines.

    parallel (other axes, blocks of columns):
        results[block] = start
        for each four rows:
            for vector in block:
                results[vector] += four rows of the vector
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.cost import caches
from weft.expr.iter_var import IterVar
from weft.schedule.refs import BlockRef
from weft.schedule.rules.common.access import View, continues, static_extent
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.common.menus import near
from weft.schedule.rules.common.work import cost_of, work_of

ROWS_AT_A_TIME = 4
"""Number of rows that are added to the columns at a time."""
MIN_ROWS = 2 * ROWS_AT_A_TIME
"""Fewest rows for which results are kept in a cache, not in registers."""
MIN_PIECE_ROWS = 32
"""Fewest rows in a piece of work; combining the pieces then costs little."""
MAX_STEP_OPERATIONS = 6
"""Limit on the operations of a step that is repeated for several rows."""
PIECES_PER_CORE = 4
"""Number of pieces of work for each core."""
MIN_BLOCK_BYTES = 4096
"""Fewest bytes of a row in a block of columns: shorter parts of rows are read more slowly from memory."""
MAX_REGISTERS = 8
"""Limit on the vectors of a row, all of which are results in registers."""


def joined_columns(context: Context, block: BlockRef) -> int:
    """How many of the last axes of a reduction are one axis of columns that is worth adding row by row; 0 if none is,
    or the block is something else."""
    view = context.view(block)
    if not (context.is_reduction(block) and view.is_simple and view.spatial) or context.lanes(view) < 2:
        return 0
    last, inner = view.spatial[-1], view.reduce[-1]
    if len(context.schedule.get_loops(block)) != len(view.block.iters):
        return 0
    moving = [a for a in view.loads if any(a.uses(r.var) for r in view.reduce)]
    strides = [view.stride(a, last) for a in view.loads]
    contiguous = view.stride(view.output, last) == 1 and all(x in (0, 1) for x in strides)
    if not contiguous or not any(view.stride(a, last) == 1 for a in moving):
        return 0
    if any(view.step(a, inner) is None or view.stride(a, inner) == 1 for a in moving):
        return 0
    if cost_of(view.stores[0].value) > MAX_STEP_OPERATIONS:
        return 0
    count = 1
    while count < len(view.spatial) and continues(view, view.spatial[-count - 1], view.spatial[-count]):
        count += 1
    return count if _worthwhile(context, view, count) else 0


def _worthwhile(context: Context, view: View, joined: int) -> bool:
    """Whether there are enough rows and columns, or may be, and a loop over the rows for each vector would be slower:
    the data does not stay in the second-level cache, or vectors of one axis would be short."""
    rows, columns, others = (_count(x) for x in (view.reduce, view.spatial[-joined:], view.spatial[:-joined]))
    if rows is not None and rows < MIN_ROWS:
        return False
    if columns is not None and columns < context.lanes(view):
        return False
    if None in (rows, columns, others):
        return True
    assert rows is not None and columns is not None and others is not None
    long = columns >= MAX_REGISTERS * context.lanes(view)
    large = rows * columns * others * view.output.buffer.dtype.nbytes >= context.target.cpu.l2
    short = (static_extent(view.spatial[-1]) or 1) < MAX_REGISTERS * context.lanes(view)
    return (long and large) or (joined > 1 and short)


def _count(axes: Sequence[IterVar]) -> int | None:
    """The number of elements along all axes; None if a size is open."""
    sizes = [static_extent(a) for a in axes]
    return None if None in sizes else math.prod(n for n in sizes if n is not None)


def schedule_columns(context: Context, block: BlockRef) -> bool:
    """Schedule a reduction row by row; False if that is not possible or not worthwhile."""
    joined = joined_columns(context, block)
    if not joined:
        return False
    s, view, cores = context.schedule, context.view(block), context.target.cpu.cores
    rows, columns, others = (_count(x) for x in (view.reduce, view.spatial[-joined:], view.spatial[:-joined]))
    by_axis = dict(zip(view.block.iters, s.get_loops(block), strict=True))
    if joined > 1:
        context.fuse([by_axis[a] for a in view.spatial[-joined:]])
    width = _block_width(context, view, columns, others)
    wanted = PIECES_PER_CORE * cores
    parts = None if columns is None or others is None else others * -(-columns // width)
    pieces = 1
    if parts is not None and parts < wanted and rows is not None and len(view.reduce) == 1:
        pieces = min(wanted, rows // MIN_PIECE_ROWS)
    if pieces >= PIECES_PER_CORE and rows is not None:
        row = s.get_loops(block)[-1]
        pieces = context.choose(near(pieces, rows // ROWS_AT_A_TIME), pieces)
        piece, _ = s.split(row, factors=(None, -(-rows // (pieces * ROWS_AT_A_TIME)) * ROWS_AT_A_TIME))
        s.reorder(piece, *s.get_loops(block)[: len(view.spatial) - joined + 1])
        _add_rows(context, s.rfactor(piece, 0, reassociate=True), 1, width)
    _add_rows(context, block, len(view.reduce), width)
    return True


def _block_width(context: Context, view: View, columns: int | None, others: int | None) -> int:
    """The columns of a block: their results fill half of the first-level cache, unless threads need more blocks."""
    nbytes, lanes = view.output.buffer.dtype.nbytes, context.lanes(view)
    least, most = MIN_BLOCK_BYTES // nbytes, caches.columns_of_sums(nbytes, context.target.cpu.l1)
    if columns is None or others is None:
        return max(lanes, least // lanes * lanes)
    wanted = PIECES_PER_CORE * context.target.cpu.cores
    each = -(-columns * others // wanted)
    return max(lanes, min(most, max(least, each)) // lanes * lanes)


def _add_rows(context: Context, block: BlockRef, reduced: int, width: int) -> None:
    """Add some rows at a time to all columns of a block. The last ``reduced`` loops are those of the reduction."""
    s, view = context.schedule, context.view(block)
    lanes, loops = context.lanes(view), list(s.get_loops(block))
    *around, column = loops[:-reduced]
    *outer, row = loops[-reduced:]
    extent = context.extent(column)
    if extent is None or extent > width:
        outside, column = s.split(column, factors=(None, context.choose(near(width, least=lanes), width)))
        around.append(outside)
    column, lane = s.split(column, factors=(None, lanes))
    several, row = s.split(row, factors=(None, context.choose(near(ROWS_AT_A_TIME, least=2), ROWS_AT_A_TIME)))
    s.reorder(*around, *outer, several, column, row, lane)
    if around:
        context.parallelize(context.fuse(around), work_of(view))
    init = s.decompose_reduction(block, outer[0] if outer else several)
    s.vectorize(s.get_loop(init, -1))
    if (context.extent(column) or MAX_REGISTERS) < MAX_REGISTERS:
        s.unroll(column)
    s.unroll(row)
    s.vectorize(lane)
    context.done |= {init.name, block.name}


def finishes_columns(context: Context, chain: Sequence[BlockRef]) -> bool:
    """Whether the last of two blocks computes one value from each result of a reduction that is done row by row, such
    as a mean from its sum: it then has a loop of its own after the reduction."""
    if len(chain) != 2 or not context.is_injective(chain[-1]):
        return False
    view, reduction = (context.view(b) for b in (chain[-1], chain[0]))
    same = [a.extent for a in view.spatial] == [a.extent for a in reduction.spatial]
    return same and joined_columns(context, chain[0]) > 0


__all__ = ["finishes_columns", "joined_columns", "schedule_columns"]
