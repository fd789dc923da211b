"""Primitives that choose where a block is computed: compute_at, reverse_compute_at, compute_root."""

from __future__ import annotations

from collections.abc import Sequence

from weft.expr.iter_var import IterVar
from weft.expr.linear import Ranges, linear, relax
from weft.expr.nodes import Expr, Var
from weft.schedule.dependence import is_dense
from weft.schedule.inverse_access import instances_reading
from weft.schedule.movement import (
    Interval,
    Placed,
    check_covered,
    check_movable,
    contains,
    emptied_loops,
    guards_domain,
    needed_instances,
    outer_guards,
    place_block,
    reads_earlier_steps,
    removed_root,
    required_region,
    threads_together,
)
from weft.schedule.ranges import iter_ranges
from weft.schedule.refs import BlockRef, LoopRef, Stay
from weft.schedule.rewrite import hull, uses
from weft.schedule.state import State
from weft.schedule.tree import Tree
from weft.tir.empty_reductions import may_be_empty
from weft.tir.nodes import Block, Buffer, For, Region, Seq, Stmt, seq
from weft.tir.visit import loads, walk


def compute_at(state: State, block: BlockRef, loop: LoopRef | Stay, preserve_unit_loops: bool = False) -> None:
    """Compute a producer inside a loop of its consumers: each iteration computes the part that it reads.

    ::

        for i: P[i] = …            for i:
        for i: for j:        →       P[i] = …
          C[i, j] = f(P[i])          for j: C[i, j] = f(P[i])

    The buffer keeps its shape; lowering shrinks it to the live part. In a loop of GPU threads, ``shared`` memory gets
    what all threads of the block read; bind the loops of the block to the same thread axes to share the work. Refuses
    outputs (S021), producers with consumers outside the loop (S022) and blocks that cannot move (S020). ``Stay()``, a
    possible result of ``sample_location``, changes nothing. A variable of which one value is computed gets no loop, or
    with ``preserve_unit_loops`` a loop of one iteration."""
    if isinstance(loop, Stay):
        return
    producer, target = state.block(block), state.loop(loop)
    check_movable(state, producer)
    scope = state.tree.enclosing_block(producer)
    if state.tree.is_under(producer, target) or state.tree.enclosing_block(target) is not scope:
        raise state.refuse(
            "S025", f"block '{producer.name}' and loop '{loop.name}' are not side by side in one scope", at=target
        )
    if target.kind == "vectorized":
        raise state.refuse("S025", f"'{loop.name}' is vectorized: nothing can be computed inside a lane", at=target)
    consumers = _consumers(state, producer)
    outside = [c for c in consumers if not state.tree.is_under(c, target)]
    if outside:
        raise state.refuse(
            "S022",
            f"block '{outside[0].name}' also reads '{producer.name}' and is not below loop '{loop.name}'",
            at=outside[0],
            hint="choose a loop around all consumers, or inline the producer",
        )
    _move_up_front(state, producer, consumers, target, preserve_unit_loops)


def compute_root(state: State, block: BlockRef, preserve_unit_loops: bool = False) -> None:
    """Compute a block completely before its consumers, outside all their loops; undoes ``compute_at``.

    A variable with one value gets no loop, or with ``preserve_unit_loops`` a loop of one iteration.
    """
    producer = state.block(block)
    check_movable(state, producer)
    _move_up_front(state, producer, _consumers(state, producer), None, preserve_unit_loops)


def _consumers(state: State, producer: Block) -> list[Block]:
    """The blocks that read the results of ``producer``, in program order; refuses outputs and dead blocks."""
    scope = state.tree.enclosing_block(producer)
    found: list[Block] = []
    for region in producer.writes:
        if region.buffer in state.program.params or (scope is not None and _seen_outside(state, region.buffer, scope)):
            raise state.refuse(
                "S021",
                f"'{region.buffer.name}' is an output and must be computed completely",
                at=producer,
                hint="use reverse_compute_at to move it into a loop of its producer",
            )
        found += [r for r in state.tree.readers(region.buffer, scope) if r not in found]
    if not found:
        raise state.refuse("S032", f"nothing reads what block '{producer.name}' writes", at=producer)
    return sorted(found, key=state.tree.position.__getitem__)


def _seen_outside(state: State, buffer: Buffer, scope: Block) -> bool:
    return any(not state.tree.is_under(b, scope) for b in state.tree.accessors(buffer))


def _move_up_front(
    state: State, producer: Block, consumers: list[Block], target: For | None, preserve_unit_loops: bool
) -> None:
    """Put the needed instances of ``producer`` before the first consumer in ``target`` (or in the scope)."""
    scope = state.tree.enclosing_block(producer)
    ranges = state.ranges(target.body) if target is not None else state.ranges(scope.body) if scope is not None else {}
    instances = _instances_for(state, producer, consumers, target, ranges) if target is not None else {}
    together = threads_together(state, target, [r.buffer.scope for r in producer.writes])
    guards = outer_guards(state, consumers, target, together)
    placed = place_block(producer, instances, ranges, guards, preserve_unit_loops=preserve_unit_loops)
    gone = emptied_loops(state, producer)
    without = state.tree.without(removed_root(state, producer))
    root: Stmt | None = None
    if target is not None:
        root = without.loops[target.var]
    elif scope is not None:
        root = without.blocks[scope.name]
    before = without.child_toward(root, consumers[0])
    if isinstance(before, Seq):
        before = without.child_toward(before, consumers[0])
    _check_inputs_ready(state, producer, without, before)
    check_covered(state, scope, placed, target)
    if target is not None:
        _check_starts(state, producer, consumers, target)
    partial = state.partial - {producer.name}
    state.partial = partial | {producer.name} if target is not None else partial
    state.commit(without.replace({before: seq(placed.stmt, before)}))
    state.consume(gone, placed.loops)


def _check_starts(state: State, producer: Block, consumers: list[Block], target: For) -> None:
    """Refuse if a reduction starts at what ``producer`` writes, and may start without an iteration of ``target``."""
    made = {r.buffer for r in producer.writes}
    for c in consumers:
        if c.init is None or made.isdisjoint(load.source for load in loads(c.init)):
            continue
        around = state.tree.loops_around(c)
        reducing = next((x for x in around if any(c.iters[n].kind == IterVar.REDUCE for n in uses(c, x))), None)
        inside = reducing is not None and around.index(target) >= around.index(reducing)
        if inside and may_be_empty(c, state.program.sizes):
            raise state.refuse(
                "S025",
                f"block '{c.name}' starts at what '{producer.name}' computes, also if '{target.var.name}' "
                "has no iterations",
                at=target,
                hint="choose a loop outside of the reduction",
            )


def _check_inputs_ready(state: State, block: Block, without: Tree, before: Stmt) -> None:
    """Refuse if a buffer that ``block`` reads is written at or after ``before``, its new place."""
    scope = without.enclosing_block(before)
    kept = {loop.var for loop in without.loops_around(before)}
    for region in block.reads:
        for writer in without.writers(region.buffer, scope):
            late = without.position[writer] >= without.position[before]
            if late and not reads_earlier_steps(state, block, region, state.block(writer.name), kept):
                raise state.refuse(
                    "S023",
                    f"'{region.buffer.name}', which '{block.name}' reads, is written by '{writer.name}' only later",
                    at=state.block(writer.name),
                    hint=f"move '{writer.name}' first",
                )


def _instances_for(
    state: State, producer: Block, consumers: list[Block], target: For, ranges: Ranges
) -> dict[Var, Interval]:
    """The instances of ``producer`` that one iteration of ``target`` needs, over all its outputs."""
    joined: dict[Var, Interval] | None = None
    for region in producer.writes:
        readers = [c for c in consumers if any(r.buffer is region.buffer for r in c.reads)]
        if not readers:
            continue
        together = threads_together(state, target, [region.buffer.scope])
        needed = required_region(state, region.buffer, readers, target, together=together)
        made = needed_instances(producer, region, needed, ranges)
        if joined is None:
            joined = made
        else:
            both = {v: hull(joined[v], made[v], ranges) for v in joined if v in made}
            joined = {v: interval for v, interval in both.items() if interval is not None}
    return joined or {}


def _replace(state: State, block: Block, changes: dict[Stmt, Stmt | None], placed: Placed) -> None:
    gone = emptied_loops(state, block)
    changes[removed_root(state, block)] = None
    state.commit(state.tree.replace(changes))
    state.consume(gone, placed.loops)


def reverse_compute_at(state: State, block: BlockRef, loop: LoopRef, preserve_unit_loops: bool = False) -> None:
    """Compute a consumer inside a loop of its producer: each iteration consumes the part that it produced.

    ::

        for i: for j: P[i, j] = …          for i:
        for i: for j: C[i, j] = f(P)   →     for j: P[i, j] = …
                                             for j: C[i, j] = f(P)

    The consumer may read digits of its variables, ``P[x // 8, x % 8]``, numbers made of them, ``P[i * 8 + j]``, or
    whole tiles. Refuses if a producer is not finished at the end of an iteration (S023), or if the part that it
    produced cannot be determined exactly (S024). ``preserve_unit_loops`` is as for ``compute_at``."""
    consumer, target = state.block(block), state.loop(loop)
    check_movable(state, consumer)
    tree = state.tree
    if tree.is_under(consumer, target) or tree.enclosing_block(target) is not tree.enclosing_block(consumer):
        raise state.refuse(
            "S025", f"block '{consumer.name}' and loop '{loop.name}' are not side by side in one scope", at=target
        )
    if target.kind == "vectorized":
        raise state.refuse("S025", f"'{loop.name}' is vectorized: nothing can be computed inside a lane", at=target)
    producers = _producers_in(state, consumer, target)
    last = max(producers, key=tree.position.__getitem__)
    after = tree.child_toward(target, last)
    if isinstance(after, Seq):
        after = tree.child_toward(after, last)
    ranges = state.ranges(after)
    instances = _instances_from(state, consumer, producers, target)
    guards = outer_guards(state, producers, target)
    placed = place_block(consumer, instances, ranges, guards, preserve_unit_loops=preserve_unit_loops)
    check_covered(state, tree.enclosing_block(consumer), placed, target)
    _check_races(state, consumer, placed, target)
    _replace(state, consumer, {after: seq(after, placed.stmt)}, placed)


def _producers_in(state: State, consumer: Block, target: For) -> list[Block]:
    """Producers of ``consumer`` inside ``target``; all others must be complete before it."""
    tree = state.tree
    found: list[Block] = []
    end = max(tree.position[s] for s in walk(target))
    for region in consumer.reads:
        for writer in tree.writers(region.buffer, tree.enclosing_block(consumer)):
            if tree.is_under(writer, target):
                found.append(writer)
            elif tree.position[writer] > end:
                raise state.refuse(
                    "S023",
                    f"'{consumer.name}' reads '{region.buffer.name}', complete only after '{target.var.name}'",
                    at=writer,
                )
    if not found:
        raise state.refuse("S025", f"no producer of '{consumer.name}' is below loop '{target.var.name}'", at=target)
    for writer in found:
        for around in [*tree.loops_around(target), target]:
            if any(writer.iters[n].kind != IterVar.SPATIAL for n in uses(writer, around)):
                raise state.refuse(
                    "S023",
                    f"'{writer.name}' is not finished at the end of an iteration of '{target.var.name}', because "
                    f"'{around.var.name}' is one of its reduction loops",
                    at=around,
                    hint="choose a loop outside the reduction",
                )
    for writer in found:
        _check_sole(state, consumer, writer, target)
    return list(dict.fromkeys(found))


def _check_sole(state: State, consumer: Block, writer: Block, target: For) -> None:
    """Refuse if blocks outside ``target`` write the same buffer, except the init of a reduction inside it."""
    updates = writer.init is None and any(it.kind == IterVar.REDUCE for it in writer.iters)
    for region in writer.writes:
        for other in state.tree.writers(region.buffer, state.tree.enclosing_block(consumer)):
            inits = updates and all(it.kind == IterVar.SPATIAL for it in other.iters)
            if not state.tree.is_under(other, target) and not inits:
                raise state.refuse(
                    "S023",
                    f"block '{other.name}', outside '{target.var.name}', writes a part of '{region.buffer.name}' too",
                    at=other,
                )


def _instances_from(state: State, consumer: Block, producers: Sequence[Block], target: For) -> dict[Var, Interval]:
    """The instances of ``consumer`` that read exactly the part that one iteration of ``target`` wrote."""
    best: dict[Var, Interval] = {}
    for region in consumer.reads:
        writers = [p for p in producers if any(w.buffer is region.buffer for w in p.writes)]
        if not writers:
            continue
        for writer in writers:
            if not guards_domain(writer, state.ranges(writer)) or not all(
                is_dense(state.tree, target, writer, w) for w in writer.writes if w.buffer is region.buffer
            ):
                raise state.refuse(
                    "S024",
                    f"the part of '{region.buffer.name}' that one iteration of '{target.var.name}' writes is not a box",
                    at=writer,
                    hint="choose an outer loop, or move the consumer before fusing loops",
                )
        written = required_region(state, region.buffer, writers, target, written=True)
        read = [_all_read(consumer, region, writers[0], n) for n in range(len(written))]
        made = instances_reading(consumer, region, written, read)
        if len(made) > len(best):
            best = made
    return best


def _all_read(consumer: Block, region: Region, writer: Block, dimension: int) -> bool:
    """Whether the part that ``writer`` writes along a dimension contains what the consumer reads through ``region``,
    for all values of its spatial variables.

    Otherwise some instances of the consumer do not read this part (under a condition), and would be lost.
    """
    spatial = {it.var for it in consumer.iters if it.kind == IterVar.SPATIAL}
    own = iter_ranges(consumer)
    wanted = _reach(region.ranges[dimension], {v: r for v, r in own.items() if v in spatial}, {})
    domain = iter_ranges(writer)
    target = next(r.ranges[dimension] for r in writer.writes if r.buffer is region.buffer)
    written = _reach(target, domain, domain)
    return wanted is not None and written is not None and contains(written, wanted, {})


def _reach(part: tuple[Expr, Expr], moving: Ranges, ranges: Ranges) -> Interval | None:
    """The interval that ``part``, a start and an extent, covers while the variables of ``moving`` run."""
    swept = relax(part[0], moving, ranges)
    return None if swept is None else (swept.low, swept.width + linear(part[1]).plus(-1))


def _check_races(state: State, consumer: Block, placed: Placed, target: For) -> None:
    block = next(s for s in walk(placed.stmt) if isinstance(s, Block))
    for around in [*state.tree.loops_around(target), target]:
        if around.kind in ("parallel", "thread", "virtual") and not uses(block, around):
            raise state.refuse(
                "S018",
                f"every iteration of the {around.kind} loop '{around.var.name}' would write the same part of "
                f"'{block.writes[0].buffer.name}'",
                at=around,
            )
