"""Recurrences: each step along an ordered axis needs the previous step; vectors run along the last of the other axes.

If several threads are faster, each thread takes strips of columns and runs all steps of a strip. Rows of results in
memory are fetched some steps before they are written.
"""

from __future__ import annotations

import math

from weft.cost.assumed import EXTENT
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Load
from weft.expr.visit import collect
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.common.access import View
from weft.schedule.rules.common.ahead import prefetch_rows, rows_fit
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.common.menus import near
from weft.schedule.rules.common.runs import contiguous_suffix
from weft.schedule.rules.common.work import exceeds_l2, pieces_of, work_of, worth_parallel
from weft.tir.visit import blocks as blocks_below

VECTORS_IN_FLIGHT = 2
"""Number of vectors computed at the same time."""
STRIPS_PER_CORE = 4
"""Strips for each core, if there are enough columns. Several strips per core also balance the load of fewer threads."""
MAX_STRIP_VECTORS = 16
"""Limit on the vectors in a strip of data that the second-level cache holds."""
PIECE_START_BYTES = 640
"""What the start of each piece of a row costs in bytes, if the data is in memory: strips of 512 bytes take twice as
long as whole rows, strips of 128 bytes four times."""
MIN_PIECE_BYTES = 128
"""Least width of a strip of data in memory."""


def schedule_recurrence(context: Context, block: BlockRef) -> bool:
    """Schedule a block of one store whose first axis is ordered; False if the block has another form, or cannot be
    vectorized."""
    s, view = context.schedule, context.view(block)
    kinds = [i.kind for i in view.block.iters]
    if not view.is_simple or view.block.init is not None or kinds.count(IterVar.ORDERED) != 1 or view.reduce:
        return False
    loops, lanes = list(s.get_loops(block)), context.lanes(view)
    if len(loops) != len(kinds) or kinds[0] != IterVar.ORDERED or len(kinds) < 2 or lanes < 2:
        return False
    last = view.spatial[-1]
    if view.stride(view.output, last) != 1 or any(view.stride(a, last) not in (0, 1) for a in view.loads):
        return False
    alone = sum(1 for _ in blocks_below(context.loop(loops[0]))) == 1
    if alone and steps_column_by_column(view):
        row = min(contiguous_suffix(view), len(view.spatial))
        if row > 1:  # pieces of one long row, not of many short ones
            loops[-row:] = [context.fuse(loops[-row:])]
        loops = _in_strips(context, view, loops, lanes)
    extents = [context.extent(x) for x in loops[1:]]
    elements = None if None in extents else math.prod(e or 0 for e in extents)
    context.vectorize(loops[-1], lanes, VECTORS_IN_FLIGHT)
    if alone:
        _fetch_next_steps(context, block, loops[0], elements)
    context.done.add(block.name)
    return True


def _fetch_next_steps(context: Context, block: BlockRef, steps: LoopRef, row: int | None) -> None:
    """Prefetch the places of later steps' results, if they are in memory, while ``row`` elements (None: open) of a step
    are computed. What is only read arrives early enough; stores wait for lines that the hardware's prefetcher, which
    stops at the end of each page, has not fetched."""
    s, written = context.schedule, context.view(block).output.buffer
    if written not in s.program.params or not exceeds_l2(context.target, written):
        return
    loops = s.get_loops(block)
    inside = [x for x in loops[loops.index(steps) + 1 :] if context.loop(x).kind == "serial" and context.extent(x) != 1]
    if inside and rows_fit(context, row, written.dtype.nbytes):
        prefetch_rows(context, written, row, steps, inside[-1])


def steps_column_by_column(view: View) -> bool:
    """Whether a step reads previous results only in its own column."""
    store = view.stores[0]
    own = [e.indices for e in collect(store.value, Load) if e.source is store.buffer]
    return all(
        any(i is axis.var and all(read[d] is axis.var for read in own) for d, i in enumerate(store.indices))
        for axis in view.spatial
    )


def _in_strips(context: Context, view: View, loops: list[LoopRef], lanes: int) -> list[LoopRef]:
    """Run all steps of a strip of columns in one iteration of a parallel loop. Returns the loops unchanged if that is
    not faster. Strips within one row of columns are adjacent."""
    s, work, extent = context.schedule, work_of(view), context.extent(loops[-1])
    if context.nested or not worth_parallel(work, context.target):
        return loops
    steps, *around, last = loops
    wanted = min(pieces_of(work, context.target), STRIPS_PER_CORE * context.target.cpu.cores)
    for x in around:
        wanted = -(-wanted // (context.extent(x) or 1))
    step, vectors = VECTORS_IN_FLIGHT, MAX_STRIP_VECTORS
    if extent is not None:
        vectors = min(vectors, max(step, extent // (lanes * wanted * step) * step))
    if exceeds_l2(context.target, view.output.buffer):
        vectors = max(vectors, _strip_bytes(context, view, extent, wanted) // (lanes * view.output.buffer.dtype.nbytes))
    if extent is None or extent >= 2 * lanes * vectors:
        width = context.choose(near(vectors, 2 * vectors), vectors)
        strips, last = s.split(last, factors=(None, lanes * width))
        around = [*around, strips]
    if not around:
        return loops
    s.reorder(*around, steps, last)
    context.parallelize(context.fuse(around), work)
    return [steps, last]


def _strip_bytes(context: Context, view: View, extent: int | None, most: int) -> int:
    """The width of strips of a row of ``extent`` elements (None: open) of data in memory: the fewest bytes a thread
    moves, counting what pieces of rows cost. Wider ones if equal, which one thread reads faster."""
    row = (extent or EXTENT) * view.output.buffer.dtype.nbytes
    threads = min(most, context.target.cpu.cores)
    best, least = row, 1.0
    width = MIN_PIECE_BYTES
    while width < row:
        time = (1 + PIECE_START_BYTES / width) / min(threads, row // width)
        if time <= least:
            best, least = width, time
        width *= 2
    return best
