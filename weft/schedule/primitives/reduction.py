"""Primitives on reductions: decompose_reduction, rfactor."""

from __future__ import annotations

import dataclasses

from weft.expr.folds import all_of, conjuncts
from weft.expr.iter_var import IterVar
from weft.expr.linear import ONE
from weft.expr.nodes import Expr, Var
from weft.expr.visit import free_vars
from weft.schedule.dependence import runs_once
from weft.schedule.ranges import index_var, loop_range
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import reads_of_steps, simplify_where, starts_reduction, uses
from weft.schedule.state import State
from weft.schedule.tree import nest, with_block, with_loop
from weft.tir.nodes import Block, Buffer, For, Region, Stmt, seq
from weft.tir.visit import loads, regions_read, substitute, substitution


def decompose_reduction(state: State, block: BlockRef, loop: LoopRef) -> BlockRef:
    """Move the init of a reduction out of its loops, to the place just before ``loop``.

    ::

        for i: for k:                      for i: C[i] = 0
          init: C[i] = 0            →      for i: for k: C[i] += A[i, k]
          C[i] += A[i, k]

    Returns the new init block; ``block`` keeps its name for the update. No reduction loop of several iterations may be
    outside ``loop`` (S051).
    """
    update, target = state.block(block), state.loop(loop)
    if update.init is None:
        raise state.refuse("S050", f"block '{update.name}' has no init", at=update)
    around = state.tree.loops_around(update)
    if target not in around:
        raise state.refuse("S051", f"'{loop.name}' is not a loop around block '{update.name}'", at=target)
    inside = around[around.index(target) :]
    spatial_loops = _check_order(state, update, loop, around)
    if not starts_reduction(update, [x for x in around if x in inside or x.extent is ONE]):
        raise state.refuse("S051", f"'{loop.name}' does not begin the reduction of '{update.name}'", at=target)
    _check_surroundings(state, update, loop, inside)
    init = initial_nest(state, update, inside, spatial_loops, f"{update.name}_init")
    name = next(b.name for b in _blocks(init))
    if update.name in state.partial:
        state.partial = state.partial | {name}
    state.commit(state.tree.replace({update: with_block(update, init=None, reads=reads_of_steps(update))}))
    anchor = state.loop(loop)
    state.commit(state.tree.replace({anchor: seq(init, anchor)}))
    return BlockRef(name)


def _check_order(state: State, update: Block, loop: LoopRef, around: list[For]) -> list[For]:
    """The loops from ``loop`` inwards that spatial variables use. Refuses reductions with a loop outside ``loop``, and
    loops on which spatial and reduce variables both depend."""
    target = state.loop(loop)
    reduces = {n for n, it in enumerate(update.iters) if it.kind == IterVar.REDUCE}
    steps = {n for n, it in enumerate(update.iters) if it.kind == IterVar.ORDERED}
    ordered = next((x for x in around[around.index(target) :] if steps & set(uses(update, x))), None)
    if ordered is not None:
        raise state.refuse(
            "S051", f"'{ordered.var.name}' runs over steps in order", at=ordered, hint="choose a loop inside"
        )
    for outer in around[: around.index(target)]:
        if outer.extent is not ONE and reduces & set(uses(update, outer)):
            raise state.refuse(
                "S051",
                f"the reduction also runs over '{outer.var.name}', outside '{loop.name}'",
                at=outer,
                hint="choose the outermost reduction loop, or reorder it inside",
            )
    spatial_loops = [x for x in around[around.index(target) :] if set(uses(update, x)) - reduces]
    mixed = next((x for x in spatial_loops if set(uses(update, x)) & reduces), None)
    if mixed is not None:
        raise state.refuse("S051", f"'{mixed.var.name}' runs over spatial and reduce variables at once", at=mixed)
    return spatial_loops


def _check_surroundings(state: State, update: Block, loop: LoopRef, inside: list[For]) -> None:
    """Refuse if other statements inside ``loop`` depend on the place of the init."""
    target = inside[0]
    for region in update.writes:
        others = [w for w in state.tree.writers(region.buffer, state.tree.enclosing_block(update)) if w is not update]
        inner = next((w for w in others if state.tree.is_under(w, target)), None)
        if inner is not None:
            raise state.refuse(
                "S051", f"block '{inner.name}' also writes '{region.buffer.name}' inside '{loop.name}'", at=inner
            )
    assert update.init is not None
    for buffer in dict.fromkeys(load.source for load in loads(update.init) if isinstance(load.source, Buffer)):
        writers = state.tree.writers(buffer, state.tree.enclosing_block(update))
        late = next((w for w in writers if w is not update and state.tree.is_under(w, target)), None)
        if late is not None:
            raise state.refuse(
                "S051",
                f"the init reads '{buffer.name}', which block '{late.name}' computes inside '{loop.name}'",
                at=late,
                hint="choose a loop inside",
            )
    carrying = next((x for x in inside if x.var in state.carried), None)
    if carrying is not None and any(r.buffer.name in state.kept for r in update.writes):
        raise state.refuse(
            "S063",
            f"block '{update.name}' keeps its result across '{carrying.var.name}'",
            at=carrying,
            hint="choose a loop inside",
        )
    if not runs_once(state, update, inside):
        raise state.refuse(
            "S055",
            f"block '{update.name}' may run some instances again inside '{loop.name}'",
            at=target,
            hint="choose a loop inside the one at which the block is computed",
        )


def _blocks(stmt: Stmt) -> list[Block]:
    while isinstance(stmt, For):
        stmt = stmt.body
    assert isinstance(stmt, Block)
    return [stmt]


def initial_nest(state: State, update: Block, inside: list[For], spatial_loops: list[For], name: str) -> Stmt:
    """The init as a block called ``name`` in copies of the loops that its spatial variables use; other loops have their
    start value."""
    values: dict[Var, Expr] = {}
    copies: list[For] = []
    for loop in inside:
        if loop in spatial_loops:
            swap = substitution(values)
            made = with_loop(
                loop,
                var=index_var(f"{loop.var.name}_init"),
                start=swap(loop.start),
                extent=swap(loop.extent),
                kind="serial" if loop.kind == "parallel" else loop.kind,
            )
            values[loop.var] = made.var
            copies.append(made)
        else:
            values[loop.var] = substitution(values)(loop.start)
    fresh = {it.var: index_var(it.var.name) for it in update.iters if it.kind != IterVar.REDUCE}
    swap = substitution(values)
    kept = [(it, v) for it, v in zip(update.iters, update.values, strict=True) if it.kind != IterVar.REDUCE]
    ranges = {**state.ranges(inside[0]), **{c.var: loop_range(c) for c in copies}}
    assert update.init is not None
    init = substitute(update.init, dict(fresh))
    block = Block(
        state.fresh_block(name),
        tuple(dataclasses.replace(it, var=fresh[it.var]) for it, _ in kept),
        tuple(swap(v) for _, v in kept),
        regions_read(init, set(fresh.values())),
        tuple(_renamed(update, fresh)),
        init,
        where=simplify_where(all_of(*_conditions_of_init(update, values, state.program.sizes)), ranges),
        annotations=update.annotations,
    )
    return nest(copies, block)


def _conditions_of_init(update: Block, values: dict[Var, Expr], sizes: tuple[Var, ...]) -> list[Expr]:
    """The guard of ``update`` for its init, where ``values`` are those of the loops.

    What remains of a guard on reduction loops alone says that the range is not empty. The init must not depend on it.
    """
    swap = substitution(values)
    found = []
    for condition in conjuncts(update.where):
        made = swap(condition)
        variables = free_vars(made)
        if made is condition or not variables or not set(variables) <= set(sizes):
            found.append(made)
    return found


def _renamed(update: Block, fresh: dict[Var, Var]) -> list[Region]:
    swap = substitution(dict(fresh))
    return [dataclasses.replace(r, ranges=tuple((swap(a), swap(b)) for a, b in r.ranges)) for r in update.writes]
