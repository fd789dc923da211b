"""Windows that are reduced in two passes: first all their axes but one, for whole rows, then the last axis.

    parallel (batch, channels):
        for row of the result:
            rows[columns] = reduce over the lines of the window        vectors along the columns
            result[columns] = reduce over the columns of the window    vectors along the columns of the result

The row of the first pass stays in the first-level cache. A window of k x k elements takes about 2k operations in the
place of k². Where windows are several columns apart, only the second pass reads elements that are not adjacent.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.expr.visit import occurs
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.common.access import static_extent
from weft.schedule.rules.common.context import Context, guarded_load, reads_whole
from weft.schedule.rules.common.menus import MAX_UNROLLED_STEPS, UNROLLED
from weft.schedule.rules.common.work import steps_of, work_of


@dataclass(frozen=True, slots=True)
class Passes:
    """``first`` and ``second`` reduce a window, ``last`` is the second one or element-wise work behind it. The first
    ``rows`` axes of all of them are the same."""

    first: BlockRef
    second: BlockRef
    last: BlockRef
    rows: int

    @property
    def blocks(self) -> tuple[BlockRef, ...]:
        return (self.first, self.second) if self.last.name == self.second.name else (self.first, self.second, self.last)


def schedule_windows(context: Context, last: BlockRef) -> bool:
    """Schedule two passes over windows, and the element-wise work behind them; False if ``last`` ends no such
    passes."""
    passes = _passes(context, last)
    if passes is None:
        return False
    s = context.schedule
    loops = list(s.get_loops(last))
    count = passes.rows
    rows = loops[:count]
    work = sum(work_of(context.view(b)) for b in passes.blocks)
    if len(rows) > 1 and guarded_load(context.view(passes.first)):
        *others, at = rows  # a loop of its own is split where windows leave the data; a fused loop cannot be
        context.parallelize(context.fuse(others), work)
    else:
        at = context.fuse(rows)
        context.parallelize(at, work)
    for block in reversed(passes.blocks[:-1]):
        s.compute_at(block, at)
    for block in passes.blocks:
        _finish(context, block, at)
        context.done.add(block.name)
    return True


def _passes(context: Context, last: BlockRef) -> Passes | None:
    s = context.schedule
    second = last
    if not context.is_reduction(last):
        made = [b for b in s.get_producers(last) if b.name not in context.done and context.is_reduction(b)]
        if not context.is_injective(last) or len(made) != 1 or not _alone(context, made[0], last):
            return None
        second = made[0]
        view = context.view(last)
        if not reads_whole(view, context.view(second).output.buffer, [i.var for i in view.spatial]):
            return None
    view = context.view(second)
    made = [b for b in s.get_producers(second) if b.name not in context.done and context.is_reduction(b)]
    if len(made) != 1 or not view.is_simple or not _alone(context, made[0], second):
        return None
    rows = _shared_rows(context, made[0], second)
    if rows < 1 or len(s.get_loops(last)) != len(context.view(last).block.iters):
        return None
    vector = view.spatial[-1]
    if any(context.lanes(context.view(b)) < 2 for b in (made[0], second)):
        return None
    if view.stride(view.output, vector) != 1 or (static_extent(vector) or 2) < 2:
        return None
    return Passes(made[0], second, last, rows)


def _alone(context: Context, producer: BlockRef, reader: BlockRef) -> bool:
    """Whether only ``reader`` reads what ``producer`` makes."""
    return not context.is_output(producer) and [b.name for b in context.schedule.get_consumers(producer)] == [
        reader.name
    ]


def _shared_rows(context: Context, first: BlockRef, second: BlockRef) -> int:
    """The number of leading axes at which ``second`` reads the results of ``first`` at its own index, if it reads a
    window along the axis behind them and its own index along all others; else 0."""
    view, made = context.view(second), context.view(first)
    reads = [a for a in view.loads if a.buffer is made.output.buffer]
    if len(reads) != 1 or len(reads[0].indices) != len(view.spatial) or len(view.reduce) != 1 or not made.is_simple:
        return 0
    if any(index is not axis.var for index, axis in zip(made.output.indices, made.spatial, strict=True)):
        return 0
    moved = [d for d, (i, a) in enumerate(zip(reads[0].indices, view.spatial, strict=True)) if i is not a.var]
    if len(moved) != 1 or any(index is not a.var for index, a in zip(view.output.indices, view.spatial, strict=True)):
        return 0
    window = reads[0].indices[moved[0]]
    own = (view.spatial[moved[0]].var, view.reduce[0].var)
    return moved[0] if all(occurs(v, window) for v in own) else 0


def _finish(context: Context, block: BlockRef, at: LoopRef) -> None:
    """Vectors along the innermost axis of one block in a row, the window unrolled inside."""
    s, view = context.schedule, context.view(block)
    loops = s.get_loops(block)
    inside = loops[loops.index(at) + 1 :]
    own = {axis: loop for axis, loop in context.own_loops(block).items() if loop in inside}
    vector = own.get(view.spatial[-1])
    if vector is None:
        return
    lanes, extent = context.lanes(view), context.extent(vector)
    reduce = [own[a] for a in view.reduce if a in own]
    outer = [loop for axis, loop in own.items() if loop is not vector and axis not in view.reduce]
    if extent is None or extent > lanes:
        around, vector = s.split(vector, factors=(None, lanes))
        outer.append(around)
    s.reorder(*outer, *reduce, vector)
    context.sum_in_lanes(block, reduce, vector)
    short = steps_of(view) <= MAX_UNROLLED_STEPS
    for loop in reduce:
        s.unroll(loop, context.choose(UNROLLED, UNROLLED[-1] if short else 0))
