"""Recurrences: each step along an ordered axis needs the previous step; vectors run along the last of the other axes.

If several threads are faster, each thread takes strips of columns and runs all steps of a strip. Results that the
caches cannot hold are written past them, and the last step is kept in a row of its own, because what is written past
the caches cannot be read back soon:

    parallel (strip of columns):
        state[strip] = results[0, strip]
        for the other steps t:
            for vectors of the strip:
                state[vector] = f(state[vector], operands[t, vector])
                results[t, vector] = state[vector]           past the caches

Rows of operands are fetched a step before they are read there; otherwise, rows of results in memory are fetched some
steps before they are written.
"""

from __future__ import annotations

import math

from weft.cost.assumed import EXTENT
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Load
from weft.expr.visit import collect
from weft.schedule.primitives.cache_state import why_not_last_step
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.common.access import View, static_extent
from weft.schedule.rules.common.ahead import FETCHED_BYTES, prefetch_rows, rows_fit
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
MIN_KEPT_STEPS = 8
"""Fewest steps that pay for a state of its own, which is written and read once more."""
FETCHED_OPERAND_BYTES = 2048
"""Bytes by which prefetches of an operand are ahead of results that are streamed, at least a step."""
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
    first: BlockRef | None = None
    if alone and steps_column_by_column(view):
        row = min(contiguous_suffix(view), len(view.spatial))
        first = _keep_apart(context, block, max(1, row))
        if row > 1:  # pieces of one long row, not of many short ones
            loops[-row:] = [context.fuse(loops[-row:])]
        loops = _in_strips(context, view, loops, lanes, first, row)
    if first is not None:
        context.vectorize(s.get_loop(first, -1), lanes)
        context.done.add(first.name)
    extents = [context.extent(x) for x in loops[1:]]
    elements = None if None in extents else math.prod(e or 0 for e in extents)
    context.vectorize(loops[-1], lanes, VECTORS_IN_FLIGHT)
    if alone:
        _fetch_next_steps(context, block, loops[0], elements, streamed=first is not None)
    context.done.add(block.name)
    return True


def _fetch_next_steps(context: Context, block: BlockRef, steps: LoopRef, row: int | None, streamed: bool) -> None:
    """Prefetch the places of later steps' results, if they are in memory, while ``row`` elements (None: open) of a step
    are computed. What is only read arrives early enough; stores wait for lines that the hardware's prefetcher, which
    stops at the end of each page, has not fetched.

    Stores that bypass the caches do not wait, but take the buffers that lines arrive in: then prefetch what is read."""
    s, view = context.schedule, context.view(block)
    buffers = dict.fromkeys(a.buffer for a in view.loads) if streamed else {view.output.buffer: None}
    far = [b for b in buffers if b in s.program.params and exceeds_l2(context.target, b)]
    loops = s.get_loops(block)
    inside = [x for x in loops[loops.index(steps) + 1 :] if context.loop(x).kind == "serial" and context.extent(x) != 1]
    for buffer in far if inside else ():
        if rows_fit(context, row, buffer.dtype.nbytes):
            nbytes = FETCHED_OPERAND_BYTES if streamed else FETCHED_BYTES
            prefetch_rows(context, buffer, row, steps, inside[-1], nbytes)


def _keep_apart(context: Context, block: BlockRef, row: int) -> BlockRef | None:
    """Stream the results and keep the state apart, if the caches cannot hold the results, whose innermost ``row`` axes
    are contiguous. Returns the block that starts the state; None if it stays as it is."""
    view, s = context.view(block), context.schedule
    steps, own = static_extent(view.block.iters[0]), tuple(i.var for i in view.block.iters)
    if steps is None or steps < MIN_KEPT_STEPS or view.stores[0].indices != own:
        return None
    if why_not_last_step(view.block) is not None or not context.exceeds_caches(block, row):
        return None
    first = s.cache_state(block)
    s.stream(block)
    return first


def steps_column_by_column(view: View) -> bool:
    """Whether a step reads previous results only in its own column."""
    store = view.stores[0]
    own = [e.indices for e in collect(store.value, Load) if e.source is store.buffer]
    return all(
        any(i is axis.var and all(read[d] is axis.var for read in own) for d, i in enumerate(store.indices))
        for axis in view.spatial
    )


def _in_strips(
    context: Context, view: View, loops: list[LoopRef], lanes: int, first: BlockRef | None, row: int
) -> list[LoopRef]:
    """Run all steps of a strip of columns in one iteration of a parallel loop. Returns the loops unchanged if that is
    not faster. Strips within one row of columns are adjacent.

    ``first`` is the block that starts the state of the columns, of which the last ``row`` axes are one, in the same
    strips."""
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
    starts = _joined_loops(context, first, row)
    if extent is None or extent >= 2 * lanes * vectors:
        width = context.choose(near(vectors, 2 * vectors), vectors)
        strips, last = s.split(last, factors=(None, lanes * width))
        around = [*around, strips]
        starts[-1:] = s.split(starts[-1], factors=(None, lanes * width)) if starts else ()
    if not around:
        return loops
    s.reorder(*around, steps, last)
    strip = context.fuse(around)
    if first is not None and len(view.spatial) == 1:
        strip = s.merge(context.fuse(starts[:-1]), strip)  # each strip has a state of its own
    elif first is not None:
        context.parallelize(context.fuse(starts[:-1]), work_of(context.view(first)))
    context.parallelize(strip, work)
    return [steps, last]


def _joined_loops(context: Context, first: BlockRef | None, row: int) -> list[LoopRef]:
    """The loops of the block that starts a state, if there is one; those of the innermost ``row`` axes are one."""
    loops = [] if first is None else list(context.schedule.get_loops(first))
    if row > 1 and loops:
        loops[-row:] = [context.fuse(loops[-row:])]
    return loops


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
