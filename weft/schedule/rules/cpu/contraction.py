"""Contractions: sums of products, from matrix products to convolutions over blocked channels.

The schedule keeps a tile of results in registers during the whole reduction. Its vectors run along the axis in which
the result and at least one operand are contiguous. Its rows run along an axis that only the other operand depends on,
whose scalars are then broadcast. Its columns run along an axis that only the vector operand depends on. Element-wise
work after the contraction is computed on the tile while it is in registers. Work before it (padding, packing) is
computed for one strip of rows at a time into scratch memory.

    parallel (batch, column tiles, strips):
        operand stages for this strip
        for row tiles:
            acc[rows, columns] = 0                    registers
            for reduction:
                unrolled rows, columns: acc += broadcast(a) * vector(b)
            acc = finished(acc)                       where few registers are left for a function
            output = epilogue(acc)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from weft.cost import caches
from weft.cost.assumed import EXTENT
from weft.expr.affine import linear_form
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, Var
from weft.expr.visit import occurs
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.common.access import View, static_extent
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.common.menus import ITERATIONS_AHEAD, MAX_UNROLLED_STEPS, ROWS_OF_A_TILE, UNROLLED, divisors
from weft.schedule.rules.common.work import cost_of, steps_of, unrolled_steps, work_of
from weft.schedule.rules.cpu.chosen_tiles import draw_tile
from weft.schedule.rules.cpu.epilogues import finished_epilogue
from weft.schedule.rules.cpu.far_rows import fetched_axis, rows_of_panel
from weft.schedule.rules.cpu.packing import conflicts, pack, pack_rows, packable
from weft.schedule.rules.cpu.pairs import group_axis, group_of, pack_groups
from weft.schedule.rules.cpu.roles import Roles, analyze, footprint, operands_of, rows_outside, size
from weft.schedule.rules.cpu.tiles import RegisterTile
from weft.tir.nodes import Buffer

MAX_REPEATED_OPERATIONS = 24
"""Limit on the operations per element of an operand stage that may be repeated for each strip."""
MIN_SHARING_STRIPS = 3
"""If this many strips need the same part of an operand stage, it is computed once, before all strips."""
MAX_STRIP_ROWS = 16
"""Limit on the rows of a strip for which operand stages are computed together."""
MAX_OPEN_STRIP_ROWS = 8
"""The same limit if the number of rows is not known: images have few lines, and the last strip has the rest of them."""
MIN_PANEL_ROW_TILES = 8
"""Fewest row tiles that must read a panel for its copy to be faster, if the panel's rows are in few pages."""
MIN_SCATTERED_PANEL_ROWS = 24
"""Fewest rows for the same if the panel's rows are in more pages than the core translates at once, and do not stay in
the second-level cache together."""
MAX_FETCHED_ROW_TILES = 64
"""Limit on the row tiles for which prefetching a panel is faster: with more, copying takes little of the time."""
MIN_FETCHED_PANELS = 8
"""Fewest panels for each core with which a core computes whole panels, so that it can prefetch the next one."""
MIN_MASKED_LANES = 8
"""Fewest lanes of vectors whose machines load and store some of them only, by a mask."""


def schedule_contraction(context: Context, block: BlockRef) -> bool:
    """Schedule ``block``, its element-wise consumers and operand stages; False if ``block`` has no suitable axes."""
    view = context.view(block)
    lanes = context.lanes(view)
    roles = analyze(view, lanes) if lanes > 1 else None
    view, pair, roles = paired(context, block, view, roles, lanes)
    if roles is None:
        context.note(block, "no axis makes vectors of the result and of an operand: no tile of sums in registers")
        return False
    tile = draw_tile(context, view, roles, lanes)
    panels, line = pack_operands(context, block, view, roles, tile, lanes) if pair is None else ((), 0)
    finishing, output = finished_epilogue(context, block)
    view = context.view(block)
    Tiling(context, block, output, view, roles, tile, lanes, pair, panels, line, finishing=finishing).run()
    return True


def paired(
    context: Context, block: BlockRef, view: View, roles: Roles | None, lanes: int
) -> tuple[View, IterVar | None, Roles | None]:
    """The view, the group axis and the roles for multiplying groups; packs the vector operand first if necessary. The
    group axis is None if single elements are multiplied."""
    group = group_of(view) if lanes > 1 else None
    if group is None:
        return view, None, roles
    pair = group_axis(view, group)
    found = analyze(view, lanes, group.size) if pair is not None else None
    if found is not None and found.broadcasts:
        return view, pair, found
    if roles is None or not roles.broadcasts or view.product is None:
        return view, None, roles
    scalar = next(x for x in view.product if not x.uses(roles.vector.var))
    if not pack_groups(context, block, view, group, scalar, roles.vector, lanes):
        return view, None, roles
    view = context.view(block)
    return view, group_axis(view, group), analyze(view, lanes, group.size)


def pack_operands(
    context: Context, block: BlockRef, view: View, roles: Roles, tile: RegisterTile, lanes: int
) -> tuple[tuple[str, ...], int]:
    """Copy operands whose layout is unsuitable, so that the tile reads them sequentially. Returns the names of the
    operands that are copied one panel at a time and should be prefetched, and the steps of the reduction that a packed
    row holds together (0: no such row)."""
    operands = view.product
    assert operands is not None
    if not roles.broadcasts:
        return (), 0
    pack_vectors(context, block, view, roles, lanes)
    panels, line = _pack_panels(context, block, view, roles, tile, lanes), 0
    for x in operands:
        if x.uses(roles.vector.var):
            continue
        if roles.rows is not None and packable(x, roles.rows) and conflicts(context, view, x, roles.rows, tile.rows):
            steps = [a for a in view.reduce if x.uses(a.var)]
            if len(view.reduce) == len(steps) == 1:
                line = pack_rows(context, block, x, roles.rows, tile.rows, steps[0])
            if not line:
                pack(context, block, x, roles.rows, tile.rows)
        elif not context.nested and (high := rows_of_panel(view, x, roles, tile, lanes, context.target.cpu)):
            assert roles.rows is not None
            pack(context, block, x, roles.rows, high)
    return panels, line


def pack_vectors(context: Context, block: BlockRef, view: View, roles: Roles, lanes: int) -> None:
    """If the elements of the vector operand are not contiguous, copy it into panels of ``lanes`` elements."""
    for x in view.product or ():
        if x.uses(roles.vector.var) and view.stride(x, roles.vector, lanes) != 1 and packable(x, roles.vector):
            pack(context, block, x, roles.vector, lanes)


def _pack_panels(
    context: Context, block: BlockRef, view: View, roles: Roles, tile: RegisterTile, lanes: int
) -> tuple[str, ...]:
    """Copy a vector operand whose panels are scattered: each reduction step reads another row of the matrix, often
    another page, and the hardware's prefetcher does not follow. Each panel is copied directly before all rows are
    multiplied with it: a copy of the whole operand passes through the caches twice. With too few panels for all cores,
    the whole operand is copied first."""
    if context.nested or roles.columns is not roles.vector or roles.rows is None:
        return ()
    found: list[str] = []
    width, cpu = tile.columns * lanes, context.target.cpu
    for x in view.product or ():
        columns, steps = static_extent(roles.vector), [a for a in view.reduce if x.uses(a.var)]
        if not x.uses(roles.vector.var) or len(steps) != 1 or columns is None or not packable(x, roles.vector):
            continue
        depth, stride = static_extent(steps[0]), view.stride(x, steps[0])
        if depth is None or stride is None or stride < columns or columns < 2 * width:
            continue
        nbytes, tiles = x.buffer.dtype.nbytes, size(roles.rows) // tile.rows
        scattered = caches.is_scattered(depth, stride * nbytes) and size(roles.rows) >= MIN_SCATTERED_PANEL_ROWS
        fits = caches.stays_in_l2(depth * width * nbytes, cpu.l2) and depth * stride * nbytes > 2 * cpu.l1
        # The first tile of rows reads them as slowly as a copy would. Do the others find what it read?
        kept = scattered and caches.rows_stay_in_l2(depth, stride * nbytes, width * nbytes, cpu.l2)
        wanted = fits and not kept and (scattered or tiles >= MIN_PANEL_ROW_TILES)
        if not context.decide(f"copy panels of {x.buffer.name} for {block.name}", wanted):
            continue
        copy = pack(context, block, x, roles.vector, width)
        if columns >= 2 * cpu.cores * width:
            context.separate.discard(copy.name)
            found += [x.buffer.name] if tiles <= MAX_FETCHED_ROW_TILES else []
    return tuple(found)


@dataclass
class Tiling:
    """Places ``block`` by tiles of ``output``, the block that reads the results from the registers."""

    context: Context
    block: BlockRef
    output: BlockRef
    view: View
    roles: Roles
    tile: RegisterTile
    lanes: int
    pair: IterVar | None = None
    """The reduction axis along which an instruction adds a group of adjacent products."""
    panels: tuple[str, ...] = ()
    """Operands that are copied or read one panel at a time: while one panel is multiplied, the next is prefetched."""
    line: int = 0
    """The steps of the reduction for which a packed operand holds adjacent elements; 0 if no operand is packed so."""
    finishing: BlockRef | None = None
    """What is done to all sums of a tile before ``output`` reads them."""
    placed: tuple[Buffer, ...] = ()
    """Operands that are computed one strip at a time, and stay in a cache until they are used."""

    def run(self) -> None:
        s, context = self.context.schedule, self.context
        stages = self._stages()
        self.placed = tuple(context.view(stage).output.buffer for stage in stages)
        batch, columns, strips, rows, tile = self.split_output()
        columns, inside = ([], columns) if self._rows_outside else (columns, [])
        if stages and strips:
            strips[-1:], several = self._several_rows(stages, strips[-1], [*batch, *columns])
            rows = [*several, *rows]
        above = [*batch, *columns, *strips]
        if self.roles.rows is None and self.roles.columns is self.roles.vector:
            above = [*batch, *strips, *columns]  # no operand is read again: in the order of memory
        elif not self._large_vectors():
            # Axes of unknown size are outermost: indices of the others in the fused loop only need constant divisors.
            above = sorted(above, key=lambda loop: context.extent(loop) is not None)
        streamed = () if stages or self.panels or inside else self._streamed(columns, [*strips, *rows])
        if streamed:  # all rows use a panel before the next one is needed
            self.panels = streamed
            above, rows = [loop for loop in above if loop not in strips], [*strips, *rows]
        order = context.order([*above, *rows, *inside])
        above, rows, inside = order[: len(above)], order[len(above) :][: len(rows)], order[len(above) + len(rows) :]
        s.reorder(*above, *rows, *inside, *tile)
        work = work_of(self.view)
        if above and rows and (stages or streamed or context.extent(rows[0]) is None):
            strip, at = context.fuse(above), [*rows, *inside][-1]
        elif stages and (above or inside):
            strip = context.fuse([*above, *rows])
            at = inside[-1] if inside else strip
        else:
            rows = [*rows, *inside]
            if not above and not rows:
                single, tile[0] = s.split(tile[0], factors=(1, None))
                rows.append(single)
            # With one thread, one fused loop gains nothing, and separate loops make the edges easier to analyze.
            strip = at = rows[-1] if rows and context.nested else context.fuse([*above, *rows])
        context.parallelize(strip, work)
        if self.finishing is not None:
            context.compute_at(self.finishing, at)
        context.compute_at(self.block, at)
        for stage in stages:
            context.place(stage, strip, rows)
            context.finish_stage(stage)
        self.finish(tile)
        self._fetch_panels(strip)

    def _large_vectors(self) -> bool:
        """Whether the second-level cache does not hold the vector operand: its panels are then used for all rows before
        the next panel is read."""
        l2 = self.context.target.cpu.l2
        total = footprint(self.view, operands_of(self.view, self.roles)[1]) if self.roles.broadcasts and l2 else None
        return total is not None and not caches.stays_in_l2(total, l2)

    def _streamed(self, columns: list[LoopRef], rows: list[LoopRef]) -> tuple[str, ...]:
        """The vector operand, if it is read from beyond the second-level cache one panel at a time, and its panels are
        used by few row tiles: then loading them takes a large part of the time, and is done ahead."""
        cpu = self.context.target.cpu
        if self.context.nested or not cpu.l2 or not self.roles.broadcasts or not columns or not rows:
            return ()
        _, vectors = operands_of(self.view, self.roles)
        total = footprint(self.view, vectors)
        panels, tiles = (prod(self.context.extent(x) or 1 for x in loops) for loops in (columns, rows))
        if total is None or panels < MIN_FETCHED_PANELS * cpu.cores or tiles > MAX_FETCHED_ROW_TILES:
            return ()
        fits = not caches.stays_in_l2(total, cpu.l2) and caches.stays_in_l2(2 * total // panels, cpu.l2)
        return (vectors.buffer.name,) if fits and vectors.buffer in self.context.schedule.program.params else ()

    def _fetch_panels(self, strip: LoopRef) -> None:
        """Prefetch the next panel during the reductions of this one. The hardware's prefetcher stops at the end of a
        page, and copying a panel reads a small part of every page."""
        if not self.panels:
            return
        loops = self.context.schedule.get_loops(self.block)
        kept = [x for x in loops if self.context.loop(x).kind == "serial" and self.context.extent(x) != 1]
        for name in self.panels if kept and kept[-1] is not strip else ():
            ahead = self.context.choose(ITERATIONS_AHEAD, 1)
            self.context.schedule.prefetch(strip, name, ahead, within=kept[-1])

    def finish(self, tile: list[LoopRef]) -> None:
        """Arrange the loops of the tile after it is placed."""
        s = self.context.schedule
        self._inner()
        if self.finishing is not None:
            self._finish_sums(self.finishing)
        for loop in tile[:-1]:
            s.unroll(loop)
        s.vectorize(tile[-1])
        self.context.done.update((self.block.name, self.output.name))

    @property
    def _rows_outside(self) -> bool:
        inner = self.context.nested or self.panels
        if inner or not self.roles.broadcasts:
            return False
        outside = rows_outside(self.view, self.roles, self.context.target)
        return self.context.decide(f"rows of {self.block.name} outside of its columns", outside)

    def _repeats(self, stage: View) -> int:
        """How many strips need the same part of the result of ``stage``: one for each column tile that reads it.
        Overlap at the edges of neighbouring strips is ignored."""
        reads = [a for a in self.view.loads if a.buffer is stage.output.buffer]
        axis = self.roles.columns
        if self.context.nested or self._rows_outside or axis is None or any(a.uses(axis.var) for a in reads):
            return 1
        columns = -(-size(axis) // self.lanes) if axis is self.roles.vector else size(axis)
        return -(-columns // self.tile.columns)

    def _several_rows(
        self, stages: list[BlockRef], loop: LoopRef, others: list[LoopRef]
    ) -> tuple[list[LoopRef], list[LoopRef]]:
        """Split the strip axis so that a strip holds several rows: neighbouring windows share most of their input.

        The strip's input should fit into a part of the second-level cache, and there should be work for all cores.
        """
        extent = self.context.extent(loop)
        own = self.context.own_loops(self.output)
        axes = zip(self.view.spatial, self.context.block(self.output).iters, strict=True)
        along = next((axis for axis, mine in axes if own.get(mine) == loop), self.roles.lines)  # else: tiles of lines
        row = max(self._row_bytes(stage, along, extent or EXTENT) for stage in stages)
        most = min(MAX_STRIP_ROWS, caches.rows_of_stage(row, self.context.target.cpu.l2))
        if extent is None and not any(self._slides(stage, along) for stage in stages):
            return [loop], []  # rows share nothing, and the last strip of an open number of them would have fewer
        if extent is None:
            several = self.context.choose(ROWS_OF_A_TILE, min(most, MAX_OPEN_STRIP_ROWS))
            high, low = self.context.schedule.split(loop, factors=(None, several))
            return [high], [low]
        spread = 1
        for other in others:
            spread *= self.context.extent(other) or 1
        sizes = [r for r in range(2, extent + 1) if extent % r == 0 and r <= most]
        sizes = [r for r in sizes if spread * (extent // r) >= 4 * self.context.target.cpu.cores]
        if not sizes:
            return [loop], []
        several = self.context.choose(divisors(extent, MAX_STRIP_ROWS), max(sizes))
        high, low = self.context.schedule.split(loop, factors=(None, several))
        return [high], [low]

    def _slides(self, stage: BlockRef, along: IterVar | None) -> bool:
        """Whether windows slide over a stage's result along an axis, so that neighbouring rows share most of it."""
        buffer = self.context.view(stage).output.buffer
        indices = [index for a in self.view.loads if a.buffer is buffer for index in a.indices]
        moved = [index for index in indices if along is not None and occurs(along.var, index)]
        return any(occurs(r.var, index) for index in moved for r in self.view.reduce)

    def _row_bytes(self, stage: BlockRef, along: IterVar | None, rows: int) -> int:
        """Bytes of a stage's result for one of the ``rows`` of strips along an axis. Of dimensions along which no strip
        moves, only the window is needed."""
        buffer = self.context.view(stage).output.buffer
        reads = [a for a in self.view.loads if a.buffer is buffer]
        moving = {a.var for a in (along, self.roles.rows, self.roles.vector) if a is not None}
        total = buffer.dtype.nbytes
        for size_of, index in zip(buffer.shape, reads[0].indices if reads else (), strict=True):
            if isinstance(size_of, Const):
                total *= self._window(index, moving) or int(size_of.value)
        return -(-total // rows)

    def _window(self, index: Expr, moving: set[Var]) -> int | None:
        """The positions that the reduction reads along a dimension, where all else is fixed; None if the tile or the
        strip moves along it, or if it is read otherwise."""
        if any(occurs(v, index) for v in moving):
            return None
        reduce = {a.var: static_extent(a) for a in self.view.reduce}
        form = linear_form(index, [*reduce, *(a.var for a in self.view.spatial)])
        if form is None:
            return None
        window = 1
        for v, step in form[0].items():
            if v in reduce:
                extent = reduce[v]
                if extent is None:
                    return None
                window += abs(step) * (extent - 1)
        return window

    def _stages(self) -> list[BlockRef]:
        """Producers that are computed one strip at a time: cheap ones that few strips share. Others, also those that
        gather single elements, are computed completely before."""
        context = self.context
        producers = [p for p in context.schedule.get_producers(self.block) if p.name not in context.done]
        for p, view in ((p, context.view(p)) for p in producers):
            gathers = any(view.stride(a, view.spatial[-1], self.lanes) is None for a in view.loads if view.spatial)
            costly = gathers or sum(cost_of(store.value) for store in view.stores) > MAX_REPEATED_OPERATIONS
            before = bool(view.reduce) or costly or self._repeats(view) >= MIN_SHARING_STRIPS
            if context.decide(f"compute {p.name} before {self.block.name}", before):
                context.separate.add(p.name)
        return [p for p in producers if p.name not in context.separate]

    def split_output(self) -> tuple[list[LoopRef], list[LoopRef], list[LoopRef], list[LoopRef], list[LoopRef]]:
        """The output's loops by role: batch axes, column tiles, strips, row tiles, and the loops of one tile."""
        roles, tile = self.roles, self.tile
        batch: list[LoopRef] = []
        strips: list[LoopRef] = []
        column_tiles: list[LoopRef] = []
        row_tiles: list[LoopRef] = []
        lines: list[LoopRef] = []
        inner_rows: list[LoopRef] = []
        inner_columns: list[LoopRef] = []
        vector: list[LoopRef] = []
        operands = self.view.product
        assert operands is not None
        loops = self.context.own_loops(self.output)
        for axis, own in zip(self.view.spatial, self.context.block(self.output).iters, strict=True):
            loop = loops.get(own)
            if loop is None:
                continue  # has extent 1
            if axis is roles.vector:
                *outer, inner = self._split_vector(loop)
                column_tiles += outer[:1]
                inner_columns += outer[1:]
                vector = [inner]
            elif axis is roles.columns:
                outer_loop, inner_loop = self._split(loop, tile.columns)
                column_tiles += outer_loop
                inner_columns += inner_loop
            elif axis is roles.rows:
                outer_loop, inner_loop = self._split(loop, tile.rows)
                row_tiles += outer_loop
                inner_rows += inner_loop
            elif axis is roles.lines and tile.lines > 1:
                outer_loop, lines = self._split(loop, tile.lines)
                strips += outer_loop
            elif all(x.uses(axis.var) for x in operands) or (not strips and size(axis) == 1):
                batch.append(loop)
            else:
                strips.append(loop)
        return batch, column_tiles, strips, row_tiles, [*lines, *inner_rows, *inner_columns, *vector]

    def _split(self, loop: LoopRef, factor: int) -> tuple[list[LoopRef], list[LoopRef]]:
        extent = self.context.extent(loop)
        if factor <= 1:
            return [loop], []
        if extent == factor:
            return [], [loop]
        outer, inner = self.context.schedule.split(loop, factors=(None, factor))
        return [outer], [inner]

    def _split_vector(self, loop: LoopRef) -> tuple[LoopRef, ...]:
        """The loops [tiles, vectors of a tile,] lanes."""
        if self._one_piece():
            return (loop,)
        if self.tile.columns == 1 or self.roles.columns is not self.roles.vector:
            return self.context.schedule.split(loop, factors=(None, self.lanes))
        return self.context.schedule.split(loop, factors=(None, self.tile.columns, self.lanes))

    def _one_piece(self) -> bool:
        """Whether the vector axis stays one loop: it fits into the tile, and lowering splits it into vectors."""
        extent = static_extent(self.roles.vector)
        if extent is None:
            return False
        if extent > self.lanes and (extent >= self.tile.columns * self.lanes or extent % self.lanes == 0):
            return False
        return not self._is_ragged(extent)

    def _is_ragged(self, extent: int | None) -> bool:
        """Whether so many elements end in what would be several short vectors, each with sums of its own. The last
        vector is then whole, and what follows the end is masked. Narrow machines have no masks for this."""
        return extent is not None and self.lanes >= MIN_MASKED_LANES and (extent % self.lanes).bit_count() > 1

    def _inner(self) -> None:
        """Order the contraction's own loops: the reduction outside, the unrolled tile inside."""
        s, roles = self.context.schedule, self.roles
        own = self.context.own_loops(self.block)
        reduce, pair = self._reduction(own)
        vector = own.pop(roles.vector)
        columns: list[LoopRef] = []
        ragged = self._is_ragged(self.context.extent(vector))
        if ragged or (roles.columns is roles.vector and self.tile.columns > 1 and not self._one_piece()):
            column, vector = s.split(vector, factors=(None, self.lanes))
            columns.append(column)
            row = len(self.view.output.indices) - 2
            if ragged and row >= 0:  # the lanes beyond the end of a row of sums are its own
                s.storage_align(self.block, 0, row, self.lanes, 0)
        if roles.columns is not None and roles.columns in own:  # another axis than that of the vectors
            columns.insert(0, own[roles.columns])
        tiled = (roles.lines, roles.rows) if self.tile.lines > 1 else (roles.rows,)
        rows = [own[axis] for axis in tiled if axis is not None and axis in own]
        named = {*tiled, roles.columns, roles.vector}
        rest = [loop for axis, loop in own.items() if axis not in named and axis not in self.view.reduce]
        reduce = self.context.order(reduce)
        s.reorder(*rest, *reduce, *rows, *columns, vector, *pair)
        if reduce:
            init = s.decompose_reduction(self.block, reduce[0])
            self._finish_init(init, len(rows) + len(columns) + 1)
        for loop in (*rows, *columns):
            s.unroll(loop)
        self._fetch_rows(own)
        short = (not roles.broadcasts or not rows) and steps_of(self.view) <= MAX_UNROLLED_STEPS
        line = not roles.broadcasts and unrolled_steps(self.view) < steps_of(self.view)
        for loop in reduce:
            full = short or (line and loop == reduce[-1])
            s.unroll(loop, self.context.choose(UNROLLED, UNROLLED[-1] if full else 0))
        s.vectorize(vector)
        for loop in pair:
            group = group_of(self.view)
            assert group is not None
            self.context.done.add(self.block.name)
            self.block = s.tensorize(loop, group.intrinsic)

    def _reduction(self, own: dict[IterVar, LoopRef]) -> tuple[list[LoopRef], list[LoopRef]]:
        """The loops of the reduction, and separately the loop over a group."""
        found = group_of(self.view)
        group = 1 if found is None else found.size
        reduce: list[LoopRef] = []
        pair: list[LoopRef] = []
        for axis in self.view.reduce:
            if axis not in own:
                continue
            if axis is not self.pair:
                cut = self.context.schedule.split(own[axis], factors=(None, self.line)) if self.line else (own[axis],)
                reduce += cut
            elif static_extent(axis) == group:
                pair = [own[axis]]
            else:
                outer, inner = self.context.schedule.split(own[axis], factors=(None, group))
                reduce.append(outer)
                pair = [inner]
        return reduce, pair

    def _fetch_rows(self, own: dict[IterVar, LoopRef]) -> None:
        """Prefetch what later steps read of a row operand that the hardware's prefetcher does not follow."""
        s, roles, cpu = self.context.schedule, self.roles, self.context.target.cpu
        loops = list(s.get_loops(self.block))
        axes = sorted((a for a in self.view.reduce if own.get(a) in loops), key=lambda a: loops.index(own[a]))
        cut = any(static_extent(a) != 1 and a not in axes for a in self.view.reduce)
        found = None if cut or self.context.nested else fetched_axis(self.view, roles, self.tile, axes, cpu)
        buffer = operands_of(self.view, roles)[0].buffer if found else None
        if found is not None and buffer is not None and buffer not in self.placed:
            s.prefetch(own[found[0]], buffer.name, self.context.choose(ITERATIONS_AHEAD, found[1]))

    def _finish_sums(self, finishing: BlockRef) -> None:
        """Arrange the loops of the block that finishes the sums, in vectors as they were summed."""
        s, own = self.context.schedule, self.context.own_loops(finishing)
        iters = self.context.block(finishing).iters
        lane = iters[self.view.spatial.index(self.roles.vector)]
        others, vector = [loop for axis, loop in own.items() if axis is not lane], own[lane]
        extent = self.context.extent(vector)
        tiled = self.roles.columns is self.roles.vector and self.tile.columns > 1
        if self._is_ragged(extent) or (tiled and not self._one_piece()):
            column, vector = s.split(vector, factors=(None, self.lanes))
            others.append(column)
        s.reorder(*others, vector)
        for loop in others:
            s.unroll(loop)
        s.vectorize(vector)
        self.context.done.add(finishing.name)

    def _finish_init(self, init: BlockRef, inner: int) -> None:
        s = self.context.schedule
        self.context.done.add(init.name)
        loops = [s.get_loop(init, n - inner) for n in range(inner)]
        for loop in loops[:-1]:
            s.unroll(loop)
        s.vectorize(loops[-1])
