"""Matrix products with a tile of results in registers; operands are packed in the order in which they are read."""

from __future__ import annotations

from dataclasses import dataclass

from weft.expr.nodes import Expr
from weft.schedule.index_map import IndexMap
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Tile:
    """``rows`` scalars by ``columns`` vectors of ``lanes`` results; 6 × 4 and 8 × 3 suit 32 registers of 512 bits."""

    rows: int = 8
    columns: int = 3
    lanes: int = 16

    @property
    def width(self) -> int:
        return self.columns * self.lanes


def blocked_product(s: Schedule, block: BlockRef | str, tile: Tile = Tile(), pack: int | None = 1) -> BlockRef:
    """Schedule ``C[i, j] = sum over k of A[i, k] * B[k, j]`` so that the tile stays in registers over all k.

    ``pack`` is the number of the read region of B, which is copied into panels ``[j // width, k, j % width]``; None
    does not copy it. Returns the block that copies a tile from registers to the result. The loop over panels,
    ``s.get_loops(result)[0]``, may be parallel.
    """
    computing = BlockRef(block) if isinstance(block, str) else block
    if pack is not None:
        _pack(s, computing, pack, tile.width)
    result = s.cache_write(computing, 0, "register")
    i, j = s.get_loops(result)
    panel, j_tile, lane = s.split(j, factors=(None, tile.columns, tile.lanes))
    block_of_rows, row = s.split(i, factor=tile.rows)
    s.reorder(panel, block_of_rows, row, j_tile, lane)
    s.compute_at(computing, block_of_rows)
    unroll_tile(s, (row, j_tile, lane))
    row, column, *reduce = s.get_loops(computing)[2:]
    column, lane = s.split(column, factor=tile.lanes)
    s.reorder(*reduce, row, column, lane)
    init = s.decompose_reduction(computing, reduce[0])
    unroll_tile(s, (row, column, lane))
    unroll_tile(s, s.get_loops(init)[-3:])
    return result


def unroll_tile(s: Schedule, loops: tuple[LoopRef, ...]) -> None:
    """Vectorize the last of ``loops`` and unroll the others."""
    for loop in loops[:-1]:
        s.unroll(loop)
    s.vectorize(loops[-1])


def _pack(s: Schedule, block: BlockRef, read: int, width: int) -> BlockRef:
    """Copy a matrix ``[k, j]`` into panels; elements after its last column are zeros."""
    copy = s.cache_read(block, read, "global")
    packed = s.state.block(copy).writes[0].buffer.name

    def panels(k: Expr, j: Expr, width: Expr) -> tuple[Expr, ...]:
        return j // width, k, j % width

    s.transform_layout(copy, packed, IndexMap.of(panels, width=width), pad=0.0)
    s.vectorize(s.get_loops(copy)[-1])
    return copy
