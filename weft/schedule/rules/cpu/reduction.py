"""Reductions and chains of them over the same rows (a maximum, then a sum, then a quotient).

All blocks of a chain that share leading axes run row by row, so that the row is in the cache for each of them. Within a
row, vectors run along an axis that is not reduced if the data is contiguous along it. Otherwise they run along the
reduction itself: lanes hold partial results, which are combined at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Load, Var
from weft.expr.visit import collect
from weft.schedule.primitives.kinds import ROWS_TOGETHER
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.common.access import SHUFFLED_STRIDE, View, continues, is_size, static_extent
from weft.schedule.rules.common.ahead import prefetch_rows, rows_fit
from weft.schedule.rules.common.context import MASKED_BITS, Context, guarded_load
from weft.schedule.rules.common.menus import MAX_UNROLLED_STEPS, UNROLLED, VECTORS_AT_A_TIME, near
from weft.schedule.rules.common.runs import repeats_of
from weft.schedule.rules.common.work import (
    calls_functions,
    cost_of,
    exceeds_l2,
    pieces_of,
    steps_of,
    work_of,
    worth_parallel,
)
from weft.schedule.rules.cpu.columns import MAX_STEP_OPERATIONS, PIECES_PER_CORE, finishes_columns, schedule_columns

ROWS_OF_A_TILE = 8
"""Rows that each block of a chain computes before the next block does."""
MAX_TILED_ROW = 256
"""Elements of a row beyond which its blocks have enough to do for a core to be busy."""
VECTORS_OF_A_LINE = 4
"""Vectors of a line whose sums are computed at a time."""
PARTIAL_VECTORS = 4
"""Number of partial-result vectors of a long reduction, to hide the latency of the operation."""
MIN_PARTIAL_LANES = 4
"""Fewest partial results of a short reduction: its vectors are narrower than the machine's."""
MIN_ROW_OPERATIONS = 13
"""A block that computes so much for each element hides the latency of the reductions of its row."""
MIN_REPEATED_VECTORS = 8
"""Fewest vectors of a row that repeats another for each repetition to be a loop: those of a shorter row are all made at
once, from constant places. A loop over repetitions makes vectors that later ones read across."""
TOGETHER = 4
"""Rows of open length that are computed at a time if they are short at run time."""
MAX_TOGETHER_OPERATIONS = 64
"""Limit on the operations for each element of such rows: each of the rows has code of its own."""
MAX_COLUMN_VECTORS = 8
"""Limit on the number of result vectors of a long reduction over rows."""


def schedule_rows(context: Context, last: BlockRef) -> bool:
    """Schedule ``last`` and all blocks before it that work on the same rows; False if there is no reduction."""
    chain = _chain(context, last)
    if not any(context.is_reduction(b) for b in chain) or finishes_columns(context, chain):
        return False
    rows = _row_axes(context, last, chain)
    if rows is None:
        return False
    s, view = context.schedule, context.view(last)
    if len(chain) == 1 and (schedule_columns(context, last) or _in_pieces(context, last)):
        return True
    loops = dict(zip(view.block.iters, s.get_loops(last), strict=True))
    inner = [loops[a] for a in view.block.iters if a not in rows]
    vector_axis = rows[-1] if rows and _columns_contiguous(context, last, chain, rows[-1]) else None
    lanes = min(context.lanes(context.view(b)) for b in chain)
    row_loops = [loops[a] for a in rows]
    lane_loop: LoopRef | None = None
    one_vector = False
    if vector_axis is not None and lanes > 1:
        extent = static_extent(vector_axis)
        if extent is None or extent > lanes:
            width = lanes * context.choose(VECTORS_AT_A_TIME, _columns(context, chain, rows, lanes))
            outer, lane_loop = s.split(row_loops[-1], factors=(None, width))
            row_loops[-1] = outer
        elif extent > 1:
            lane_loop, one_vector = row_loops.pop(), True
    row_loops = context.order(row_loops)
    s.reorder(*row_loops, *inner, *([lane_loop] if lane_loop is not None else []))
    work = sum(work_of(context.view(b)) for b in chain)
    at: LoopRef | None = None
    in_lines = one_vector and len(row_loops) > 1 and _in_lines(context, chain, row_loops, lanes)
    if in_lines:
        *others, _ = row_loops
        at = context.fuse(others)
        context.parallelize(at, work)
        row_loops = [at, row_loops[-1]]
    elif len(row_loops) > 1 and any(guarded_load(context.view(b)) for b in chain):
        # Checks at window edges use the innermost axes. Separate loops can be split at the edges; a fused loop cannot.
        *others, at = row_loops
        if len(others) > 1 and _enough(context, others[:-1]):
            others = others[:-1]
        context.parallelize(context.fuse(others), work)
    elif row_loops:
        while len(row_loops) > 1 and context.extent(row_loops[-1]) == 1:
            row_loops = [*row_loops[:-2], context.fuse(row_loops[-2:])]
        sizes = [context.extent(x) for x in row_loops]
        tile = _rows_in_tile(context, chain, sizes, lanes) if lane_loop is None else 1
        if tile > 1 and not _is_box(sizes, tile):  # in the last loop only: a tile across its end would be two boxes
            around, _ = s.split(row_loops[-1], factors=(None, tile))
            at = context.fuse([*row_loops[:-1], around])
            row_loops = [at]
        else:
            at = context.fuse(row_loops)
            if tile > 1:
                at, _ = s.split(at, factors=(None, tile))
                row_loops = [at]
        context.parallelize(at, work)
    if at is not None:
        for block in reversed(chain[:-1]):
            context.place(block, at, row_loops)
    partial = _partial_vectors(context, chain)
    together = at is not None and lane_loop is None and lanes > 1 and _may_be_short(context, chain)
    for block in chain:
        finish_row(context, block, lane_loop is not None, lanes, at, partial, tiled=in_lines)
        context.done.add(block.name)
    if at is not None and lane_loop is None:
        _fetch_next_rows(context, chain, at)
    if at is not None and together and context.loop(at).kind == "parallel":
        s.annotate(at, ROWS_TOGETHER, context.choose(near(TOGETHER, 2 * TOGETHER), TOGETHER))
    return True


def _is_box(sizes: Sequence[int | None], count: int) -> bool:
    """Whether every ``count`` successive iterations of nested loops are a box: whole inner loops, and a part of the
    next one that divides it."""
    for size in reversed(sizes):
        if size is None or count % size:
            return len(sizes) == 1 or (size is not None and size % count == 0)
        count //= size
    return True


def _rows_in_tile(context: Context, chain: Sequence[BlockRef], sizes: Sequence[int | None], lanes: int) -> int:
    """How many rows each block of the chain computes before the next block does; 1: row by row.

    The blocks of a short row wait for one another: for the last additions of a sum, for a root, for a quotient. In a
    tile the rows of one block are independent, and a core overlaps them. The tile stays in the first cache.
    """
    view, rows = context.view(chain[-1]), math.prod(n or 0 for n in sizes)
    reduced = [static_extent(a) for b in chain for a in context.view(b).reduce]
    if len(chain) < 2 or view.reduce or None in reduced or not rows:
        return 1
    if context.target.cpu.vector_bits >= MASKED_BITS:  # the last vector of a row in a tile would be stored by a mask,
        return 1  # and reading it again would wait for that
    sums = [context.view(b).spatial for b in chain if context.is_reduction(b)]
    if any(math.prod(static_extent(a) or 0 for a in axes) != rows for axes in sums):  # not one for each row
        return 1
    length = math.prod(static_extent(a) or 0 for a in view.spatial) // max(1, rows)
    if not lanes <= length <= MAX_TILED_ROW or length < max(n for n in reduced if n is not None):
        return 1
    most = min(rows, ROWS_OF_A_TILE)
    whole = max(n for n in range(1, most + 1) if rows % n == 0 and _is_box(sizes, n))
    last = max(n or 0 for n in sizes[-1:])
    tile = whole if 2 * whole >= most else min(most, last) if length <= MAX_TILED_ROW // 2 else 1
    if tile == 1 or not context.decide(f"rows of {chain[-1].name} in tiles", True):
        return 1
    return context.choose(near(tile, rows), tile)


def _in_lines(context: Context, chain: Sequence[BlockRef], row_loops: Sequence[LoopRef], lanes: int) -> bool:
    """Whether blocks of one vector each (channels in blocks) are computed for a line of vectors, and not for one vector
    after another.

    A short reduction and a function behind it are a long chain of operations that wait for one another, of which a core
    overlaps few. In loops of their own it overlaps as many reductions, and then as many functions, as it has room for.
    The line between them stays in the first cache.
    """
    views = [context.view(b) for b in chain]
    if len(chain) != 2 or not views[0].reduce or views[1].reduce or not _is_short(views[0]):
        return False
    if not any(calls_functions(x.value) for x in views[1].stores):
        return False
    line = context.extent(row_loops[-1])
    nbytes = views[0].output.buffer.dtype.nbytes
    fits = line is not None and line >= 2 and 2 * line * lanes * nbytes <= context.target.cpu.l1
    return fits and context.decide(f"compute {chain[0].name} by lines of {chain[1].name}", True)


def _may_be_short(context: Context, chain: Sequence[BlockRef]) -> bool:
    """Whether the rows have an open length, and computing several at a time is not too much code."""
    views = [context.view(b) for b in chain]
    if sum(cost_of(s.value) for v in views for s in v.stores) > MAX_TOGETHER_OPERATIONS:
        return False
    return any(static_extent(a) is None for v in views for a in v.reduce)


def _fetch_next_rows(context: Context, chain: Sequence[BlockRef], at: LoopRef) -> None:
    """Prefetch rows in memory, those that are read and those that are written, while a function is computed on the row
    before: without that, reading, computing and writing take turns, and each waits for the others."""
    s, written = context.schedule, context.view(chain[-1]).output.buffer
    for block in chain[:-1]:
        view, loops = context.view(block), s.get_loops(block)
        inside = loops[loops.index(at) + 1 :] if at in loops else []
        if view.reduce or len(inside) < 2 or sum(cost_of(x.value) for x in view.stores) < MIN_ROW_OPERATIONS:
            continue
        row = static_extent(view.spatial[-1])
        if not rows_fit(context, row, written.dtype.nbytes):
            return
        for buffer in dict.fromkeys((*(a.buffer for a in view.loads), written)):
            rows = len(buffer.shape) == len(written.shape)
            if rows and buffer in s.program.params and exceeds_l2(context.target, buffer):
                prefetch_rows(context, buffer, row, at, inside[0])
        return


def _partial_vectors(context: Context, chain: Sequence[BlockRef]) -> int:
    """How many vectors of partial results hide the latency of a reduction whose length is open. Combining them takes
    longer than a short row, so they are fewer where other blocks of the row compute much meanwhile."""
    costs = [cost_of(s.value) for b in chain for s in context.view(b).stores]
    return PARTIAL_VECTORS if max(costs) < MIN_ROW_OPERATIONS else PARTIAL_VECTORS // 2


def _enough(context: Context, loops: Sequence[LoopRef]) -> bool:
    """Whether the loops give enough pieces of work for all threads."""
    return math.prod(context.extent(x) or 1 for x in loops) >= PIECES_PER_CORE * context.target.cpu.cores


def _chain(context: Context, last: BlockRef) -> list[BlockRef]:
    """Blocks that feed only ``last``, directly or indirectly, and are not yet placed, in program order; ``last`` is the
    final one.

    A block whose result is read at computed indices is left out, because each row would need all of it.
    """
    s = context.schedule
    found, read = [last], set(s.get_producers(last))
    for block in reversed(s.get_blocks()):
        if block not in read or block.name in context.done or context.is_output(block) or _looked_up(context, block):
            continue
        alone = all(reader in found for reader in s.get_consumers(block))
        if alone and context.decide(f"compute {block.name} by rows of {last.name}", True):
            found.append(block)
            read.update(s.get_producers(block))
    return found[::-1]


def _looked_up(context: Context, producer: BlockRef) -> bool:
    """Whether a reader uses computed indices to read the result of ``producer``."""
    made = {s.buffer for s in context.view(producer).stores}
    loads = [a for reader in context.schedule.get_consumers(producer) for a in context.view(reader).loads]
    return any(collect(i, Load) for a in loads if a.buffer in made for i in a.indices)


def _row_axes(context: Context, last: BlockRef, chain: list[BlockRef]) -> list[IterVar] | None:
    """The axes of ``last`` that identify the row: those with which it indexes the results of the earlier reductions."""
    view = context.view(last)
    if view.reduce:
        return list(view.spatial)
    made = {context.view(b).output.buffer for b in chain[:-1] if context.is_reduction(b)}
    used: set[Var] = {i.var for i in view.spatial}
    reads = [a for a in view.loads if a.buffer in made]
    if not reads:
        indirect = [b for b in chain[:-1] if not context.is_reduction(b)]
        common = [_row_axes(context, b, chain[: chain.index(b) + 1]) for b in indirect]
        lengths = [len(c) for c in common if c is not None]
        return list(view.spatial[: min(lengths)]) if lengths else None
    for access in reads:
        used &= {v for i in view.spatial for v in (i.var,) if any(v is x for x in access.indices)}
    return [i for i in view.spatial if i.var in used]


def _in_pieces(context: Context, block: BlockRef) -> bool:
    """Schedule a long reduction with few rows of results: reduce pieces in parallel, then combine their results. The
    number of pieces depends on the work and never on the number of threads, so the result does not depend on that
    number either."""
    s, view = context.schedule, context.view(block)
    if not view.is_unconditional or context.lanes(view) < 2 or _joined(view) < len(view.reduce):
        return False
    if len(s.get_loops(block)) > len(view.reduce):
        return False  # a loop over rows, of one iteration too, would hold both statements
    rows, length = (math.prod(static_extent(a) or 0 for a in axes) for axes in (view.spatial, view.reduce))
    work = work_of(view)
    pieces = pieces_of(work, context.target) // max(1, rows)
    if not rows or not length or rows >= PIECES_PER_CORE or pieces < 2 or not worth_parallel(work, context.target):
        return False
    if not context.decide(f"reduce {block.name} in pieces", True):
        return False
    whole = next((n for n in range(pieces, 2 * pieces) if length % (n * context.lanes(view)) == 0), pieces)
    joined = context.fuse(s.get_loops(block)[-len(view.reduce) :])
    piece, _ = s.split(joined, factors=(context.choose(near(whole, least=2), whole), None))
    partial = s.rfactor(piece, 0, reassociate=True)
    return schedule_rows(context, partial) and schedule_rows(context, block)


def _columns_contiguous(context: Context, last: BlockRef, chain: list[BlockRef], axis: IterVar) -> bool:
    """Whether vectors can run along the row axis ``axis``: the result and the large operands are contiguous along
    it."""
    view = context.view(last)
    if view.stride(view.output, axis) != 1:
        return False
    for block in chain:
        if context.is_reduction(block):
            reduction = context.view(block)
            match = reduction.spatial[-1] if reduction.spatial else None
            if match is None or static_extent(match) != static_extent(axis):
                return False
            strides = [reduction.stride(a, match) for a in reduction.loads]
            if any(s not in (0, 1, SHUFFLED_STRIDE) for s in strides) or not any(strides):
                return False
    return True


def _columns(context: Context, chain: list[BlockRef], rows: list[IterVar], lanes: int) -> int:
    """How many vectors of columns to reduce at a time. Independent sums hide the latency of the addition, and longer
    contiguous parts of memory are read: one vector of halves is half of a cache line. One, if the reduction is short or
    threads would have too little work."""
    views = [context.view(b) for b in chain]
    if not any(v.reduce and not _is_short(v) for v in views):
        return 1
    costly = any(cost_of(s.value) > MAX_STEP_OPERATIONS for v in views for s in v.stores)
    pieces = 1 if costly else PIECES_PER_CORE
    instances = 1
    for axis in rows:
        instances *= static_extent(axis) or 1
    extent = static_extent(rows[-1])
    if extent is None:  # of several axes, the last may be short: most vectors of a step would be empty
        return MAX_COLUMN_VECTORS if costly and len(rows) == 1 else 1
    for count in (MAX_COLUMN_VECTORS, MAX_COLUMN_VECTORS // 2, MAX_COLUMN_VECTORS // 4):
        width = count * lanes
        fits = extent >= width if costly else extent % width == 0
        if fits and instances >= width * pieces * context.target.cpu.cores:
            return count
    return 1


def finish_row(
    context: Context,
    block: BlockRef,
    in_lanes: bool,
    lanes: int,
    at: LoopRef | None,
    partial: int = PARTIAL_VECTORS,
    tiled: bool = False,
) -> None:
    """Vectorize one block of the chain, inside the row loop ``at``. A reduction along a row of open length has
    ``partial`` vectors of partial results. ``tiled``: several vectors of sums are computed at a time."""
    s, view = context.schedule, context.view(block)
    loops = s.get_loops(block)
    inside = loops if at is None else loops[loops.index(at) + 1 :]
    own = {axis: loop for axis, loop in context.own_loops(block).items() if loop in inside}
    if not own or lanes == 1:
        return
    reduce = [own[a] for a in view.reduce if a in own]
    if in_lanes:
        vector = own.get(view.spatial[-1])
        if vector is None:
            return
        line = own.get(view.spatial[-2]) if tiled and reduce and len(view.spatial) > 1 else None
        tile: list[LoopRef] = []
        if line is not None:
            around, part = s.split(line, factors=(None, context.choose(near(VECTORS_OF_A_LINE), VECTORS_OF_A_LINE)))
            own[view.spatial[-2]] = around
            tile.append(part)
        s.reorder(*[loop for loop in own.values() if loop is not vector], *tile, vector)
        context.sum_in_lanes(block, reduce, vector, tile)
        for loop in reduce:
            s.unroll(loop, context.choose(UNROLLED, UNROLLED[-1] if _is_short(view) else 0))
    elif reduce:
        if not _along_columns(context, block, own, lanes):
            _across(context, block, reduce, lanes, partial)
    else:
        axis, loop = list(own.items())[-1]
        extent = context.extent(loop)
        long = extent is None or extent >= MIN_REPEATED_VECTORS * lanes
        repeats = repeats_of(view, lanes) if long and axis is view.spatial[-1] else 1
        if repeats > 1 and view.facts.equal(context.loop(loop).extent, axis.extent):
            _, loop = s.split(loop, factors=(repeats, None))
        context.vectorize(loop, lanes, 2)


def _is_short(view: View) -> bool:
    return steps_of(view) <= MAX_UNROLLED_STEPS


def _across(context: Context, block: BlockRef, reduce: list[LoopRef], lanes: int, partial: int) -> None:
    """Vectorize the reduction: each lane has its own partial result, and the lanes are combined at the end. Float sums
    are reassociated."""
    s, view = context.schedule, context.view(block)
    innermost = view.reduce[-1]
    joined = _joined(view) if len(reduce) == len(view.reduce) else 1
    extent: int | None = 1
    for axis in view.reduce[len(view.reduce) - joined :]:
        size = static_extent(axis)
        extent = None if size is None or extent is None else extent * size
    while extent is not None and extent < 2 * lanes and lanes > MIN_PARTIAL_LANES:
        lanes //= 2
    whole = _contiguous(view, innermost)
    if not whole and not (_contiguous(view, innermost, lanes) and (joined == 1 or _whole_vectors(innermost, lanes))):
        context.note(block, "no operand is contiguous along the reduction: one element at a time")
        return
    if extent is not None and extent < 2 * lanes:
        context.note(block, f"{extent} steps are too few for vectors of {lanes} partial results: one element at a time")
        return
    reduce = [*reduce[: len(reduce) - joined], context.fuse(reduce[len(reduce) - joined :])]
    several = partial if extent is None else PARTIAL_VECTORS if extent >= 2 * PARTIAL_VECTORS * lanes else 1
    factor = lanes * context.choose(VECTORS_AT_A_TIME, several if whole else 1)
    _, inner = s.split(reduce[-1], factors=(None, factor))
    parts = s.rfactor(inner, 0, reassociate=True, share_loops=True)
    for position in range(len(view.stores)):
        s.set_scope(parts, position, "register")
    context.done.add(parts.name)
    _finish_partial(context, parts)
    lane = s.get_loop(block, -1)
    context.done.add(s.decompose_reduction(block, lane).name)
    s.vectorize(lane, reassociate=True)


def _contiguous(view: View, axis: IterVar, lanes: int = 1) -> bool:
    """Whether an operand is contiguous along ``axis``; with ``lanes``, in aligned runs of so many elements (channels in
    blocks). Also if none moves along it: what is reduced is computed from the index (a mask by position)."""
    moving = [a for a in view.loads if a.uses(axis.var)]
    return not moving or any(view.stride(a, axis, lanes) == 1 for a in moving)


def _whole_vectors(axis: IterVar, lanes: int) -> bool:
    extent = static_extent(axis)
    return extent is not None and extent % lanes == 0


def _along_columns(context: Context, block: BlockRef, own: dict[IterVar, LoopRef], lanes: int) -> bool:
    """Vectorize a reduction of whole columns inside a row: no operand is contiguous along the reduction, but the result
    and all large operands are along another axis (the channels of a block, summed over pixels). False if not so."""
    s, view = context.schedule, context.view(block)
    columns = view.spatial[-1] if view.spatial else None
    extent = static_extent(columns) if columns is not None else None
    if columns is None or columns not in own or extent == 1 or _contiguous(view, view.reduce[-1]):
        return False
    # What does not move along the reduction is loaded once: a mean of the group, for example.
    moving = [a for a in view.loads if any(a.uses(r.var) for r in view.reduce)]
    strides = [view.stride(a, columns) for a in moving]
    if view.stride(view.output, columns) != 1 or 1 not in strides or any(x not in (0, 1) for x in strides):
        return False
    vector, outside = own[columns], [loop for axis, loop in own.items() if axis in view.spatial[:-1]]
    if extent is None or extent > lanes:
        more, vector = s.split(vector, factors=(None, context.choose(near(lanes, 2 * lanes, 2), lanes)))
        outside.append(more)
    reduce = [own[a] for a in view.reduce if a in own]
    s.reorder(*outside, *reduce, vector)
    context.sum_in_lanes(block, reduce, vector)
    return True


def _joined(view: View) -> int:
    """How many of the innermost reduction axes all operands traverse as if they were one fused axis. Axes around open
    ones are fused if all extents are sizes: of others, the guard of the fused loop cannot be told from a condition."""
    axes = view.reduce
    count = 1
    while count < len(axes) and continues(view, axes[-count - 1], axes[-count]):
        known = all(static_extent(a) is not None for a in axes[-count:])
        if not known and not all(is_size(a.extent) for a in axes[-count - 1 :]):
            break
        count += 1
    return count


def _finish_partial(context: Context, partial: BlockRef) -> None:
    """Schedule the lanes' partial results: they stay in registers during the whole reduction."""
    s, view = context.schedule, context.view(partial)
    own = context.own_loops(partial)
    lane = own[view.spatial[-1]] if view.spatial[-1] in own else s.get_loop(partial, -1)
    reduce = [own[a] for a in view.reduce if a in own]
    s.reorder(*reduce, lane)
    context.sum_in_lanes(partial, reduce, lane)
