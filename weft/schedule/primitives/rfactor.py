"""The primitive that divides a reduction into independent parts: rfactor."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.expr.folds import all_of, conjuncts
from weft.expr.iter_var import IterVar
from weft.expr.linear import ONE, ZERO, mentions
from weft.expr.nodes import Expr, Load, Var
from weft.schedule.combination import Combination, combination_of, counterexample
from weft.schedule.dependence import check_independent
from weft.schedule.movement import guards_domain
from weft.schedule.ranges import index_var, loop_range
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import reads_of_steps, rebind, starts_reduction, substitute_regions, uses
from weft.schedule.state import State
from weft.schedule.tree import nest, with_loop
from weft.support.errors import ScheduleError
from weft.tir.nodes import Block, Buffer, For, If, Region, Seq, Stmt, Store, seq
from weft.tir.visit import regions_read, substitution


def rfactor(
    state: State, loop: LoopRef, axis: int = 0, reassociate: bool = False, share_loops: bool = False
) -> BlockRef:
    """Give each iteration of a reduction loop a separate partial result; combine the partial results afterwards.

    ::

        for i: for k: for r:               for i: for k: for r: P[r, i] += A[i, k, r]
          C[i] += A[i, k, r]         →     for i: for r: C[i] += P[r, i]

    With ``share_loops`` the loops around both stay common: ``for i: …; …``. So do loops that are neither serial nor
    parallel, that have annotations or that must run in order, and all loops around these.
    ``axis`` is the position of the new dimension in the partial buffer. Returns the block of the partial results; the
    combining block keeps the old name. A reduction of several values (arg-max, mean and variance) gets one partial
    buffer for each value. The result may depend on the order: sums and products of floats are rounded, user-defined
    reducers may choose between ties. Such reductions are refused (S054) unless ``reassociate`` is given or the block is
    annotated ``reassociate``. A combination is refused (S053) if an example shows that it is not associative.
    """
    factored = state.loop(loop)
    below = state.tree.blocks_under(factored.body)
    if len(below) != 1 or below[0].init is None:
        raise state.refuse("S050", f"below '{loop.name}' there is not exactly one reduction with its init", at=factored)
    block = below[0]
    combination = combination_in_any_order(state, block, reassociate)
    reduce_loops, root = _reduce_loops(state, block, factored)
    buffers = [_partial_buffer(state, b, factored, axis) for b, _ in combination.accumulators]
    partial = _partial_block(state, block, factored, reduce_loops, combination, buffers, axis)
    final = _combining_nest(state, block, factored, root, combination, buffers, axis)
    if block.name in state.partial:
        state.partial = state.partial | {partial.name}
    state.commit(state.tree.replace({block: partial}), new=buffers)
    anchor = state.loop(LoopRef(root.var))
    state.commit(state.tree.replace({anchor: seq(anchor, final)}))
    if not share_loops:
        _separate(state, state.loop(LoopRef(root.var)))
    return BlockRef(partial.name)


def _separate(state: State, partial: For) -> None:
    """Give the nest of the partial results copies of the loops around it and around the nest that combines them."""
    both, *above = state.tree.ancestors(partial)
    if not isinstance(both, Seq) or len(both.stmts) != 2:
        return
    chain: list[For] = []
    for loop in above:
        if not isinstance(loop, For) or not _is_separable(state, loop):
            break
        chain.insert(0, loop)
    if not chain:
        return
    values: dict[Var, Expr] = {}
    copies: list[For] = []
    ranges = state.ranges(chain[0])
    for loop in chain:
        swap = substitution(values)
        made = with_loop(loop, var=index_var(loop.var.name), start=swap(loop.start), extent=swap(loop.extent))
        values[loop.var] = made.var
        ranges[made.var] = loop_range(made)
        copies.append(made)
    state.commit(
        state.tree.replace(
            {chain[0]: seq(nest(copies, rebind(both.stmts[0], values, ranges)), nest(chain, both.stmts[1]))}
        )
    )


def _is_separable(state: State, loop: For) -> bool:
    """Whether all iterations may compute their partial results before the first one combines them."""
    if loop.kind not in ("serial", "parallel") or loop.annotations or loop.var in state.pipelined:
        return False
    try:
        check_independent(state, loop, reduce_allowed=False)
    except ScheduleError:
        return False
    return loop.var not in state.kept.values()


def combination_in_any_order(state: State, block: Block, reassociate: bool) -> Combination:
    """The combination of the block. Refuses if it may not be combined in another order."""
    found = combination_of(block)
    if isinstance(found, str):
        raise state.refuse("S053", found, at=block)
    dtype = found.accumulators[0][0].dtype
    exact = found.operator is not None and not (dtype.is_float and found.operator in ("add", "mul"))
    if not (exact or reassociate or block.annotations.get("reassociate")):
        what = "sum floats" if found.operator else "combine values"
        raise state.refuse(
            "S054",
            f"block '{block.name}' would {what} in another order",
            at=block,
            hint="pass reassociate=True where that is allowed",
        )
    reason = None if found.operator else counterexample(found)
    if reason is not None:
        raise state.refuse("S053", f"the combination of block '{block.name}' is not associative: {reason}", at=block)
    return found


def _reduce_loops(state: State, block: Block, factored: For) -> tuple[list[For], For]:
    """The loops that only the reduction uses, and the outermost of them."""
    reduces = {n for n, it in enumerate(block.iters) if it.kind == IterVar.REDUCE}
    found: list[For] = []
    for loop in state.tree.loops_around(block):
        bound = set(uses(block, loop))
        if bound & reduces:
            if bound - reduces:
                raise state.refuse("S052", f"'{loop.var.name}' drives spatial and reduce variables at once", at=loop)
            found.append(loop)
    if factored not in found:
        raise state.refuse("S052", f"'{factored.var.name}' is not a reduction loop of '{block.name}'", at=factored)
    for loop in found:
        names: dict[Var, object] = {other.var: None for other in state.tree.loops_around(block)}
        if mentions(loop.extent, names) or mentions(loop.start, names):
            raise state.refuse("S052", f"the range of '{loop.var.name}' depends on other loops", at=loop)
        if loop.start is not ZERO:
            message = f"'{loop.var.name}' starts at {loop.start}"
            raise state.refuse("S052", message, at=loop, hint="normalize(loop) lets it start at 0")
    if not starts_reduction(block, found):
        raise state.refuse("S052", f"'{found[0].var.name}' does not begin the reduction", at=found[0])
    return found, found[0]


def _partial_buffer(state: State, buffer: Buffer, factored: For, axis: int) -> Buffer:
    place = axis if axis >= 0 else axis + len(buffer.shape) + 1
    if not 0 <= place <= len(buffer.shape):
        raise state.refuse("S004", f"axis {axis} is not a position among {len(buffer.shape)} dimensions")
    scope = "global" if buffer in state.program.params else buffer.scope
    return Buffer(
        state.fresh_buffer(f"{buffer.name}_rf"), _inserted(buffer.shape, axis, factored.extent), buffer.dtype, scope
    )


def _inserted(values: tuple[Expr, ...], axis: int, new: Expr) -> tuple[Expr, ...]:
    place = axis if axis >= 0 else axis + len(values) + 1
    return (*values[:place], new, *values[place:])


def _partial_block(
    state: State,
    block: Block,
    factored: For,
    reduce_loops: list[For],
    combination: Combination,
    targets: Sequence[Buffer],
    axis: int,
) -> Block:
    """The block over the partial buffer: one variable for each reduction loop; that of the factored loop is spatial."""
    by_loop = {loop.var: index_var(loop.var.name) for loop in reduce_loops}
    to_iters = substitution(dict(by_loop))
    spatial = _not_reduced(block)
    old = {it.var: to_iters(v) for it, v in zip(block.iters, block.values, strict=True) if it.kind == IterVar.REDUCE}
    fresh = {it.var: index_var(it.var.name) for it, _ in spatial}
    swap = substitution({**old, **fresh})
    places = [
        (b, _inserted(tuple(swap(i) for i in at), axis, by_loop[factored.var]))
        for b, (_, at) in zip(targets, combination.accumulators, strict=True)
    ]
    body = combination.into(places, [swap(e) for e in combination.sources])
    where, guards = _guards(state, block, reduce_loops)
    for condition in reversed(
        combination.conditions
    ):  # conditions may read memory; the accesses are in bounds only if the guards hold
        body = If(swap(condition), body)
    if guards:
        body = If(all_of(*(to_iters(g) for g in guards)), body)
    # Partial results of a step of a recurrence read earlier steps only: their own instances run in any order.
    kept = tuple(dataclasses.replace(it, var=fresh[it.var], kind=IterVar.SPATIAL) for it, _ in spatial)
    inner = tuple(
        IterVar(by_loop[x.var], x.extent, IterVar.SPATIAL if x is factored else IterVar.REDUCE) for x in reduce_loops
    )
    return Block(
        state.fresh_block(f"{block.name}_rf"),
        (*kept, *inner),
        (*(v for _, v in spatial), *(x.var for x in reduce_loops)),
        substitute_regions(reads_of_steps(block), {**old, **fresh}),
        tuple(_point(b, at) for b, at in places),
        body,
        seq(*(Store(b, at, swap(v)) for (b, at), v in zip(places, combination.identity, strict=True))),
        where,
        block.annotations,
    )


def _not_reduced(block: Block) -> list[tuple[IterVar, Expr]]:
    """The variables of the block that are not reduced, with their values."""
    pairs = zip(block.iters, block.values, strict=True)
    return [(it, v) for it, v in pairs if it.kind != IterVar.REDUCE]


def _point(buffer: Buffer, at: tuple[Expr, ...]) -> Region:
    return Region(buffer, tuple((i, ONE) for i in at))


def _guards(state: State, block: Block, reduce_loops: list[For]) -> tuple[Expr, list[Expr]]:
    """The part of the block's condition on spatial loops, and the parts on reduction loops."""
    if not guards_domain(block, state.ranges(block)):
        raise state.refuse("S052", f"block '{block.name}' runs only where a condition of its own holds", at=block)
    reduce: dict[Var, object] = {x.var: None for x in reduce_loops}
    others: dict[Var, object] = {x.var: None for x in state.tree.loops_around(block) if x.var not in reduce}
    spatial: list[Expr] = []
    guards: list[Expr] = []
    for part in conjuncts(block.where):
        if not mentions(part, reduce):
            spatial.append(part)
        elif mentions(part, others):
            raise state.refuse("S052", f"the guard of '{block.name}' mixes spatial and reduction loops", at=block)
        else:
            guards.append(part)
    return all_of(*spatial), guards


def _combining_nest(
    state: State,
    block: Block,
    factored: For,
    root: For,
    combination: Combination,
    partials: Sequence[Buffer],
    axis: int,
) -> Stmt:
    """The loop nest after ``root`` that combines the partial results."""
    around = state.tree.loops_around(block)
    reduces = {n for n, it in enumerate(block.iters) if it.kind == IterVar.REDUCE}
    values: dict[Var, Expr] = {}
    copies: list[For] = []
    for loop in around[around.index(root) :]:
        if set(uses(block, loop)) - reduces:
            swap = substitution(values)
            kind = "serial" if loop.kind == "parallel" else loop.kind
            made = with_loop(
                loop, var=index_var(loop.var.name), start=swap(loop.start), extent=swap(loop.extent), kind=kind
            )
            values[loop.var] = made.var
            copies.append(made)
    swap = substitution(values)
    over = For(index_var(factored.var.name), ZERO, factored.extent, block)
    lane = IterVar(index_var(factored.var.name), factored.extent, IterVar.REDUCE)
    spatial = _not_reduced(block)
    parts = [(b, _inserted(at, axis, lane.var)) for b, (_, at) in zip(partials, combination.accumulators, strict=True)]
    reduce_vars: dict[Var, object] = {x.var: None for x in around if set(uses(block, x)) & reduces}
    where = all_of(*(swap(c) for c in conjuncts(block.where) if not mentions(c, reduce_vars)))
    assert block.init is not None
    combined = dataclasses.replace(
        block,
        iters=(*(it for it, _ in spatial), lane),
        values=(*(swap(v) for _, v in spatial), over.var),
        reads=(*(_point(b, at) for b, at in parts), *regions_read(block.init, {it.var for it, _ in spatial})),
        body=combination.into(combination.accumulators, [Load(b, at) for b, at in parts]),
        where=where,
    )
    return nest([*copies, over], combined)
