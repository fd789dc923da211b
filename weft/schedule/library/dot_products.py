"""Products of byte matrices with an instruction that accumulates four products at a time (``DOT_U8S8``).

Operands: ``A`` of uint8 in rows, ``B`` of int8 packed as ``[columns // 16, depth // 4, 16, 4]``.
"""

from __future__ import annotations

from weft.schedule.intrinsics.dot_products import DEPTH, DOT_U8S8, LANES
from weft.schedule.library.products import unroll_tile
from weft.schedule.refs import BlockRef
from weft.schedule.schedule import Schedule


def bytes_tile(s: Schedule, block: BlockRef | str, rows: int = 8, columns: int = 2) -> BlockRef:
    """Schedule ``C[i, j] = sum over k of A[i, k] * B[j // 16, k // 4, j % 16, k % 4]`` of bytes with the instruction.

    A tile of ``rows`` scalars by ``columns`` vectors of sums stays in registers over all k. Returns the block that
    copies the tile to the result; its outermost loop may be parallel.
    """
    computing = BlockRef(block) if isinstance(block, str) else block
    result = s.cache_write(computing, 0, "register")
    i, j = s.get_loops(result)
    panel, column, lane = s.split(j, factors=(None, columns, LANES))
    strip, row = s.split(i, factor=rows)
    s.reorder(panel, strip, row, column, lane)
    s.compute_at(computing, strip)
    unroll_tile(s, (row, column, lane))
    row, column, depth = s.get_loops(computing)[2:]
    column, lane = s.split(column, factor=LANES)
    depth, byte = s.split(depth, factor=DEPTH)
    s.reorder(depth, row, column, lane, byte)
    init = s.decompose_reduction(computing, depth)
    unroll_tile(s, s.get_loops(init)[-3:])
    s.unroll(row)
    s.unroll(column)
    s.tensorize(lane, DOT_U8S8)
    return result
