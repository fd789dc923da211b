"""Contractions of bfloat16 or of bytes with matrix tiles: one instruction (AMX) computes up to 16 × 16 sums over 64
bytes of depth.

The operands are those of :mod:`weft.schedule.rules.cpu.pairs`. The vector operand is packed as
``[…, depth // group, lanes, group]``, which is the layout that the matrix unit needs. A group is a pair of bfloat16 or
four bytes. The rows of the other operand may have any constant distance: they may be the rows of a matrix, or the
pixels of an image line whose channels are contiguous, with stride one or two. The sums stay in tile registers during
the whole reduction and are stored once. The element-wise work that follows reads them from the first-level cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.cost import REFERENCE, Rates
from weft.cost.matrix_tiles import tile_row_cycles, vector_row_cycles
from weft.expr.affine import divisor, linear_form
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const
from weft.expr.simplify import simplify
from weft.expr.visit import occurs
from weft.schedule.intrinsics.matrix_tiles import TileOfRows, tile_of_rows
from weft.schedule.numbers import maximum, minimum
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.common.access import Access, View, static_extent
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.common.menus import divisors
from weft.schedule.rules.cpu.contraction import Tiling, paired
from weft.schedule.rules.cpu.epilogues import epilogue
from weft.schedule.rules.cpu.packing import packable
from weft.schedule.rules.cpu.pairs import ProductGroup, group_of
from weft.schedule.rules.cpu.roles import Roles, analyze, operands_of
from weft.schedule.rules.cpu.tiles import RegisterTile

SIDE = 16
"""Columns of a tile, limit on its rows, and groups of its depth."""
MIN_PADDED_ROWS = 17
"""Fewest rows that are rounded up to whole tiles."""
MIN_WHOLE_HEIGHT = 8
"""Fewest rows of equally high tiles that are better than tiles of 16 rows, the last of which is only filled in part."""
MIN_PADDED_COLUMNS = 64
"""Fewest columns of results for which copying the rows takes little of the time."""
MAX_SUM_TILES = 4
"""Limit on the tiles of sums: together with the operands of two products they use all eight tile registers."""


@dataclass(frozen=True, slots=True)
class Shape:
    """``down`` × ``across`` tiles of ``height`` rows each, for each of ``lines`` positions along a further axis."""

    height: int
    down: int
    across: int
    lines: int = 1

    @property
    def loads(self) -> float:
        """Tile rows loaded per row of a product."""
        rows = self.down * self.lines * self.height
        return (rows + self.across * SIDE) / (rows * self.across)

    def cycles(self, steps: int, rates: Rates) -> float:
        """Cycles for one row of a tile and ``steps`` steps of depth."""
        return tile_row_cycles(rates, steps, self.loads, self.height)


def schedule_matrix(context: Context, block: BlockRef) -> bool:
    """Schedule ``block`` and its element-wise consumers with matrix tiles. False if the target has no matrix unit, the
    block does not consist of whole tiles, or vectors would be as fast."""
    view = context.view(block)
    lanes = context.lanes(view)
    group = group_of(view)
    if group is None or context.target.tile_unit(group.left) is None or lanes != SIDE:
        return False
    view, pair, roles = paired(context, block, view, analyze(view, lanes), lanes)
    if pair is None or roles is None:
        return False
    rates = context.target.cpu.rates
    shape = matrix_shape(view, roles, pair, rates)
    low = shape is None or shape.height < MIN_WHOLE_HEIGHT
    if low and _pad(context, block, view, roles):
        view, pair, roles = paired(context, block, context.view(block), analyze(context.view(block), lanes), lanes)
        if pair is None or roles is None:
            return False
        shape = matrix_shape(view, roles, pair, rates)
    if shape is None:
        return False
    output = epilogue(context, block)
    tile = _drawn_tile(context, shape, roles)
    MatrixTiling(context, block, output, context.view(block), roles, tile, lanes, pair, height=shape.height).run()
    return True


def _pad(context: Context, block: BlockRef, view: View, roles: Roles) -> bool:
    """Round up rows and columns that do not consist of whole tiles. If rows are added, the operand is copied, its last
    rows zeros; panels of columns are whole. What reads the result leaves out what is beyond the end. False if nothing
    is added, or a copy is not worth it."""
    if roles.rows is None or roles.row_group or context.nested or len(view.stores) != 1:
        return False
    rows, columns = static_extent(roles.rows), static_extent(roles.vector)
    if (rows is not None and rows < MIN_PADDED_ROWS) or columns is None or columns < MIN_PADDED_COLUMNS:
        return False
    (scalar, vectors), s = operands_of(view, roles), context.schedule
    if not all(_is_whole(x, roles.rows) for x in (scalar, view.output)) or not _is_whole(view.output, roles.vector):
        return False
    panels = [n for n, i in zip(vectors.buffer.shape, vectors.indices, strict=True) if i == roles.vector.var // SIDE]
    if len(context.own_loops(block)) != len(view.block.iters) or (
        columns % SIDE and panels != [Const(-(-columns // SIDE))]
    ):
        return False
    uneven = (roles.rows, roles.vector) if rows is None or rows % SIDE else (roles.vector,)
    if rows is not None and any(rows % h == 0 for h in range(MIN_WHOLE_HEIGHT, SIDE)):
        uneven = (roles.vector,)
    if uneven == (roles.vector,) and columns % SIDE == 0:
        return False
    *pads, crop = s.pad_einsum(block, tuple(SIDE if axis in uneven else 1 for axis in view.block.iters))
    context.separate.update(p.name for p in pads)
    if not context.is_output(crop):
        s.compute_inline(crop)
    return True


def _is_whole(access: Access, axis: IterVar) -> bool:
    """Whether ``axis`` alone indexes one dimension, from its start to its end."""
    sizes = [n for n, i in zip(access.buffer.shape, access.indices, strict=True) if i is axis.var]
    return packable(access, axis) and simplify(sizes[0] - axis.extent) == Const(0)


def _drawn_tile(context: Context, shape: Shape, roles: Roles) -> RegisterTile:
    """The rows, columns and lines of ``shape``, recorded as draws that never need more registers than there are for
    sums."""
    across, down = shape.across, shape.down
    if across > 1:
        assert roles.vector is not None
        wide = (static_extent(roles.vector) or SIDE) // SIDE if roles.columns is roles.vector else 1
        across = context.choose(divisors(wide, MAX_SUM_TILES), across)
    if down > 1:
        high = (static_extent(roles.rows) or shape.height) // shape.height if roles.rows is not None else 1
        most = maximum(1, MAX_SUM_TILES // (across * shape.lines))
        down = minimum(context.choose(divisors(high, MAX_SUM_TILES), down), most)
    return RegisterTile(down * shape.height, across, shape.lines)


def matrix_shape(view: View, roles: Roles, pair: IterVar, rates: Rates = REFERENCE) -> Shape | None:
    """The tiles of sums to keep in registers; None if the block does not consist of whole tiles, or most of each tile
    would be empty."""
    if roles.rows is None or roles.row_group:
        return None
    columns = static_extent(roles.vector)
    rows = static_extent(roles.rows)
    if rows is None and (divisor(roles.rows.extent) % SIDE) == 0:
        rows = SIDE  # as many tiles as there are, one below the other
    if rows is None or columns is None or columns % SIDE or depth_axis(view, roles, pair) is None:
        return None
    if tile_form(view, roles, SIDE) is None:
        return None
    wide = columns // SIDE if roles.columns is roles.vector else 1
    lines = (static_extent(roles.lines) or 1) if roles.lines is not None else 1
    steps = _steps(view)
    best = min(_shapes(rows, wide, lines), key=lambda x: (x.cycles(steps, rates), x.loads), default=None)
    vectors = vector_row_cycles(rates, steps, _group(view).left)
    return best if best is not None and best.cycles(steps, rates) < vectors else None


def _group(view: View) -> ProductGroup:
    """The group of a view that has one."""
    found = group_of(view)
    assert found is not None
    return found


def _shapes(rows: int, wide: int, lines: int) -> Iterator[Shape]:
    """Shapes that divide ``rows`` by ``wide`` tiles at ``lines`` positions. Tiles of one row are left out: a vector
    does the same."""
    counts = range(1, MAX_SUM_TILES + 1)
    for height in (h for h in range(2, SIDE + 1) if rows % h == 0):
        for down in (d for d in counts if rows // height % d == 0):
            for across in (a for a in counts if wide % a == 0 and down * a <= MAX_SUM_TILES):
                # Several lines are processed together only if the tiles cover all rows of a line.
                most = MAX_SUM_TILES // (down * across) if down * height == rows else 1
                yield from (Shape(height, down, across, n) for n in range(1, most + 1) if lines % n == 0)


def _steps(view: View) -> int:
    """Number of depth steps of a sum."""
    total, depth = 1, _group(view).size * SIDE
    for axis in view.reduce:
        total *= static_extent(axis) or depth
    return -(-total // depth)


def tile_form(view: View, roles: Roles, height: int) -> TileOfRows | None:
    """The layout of operands and result. None if the rows of a tile have no constant distance, or span several
    dimensions."""
    assert roles.rows is not None and view.product is not None
    scalar, _ = operands_of(view, roles)
    a, c = _between(scalar, roles.rows), _between(view.output, roles.rows)
    step = _step(scalar, roles.rows)
    if a is None or c is None or step is None or _step(view.output, roles.rows) != 1:
        return None
    return TileOfRows(height, step, a, c, view.product[0] is not scalar, _group(view).tile)


def _step(access: Access, rows: IterVar) -> int | None:
    """How many positions of its dimension the access moves from one row to the next; None if that is not constant."""
    for index in access.indices:
        if occurs(rows.var, index):
            form = linear_form(index, (rows.var,))
            step = form[0].get(rows.var, 0) if form is not None else 0
            return step if step > 0 else None
    return None


def depth_axis(view: View, roles: Roles, pair: IterVar) -> IterVar | None:
    """The reduction axis that becomes the depth of a tile: an axis of groups, or ``pair`` itself if it is a long axis
    of elements."""
    extent, group = static_extent(pair), _group(view).size
    if extent is None or extent % group:
        return None
    scalar, packed = operands_of(view, roles)
    if extent > group:
        whole = extent % (group * SIDE) == 0 and view.stride(scalar, pair, group * SIDE) == 1
        return pair if whole else None
    for axis in view.reduce:
        groups = static_extent(axis)
        if axis is not pair and groups is not None and groups % SIDE == 0:
            between = view.stride(packed, axis, SIDE)
            if view.stride(scalar, axis, SIDE) == group and between is not None and between >= group * SIDE:
                return axis
    return None


def _between(access: Access, rows: IterVar) -> int | None:
    """The number of dimensions between the row dimension and the last one; None if not exactly one dimension is indexed
    by rows."""
    found = [d for d, i in enumerate(access.indices) if occurs(rows.var, i)]
    last = len(access.indices) - 1
    return last - found[0] - 1 if len(found) == 1 and found[0] < last else None


@dataclass
class MatrixTiling(Tiling):
    """Places a contraction with matrix tiles of ``height`` rows."""

    height: int = SIDE

    def _stages(self) -> list[BlockRef]:
        """No operand stages: products are so fast that recomputing an operand for each strip would dominate the
        time."""
        context = self.context
        producers = context.schedule.get_producers(self.block)
        context.separate.update(p.name for p in producers if p.name not in context.done)
        return []

    def _streamed(self, columns: list[LoopRef], rows: list[LoopRef]) -> tuple[str, ...]:
        """No prefetching: the loops inside the reduction become single instructions."""
        return ()

    def finish(self, tile: list[LoopRef]) -> None:
        """Keep the loop over the rows of the result: there are many rows, and all sums are in memory."""
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
        lines = [own[roles.lines]] if self.tile.lines > 1 and roles.lines is not None else []
        tiled = (axis, self.pair, roles.rows, roles.vector, *([roles.lines] if lines else []))
        steps, depth, pair = self._depth(own, axis)
        row_tiles, row = self._cut(own[roles.rows], self.height)
        column_tiles, column = self._cut(own[roles.vector], SIDE)
        rest = sorted((x for x in own if x not in tiled), key=view.reduce.__contains__)
        reduce = [*(own[x] for x in rest if x in view.reduce), steps]
        above = [own[x] for x in rest if x not in view.reduce]
        s.reorder(*above, *reduce, *lines, row_tiles, column_tiles, row, column, depth, pair)
        init = s.decompose_reduction(self.block, reduce[0])
        self.context.done.add(init.name)
        s.vectorize(s.get_loop(init, -1))
        for loop in (*lines, row_tiles, column_tiles):
            s.unroll(loop)
        form = tile_form(view, roles, self.height)
        assert form is not None
        made = s.tensorize(row, tile_of_rows(form))
        self.context.done.add(made.name)  # a separate block; no other rule may reschedule it

    def _depth(self, own: dict[IterVar, LoopRef], axis: IterVar) -> tuple[LoopRef, LoopRef, LoopRef]:
        """The loops over depth steps, groups of a step and elements of a group."""
        assert self.pair is not None
        if axis is self.pair:
            steps, depth, pair = self.context.schedule.split(own[axis], factors=(None, SIDE, _group(self.view).size))
            return steps, depth, pair
        return *self._cut(own[axis], SIDE), own[self.pair]

    def _cut(self, loop: LoopRef, size: int) -> tuple[LoopRef, LoopRef]:
        outer, inner = self.context.schedule.split(loop, factors=(None, size))
        return outer, inner
