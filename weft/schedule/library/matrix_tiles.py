"""Matrix products with instructions on matrix tiles (``TILE_U8S8``, ``TILE_BF16``); the sums are in tile registers."""

from __future__ import annotations

from weft.expr.nodes import Expr
from weft.schedule.index_map import IndexMap
from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.refs import BlockRef
from weft.schedule.schedule import Schedule


def tiled_product(
    s: Schedule, block: BlockRef | str, tile: TensorIntrinsic, rows: int = 2, columns: int = 2, pack: int | None = 1
) -> BlockRef:
    """Schedule ``C[i, j] = sum over k, e of A[i, k, e] * B[k, j, e]`` with matrix tiles.

    ``rows`` by ``columns`` tiles of sums stay in registers over all k. With 2 × 2 tiles, four operands are read for
    four products, and four of the eight registers remain for the operands. ``pack`` is the number of the read region of
    B, which is copied into panels, so that the rows of a tile are contiguous; None does not copy it. Extents must be
    multiples of the tiles (16 × rows, 16 × columns, 16 groups of depth). Returns the block that copies sums to the
    result; its outermost loop may be parallel.
    """
    computing = BlockRef(block) if isinstance(block, str) else block
    width = 16 * columns
    if pack is not None:
        copy = s.cache_read(computing, pack, "global")

        def panels(k: Expr, j: Expr, e: Expr, width: Expr) -> tuple[Expr, ...]:
            return j // width, k, j % width, e

        packed = s.state.block(copy).writes[0].buffer.name
        s.transform_layout(copy, packed, IndexMap.of(panels, width=width))
    result = s.cache_write(computing, 0, "register")
    i, j = s.get_loops(result)
    panel, strip_j = s.split(j, factor=width)
    strip, strip_i = s.split(i, factor=16 * rows)
    s.reorder(panel, strip, strip_i, strip_j)
    s.compute_at(computing, strip)
    *_, lane = s.split(strip_j, factor=16)
    s.vectorize(lane)
    i, j, k, e = s.get_loops(computing)[2:]
    i_o, i_i = s.split(i, factor=16)
    j_o, j_i = s.split(j, factor=16)
    k_o, k_i = s.split(k, factor=16)
    s.reorder(k_o, i_o, j_o, i_i, j_i, k_i, e)
    init = s.decompose_reduction(computing, k_o)
    s.vectorize(s.get_loops(init)[-1])
    s.unroll(i_o)
    s.unroll(j_o)
    s.tensorize(i_i, tile)
    return result
