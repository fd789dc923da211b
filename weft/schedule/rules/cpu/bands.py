"""Filtered windows (transform, many products, transform back), computed in bands that stay in the cache.

The two transforms choose by index (:mod:`weft.schedule.rules.cpu.cases`). What they exchange with the products is
larger than the picture. If it does not stay in the second-level cache, moving it takes longer than computing it. A band
is some rows of patches: it is transformed, multiplied and transformed back before the next band starts, and each thread
stores only one band.

    parallel (image, bands):
        padding, transform of this band
        tiles of the products
        output[band] = transform back
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from weft.cost.winograd import band_rows
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Const, Expr
from weft.expr.visit import collect
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.common.access import View, static_extent
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.common.menus import divisors
from weft.schedule.rules.common.work import work_of
from weft.schedule.rules.cpu.cases import case_axes, schedule_cases
from weft.schedule.rules.cpu.chosen_tiles import draw_tile
from weft.schedule.rules.cpu.contraction import Tiling
from weft.schedule.rules.cpu.roles import Roles, analyze, operands_of
from weft.tir.nodes import Buffer


@dataclass(frozen=True, slots=True)
class _Window:
    """``stages`` lead to the products (padding first, the transform last), ``back`` combines them. ``axis`` of ``back``
    runs along the lines of the picture, ``period`` lines for each row of patches. Each of ``images`` pictures (None if
    not known) has ``rows`` rows of ``patches``, and one row takes ``row_bytes`` before and after the products."""

    stages: tuple[BlockRef, ...]
    back: BlockRef
    axis: IterVar
    period: int
    rows: int
    patches: int
    images: int | None
    row_bytes: int


def schedule_bands(context: Context, block: BlockRef) -> bool:
    """Schedule the products ``block`` and the transforms around it; False if they are not such a window, or if bands
    are not faster."""
    view = context.view(block)
    lanes = context.lanes(view)
    roles = analyze(view, lanes) if lanes > 1 else None
    if roles is None or roles.rows is None or not roles.broadcasts:
        return False
    window = _window_of(context, block, view, roles)
    if window is None:
        return False
    weights, cpu = operands_of(view, roles)[1].buffer, context.target.cpu
    high = band_rows(window.rows, window.images, window.row_bytes, _bytes_of(weights.shape, weights), cpu.l2, cpu.cores)
    if high is None:
        return False
    work = sum(work_of(context.view(b)) for b in (*window.stages, block, window.back))
    high = context.choose(divisors(window.rows, window.rows), high)
    around = _place_back(context, window, high, work)
    context.nested = True
    output = context.schedule.cache_write(block, 0, "register")
    context.schedule.compute_at(output, around)
    # A tile across the band's edge would need the input of the next rows too. Small tiles, as for 37 patches, are still
    # faster than stages in memory.
    roles = replace(roles, row_group=high * window.patches)
    tile = draw_tile(context, view, roles, lanes)
    Tiling(context, block, output, context.view(block), roles, tile, lanes).run()
    for stage in reversed(window.stages):
        context.schedule.compute_at(stage, around)
        if not schedule_cases(context, stage):
            context.finish_stage(stage)
    return True


def _window_of(context: Context, block: BlockRef, view: View, roles: Roles) -> _Window | None:
    """The window whose products are ``block``; None if the blocks around it have another form."""
    s = context.schedule
    readers, rows = s.get_consumers(block), operands_of(view, roles)[0].buffer
    makers = [b for b in s.get_producers(block) if context.view(b).output.buffer is rows]
    if len(readers) != 1 or len(makers) != 1 or context.is_output(block):
        return None
    stages = _chain(context, makers[0])
    back = context.view(readers[0])
    if not stages or not case_axes(context.view(makers[0])) or not context.is_injective(readers[0]):
        return None
    tiled = case_axes(back)
    sizes = {a: -(-n // p) for a, p in tiled.items() if (n := static_extent(a)) is not None}
    if not tiled or len(sizes) != len(tiled) or not all(_divided(back, view.output.buffer, *x) for x in tiled.items()):
        return None
    axis, *others = (a for a in back.spatial if a in tiled)
    position = sum(_position_bytes(view, buffer, roles.rows) for buffer in (rows, view.output.buffer))
    images = 1 if back.spatial[0] in tiled else static_extent(back.spatial[0])
    patches = prod(sizes[a] for a in others)
    window = _Window(stages, readers[0], axis, tiled[axis], sizes[axis], patches, images, position * patches)
    return window if position else None


def _chain(context: Context, last: BlockRef) -> tuple[BlockRef, ...]:
    """``last`` and the injective blocks whose results only the next one reads, in program order; empty if ``last`` is
    not injective."""
    s, found = context.schedule, [last]
    if not context.is_injective(last):
        return ()
    while True:
        makers = [b for b in s.get_producers(found[0]) if b.name not in context.done]
        if len(makers) != 1 or len(s.get_consumers(makers[0])) > 1 or not context.is_injective(makers[0]):
            return tuple(found)
        if context.is_output(makers[0]):
            return tuple(found)
        found.insert(0, makers[0])


def _divided(view: View, buffer: Buffer, axis: IterVar, period: int) -> bool:
    """Whether ``view`` reads ``buffer`` at the patch that the position on ``axis`` belongs to."""
    read = [i for access in view.loads if access.buffer is buffer for i in access.indices]
    return any(
        e.op == "floordiv" and e.a is axis.var and isinstance(e.b, Const) and e.b.value == period
        for e in collect(read, Binary)
    )


def _position_bytes(view: View, buffer: Buffer, rows: IterVar | None) -> int:
    """Bytes of ``buffer`` for one of the patches, which are the ``rows`` of the products; 0 if they are not known."""
    access = next(a for a in (*view.loads, view.output) if a.buffer is buffer)
    kept = [n for n, index in zip(buffer.shape, access.indices, strict=True) if rows is None or index is not rows.var]
    return _bytes_of(kept, buffer) if len(kept) == len(buffer.shape) - 1 else 0


def _bytes_of(shape: Sequence[Expr], buffer: Buffer) -> int:
    """Bytes of a part of ``buffer``; 0 if its size is not known."""
    sizes = [int(n.value) for n in shape if isinstance(n, Const)]
    return prod(sizes) * buffer.dtype.nbytes if len(sizes) == len(shape) else 0


def _place_back(context: Context, window: _Window, high: int, work: float) -> LoopRef:
    """Cut ``back`` into bands of ``high`` rows of patches and unroll its patches; returns the loop over bands."""
    s, back = context.schedule, window.back
    view = context.view(back)
    periods, loops = case_axes(view), context.own_loops(back)
    bands, inside = s.split(loops[window.axis], factors=(None, high * window.period))
    images: list[LoopRef] = []
    others: list[LoopRef] = []
    patch: list[LoopRef] = []
    vector = view.spatial[-1]
    for axis, loop in loops.items():
        if axis is vector:
            continue
        outer = inside if axis is window.axis else loop
        if axis in periods:
            outer, low = s.split(outer, factors=(None, periods[axis]))
            patch.append(low)
        (images if axis is view.spatial[0] and axis not in periods else others).append(outer)
    s.reorder(*images, bands, *others, *patch, loops[vector])
    around = context.fuse([*images, bands])
    context.parallelize(around, work)
    for loop in patch:
        s.unroll(loop)
    context.vectorize(loops[vector], context.lanes(view))
    context.done.add(back.name)
    return around
