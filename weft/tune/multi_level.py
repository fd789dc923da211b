"""Multi-level tiling of any reduction: a rule for searches.

The rules of the default schedule tile the axes that an analysis names. This one leaves it open which axes are tiled,
and how far, on two levels: a tile of sums in registers along all axes, and a block of such tiles that a core computes
before it goes on, so that what they read stays in a cache.

    parallel outer tiles of all spatial axes:
        tiles of a block, in any order:
            sums[register tile] = 0
            reduction axes, in any order:
                unrolled register tile: sums += …
            output[register tile] = what follows
"""

from __future__ import annotations

from typing import Final

from weft.expr.iter_var import IterVar
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.common.access import View, static_extent
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.common.menus import MAX_UNROLLED_STEPS, UNROLLED, near
from weft.schedule.rules.common.work import steps_of, work_of
from weft.schedule.rules.cpu.chosen_tiles import choose_tile
from weft.schedule.rules.cpu.epilogues import epilogue
from weft.schedule.rules.cpu.roles import analyze, size

MAX_BLOCK: Final = 8
"""Limit on the register tiles of a block along one axis."""
ROWS: Final = (1, 2, 3, 4, 6, 8, 12, 14)
"""Candidate extents of a register tile along an axis without vectors."""
COLUMNS: Final = (1, 2, 3, 4, 6)
"""Candidate numbers of vectors of a register tile."""


def schedule_multi_level(context: Context, block: BlockRef) -> bool:
    """Tile a reduction; False for other blocks, and where the result has no axis for vectors."""
    if not context.is_reduction(block) or not context.view(block).is_simple:
        return False
    view = context.view(block)
    lanes = context.lanes(view)
    vector = _vector_axis(view, lanes)
    if lanes < 2 or vector is None:
        return False
    producers = [p for p in context.schedule.get_producers(block) if p.name not in context.done]
    rows, columns = _defaults(context, view, lanes)
    output = epilogue(context, block)
    outer, blocks, tile = _split_output(context, view, output, vector, lanes, rows, columns)
    s = context.schedule
    outer, blocks = context.order(outer), context.order(blocks)
    s.reorder(*outer, *blocks, *tile)
    fused = context.fuse(outer)
    context.parallelize(fused, work_of(view))
    at = blocks[-1] if blocks else fused
    s.compute_at(block, at, preserve_unit_loops=True)  # a tile of one row has its loop, too
    for p in producers:
        context.place(p, at, [fused, *blocks])
        context.finish_stage(p)
    _finish_sums(context, block, vector, len(tile))
    for loop in tile[:-1]:
        s.unroll(loop)
    s.vectorize(tile[-1])
    context.done.update((block.name, output.name))
    return True


def _vector_axis(view: View, lanes: int) -> IterVar | None:
    """The axis along which the result is contiguous, if it has several elements."""
    fitting = [a for a in view.spatial if size(a) > 1 and view.stride(view.output, a, lanes) == 1]
    return fitting[-1] if fitting else None


def _defaults(context: Context, view: View, lanes: int) -> tuple[dict[IterVar, int], int]:
    """Extents of the register tile to start from, by axis, and its vectors: those of the default rules, if they have
    a tile for this reduction."""
    roles = analyze(view, lanes)
    if roles is None or roles.row_group:
        return {}, 1
    tile = choose_tile(view, roles, lanes, context.target)
    rows = {a: n for a, n in ((roles.rows, tile.rows), (roles.lines, tile.lines)) if a is not None}
    if roles.columns is not None and roles.columns is not roles.vector:
        rows[roles.columns] = tile.columns
    return rows, tile.columns if roles.columns is roles.vector else 1


def _split_output(
    context: Context,
    view: View,
    output: BlockRef,
    vector: IterVar,
    lanes: int,
    rows: dict[IterVar, int],
    columns: int,
) -> tuple[list[LoopRef], list[LoopRef], list[LoopRef]]:
    """The loops of the output by level: outer tiles, tiles of a block, and a register tile, whose last is a vector."""
    s = context.schedule
    outer: list[LoopRef] = []
    blocks: list[LoopRef] = []
    tile: list[LoopRef] = []
    last: list[LoopRef] = []
    own = context.own_loops(output)
    for axis, mine in zip(view.spatial, context.block(output).iters, strict=True):
        loop, extent = own.get(mine), static_extent(axis)
        if loop is None:
            continue  # has extent 1
        if axis is vector and extent is not None and extent <= lanes:
            last = [loop]
        elif axis is vector:
            most = None if extent is None else -(-extent // lanes)
            several = context.choose((n for n in COLUMNS if most is None or n <= most), columns)
            a, b, c, d = s.split(loop, factors=(None, context.choose(near(1, MAX_BLOCK), 1), several, lanes))
            outer, blocks, tile, last = [*outer, a], [*blocks, b], [*tile, c], [d]
        else:
            count = context.choose((n for n in ROWS if extent is None or n <= extent), rows.get(axis, 1))
            a, b, c = s.split(loop, factors=(None, context.choose(near(1, MAX_BLOCK), 1), count))
            outer, blocks, tile = [*outer, a], [*blocks, b], [*tile, c]
    if not outer:
        first, last[0] = s.split(last[0], factors=(1, None))
        outer.append(first)
    return outer, blocks, [*tile, *last]


def _finish_sums(context: Context, block: BlockRef, vector: IterVar, depth: int) -> None:
    """Order the loops of the sums: the reduction outside, the register tile unrolled inside."""
    s, view = context.schedule, context.view(block)
    own = context.own_loops(block)
    lane = own.pop(_same(view, vector, own))
    reduce = [own.pop(a) for a in view.reduce if a in own]
    lanes, inner = context.lanes(view), list(own.values())
    extent = context.extent(lane)
    if extent is None or extent > lanes:
        column, lane = s.split(lane, factors=(None, lanes))
        inner.append(column)
    reduce = context.order(reduce)
    s.reorder(*reduce, *inner, lane)
    if reduce:
        init = s.decompose_reduction(block, reduce[0])
        context.done.add(init.name)
        loops = [s.get_loop(init, n - len(inner) - 1) for n in range(len(inner) + 1)]
        for loop in loops[:-1]:
            s.unroll(loop)
        s.vectorize(loops[-1])
    for loop in inner:
        s.unroll(loop)
    short = steps_of(view) <= MAX_UNROLLED_STEPS
    for loop in reduce:
        s.unroll(loop, context.choose(UNROLLED, UNROLLED[-1] if short else 0))
    s.vectorize(lane)


def _same(view: View, axis: IterVar, own: dict[IterVar, LoopRef]) -> IterVar:
    """The axis of a block whose view is new, by the name of its variable."""
    return next(a for a in own if a.var.name == axis.var.name)
