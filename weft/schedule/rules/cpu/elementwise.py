"""Element-wise and other injective blocks: one parallel outer loop with vectors inside."""

from __future__ import annotations

import math

from weft.cost.caches import CACHE_LINE_BYTES, PAGE_BYTES
from weft.expr.intrinsic_table import ROOTS
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Call, Const, Load
from weft.expr.simplify import simplify
from weft.expr.visit import collect, occurs, substitute
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.common.access import (
    MIN_TRANSPOSED_ROWS,
    View,
    contiguous_elsewhere,
    continues,
    static_extent,
)
from weft.schedule.rules.common.ahead import prefetch_rows, rows_fit
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.common.inlining import MAX_REPEATED_OPERATIONS
from weft.schedule.rules.common.menus import divisors, near
from weft.schedule.rules.common.runs import contiguous_suffix, repeats_of
from weft.schedule.rules.common.work import CALL_OPERATIONS, cost_of, exceeds_l2, work_of
from weft.support.dtypes import FLOAT64

VECTORS_IN_FLIGHT = 2
"""Number of vectors computed at the same time."""
VECTORS_OF_ROOTS = 4
"""The same where each is a square root of float64, on processors that compute some of them by products."""
MAX_VECTORS_IN_FLIGHT = 8
"""Limit on the vectors computed at the same time, if that many are needed until the pattern of read indices repeats."""
MAX_SHORT_VECTORS = 4
"""Limit on the vectors in an inner loop that counts as short."""
MIN_ITERATIONS = 32
"""Fewest iterations, in total, that keep all threads busy."""
MIN_ITERATIONS_PER_CORE = 4
"""Fewest iterations for each core that keep all threads busy."""
MIN_WHOLE_VECTORS = 3
"""Fewest whole vectors on an axis for which its rest, which is read one element at a time, takes little of the time."""
MAX_TRANSPOSED_ROWS = 16
"""Limit on the rows of a tile that is transposed in registers."""
INTERLEAVED_ROWS = (2, 4)
"""Numbers of rows of which a group has an element each."""
ADJACENT_TILES = 8
"""Tiles transposed one after the other along the axis on which the operand is contiguous, if it is in memory: a line of
each of many rows is read from as many pages, whose translations are evicted before the next line is read."""

FETCHED_BYTES = 2048
"""Bytes of an operand by which prefetches are ahead of a value of many operations, at least an iteration."""


def schedule_elementwise(context: Context, block: BlockRef) -> bool:
    """Schedule an injective block alone; False if the block is not injective."""
    if not context.is_injective(block):
        return False
    s, view = context.schedule, context.view(block)
    loops = list(s.get_loops(block))
    if not loops:
        context.done.add(block.name)
        return True
    lanes = context.lanes(view)
    if lanes > 1 and (_interleaved(context, block, loops) or _transposed(context, block, loops, lanes)):
        context.done.add(block.name)
        return True
    flat = contiguous_suffix(view)
    if flat and flat == _units(view) < len(loops):
        flat += 1  # the axis outside is the innermost one, even if its elements are not adjacent in all operands
    repeats = repeats_of(view, lanes)
    if repeats > 1 and len(loops) == len(view.spatial):
        loops[-1:] = s.split(loops[-1], factors=(repeats, None))
    streamed = context.stream_large(block, max(1, flat))
    inner = context.fuse(loops[len(loops) - flat :]) if flat > 1 else loops[-1]
    outer = loops[: len(loops) - max(1, flat)]
    work = work_of(view)
    extent = context.extent(inner)
    if not outer and (extent is None or extent > 4 * lanes):
        outer, inner = _cut(context, inner, lanes, extent)
    if lanes > 1:
        vectors = _period(view, lanes) if flat <= 1 else VECTORS_IN_FLIGHT
        context.vectorize(inner, lanes, max(vectors, _for_roots(context, view, inner, lanes)))
    if _leaves_enough(context, outer, extent, lanes):
        outer = outer[:-1]  # the innermost stays a separate loop: its index needs no division
    if outer:
        outer = context.order(outer)
        if len(outer) > 1:
            s.reorder(*outer)
        rows = context.fuse(outer)
        context.parallelize(rows, work)
        if streamed and sum(cost_of(x.value) for x in view.stores) >= CALL_OPERATIONS:
            _prefetch_operands(context, block, rows)
        _prefetch_chosen(context, block, rows)
    context.done.add(block.name)
    return True


def _prefetch_chosen(context: Context, block: BlockRef, rows: LoopRef) -> None:
    """Prefetch the next rows of large operands of which data say the element: the hardware's prefetcher follows no
    order that it cannot see."""
    view, loops = context.view(block), context.schedule.get_loops(block)
    inside, length = loops[loops.index(rows) + 1 :], view.output.buffer.shape[-1:]
    row = math.prod(context.extent(x) or 0 for x in inside) or None
    for access in view.loads:
        outer, place = access.indices[:-1], access.indices[-1:]
        chosen = outer and any(collect(i, Load) for i in place) and not any(collect(i, Load) for i in outer)
        whole = chosen and inside and length and view.facts.equal(access.buffer.shape[-1], length[0])
        fits = exceeds_l2(context.target, access.buffer) and rows_fit(context, row, access.buffer.dtype.nbytes)
        if whole and fits:
            prefetch_rows(context, access.buffer, row, rows, inside[0])


def _prefetch_operands(context: Context, block: BlockRef, rows: LoopRef) -> None:
    """Prefetch the large operands of a value of many operations, that a later iteration of ``rows`` reads: few such
    values are computed at once, so few of their lines are on their way, and stores that bypass the caches take the
    buffers that lines arrive in."""
    loops = context.schedule.get_loops(block)
    inside = loops[loops.index(rows) + 1 :]
    count = math.prod(context.extent(x) or 0 for x in inside)
    if not count or len(inside) < 2:
        return
    for buffer in dict.fromkeys(a.buffer for a in context.view(block).loads):
        if exceeds_l2(context.target, buffer) and rows_fit(context, count, buffer.dtype.nbytes):
            prefetch_rows(context, buffer, count, rows, inside[0], FETCHED_BYTES)


def _units(view: View) -> int:
    """The number of innermost axes of extent 1."""
    return next((n for n, a in enumerate(reversed(view.spatial)) if static_extent(a) != 1), len(view.spatial))


def _for_roots(context: Context, view: View, inner: LoopRef, lanes: int) -> int:
    """The number of vectors that roots of float64 want at the same time along a loop: a code generator may leave every
    third or fourth to the divider and compute the others meanwhile. 1 where there are none."""
    cpu = context.target.cpu
    if not cpu.has("avx512f") or lanes * FLOAT64.bits != cpu.vector_bits:
        return 1
    roots = any(e.name in ROOTS for s in view.stores for e in collect(s.value, Call))
    return VECTORS_OF_ROOTS if roots and (context.extent(inner) or 0) >= VECTORS_OF_ROOTS * lanes else 1


def _period(view: View, lanes: int) -> int:
    """The number of adjacent vectors after which quotients of the innermost index by constants repeat. With so many
    vectors per iteration, each reads at constant offsets (for example in an upsampled image). Otherwise the usual
    number."""
    axis = view.spatial[-1].var
    period = 1
    for e in collect([i for a in view.loads for i in a.indices], Binary):
        if e.op == "floordiv" and isinstance(e.b, Const) and occurs(axis, e.a):
            step = simplify(substitute(e.a, {axis: axis + lanes}) - e.a)
            divisor = int(e.b.value)
            if isinstance(step, Const) and divisor > 0:
                period = math.lcm(period, divisor // math.gcd(divisor, int(step.value)))
    return period if VECTORS_IN_FLIGHT < period <= MAX_VECTORS_IN_FLIGHT else VECTORS_IN_FLIGHT


def _leaves_enough(context: Context, outer: list[LoopRef], extent: int | None, lanes: int) -> bool:
    """Whether the inner loop is short, so that dividing a fused index in each iteration would be costly, and the loops
    outside the last of ``outer`` have enough iterations for all threads."""
    if extent is None or extent > MAX_SHORT_VECTORS * lanes or len(outer) < 2:
        return False
    iterations = 1
    for size in map(context.extent, outer[:-1]):
        iterations *= size or MIN_ITERATIONS
    return iterations >= max(MIN_ITERATIONS, MIN_ITERATIONS_PER_CORE * context.target.cpu.cores)


def _interleaved(context: Context, block: BlockRef, loops: list[LoopRef]) -> bool:
    """Handle rows of bytes or halves that become groups of one element of each row, as dot products read them: vectors
    run along the rows, and their groups fill one vector of the result.

    False if the last axis is no group of so few rows, or the next to last is no row of whole vectors.
    """
    view, s = context.view(block), context.schedule
    axes, nbytes = view.spatial, view.output.buffer.dtype.nbytes
    if not view.is_simple or len(loops) != len(axes) or len(axes) < 2 or nbytes > 2:
        return False
    rows, columns = static_extent(axes[-1]), static_extent(axes[-2])
    if rows is None or columns is None or rows not in INTERLEAVED_ROWS or view.stride(view.output, axes[-1]) != 1:
        return False
    lanes = context.target.cpu.vector_bits // 8 // (rows * nbytes)
    if lanes < MIN_TRANSPOSED_ROWS or columns % lanes or view.stride(view.output, axes[-2]) != rows:
        return False
    moving = [a for a in view.loads if view.stride(a, axes[-2]) == 1 and view.stride(a, axes[-1]) != 1]
    if not moving or any(a not in moving and a.uses(axes[-2].var) for a in view.loads):
        return False
    work = work_of(view)
    strides = [view.stride(moving[0], a) for a in axes[:-2]]
    far = sorted(range(len(strides)), key=lambda d: -abs(strides[d] or 0))  # whole lines of the operand are read
    outer = [loops[d] for d in (far if None not in strides else range(len(strides)))]
    group, row = loops[-1], loops[-2]
    if columns > lanes:
        more, row = s.split(row, factors=(None, lanes))
        outer.append(more)
    s.reorder(*outer, group, row)
    s.unroll(group)
    s.vectorize(row)
    if outer:
        context.parallelize(context.fuse(outer), work)
    return True


def _transposed(context: Context, block: BlockRef, loops: list[LoopRef], lanes: int) -> bool:
    """Handle an operand that is read along another axis than the result is written: transpose square tiles in
    registers.

    False if there is no such operand, or if no tile fits the axes.
    """
    view, s = context.view(block), context.schedule
    axes = view.spatial
    if len(loops) != len(axes) or len(axes) < 2 or view.stride(view.output, axes[-1]) != 1:
        return False
    across = contiguous_elsewhere(view)
    if across is None:
        return False
    work = work_of(view)
    first = across
    while first and continues(view, axes[first - 1], axes[first]):
        first -= 1
    whole = [context.extent(x) for x in loops]
    joined = len(axes) - 1
    while joined - 1 > across and continues(view, axes[joined - 1], axes[joined]):
        joined -= 1
    in_parts = not any(view.stride(a, axes[across]) == 1 for a in view.loads)  # channels in blocks
    if None in whole[joined:]:
        whole[joined:] = [None]  # one axis for the pixels of all lines has one rest, not one a line
    elif in_parts and _ends_within_lines(pixels := math.prod(n or 0 for n in whole[joined:]), whole[-1] or 1, lanes):
        whole[joined:] = [pixels]
    else:
        joined = len(axes) - 1
    extent = 1
    for size in whole[first : across + 1]:
        extent = extent * size if size is not None else 0
    lanes = min(lanes, MAX_TRANSPOSED_ROWS)  # the rows of one tile are in registers
    tiles = [n for n in (lanes, 8, 4) if extent and n <= lanes and extent % n == 0]
    if in_parts:
        lanes = _lanes_along(whole[-1], lanes)
        tiles = [n for n in tiles if n <= lanes and (first < across or _reads_along(view, axes[across], n))]
    tile = next(iter(tiles), None)
    if tile != lanes and _has_whole_tiles(view, axes[across], extent, whole[-1], lanes):
        tile = lanes  # a rest costs less than many small tiles
    if tile is None:
        return False
    moving = context.fuse(loops[first : across + 1])
    menu = divisors(extent, MAX_TRANSPOSED_ROWS) if extent else (tile,)
    several = whole[-1] is None or whole[-1] > lanes
    follow = not in_parts and (several or joined > across + 1) and _may_follow(context, view, axes[across], lanes)
    if follow and not extent:  # at once: a second split would ask in each tile whether it is there
        factors: tuple[int | None, ...] = (None, ADJACENT_TILES, tile)
    else:
        factors = (None, context.choose(menu, tile))
    outside, *adjacent, copies = s.split(moving, factors=factors)
    last = context.fuse(loops[joined:])
    around = [*loops[:first], outside, *loops[across + 1 : joined]]
    if several:
        more, last = s.split(last, factors=(None, lanes))
        around.append(more)
    if follow and extent and (tiles_across := context.extent(outside)):
        around[first], *adjacent = s.split(outside, factors=(None, max(divisors(tiles_across, ADJACENT_TILES))))
    inside = [*adjacent, copies, last]
    s.reorder(*around, *inside)
    s.unroll(copies)
    s.vectorize(last)
    groups = context.fuse(around)
    context.parallelize(groups, work)
    if adjacent:  # processors fetch the second lines of stores across two lines one after the other
        s.prefetch(groups, view.output.buffer.name, 1, within=adjacent[0])
    return True


def _may_follow(context: Context, view: View, along: IterVar, lanes: int) -> bool:
    """Whether tiles follow each other along the axis on which the operand is contiguous. They do if the result is, or
    may be, too large for the second-level cache, and vectors are whole cache lines. Lines that are written in parts,
    with much in between, leave the first cache before they are complete. That only costs less than lines that are read
    in parts if these are pages apart, or if a row of the result is no longer than a line."""
    result = view.output
    if not exceeds_l2(context.target, result.buffer):
        return False
    nbytes = result.buffer.dtype.nbytes
    row = view.stride(result, along)
    if lanes * nbytes >= CACHE_LINE_BYTES or (row is not None and row * nbytes <= CACHE_LINE_BYTES):
        return True
    moving = [a for a in view.loads if view.stride(a, along) == 1]
    return any(abs(view.stride(a, view.spatial[-1]) or 0) * a.buffer.dtype.nbytes >= PAGE_BYTES for a in moving)


def _ends_within_lines(pixels: int, line: int, lanes: int) -> bool:
    """Whether vectors over all pixels are better than vectors over each line: lines are no whole vectors. If all
    vectors together were whole lines, quotients and remainders of a fused index would be reduced differently, and no
    longer cancel in addresses."""
    return line % lanes != 0 and -(-pixels // lanes) * lanes % line != 0


def _lanes_along(last: int | None, lanes: int) -> int:
    """The lanes of vectors along an axis of ``last`` elements: as many as divide it, all if most vectors of a long or
    open axis are whole, else 0."""
    if last is None or last >= MIN_WHOLE_VECTORS * lanes:
        return lanes
    return next((n for n in (lanes, 8, 4) if n <= lanes and last % n == 0), 0)


def _has_whole_tiles(view: View, axis: IterVar, extent: int, last: int | None, lanes: int) -> bool:
    """Whether most tiles of an axis that no tile divides are whole: the rest, if there is one, has code of its own.
    An ``extent`` of 0 is open, and so is a ``last`` axis of None. Expensive values are not worth the code."""
    if sum(cost_of(s.value) for s in view.stores) > MAX_REPEATED_OPERATIONS:
        return False
    enough = lanes >= MIN_TRANSPOSED_ROWS and (not extent or extent >= MAX_TRANSPOSED_ROWS)
    vectors = last is None or last >= min(lanes, MAX_TRANSPOSED_ROWS) or last & (last - 1) == 0
    return enough and vectors and any(view.stride(a, axis) == 1 for a in view.loads)


def _reads_along(view: View, axis: IterVar, count: int) -> bool:
    """Whether an operand is contiguous along each ``count`` elements of ``axis``, such as the channels of a block."""
    return any(view.stride(a, axis, count) == 1 for a in view.loads)


def _cut(context: Context, loop: LoopRef, lanes: int, extent: int | None) -> tuple[list[LoopRef], LoopRef]:
    """Split one long loop into chunks to distribute over threads, and the loop over one chunk."""
    chunk = 16 * lanes
    if extent is not None:
        while chunk > 2 * lanes and extent % chunk and extent < 8 * chunk:
            chunk //= 2
    outer, inner = context.schedule.split(loop, factors=(None, context.choose(near(chunk, least=lanes), chunk)))
    return [outer], inner
