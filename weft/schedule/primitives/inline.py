"""Primitives that merge a block into another: compute_inline, reverse_compute_inline."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from weft.expr.folds import all_of
from weft.expr.iter_var import IterVar
from weft.expr.linear import ZERO, linear
from weft.expr.nodes import Const, Expr, Load, Var
from weft.schedule.inverse_access import Solved, instance_at
from weft.schedule.movement import check_movable, emptied_loops, removed_root
from weft.schedule.ranges import iter_ranges
from weft.schedule.refs import BlockRef
from weft.schedule.rewrite import (
    map_loads,
    simplify_where,
    substitute_regions,
    unique_regions,
    widened,
    within,
)
from weft.schedule.state import State
from weft.support.dtypes import INDEX
from weft.tir.nodes import Block, Buffer, Region, Stmt, Store
from weft.tir.visit import substitution, transform


def compute_inline(state: State, block: BlockRef) -> None:
    """Compute each element of a producer where it is read, and remove the producer and its buffer.

    ::

        P[i] = f(A[i]);  C[i] = g(P[i + 1])   →   C[i] = g(f(A[i + 1]))

    The producer must be a single store without reduction (S030), indexed by its own variables (S031). Its buffer must
    be an intermediate buffer with readers (S032).
    """
    producer = state.block(block)
    buffer, store, variables = _element_store(state, producer)
    if buffer in state.program.params:
        raise state.refuse("S032", f"'{buffer.name}' is an output and must be stored", at=producer)
    readers = [b for b in state.tree.accessors(buffer) if b is not producer]
    if not readers:
        raise state.refuse("S032", f"nothing reads '{buffer.name}'", at=producer)
    changes: dict[Stmt, Stmt | None] = {
        reader: _with_inlined(reader, producer, buffer, store, variables)
        for reader in readers
        if not any(state.tree.is_under(reader, other) for other in readers if other is not reader)
    }
    gone = emptied_loops(state, producer)
    changes[removed_root(state, producer)] = None
    state.commit(state.tree.replace(changes), dropped=[buffer])
    state.consume([BlockRef(producer.name), *gone], [BlockRef(r.name) for r in readers])


def _element_store(state: State, block: Block) -> tuple[Buffer, Store, list[Var | None]]:
    """The only store of a spatial block, and the variable that indexes each dimension (None: always 0)."""
    check_movable(state, block)
    if block.init is not None or any(it.kind != IterVar.SPATIAL for it in block.iters):
        raise state.refuse(
            "S030", f"block '{block.name}' is a reduction", at=block, hint="use compute_at to bring it near its reader"
        )
    store = block.body
    if not isinstance(store, Store) or store.mask is not None or len(block.writes) != 1:
        raise state.refuse("S030", f"block '{block.name}' is not a single store", at=block)
    own = {it.var for it in block.iters}
    found: list[Var | None] = []
    for position in store.indices:
        form = linear(position)
        if isinstance(position, Var) and position in own and position not in found:
            found.append(position)
        elif form.is_constant and form.constant == 0:
            found.append(None)
        else:
            raise state.refuse(
                "S031", f"block '{block.name}' stores at {list(store.indices)}, not at its own variables", at=block
            )
    if any(it.var not in found and not _single(it) for it in block.iters):
        raise state.refuse("S031", f"block '{block.name}' stores each element several times", at=block)
    return store.buffer, store, found


def _single(it: IterVar) -> bool:
    form = linear(it.extent)
    return form.is_constant and form.constant == 1


def _with_inlined(reader: Block, producer: Block, buffer: Buffer, store: Store, variables: list[Var | None]) -> Block:
    single = {it.var: it.start for it in producer.iters if it.var not in variables}

    def values_at(indices: tuple[Expr, ...]) -> dict[Var, Expr]:
        return {**single, **{v: i for v, i in zip(variables, indices, strict=True) if v is not None}}

    def inline(load: Load) -> Expr | None:
        return substitution(values_at(load.indices))(store.value) if load.source is buffer else None

    def update(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Block) or all(r.buffer is not buffer for r in stmt.reads):
            return None
        reads: list[Region] = []
        for region in stmt.reads:
            reads += [region] if region.buffer is not buffer else _reads_for(producer, region, values_at)
        return dataclasses.replace(stmt, reads=unique_regions(reads))

    made = transform(map_loads(reader, inline), update)
    assert isinstance(made, Block)
    return made


def _reads_for(
    producer: Block, region: Region, values_at: Callable[[tuple[Expr, ...]], dict[Var, Expr]]
) -> tuple[Region, ...]:
    """The regions that ``producer`` reads for a region of its output: by substitution for a single element, else by
    widening."""
    if all(linear(extent).is_constant and linear(extent).constant == 1 for _, extent in region.ranges):
        values: Mapping[Var, Expr] = values_at(tuple(start for start, _ in region.ranges))
        return substitute_regions(producer.reads, values)
    starts = values_at(tuple(start for start, _ in region.ranges))
    extents = values_at(tuple(extent for _, extent in region.ranges))
    return tuple(widened(r, starts, extents) for r in producer.reads)


def reverse_compute_inline(state: State, block: BlockRef) -> None:
    """Compute an element-wise consumer in the block of its producer, which then stores the consumer's result.

    ::

        P[i] = f(A[i]);  C[i] = g(P[i])   →   P block: C[i] = g(f(A[i]))

    The consumer must be the only reader and must read all elements of the producer, each once; it may read them at
    digits of its variables, ``P[x // 8, x % 8]``, or at numbers made of them, ``P[i * 8 + j]``. The producer must not
    be a reduction (S033; use reverse_compute_at instead)."""
    consumer = state.block(block)
    if consumer.name in state.conditional:
        raise state.refuse("S033", f"block '{consumer.name}' runs for a part of its domain only", at=consumer)
    target, store, _ = _element_store(state, consumer)
    producer, source = _sole_producer(state, consumer)
    _, inner, _ = _element_store(state, producer)
    solved = _matched_variables(state, consumer, source, producer, inner)
    bindings = solved.values
    for region in consumer.reads:
        for writer in state.tree.writers(region.buffer, state.tree.enclosing_block(producer)):
            if writer is not producer and state.tree.position[writer] > state.tree.position[producer]:
                raise state.refuse("S023", f"'{region.buffer.name}' is complete only after the producer", at=writer)
    swap = substitution(bindings)

    def replace_load(load: Load) -> Expr | None:
        return inner.value if load.source is source else None

    stored = map_loads(Store(target, tuple(swap(i) for i in store.indices), swap(store.value)), replace_load)
    reads = [*producer.reads, *(r for r in substitute_regions(consumer.reads, bindings) if r.buffer is not source)]
    made = dataclasses.replace(
        producer,
        body=stored,
        reads=unique_regions(reads),
        writes=substitute_regions(consumer.writes, bindings),
    )
    made = dataclasses.replace(made, where=_domain_guard(state, producer, consumer, solved))
    if made.where is not producer.where:
        state.conditional = state.conditional | {producer.name}
    gone = emptied_loops(state, consumer)
    changes: dict[Stmt, Stmt | None] = {producer: made, removed_root(state, consumer): None}
    state.commit(state.tree.replace(changes), dropped=[source])
    state.consume([BlockRef(consumer.name), *gone], [BlockRef(producer.name)])


def _sole_producer(state: State, consumer: Block) -> tuple[Block, Buffer]:
    """The only producer of ``consumer``, and the buffer between them, which no other block reads."""
    scope = state.tree.enclosing_block(consumer)
    pairs = {
        (writer, r.buffer)
        for r in consumer.reads
        for writer in state.tree.writers(r.buffer, scope)
        if r.buffer not in state.program.params
    }
    chosen = [
        (w, b)
        for w, b in pairs
        if [a for a in state.tree.accessors(b) if a is not w] == [consumer] and len(w.writes) == 1
    ]
    if not chosen:
        raise state.refuse(
            "S033", f"block '{consumer.name}' is not the only reader of an intermediate buffer", at=consumer
        )
    return max(chosen, key=lambda pair: state.tree.position[pair[0]])


def _matched_variables(state: State, consumer: Block, source: Buffer, producer: Block, inner: Store) -> Solved:
    """The consumer's variables as expressions of the producer's variables, from the one element of ``source`` that it
    reads."""
    regions = [r for r in consumer.reads if r.buffer is source]
    solved = instance_at(consumer, regions[0], inner.indices) if len(regions) == 1 else None
    values = dict(solved.values) if solved is not None else {}
    for it in consumer.iters:
        if it.var not in values and _single(it):
            values[it.var] = it.start
    if solved is None or len(values) != len(consumer.iters):
        raise state.refuse(
            "S033",
            f"block '{consumer.name}' does not read '{source.name}' element by element",
            at=consumer,
            hint="inline the producer into it with compute_inline",
        )
    for (start, _), position in zip(regions[0].ranges, inner.indices, strict=True):
        _check_covered(state, consumer, start, producer, position)
    return Solved(values, solved.limits)


def _check_covered(state: State, consumer: Block, index: Expr, producer: Block, position: Expr) -> None:
    """Refuse if the consumer has elements that the producer lacks (padding, for example): nothing would write them."""
    for it in producer.iters:
        if it.var is position and within(index, it.start, it.extent, iter_ranges(consumer)):
            raise state.refuse(
                "S033",
                f"block '{consumer.name}' writes more than block '{producer.name}' computes",
                at=consumer,
                hint="leave the two apart, or inline the producer into it with compute_inline",
            )


def _domain_guard(state: State, producer: Block, consumer: Block, solved: Solved) -> Expr:
    """The condition of the producer, combined with the domain of the consumer's variables."""
    to_loops = substitution(dict(zip((it.var for it in producer.iters), producer.values, strict=True)))
    domain = {**state.ranges(producer), **iter_ranges(producer)}
    conditions: list[Expr] = []
    for it in consumer.iters:
        value = solved.values[it.var]
        if within(value, it.start, it.extent, domain):
            conditions += within(to_loops(value), it.start, it.extent, state.ranges(producer))
    for value, limit in solved.limits:
        if within(value, ZERO, Const(limit, INDEX), domain):
            conditions += within(to_loops(value), ZERO, Const(limit, INDEX), state.ranges(producer))
    return simplify_where(all_of(producer.where, *conditions), state.ranges(producer))
