"""Recurrences whose results are wanted in another order than that of their steps, such as sums along rows.

The state of a recurrence has its steps first: ``state[t, row]``. A result ``[row, t]`` would be a transposed copy of
the whole state, and the operand another one. So strips of columns of the state are computed and read one after another,
and only a strip is stored, in a cache:

    parallel (strip of columns):
        state[0, strip] = …
        for t: state[t, strip] = f(state[t - 1, strip], operands[strip, t])
        result[strip, t] = g(state[t, strip])

If the result is contiguous along the steps, a strip is one vector of rows, and the operands and results of several
steps are transposed in registers. Otherwise a strip is some vectors of adjacent columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Expr, Load
from weft.expr.visit import collect, occurs
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.common.access import Access, View, static_extent
from weft.schedule.rules.common.context import Context
from weft.schedule.rules.common.menus import near
from weft.schedule.rules.common.work import exceeds_l2, work_of
from weft.schedule.rules.cpu.elementwise import MAX_TRANSPOSED_ROWS
from weft.schedule.rules.cpu.recurrence import MAX_STRIP_VECTORS, VECTORS_IN_FLIGHT, steps_column_by_column


@dataclass(frozen=True, slots=True)
class Scan:
    """A recurrence and the only other block that reads its state."""

    first: BlockRef
    """Writes the first state."""
    step: BlockRef
    reader: BlockRef
    time: int
    """The position of the reader's axis along which the steps are."""
    columns: tuple[tuple[int, ...], ...]
    """For each other dimension of the state, the positions of the reader's axes that index it as one axis."""


def schedule_scan(context: Context, block: BlockRef) -> bool:
    """Schedule a block that reads a recurrence together with the recurrence; False if ``block`` is something else."""
    scan = _scan_of(context, block)
    if scan is None:
        return False
    s, view = context.schedule, context.view(block)
    by_rows = scan.time == len(view.spatial) - 1
    for producer in _operands(context, scan):
        s.compute_inline(producer)
        context.done.add(producer.name)
    views = [context.view(b) for b in (scan.first, scan.step, block)]
    lanes, work = min(map(context.lanes, views)), sum(map(work_of, views))
    lanes = min(lanes, MAX_TRANSPOSED_ROWS) if by_rows else lanes
    vectors = 1 if by_rows else context.choose(near(MAX_STRIP_VECTORS), MAX_STRIP_VECTORS)
    loops = list(s.get_loops(block))
    time = loops[scan.time]
    joined = [context.fuse([loops[n] for n in group]) for group in scan.columns]
    firsts, steps = s.get_loops(scan.first), s.get_loops(scan.step)
    nests = [(list(firsts[1:]), firsts[0]), (list(steps[1:]), steps[0]), (joined, time)]
    extent = context.extent(joined[-1])
    lane = [columns[-1] for columns, _ in nests]
    if extent is None or extent > lanes * vectors:
        for n, (columns, _) in enumerate(nests):
            columns[-1], lane[n] = s.split(columns[-1], factors=(None, lanes * vectors))
    else:
        for columns, _ in nests:
            columns.pop()
    for (columns, inner), last in zip(nests, lane, strict=True):
        s.reorder(*columns, inner, last)
    around = [s.merge(*each) for each in zip(*(columns for columns, _ in nests), strict=True)]
    strip = context.fuse(around) if around else None
    if strip is not None:
        context.parallelize(strip, work)
    for n, (_, inner) in enumerate(nests):
        if not by_rows:
            context.vectorize(lane[n], lanes, VECTORS_IN_FLIGHT)
            continue
        arrange, each = (_row_by_row, block) if n == 2 else (_step_by_step, scan.step)
        tiles = arrange(context, inner, lane[n], lanes)
        if n and tiles is not None and strip is not None:
            _fetch_rows(context, each, strip, tiles)
    context.done |= {scan.first.name, scan.step.name, block.name}
    return True


def _step_by_step(context: Context, steps: LoopRef, lane: LoopRef, lanes: int) -> LoopRef | None:
    """Lanes are rows; the steps of a tile are unrolled, so that their operands can be transposed in registers. Returns
    the loop over the tiles, if there are several."""
    s, extent, tiles = context.schedule, context.extent(steps), None
    if extent is None or extent > lanes:
        tiles, steps = s.split(steps, factors=(None, context.choose(near(lanes, MAX_TRANSPOSED_ROWS), lanes)))
    s.unroll(steps)
    s.vectorize(lane)
    return tiles


def _fetch_rows(context: Context, block: BlockRef, strip: LoopRef, tiles: LoopRef) -> None:
    """Prefetch the rows of the next strip that ``block`` reads or writes, if they are in memory: the hardware's
    prefetcher does not follow rows that take turns, several of which share a page."""
    view, s = context.view(block), context.schedule
    for buffer in dict.fromkeys(a.buffer for a in (*view.loads, view.output)):
        if buffer in s.program.params and exceeds_l2(context.target, buffer):
            s.prefetch(strip, buffer.name, 1, within=tiles)


def _row_by_row(context: Context, steps: LoopRef, rows: LoopRef, lanes: int) -> LoopRef | None:
    """Lanes are steps; the rows of a tile are unrolled. Returns the loop over the tiles, if there are several."""
    s, extent, tiles = context.schedule, context.extent(steps), None
    if extent is None or extent > lanes:
        tiles, steps = s.split(steps, factors=(None, lanes))
        s.reorder(tiles, rows, steps)
    else:
        s.reorder(rows, steps)
    s.unroll(rows)
    s.vectorize(steps)
    return tiles


def _scan_of(context: Context, reader: BlockRef) -> Scan | None:
    """The recurrence that ``reader`` reads; None if there is none, others read it too, or it has another form."""
    s, view = context.schedule, context.view(reader)
    steps = [b for b in s.get_producers(reader) if b.name not in context.done and _is_step(context, b)]
    if len(steps) != 1 or not context.is_injective(reader) or len(s.get_loops(reader)) != len(view.spatial):
        return None
    step = context.view(steps[0])
    state = step.output.buffer
    writers = [b for b in s.get_blocks() if context.view(b).stores and context.view(b).output.buffer is state]
    first = [b for b in writers if b != steps[0]]
    reads = [a for a in view.loads if a.buffer is state]
    if len(first) != 1 or len(reads) != 1 or any(context.is_output(b) for b in writers):
        return None
    others = [b for b in s.get_consumers(steps[0]) if b not in (reader, *writers)]
    if others or not _starts(context, first[0], step):
        return None
    groups = _groups(view, reads[0])
    if groups is None:
        return None
    time, *columns = groups
    if len(time) != 1 or not columns or sorted(n for g in groups for n in g) != list(range(len(view.spatial))):
        return None
    last, axes = columns[-1], len(view.spatial)
    by_rows = time[0] == axes - 1 and last[-1] == axes - 2 and (static_extent(view.spatial[-2]) != 1 or len(last) > 1)
    if not by_rows and last[-1] != axes - 1:
        return None
    return Scan(first[0], steps[0], reader, time[0], tuple(columns))


def _is_step(context: Context, block: BlockRef) -> bool:
    """Whether the block is a recurrence of one state, the steps of which stay in their column."""
    view, s = context.view(block), context.schedule
    kinds = [i.kind for i in view.block.iters]
    if not view.is_simple or view.block.init is not None or kinds.count(IterVar.ORDERED) != 1 or view.reduce:
        return False
    own = tuple(i.var for i in view.block.iters)
    if kinds[0] != IterVar.ORDERED or len(kinds) < 2 or len(s.get_loops(block)) != len(kinds):
        return False
    return view.stores[0].indices == own and steps_column_by_column(view)


def _starts(context: Context, first: BlockRef, step: View) -> bool:
    """Whether the block writes the first state for the same columns."""
    view = context.view(first)
    if not context.is_injective(first) or len(context.schedule.get_loops(first)) != len(step.block.iters):
        return False
    same = all(
        a.extent == b.extent and static_extent(a) == static_extent(b)
        for a, b in zip(view.spatial[1:], step.block.iters[1:], strict=True)
    )
    return same and view.stores[0].indices == tuple(i.var for i in view.spatial)


def _groups(view: View, read: Access) -> list[tuple[int, ...]] | None:
    """For each index of ``read``, the adjacent axes that it joins as one; None if an index is something else. The first
    index, the step, may run backwards."""
    found: list[tuple[int, ...]] = []
    for n, index in enumerate(read.indices):
        axes = [p for p, axis in enumerate(view.spatial) if occurs(axis.var, index)]
        if not axes or axes != list(range(axes[0], axes[-1] + 1)) or collect(index, Load):
            return None
        joined: Expr = view.spatial[axes[0]].var
        for p in axes[1:]:
            joined = joined * view.spatial[p].extent + view.spatial[p].var
        if n and not view.facts.equal(index, joined):
            return None
        found.append(tuple(axes))
    return found


def _operands(context: Context, scan: Scan) -> Sequence[BlockRef]:
    """Blocks that only move operands of the recurrence into the order of its steps."""
    s = context.schedule
    own = (scan.first, scan.step)
    found = dict.fromkeys(p for b in own for p in s.get_producers(b) if p not in own)
    return [
        p
        for p in found
        if p.name not in context.done
        and context.is_injective(p)
        and not context.is_output(p)
        and all(c in own for c in s.get_consumers(p))
    ]
