"""Two contractions with row-wise work between them, computed strip by strip so that the strip stays in the cache.

In ``softmax(query · keyᵀ) · value``, each row of the second contraction reads one row computed from the first. A strip
of rows is therefore computed completely before the next strip starts: the tiles of the first contraction, then the
reductions over each row, then the tiles of the second contraction. Only one strip is ever stored. Two copies of a strip
fill at most half of the second-level cache, and a high strip reuses the other operands for many rows. If rows are very
long, a strip is one tile high.

    parallel (batch, strips):
        scores[strip, columns] = tiles of the first contraction
        for row in strip:
            reductions over the row, and what follows them
        output[strip] = tiles of the second contraction
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.cost.assumed import ROW_ELEMENTS
from weft.cost.caches import CACHE_LINE_BYTES
from weft.cost.chains import MAX_STRIP_ROWS, strip_rows
from weft.expr.nodes import Const
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.common.access import Access, View, static_extent
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.common.menus import near
from weft.schedule.rules.common.work import work_of
from weft.schedule.rules.cpu.chosen_tiles import draw_tile
from weft.schedule.rules.cpu.contraction import (
    Tiling,
    pack_operands,
    pack_vectors,
    paired,
)
from weft.schedule.rules.cpu.epilogues import epilogue, epilogue_of
from weft.schedule.rules.cpu.packing import conflicts
from weft.schedule.rules.cpu.pairs import suits_pairs
from weft.schedule.rules.cpu.reduction import finish_row
from weft.schedule.rules.cpu.roles import Roles, analyze, operands_of
from weft.tir.nodes import Buffer


@dataclass(frozen=True, slots=True)
class Chain:
    """``first`` computes a tensor, the blocks ``between`` transform it in program order, and ``last`` reads the result
    by rows."""

    first: BlockRef
    between: tuple[BlockRef, ...]
    last: BlockRef
    roles: Roles
    """The roles of ``last``; its rows are the rows of the strip."""
    width: int
    """Number of elements in a row."""


def schedule_strips(context: Context, last: BlockRef) -> bool:
    """Schedule ``last`` and all blocks between it and the contraction that feeds it; False if the blocks are not such a
    chain."""
    view = context.view(last)
    lanes = context.lanes(view)
    chain = find_chain(context, last, lanes) if lanes > 1 else None
    if chain is None:
        return False
    rows = _rows_of_strip(context, chain)
    rows = context.choose(near(rows, MAX_STRIP_ROWS), rows)
    view, pair, roles = paired(context, last, view, chain.roles, lanes)
    if roles is None:
        return False
    tile = draw_tile(context, view, roles, lanes, rows)
    if pair is None:
        pack_vectors(context, last, view, roles, lanes)
    work = sum(work_of(context.view(b)) for b in (chain.first, *chain.between, last))
    output = epilogue(context, last)
    around = _LastTiling(context, last, output, context.view(last), roles, tile, lanes, pair).place(rows, work)
    context.nested = True
    _place_between(context, chain, around)
    _spread_rows(context, chain.between[-1], view, roles, tile.rows)
    return _place_first(context, chain.first, around, rows)


def find_chain(context: Context, last: BlockRef, lanes: int) -> Chain | None:
    """The chain that ends in the contraction ``last``."""
    view = context.view(last)
    roles = analyze(view, lanes)
    if roles is None or roles.rows is None or not roles.broadcasts or view.product is None:
        return None
    rows = next(x for x in view.product if not x.uses(roles.vector.var))
    width = 1
    for axis in view.reduce:
        width *= static_extent(axis) or ROW_ELEMENTS
    found = _producers(context, last, rows.buffer)
    firsts = [b for b in found if context.view(b).product is not None]
    if len(firsts) != 1:
        return None
    if context.target.tile_unit("bfloat16") and (suits_pairs(view) or suits_pairs(context.view(firsts[0]))):
        return None  # matrix-unit tiles are faster, and need whole operands
    between = _made_of(context, firsts[0], found)
    chain = Chain(firsts[0], between, last, roles, width)
    return chain if between and _by_rows(context, chain, rows) else None


def _producers(context: Context, last: BlockRef, rows: Buffer) -> list[BlockRef]:
    """The blocks that lead to ``rows`` and are not yet placed, in program order, starting from contractions."""
    s = context.schedule
    pending = [b for b in s.get_producers(last) if context.view(b).output.buffer is rows]
    found = {b.name for b in pending}
    while pending:
        block = pending.pop()
        if context.view(block).product is None:
            more = [b for b in s.get_producers(block) if b.name not in found and b.name not in context.done]
            found.update(b.name for b in more)
            pending += more
    return [b for b in s.get_blocks() if b.name in found]


def _made_of(context: Context, first: BlockRef, found: list[BlockRef]) -> tuple[BlockRef, ...]:
    """The blocks of ``found`` that read the result of ``first``, directly or indirectly. Empty if a block outside the
    chain reads it, except for one last reader."""
    s = context.schedule
    made = {context.view(first).output.buffer}
    between = []
    for block in found:
        view = context.view(block)
        if block.name != first.name and any(a.buffer in made for a in view.loads):
            if context.is_output(block) or not view.is_single:
                return ()
            made.add(view.output.buffer)
            between.append(block)
    names = {first.name, *(b.name for b in between)}
    outside = {r.name for b in (first, *between) for r in s.get_consumers(b)} - names
    if len(outside) != 1 or context.is_output(first):
        return ()
    behind = epilogue_of(context, first)  # computed on the tiles of ``first``
    return tuple(b for b in between if behind is None or b.name != behind.name)


def _by_rows(context: Context, chain: Chain, rows: Access) -> bool:
    """Whether every block of the chain reads the results of the others only at its own row."""
    view = context.view(chain.last)
    names = [d for d, i in enumerate(rows.indices) if any(i is a.var for a in view.spatial)]
    assert chain.roles.rows is not None
    if not any(rows.indices[d] is chain.roles.rows.var for d in names):
        return False
    made = {context.view(b).output.buffer for b in (chain.first, *chain.between)}
    for block in chain.between:
        own = context.view(block)
        target = own.output.indices
        for access in own.loads:
            if access.buffer in made and not all(
                len(access.indices) == len(target) and _same(access, target[d], d) for d in names
            ):
                return False
    # Other dimensions belong to the reductions, which give one number per row.
    return all(len(b.shape) == len(rows.indices) for b in made)


def _same(access: Access, own: object, dimension: int) -> bool:
    size, index = access.buffer.shape[dimension], access.indices[dimension]
    return index is own or (isinstance(size, Const) and size.value == 1 and isinstance(index, Const))


def _rows_of_strip(context: Context, chain: Chain) -> int:
    assert chain.roles.rows is not None
    cpu = context.target.cpu
    return strip_rows(static_extent(chain.roles.rows), chain.width, _batch(context, chain), cpu.l2, cpu.cores)


def _batch(context: Context, chain: Chain) -> int:
    """The number of independent chains; a symbolic size counts as one."""
    view = context.view(chain.last)
    batch = 1
    for axis in view.spatial:
        if all(x.uses(axis.var) for x in view.product or ()):
            batch *= static_extent(axis) or 1
    return batch


class _LastTiling(Tiling):
    """The second contraction, whose rows are cut into strips."""

    def place(self, rows: int, work: float) -> LoopRef:
        """Place the contraction; returns the loop over the strips."""
        s, context = self.context.schedule, self.context
        assert self.roles.rows is not None
        own = dict(zip(self.view.spatial, context.block(self.output).iters, strict=True))
        outer, _ = s.split(context.own_loops(self.output)[own[self.roles.rows]], factors=(None, rows))
        batch, columns, strips, row_tiles, tile = self.split_output()
        if not row_tiles:
            single, tile[0] = s.split(tile[0], factors=(1, None))
            row_tiles = [single]
        inside = context.order([*columns, *row_tiles])
        s.reorder(*batch, *strips, outer, *inside, *tile)
        around = self._parallel([*batch, *strips], outer, work)
        context.compute_at(self.block, inside[-1])
        self.finish(tile)
        return around

    def _parallel(self, batch: list[LoopRef], strips: LoopRef, work: float) -> LoopRef:
        """If there are enough batches for all threads, run the batches in parallel and the strips of each batch in
        order. The last strip, which may be shorter, is then known at its iteration. Otherwise run batches and strips in
        parallel."""
        context = self.context
        count = 1
        for loop in batch:
            count *= context.extent(loop) or 1
        if batch and count >= 4 * context.target.cpu.cores:
            context.parallelize(context.fuse(batch), work)
            return strips
        around = context.fuse([*batch, strips])
        context.parallelize(around, work)
        return around


def _place_between(context: Context, chain: Chain, around: LoopRef) -> None:
    """Place the blocks between the contractions in a strip: all run row by row, in the row loop of the last one."""
    *before, final = chain.between
    context.compute_at(final, around)
    own = context.own_loops(final)
    row = next(iter(own.values()))
    for block in reversed(before):
        context.place(block, row, [around])
    for block in chain.between:
        finish_row(context, block, False, context.lanes(context.view(block)), row)
        context.done.add(block.name)


def _spread_rows(context: Context, final: BlockRef, view: View, roles: Roles, rows: int) -> None:
    """Where the rows that a tile of the second contraction reads (``rows`` of them) would map to a few sets of the
    first-level cache, as with a power of two of columns, store them at a distance of an odd number of cache lines."""
    assert view.product is not None and roles.rows is not None
    scalar, _ = operands_of(view, roles)
    if conflicts(context, view, scalar, roles.rows, rows):
        line = CACHE_LINE_BYTES // scalar.buffer.dtype.nbytes
        dimension = next(d for d, i in enumerate(scalar.indices) if i is roles.rows.var)
        context.schedule.storage_align(final, 0, dimension, 2 * line, line)


def _place_first(context: Context, first: BlockRef, around: LoopRef, rows: int) -> bool:
    """Place the first contraction for the rows of a strip."""
    view = context.view(first)
    lanes = context.lanes(view)
    view, pair, roles = paired(context, first, view, analyze(view, lanes), lanes)
    if roles is None:
        return False
    tile = draw_tile(context, view, roles, lanes, rows)
    panels, line = pack_operands(context, first, view, roles, tile, lanes) if pair is None else ((), 0)
    output = epilogue(context, first)
    context.compute_at(output, around)
    Tiling(context, first, output, context.view(first), roles, tile, lanes, pair, panels, line).run()
    return True
