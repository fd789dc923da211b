"""Products of few rows with a large matrix, which is read in the order of memory.

A tile of sums that stays in registers reads a panel of the matrix: a short part of each of its rows, each in another
page. If the matrix is not packed, its pages are more than the core translates at once, and there are too few rows to
pay for a copy, each part costs a translation. Here a few rows of the matrix are read at a time, over all columns. The
sums stay in the cache meanwhile: each tile of them is read and written once for these rows.

    parallel (batch, parts of the columns):
        sums[rows, columns] = 0
        for bands of BAND_STEPS matrix rows:
            for column tiles, row tiles:
                for the rows of the band:
                    unrolled rows, columns: sums += broadcast(a) * vector(b)     registers
"""

from __future__ import annotations

from weft.cost import caches
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.common.access import View, static_extent
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.common.menus import near
from weft.schedule.rules.common.work import work_of
from weft.schedule.rules.cpu.chosen_tiles import draw_tile
from weft.schedule.rules.cpu.contraction import MIN_SCATTERED_PANEL_ROWS
from weft.schedule.rules.cpu.pairs import group_of
from weft.schedule.rules.cpu.roles import Roles, analyze, operands_of

BAND_STEPS = 32
"""Rows of the matrix that are read at a time: as many as the hardware's prefetcher follows, and enough that moving the
sums takes little of the time."""
MIN_ROWS = 5
"""Fewest rows for which arithmetic, not reading the matrix, takes most of the time."""


def schedule_streamed(context: Context, block: BlockRef) -> bool:
    """Schedule the products ``block``; False if they have another form, or if tiles that stay in registers are as
    fast. What reads the sums is scheduled for itself."""
    view = context.view(block)
    lanes = context.lanes(view)
    roles = analyze(view, lanes) if lanes > 1 else None
    if roles is None or not _suits(context, view, roles, lanes):
        return False
    assert roles.rows is not None
    s, own = context.schedule, context.own_loops(block)
    tile = draw_tile(context, view, roles, lanes)
    panel, column, lane = s.split(own[roles.vector], factors=(None, tile.columns, lanes))
    part, panel = _parts(context, panel)
    band, step = s.split(own[view.reduce[0]], factors=(None, context.choose(near(BAND_STEPS), BAND_STEPS)))
    tiles, row = s.split(own[roles.rows], factors=(None, tile.rows))
    batch = [loop for axis, loop in own.items() if axis not in (roles.vector, roles.rows, *view.reduce)]
    s.reorder(*batch, part, band, panel, tiles, step, row, column, lane)
    strip = context.fuse([*batch, part])
    context.parallelize(strip, work_of(view))
    s.prefetch(panel, operands_of(view, roles)[1].buffer.name, 1, within=step)  # a row's next part, before it is read
    init = s.decompose_reduction(block, band)
    for of in (init, block):
        s.unroll(s.get_loop(of, -3))
        s.unroll(s.get_loop(of, -2))
        s.vectorize(s.get_loop(of, -1))
        context.done.add(of.name)
    context.separate.update(p.name for p in (block, *s.get_producers(block)))
    return True


def _suits(context: Context, view: View, roles: Roles, lanes: int) -> bool:
    """Whether few rows are multiplied with a matrix whose rows are scattered, and the sums stay in the cache."""
    if context.nested or not view.is_simple or not roles.broadcasts or roles.columns is not roles.vector:
        return False
    if len(view.reduce) != 1 or roles.row_group or group_of(view) is not None or roles.rows is None:
        return False
    _, matrix = operands_of(view, roles)
    rows, columns, depth = (static_extent(a) for a in (roles.rows, roles.vector, view.reduce[0]))
    stride, cpu, nbytes = view.stride(matrix, view.reduce[0]), context.target.cpu, matrix.buffer.dtype.nbytes
    if rows is None or columns is None or depth is None or stride is None or stride < columns:
        return False
    if view.stride(matrix, roles.vector, lanes) != 1 or matrix.buffer not in context.schedule.program.params:
        return False
    few = MIN_ROWS <= rows < MIN_SCATTERED_PANEL_ROWS and columns * nbytes >= caches.PAGE_BYTES // 4
    kept = caches.stays_in_l2(2 * rows * columns * view.output.buffer.dtype.nbytes, cpu.l2)
    return few and kept and caches.is_scattered(depth, stride * nbytes)


def _parts(context: Context, panels: LoopRef) -> tuple[LoopRef, LoopRef]:
    """Split the loop over panels into one part for each core."""
    extent, cores = context.extent(panels) or 1, context.target.cpu.cores
    each = context.choose(near(-(-extent // cores), extent), -(-extent // cores))
    part, panel = context.schedule.split(panels, factors=(None, each))
    return part, panel
