"""Contractions of bfloat16 by matrix tiles: 16 × 16 sums over 32 numbers of depth in one instruction (AMX).

The operands are those of :mod:`weft.schedule.rules.pairs`: the vector operand, packed ``[…, reduction // 2, 16, 2]``,
lies as the unit wants it, and the rows of the other one may be any distance apart. The sums stay in tile registers over
the whole reduction, are stored once, and what follows element by element reads them in the first-level cache.
"""

from __future__ import annotations

from weft.expr.nodes import IterVar
from weft.expr.visit import free_vars
from weft.schedule.library.dot_halves import PAIR
from weft.schedule.library.matrix_tiles import tile_of_rows
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.access import Access, View, static_extent
from weft.schedule.rules.context import Context
from weft.schedule.rules.contraction import Roles, Tiling, analyze, epilogue, paired
from weft.schedule.rules.pairs import suits_pairs
from weft.schedule.rules.tiles import RegisterTile

SIDE = 16
"""Rows and columns of a tile, and pairs of its depth."""
_SHAPES = ((2, 2), (1, 4), (4, 1), (1, 3), (3, 1), (1, 2), (2, 1), (1, 1))
"""Tiles of sums that fit eight registers together with their operands; those that read least for a product first."""


def schedule_matrix(context: Context, block: BlockRef) -> bool:
    """Schedule ``block`` and what it feeds element by element by matrix tiles; False where the target has no matrix
    unit or the block does not consist of whole tiles."""
    view = context.view(block)
    lanes = context.lanes(view)
    if not context.target.has("amx-tile", "amx-bf16") or lanes != SIDE or not suits_pairs(view):
        return False
    view, pair, roles = paired(context, block, view, analyze(view, lanes), lanes)
    if pair is None or roles is None:
        return False
    tile = matrix_tile(view, roles, pair)
    if tile is None:
        return False
    output = epilogue(context, block)
    MatrixTiling(context, block, output, context.view(block), roles, tile, lanes, pair).run()
    return True


def matrix_tile(view: View, roles: Roles, pair: IterVar) -> RegisterTile | None:
    """The rows and vectors of sums to be kept in tile registers; None where the block does not consist of whole
    tiles."""
    if roles.rows is None or roles.row_group:
        return None
    rows, columns = static_extent(roles.rows), static_extent(roles.vector)
    if rows is None or columns is None or rows % SIDE or columns % SIDE or depth_axis(view, roles, pair) is None:
        return None
    scalar, _ = operands_of(view, roles)
    if view.stride(scalar, roles.rows, SIDE) is None or _between(scalar, roles.rows) is None:
        return None
    if _between(view.output, roles.rows) is None:
        return None
    wide = columns // SIDE if roles.columns is roles.vector else 1
    r, c = next((r, c) for r, c in _SHAPES if rows // SIDE % r == 0 and wide % c == 0)
    return RegisterTile(r * SIDE, c)


def operands_of(view: View, roles: Roles) -> tuple[Access, Access]:
    """The operand that is read by rows, and the packed one."""
    assert view.product is not None
    first, second = view.product
    return (second, first) if first.uses(roles.vector.var) else (first, second)


def depth_axis(view: View, roles: Roles, pair: IterVar) -> IterVar | None:
    """The reduction axis that becomes a tile's depth: of pairs, or of numbers where ``pair`` itself is long."""
    extent = static_extent(pair)
    if extent is None or extent % PAIR:
        return None
    scalar, packed = operands_of(view, roles)
    if extent > PAIR:
        whole = extent % (PAIR * SIDE) == 0 and view.stride(scalar, pair, PAIR * SIDE) == 1
        return pair if whole else None
    for axis in view.reduce:
        pairs = static_extent(axis)
        if axis is not pair and pairs is not None and pairs % SIDE == 0:
            strides = view.stride(scalar, axis, SIDE), view.stride(packed, axis, SIDE)
            if strides == (PAIR, PAIR * SIDE):
                return axis
    return None


def _between(access: Access, rows: IterVar) -> int | None:
    """How many dimensions stand between that of the rows and the last; None where not one dimension is the rows'."""
    found = [d for d, i in enumerate(access.indices) if rows.var in free_vars(i)]
    last = len(access.indices) - 1
    return last - found[0] - 1 if len(found) == 1 and found[0] < last else None


class MatrixTiling(Tiling):
    """The placing of a contraction by matrix tiles."""

    def _stages(self) -> list[BlockRef]:
        """None: products are so fast that to compute an operand once for each strip would be most of the work."""
        context = self.context
        producers = context.schedule.get_producers(self.block)
        context.separate.update(p.name for p in producers if p.name not in context.done)
        return []

    def finish(self, tile: list[LoopRef]) -> None:
        """The rows of the result stay a loop: there are many, and all sums are in memory."""
        s = self.context.schedule
        self._inner()
        s.vectorize(tile[-1])
        self.context.done.update((self.block.name, self.output.name))

    def _inner(self) -> None:
        s, roles, view = self.context.schedule, self.roles, self.view
        assert self.pair is not None and roles.rows is not None
        own = self.context.own_loops(self.block)
        axis = depth_axis(view, roles, self.pair)
        assert axis is not None
        if axis is self.pair:
            steps, depth, pair = s.split(own[axis], factors=(None, SIDE, PAIR))
        else:
            steps, depth = s.split(own[axis], factors=(None, SIDE))
            pair = own[self.pair]
        row_tiles, row = s.split(own[roles.rows], factors=(None, SIDE))
        column_tiles, column = s.split(own[roles.vector], factors=(None, SIDE))
        tiled = (axis, self.pair, roles.rows, roles.vector)
        rest = sorted((x for x in own if x not in tiled), key=view.reduce.__contains__)
        reduce = [*(own[x] for x in rest if x in view.reduce), steps]
        above = [own[x] for x in rest if x not in view.reduce]
        s.reorder(*above, *reduce, row_tiles, column_tiles, row, column, depth, pair)
        init = s.decompose_reduction(self.block, reduce[0])
        self.context.done.add(init.name)
        s.vectorize(s.get_loops(init)[-1])
        s.unroll(row_tiles)
        s.unroll(column_tiles)
        scalar, _ = operands_of(view, roles)
        a, c = _between(scalar, roles.rows), _between(view.output, roles.rows)
        assert a is not None and c is not None and view.product is not None
        made = s.tensorize(row, tile_of_rows(a, c, view.product[0] is not scalar))
        self.context.done.add(made.name)  # a block of its own, of which no other rule knows better
