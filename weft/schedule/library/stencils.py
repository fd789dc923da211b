"""Pipelines of stencils: every stage in a sliding window of the rows that the next one needs."""

from __future__ import annotations

from weft.schedule.library.rows import reduces
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.schedule import Schedule


def sliding_pipeline(s: Schedule, last: BlockRef | str, lanes: int = 16, strips: int = 1) -> LoopRef:
    """Compute all stages before ``last`` as its row loop moves on: each row of each stage once, in rolling buffers.

    Rows are computed in vectors of ``lanes``. With ``strips`` the image is cut into so many parts, computed in
    parallel and repeat the rows at their edges. Returns the loop over rows (or strips).
    """
    final = BlockRef(last) if isinstance(last, str) else last
    row = s.get_loops(final)[0]
    outer = row
    if strips > 1:
        outer, row = s.split(row, nparts=strips)
    stages = _stages(s, final)
    for stage in stages:
        s.compute_at(stage, row)
    for stage in stages:
        s.store_at(stage, row)
        s.fold_storage(stage, *s.window(stage))
    for block in (*stages, final):
        _along_rows(s, block, lanes)
    if strips > 1:
        s.parallel(outer)
    return outer


def _along_rows(s: Schedule, block: BlockRef, lanes: int) -> None:
    """Vectors along the last dimension; the window of a reduction is unrolled around them."""
    loops = s.get_loops(block)
    window = [x for x in loops if reduces(s, block, x)]
    column = next(x for x in reversed(loops) if x not in window)
    outer, lane = s.split(column, factor=lanes)
    if window:
        s.reorder(outer, *window, lane)
        first = s.decompose_reduction(block, window[0])
        s.vectorize(s.get_loops(first)[-1])
        for loop in window:
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
