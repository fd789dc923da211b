"""Windowed sums over blocked channels: direct convolution in register tiles, and channelwise windows.

Operands have blocked layouts: data ``[n, c, h, w, lanes]``, results ``[n, k, h, w, lanes]``. The innermost axis is one
vector; y, x and lane are longer than 1. The schedules accept every window, stride and dilation: these are in the
indices, which do not change.
"""

from __future__ import annotations

from weft.schedule.library.products import unroll_tile
from weft.schedule.library.rows import reduces
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.schedule import Schedule


def direct_window(s: Schedule, block: BlockRef | str, pixels: int = 7, channels: int = 4) -> LoopRef:
    """Schedule ``block[n, k, y, x, lane] = sum of data × weights`` with a tile of results in registers.

    The tile has ``channels`` blocks of output channels by ``pixels`` adjacent pixels along x. Each weight vector is
    used for all pixels, each data element for all channels. Producers of the data (padding) are computed row by row.
    Returns the outermost loop of the result, which may be parallel.
    """
    computing = BlockRef(block) if isinstance(block, str) else block
    stages = s.get_producers(computing)
    result = s.cache_write(computing, 0, "register")
    batch, (y, x, lane) = s.get_loops(result)[:-3], s.get_loops(result)[-3:]
    tile: tuple[LoopRef, ...] = ()
    if batch and channels > 1:
        outer, inner = s.split(batch[-1], factor=channels)
        batch, tile = (*batch[:-1], outer), (inner,)
    x_outer, x_tile = s.split(x, factor=pixels)
    tile = (*tile, x_tile, lane)
    s.reorder(*batch, y, x_outer, *tile)
    s.compute_at(computing, x_outer)
    unroll_tile(s, tile)
    accumulate(s, computing, x_outer)
    for stage in stages:
        s.compute_at(stage, y)
        s.vectorize(s.get_loops(stage)[-1])
    return s.fuse(*batch) if batch else y


def channelwise_window(s: Schedule, block: BlockRef | str, pixels: int = 6) -> LoopRef:
    """Schedule ``block[n, c, y, x, lane]``, a windowed sum within each channel.

    ``pixels`` results along x stay in registers. Returns the outermost loop of the result, which may be parallel.
    """
    computing = BlockRef(block) if isinstance(block, str) else block
    stages = s.get_producers(computing)
    result = s.cache_write(computing, 0, "register")
    batch, (y, x, lane) = s.get_loops(result)[:-3], s.get_loops(result)[-3:]
    x_outer, x_tile = s.split(x, factor=pixels)
    s.compute_at(computing, x_outer)
    unroll_tile(s, (x_tile, lane))
    accumulate(s, computing, x_outer)
    for stage in stages:
        s.compute_at(stage, y)
        s.vectorize(s.get_loops(stage)[-1])
    return s.fuse(*batch) if batch else y


def accumulate(s: Schedule, block: BlockRef, at: LoopRef) -> None:
    """Inside ``at``, make the reduction the outermost loop, around the unrolled tile of results."""
    loops = s.get_loops(block)
    own = loops[loops.index(at) + 1 :]
    over = [x for x in own if reduces(s, block, x)]
    tile = tuple(x for x in own if x not in over)
    s.reorder(*over, *tile)
    first = s.decompose_reduction(block, over[0])
    unroll_tile(s, tile)
    unroll_tile(s, s.get_loops(first)[-len(tile) :])
