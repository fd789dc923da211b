"""Reductions along rows: in vector lanes, and chains of reductions in one pass over each row."""

from __future__ import annotations

from weft.expr.iter_var import IterVar
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import uses
from weft.schedule.schedule import Schedule


def reduce_in_lanes(s: Schedule, block: BlockRef | str, lanes: int = 64) -> BlockRef:
    """Reduce the innermost loop of ``block`` into ``lanes`` partial results in registers, combined at the end.

    Re-associates sums of floats. Returns the block of partial results.
    """
    reducing = BlockRef(block) if isinstance(block, str) else block
    _, lane = s.split(s.get_loops(reducing)[-1], factor=lanes)
    partial = s.rfactor(lane, 0, reassociate=True, share_loops=True)
    s.set_scope(partial, 0, "register")
    over = [x for x in s.get_loops(partial) if reduces(s, partial, x)]
    made = s.state.block(partial)
    factored = max(n for n, it in enumerate(made.iters) if it.kind != IterVar.REDUCE)
    (across,) = [x for x in s.get_loops(partial) if factored in uses(made, s.state.loop(x))]
    s.reorder(*over, across)
    first = s.decompose_reduction(partial, over[0])
    s.vectorize(s.get_loops(first)[-1])
    s.vectorize(across)
    last = s.get_loops(reducing)[-1]
    s.decompose_reduction(reducing, last)
    s.vectorize(last, reassociate=True)
    return partial


def reduces(s: Schedule, block: BlockRef, loop: LoopRef) -> bool:
    """Whether a reduction variable of ``block`` depends on ``loop``."""
    found = s.state.block(block)
    return any(found.iters[n].kind == IterVar.REDUCE for n in uses(found, s.state.loop(loop)))


def one_pass(s: Schedule, last: BlockRef | str, lanes: int = 16) -> LoopRef:
    """Compute all producers of ``last`` row by row: a row stays in the cache from the first reduction to the result.

    A row of ``last`` must need only the same row of its producers. Reductions are computed in lanes, other stages are
    vectorized. Returns the loop over rows, which may be parallel.
    """
    final = BlockRef(last) if isinstance(last, str) else last
    row = s.get_loops(final)[0]
    order: list[BlockRef] = []
    pending = [final]
    while pending:
        for producer in s.get_producers(pending.pop()):
            if producer not in order:
                order.append(producer)
                pending.append(producer)
    position = s.state.tree.position
    order.sort(key=lambda b: position[s.state.block(b)], reverse=True)
    for block in order:
        s.compute_at(block, row)
    for block in (*order, final):
        inner = s.get_loops(block)[-1]
        if inner == row:
            continue
        if reduces(s, block, inner):
            reduce_in_lanes(s, block, lanes)
        else:
            s.vectorize(s.split(inner, factor=lanes)[1])
    return row
