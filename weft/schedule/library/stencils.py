"""Stencil pipelines: each stage is kept in a sliding window of the rows that the next stage needs, or in registers."""

from __future__ import annotations

from collections.abc import Sequence

from weft.schedule.library.rows import reduces
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.schedule import Schedule


def sliding_pipeline(
    s: Schedule,
    last: BlockRef | str,
    lanes: int = 16,
    strips: int = 1,
    rows: int = 1,
    columns: int | None = None,
) -> LoopRef:
    """Compute all stages before ``last`` inside its loop over rows: each row of each stage once, in rolling buffers.

    Rows are computed in vectors of ``lanes``. ``strips`` is the number of parts of the image that run in parallel; rows
    at their edges are computed twice. ``rows`` rows are computed together, so that elements that several rows read are
    loaded once. ``columns`` is the width of tiles whose windows fit into a smaller cache; columns at their edges are
    computed twice. Returns the loop over rows (or strips).
    """
    final = _final(last)
    outer = row = s.get_loops(final)[0]
    if strips > 1:
        outer, row = s.split(row, nparts=strips)
    if columns is not None:
        tile, _ = s.split(s.get_loops(final)[-1], factor=columns)
        s.reorder(tile, row)
        outer = outer if strips > 1 else tile
    if rows > 1:
        whole = row
        row, _ = s.split(row, factor=rows)
        outer = row if outer == whole else outer
    stages = _stages(s, final)
    for stage in stages:
        s.compute_at(stage, row)
    for stage in stages:
        s.store_at(stage, row)
        s.fold_storage(stage, *s.window(stage))
    for block in (*stages, final):
        _along_rows(s, block, row, lanes, rows > 1)
    if strips > 1:
        s.parallel(outer)
    return outer


def register_tiles(
    s: Schedule, last: BlockRef | str, rows: int = 4, lanes: int = 16, strips: int = 1, ahead: int = 0
) -> LoopRef:
    """Compute tiles of ``rows`` vectors of ``lanes`` with all stages before ``last`` in registers. No intermediate
    result is stored; rows at the edges of tiles are computed again. For pipelines of few stages with vertical windows.

    ``ahead`` is the number of tiles by which the first input is prefetched. ``strips`` parts of the image are computed
    in parallel. Returns the loop over rows of tiles (or strips).
    """
    final = _final(last)
    y, x = s.get_loops(final)
    outer = None
    if strips > 1:
        outer, y = s.split(y, nparts=strips)
    y_outer, tile, _, _ = s.tile(y, x, rows, lanes)
    stages = _stages(s, final)
    for stage in stages:
        s.compute_at(stage, tile)
        s.set_scope(stage, 0, "register")
    for block in (*stages, final):
        _along_rows(s, block, tile, None, True)
    if ahead:
        s.prefetch(tile, s.program.params[0].name, ahead)
    if outer is None:
        return y_outer
    s.parallel(outer)
    return outer


def inline_single_uses(s: Schedule, last: BlockRef | str) -> None:
    """Inline every stage before ``last`` that one other stage reads element by element; no value is computed twice."""
    final = _final(last)
    for stage in reversed(_stages(s, final)):
        block = s.state.block(stage)
        readers = s.get_consumers(stage)
        if block.init is not None or len(readers) != 1 or len(block.writes) != 1:
            continue
        reader = s.state.block(readers[0])
        read = [r for r in reader.reads if r.buffer is block.writes[0].buffer]
        if len(read) == 1 and not any(it.kind == "reduce" for it in reader.iters):
            s.compute_inline(stage)


def _final(last: BlockRef | str) -> BlockRef:
    return BlockRef(last) if isinstance(last, str) else last


def _along_rows(s: Schedule, block: BlockRef, at: LoopRef, lanes: int | None, together: bool) -> None:
    """Vectorize the last dimension (``lanes`` lanes; None: the whole dimension) and unroll the window of a reduction
    around it. With ``together``, unroll the rows of one iteration of ``at`` as well."""
    around = s.get_loops(block)
    own = around[around.index(at) + 1 :]
    window = [x for x in own if reduces(s, block, x)]
    *rows, lane = [x for x in own if x not in window]
    outer: Sequence[LoopRef] = ()
    if lanes is not None:
        *outer, lane = s.split(lane, factor=lanes)
    order = (*outer, *rows, *window, lane) if together else (*rows, *outer, *window, lane)
    s.reorder(*order)
    if window:
        first = s.decompose_reduction(block, window[0])
        s.vectorize(s.get_loops(first)[-1])
    for loop in (*(rows if together else ()), *window):
        s.unroll(loop)
    s.vectorize(lane)


def _stages(s: Schedule, final: BlockRef) -> list[BlockRef]:
    """The producers of ``final``, direct or not, consumers before their producers."""
    found: list[BlockRef] = []
    pending = [final]
    while pending:
        for producer in s.get_producers(pending.pop()):
            if producer not in found:
                found.append(producer)
                pending.append(producer)
    position = s.state.tree.position
    return sorted(found, key=lambda b: position[s.state.block(b)], reverse=True)
