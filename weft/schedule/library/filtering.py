"""Windows of stride 1 by minimal filtering: transform, multiply element by element, transform back.

The program has three stages over blocked channels; Winograd's F(m×m, 3×3) is an example. The stage ``moved`` transforms
the data to ``[a, b, c, p, lane]``: element (a, b) of the transformed patch p. The second stage sums products with the
transformed weights to ``products[a, b, k, p, lane]``. The third stage combines them to results ``[n, k, y, x, lane]``,
``tile`` × ``tile`` for each patch.
"""

from __future__ import annotations

from weft.schedule.library.products import unroll_tile
from weft.schedule.library.windows import accumulate
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.schedule import Schedule


def filtered_window(
    s: Schedule, products: BlockRef | str, tile: int = 4, pixels: int = 14, channels: int = 2
) -> tuple[LoopRef, LoopRef, LoopRef]:
    """Schedule the three stages; ``products`` is the block that sums.

    The transform reads a patch once for all its (a, b). They are unrolled, so that common terms of their sums are
    computed once. The sums are one matrix product for each (a, b), with a register tile of ``channels`` blocks of
    output channels by ``pixels`` patches. Stages before the transform (padding) are not scheduled. Returns the
    outermost loops of the transform, of the sums and of the combination; each may be parallel.
    """
    summing = BlockRef(products) if isinstance(products, str) else products
    (moved,) = (b for b in s.get_producers(summing))
    (result,) = s.get_consumers(summing)
    over = _products(s, summing, pixels, channels)
    n, k, y, x, lane = s.get_loops(result)
    y_outer, y_tile = s.split(y, factor=tile)
    x_outer, x_tile = s.split(x, factor=tile)
    s.reorder(n, k, y_outer, x_outer, y_tile, x_tile, lane)
    unroll_tile(s, (y_tile, x_tile, lane))
    back = s.fuse(n, k, y_outer, x_outer)
    a, b, c, p, lane = s.get_loops(moved)
    s.reorder(c, p, a, b, lane)
    unroll_tile(s, (a, b, lane))
    return s.fuse(c, p), over, back


def _products(s: Schedule, summing: BlockRef, pixels: int, channels: int) -> LoopRef:
    written = s.cache_write(summing, 0, "register")
    a, b, k, p, lane = s.get_loops(written)
    k_outer, k_tile = s.split(k, factor=channels)
    p_outer, p_tile = s.split(p, factor=pixels)
    s.reorder(a, b, k_outer, p_outer, k_tile, p_tile, lane)
    outer = s.fuse(a, b, k_outer, p_outer)
    s.compute_at(summing, outer)
    unroll_tile(s, (k_tile, p_tile, lane))
    accumulate(s, summing, outer)
    return outer
