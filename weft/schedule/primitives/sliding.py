"""Sliding windows: values of a block stay alive across iterations of a loop, in a buffer that holds only live values.

``store_at`` computes only values that earlier iterations of the loop did not compute, so each value is computed once.
``fold_storage`` stores a dimension modulo the size of the window (a rolling buffer).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.expr.folds import all_of, conjuncts
from weft.expr.iter_var import IterVar
from weft.expr.linear import ONE, ZERO, Linear, is_nonnegative, linear, mentions, relax
from weft.expr.nodes import Binary, Const, Expr, Load, Var, make
from weft.schedule.dependence import is_dense
from weft.schedule.index_map import carries_whole
from weft.schedule.movement import Interval, is_domain_bound, margin_of, required_region
from weft.schedule.ranges import moving
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import hull, map_loads, simplify_where, unique_regions, uses
from weft.schedule.state import State
from weft.schedule.tree import Tree, with_block
from weft.support.dtypes import INDEX
from weft.tir.nodes import Block, Buffer, For, Region, Stmt, Store
from weft.tir.visit import postorder, substitution, transform

KEPT_ACROSS = "kept_across"
"""Annotation of a block that uses values of earlier iterations: lowering allocates its buffers outside of the loops
whose first iteration occurs in its condition."""


def store_at(state: State, block: BlockRef, loop: LoopRef) -> None:
    """Keep the values of a block alive across the iterations of a loop around it; each iteration computes only new
    values.

    ::

        for y:                                    for y:
          for r in 3: P[y + r] = …          →       for r in 3: P[y + r] = … where y == 0 or r > 1
          C[y] = f(P[y], P[y+1], P[y+2])            C[y] = f(P[y], P[y+1], P[y+2])

    The part that one iteration needs must be a box that moves forward along at most one dimension (S060), and all uses
    must be inside the loop (S022). A folded buffer is refused if it holds less than one iteration of ``loop`` computes
    (S061). Afterwards the iterations of the loop depend on each other.
    """
    found, target = state.block(block), state.loop(loop)
    _check_place(state, found, target)
    around = state.tree.loops_around(found)
    inside = moving(around[around.index(target) + 1 :])
    _check_conditions(state, found, target, inside)
    slide = _sliding(state, found, target)
    _check_elements(state, found, target)
    start: Expr = target.start
    if slide is None:
        guard: Expr = target.var == start
    else:
        position, (low, width) = slide
        before = substitution({target.var: target.var - 1})(low.expr())
        new = linear(found.values[position]) - linear(before) - width
        guard = make("or", target.var == start, _positive(new))
    ranges = state.ranges(found)
    where = simplify_where(all_of(found.where, guard), ranges)
    kept = tuple(r.buffer.name for r in found.writes)
    annotations = found.annotations.replace(**{KEPT_ACROSS: True})
    state.commit(state.tree.replace({found: with_block(found, where=where, annotations=annotations)}))
    state.carried = state.carried | {target.var}
    state.conditional = state.conditional | {found.name}
    state.kept = {**state.kept, **dict.fromkeys(kept, target.var)}


def _positive(form: Linear) -> Expr:
    """``form > 0``, with positive terms on one side and negative terms on the other."""
    added = Linear({t: f for t, f in form.terms.items() if f > 0}, max(form.constant, 0))
    taken = Linear({t: -f for t, f in form.terms.items() if f < 0}, max(-form.constant, 0))
    return added.expr() > taken.expr()


def _check_place(state: State, block: Block, loop: For) -> None:
    tree = state.tree
    if loop not in tree.loops_around(block):
        raise state.refuse(
            "S025", f"loop '{loop.var.name}' is not around block '{block.name}'", at=loop, hint="use compute_at first"
        )
    if loop.kind not in ("serial", "unrolled"):
        raise state.refuse("S015", f"'{loop.var.name}' is {loop.kind}: its iterations do not run in order", at=loop)
    for region in block.writes:
        buffer = region.buffer
        if buffer in state.program.params:
            raise state.refuse("S041", f"'{buffer.name}' is a parameter", at=block, hint="use cache_write first")
        for other in tree.accessors(buffer):
            if not tree.is_under(other, loop):
                raise state.refuse(
                    "S022", f"block '{other.name}' uses '{buffer.name}' outside of '{loop.var.name}'", at=other
                )
            if other is not block and any(w.buffer is buffer for w in other.writes):
                raise state.refuse(
                    "S020",
                    f"'{buffer.name}' is written by block '{other.name}' too",
                    at=other,
                    hint="use store_at first",
                )


def _check_conditions(state: State, block: Block, loop: For, inside: dict[Var, tuple[Linear, Linear]]) -> None:
    """Refuse conditions that do not bound the domain or end the work from some iteration of the loop on."""
    for part in conjuncts(block.where):
        if is_domain_bound(block, part) or (KEPT_ACROSS in block.annotations and getattr(part, "op", "") == "or"):
            continue
        margin = margin_of(part)
        forward = margin is not None and margin.terms.get(loop.var, 0) <= 0
        if mentions(part, inside) or not forward or margin is None or _hidden(margin, loop):
            raise state.refuse(
                "S060",
                f"block '{block.name}' runs under the condition '{part}'",
                at=block,
                hint="use store_at before splitting the block's own loops",
            )


def _check_elements(state: State, block: Block, loop: For) -> None:
    """Refuse folded buffers that hold less than one iteration computes: all its values stay alive."""
    around = state.tree.loops_around(block)
    inside = moving(around[around.index(loop) + 1 :])
    varying = [
        it.var
        for it, value in zip(block.iters, block.values, strict=True)
        if it.kind == IterVar.SPATIAL and mentions(value, inside)
    ]
    for region in block.writes:
        starts = [start for start, _ in region.ranges]
        if not all(any(v in linear(e).terms for e in starts) or carries_whole(starts, v) for v in varying):
            raise state.refuse(
                "S061",
                f"'{region.buffer.name}' holds only a window of what an iteration of '{loop.var.name}' computes",
                at=block,
                hint="use store_at or run_once of the outer loop before fold_storage",
            )


def _hidden(form: Linear, loop: For) -> bool:
    """Whether the loop's variable occurs inside a compound term."""
    only: dict[Var, object] = {loop.var: None}
    return any(t is not loop.var and mentions(t, only) for t in form.terms)


def _sliding(state: State, block: Block, loop: For) -> tuple[int, Interval] | None:
    """The iteration variable that moves with the loop, and its interval in one iteration; None if no variable moves."""
    around = state.tree.loops_around(block)
    inside = moving(around[around.index(loop) + 1 :])
    ranges = state.ranges(block)
    only: dict[Var, object] = {loop.var: None}
    found: tuple[int, Interval] | None = None
    for n, (it, value) in enumerate(zip(block.iters, block.values, strict=True)):
        if not mentions(value, only):
            continue
        swept = relax(value, inside, ranges)
        if it.kind != IterVar.SPATIAL or swept is None or found is not None or mentions(swept.width.expr(), only):
            raise state.refuse(
                "S060",
                f"what block '{block.name}' computes does not slide along one dimension with '{loop.var.name}'",
                at=block,
            )
        step = linear(substitution({loop.var: loop.var + 1})(swept.low.expr())) - swept.low
        if not is_nonnegative(step, ranges):
            raise state.refuse("S060", f"the window of '{block.name}' does not move forward", at=block)
        found = (n, (swept.low, swept.width))
    if not all(is_dense(state.tree, loop, block, region) for region in block.writes):
        raise state.refuse("S060", f"block '{block.name}' leaves gaps in what it computes", at=block)
    return found


def window(state: State, block: BlockRef) -> tuple[int, int]:
    """The dimension along which the buffer of a block slides, and how many of its elements are alive at the same time.

    Refuses (S061) if that number is not known.
    """
    found = state.block(block)
    buffer = found.writes[0].buffer
    variable = state.kept.get(buffer.name)
    loop = None if variable is None else state.tree.loops.get(variable)
    writers = state.tree.writers(buffer, state.tree.enclosing_block(found))
    if loop is None or loop not in state.tree.loops_around(found) or len(writers) != 1:
        raise state.refuse(
            "S061",
            f"'{buffer.name}' is not kept across a loop that still stands around all that writes it",
            at=found,
            hint="use store_at, and fold before the loop is split or cut",
        )
    state.running = state.running or "fold_storage"
    slide = _sliding(state, found, loop)
    if slide is None:
        raise state.refuse("S061", f"'{buffer.name}' does not move with '{loop.var.name}'", at=found)
    iteration = found.iters[slide[0]].var
    axes = [d for d, (start, _) in enumerate(found.writes[0].ranges) if start is iteration]
    if len(axes) != 1:
        raise state.refuse("S061", f"'{iteration.name}' is not one dimension of '{buffer.name}'", at=found)
    readers = state.tree.readers(buffer, state.tree.enclosing_block(found))
    read = required_region(state, buffer, readers, loop)[axes[0]]
    alive = hull(read, slide[1], state.ranges(loop.body))
    if read is None or alive is None or not alive[1].is_constant or not _moves_forward(state, read[0], loop):
        raise state.refuse("S061", f"how much of '{buffer.name}' is alive at a time is not known", at=found)
    return axes[0], alive[1].constant + 1


def _moves_forward(state: State, low: Linear, loop: For) -> bool:
    after = linear(substitution({loop.var: loop.var + 1})(low.expr()))
    return is_nonnegative(after - low, state.ranges(loop.body))


def fold_storage(state: State, block: BlockRef, axis: int, factor: int) -> None:
    """Store a dimension modulo ``factor``: a rolling buffer of the window that ``store_at`` keeps alive.

    ::

        P[i, j]   →   P[i % 3, j]

    Refuses (S061) if more than ``factor`` elements may be alive at the same time.
    """
    found = state.block(block)
    buffer = found.writes[0].buffer
    if not 0 <= axis < len(buffer.shape) or factor < 1:
        raise state.refuse("S004", f"'{buffer.name}' has no axis {axis}, or factor {factor} is not positive", at=found)
    if len(found.writes) != 1:
        raise state.refuse("S061", f"block '{found.name}' writes several buffers", at=found)
    sliding, needed = window(state, block)
    if axis != sliding or factor < needed:
        raise state.refuse(
            "S061",
            f"axis {axis} of '{buffer.name}' cannot be stored modulo {factor}",
            at=found,
            hint=f"axis {sliding} has {needed} elements alive at a time",
        )
    shape = tuple(Const(factor, INDEX) if d == axis else e for d, e in enumerate(buffer.shape))
    small = buffer.replace(shape=shape)
    around = state.tree.loops_around(found)
    target = around.index(state.tree.loops[state.kept[buffer.name]])
    moves = next(n for n, it in enumerate(found.iters) if it.var is found.writes[0].ranges[axis][0])
    lanes = next((x for x in around[:target] if x.kind == "vectorized" and moves in uses(found, x)), None)
    if lanes is not None:
        raise state.refuse(
            "S061", f"the lanes of '{lanes.var.name}' share '{buffer.name}' and have windows of their own", at=lanes
        )
    state.commit(_folded(state.program.body, buffer, small, axis, factor), swapped=[(buffer, small)])


def _folded(body: Stmt, old: Buffer, new: Buffer, axis: int, factor: int) -> Stmt:
    def at(indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(i % factor if d == axis else i for d, i in enumerate(indices))

    def on_load(load: Load) -> Expr | None:
        return Load(new, at(load.indices), load.mask) if load.source is old else None

    def region(r: Region) -> Region:
        if r.buffer is not old:
            return r
        start, extent = r.ranges[axis]
        folded = (start % factor, ONE) if extent is ONE else (ZERO, new.shape[axis])
        return Region(new, tuple(folded if d == axis else pair for d, pair in enumerate(r.ranges)))

    def on_stmt(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Store) and stmt.buffer is old:
            return Store(new, at(stmt.indices), stmt.value, stmt.mask)
        if isinstance(stmt, Block):
            reads, writes = (unique_regions(map(region, rs)) for rs in (stmt.reads, stmt.writes))
            return dataclasses.replace(stmt, reads=reads, writes=writes)
        return None

    return transform(map_loads(body, on_load), on_stmt)


def run_once(state: State, block: BlockRef, loop: LoopRef, at: int) -> None:
    """Run a block only in the first iteration of a loop whose iterations all repeat it.

    ::

        for t in 32: B[0] = …   →   for t in 32: B[0] = … where t == 0

    The loop must be around the block, none of the block's variables may depend on it (S062), and it must start at
    ``at``. No other block in that loop may write the same buffer (S062): an init in the loop would overwrite the result
    of the first iteration.
    """
    found, target = state.block(block), state.loop(loop)
    if target not in state.tree.loops_around(found):
        raise state.refuse("S025", f"loop '{loop.name}' is not around block '{found.name}'", at=target)
    if uses(found, target) or not (isinstance(target.start, Const) and int(target.start) == at):
        raise state.refuse(
            "S062",
            f"the iterations of '{loop.name}' do not repeat '{found.name}', or {at} is not the first",
            at=target,
            hint="a predicate may leave out only what the first iteration has done",
        )
    for region in found.writes:
        for other in state.tree.accessors(region.buffer):
            writes = any(w.buffer is region.buffer for w in other.writes)
            nested = state.tree.is_under(other, found) or state.tree.is_under(found, other)
            if writes and state.tree.is_under(other, target) and not nested:
                raise state.refuse(
                    "S062",
                    f"block '{other.name}' writes '{region.buffer.name}' in every iteration of '{loop.name}' too",
                    at=other,
                    hint="call run_once before decompose_reduction or partition",
                )
    if target.kind not in ("serial", "unrolled"):
        raise state.refuse("S015", f"'{loop.name}' is {target.kind}: its iterations do not run in order", at=target)
    _check_elements(state, found, target)
    where = all_of(found.where, target.var == target.start)
    annotations = found.annotations.replace(**{KEPT_ACROSS: True})  # later iterations use the result of the first one
    state.commit(state.tree.replace({found: with_block(found, where=where, annotations=annotations)}))
    state.carried = state.carried | {target.var}
    state.conditional = state.conditional | {found.name}
    state.kept = {**state.kept, **{r.buffer.name: target.var for r in found.writes}}


def kept_loops(block: Block) -> list[Var]:
    """The loops across which a block keeps its values: those whose first iteration occurs in its condition."""
    if KEPT_ACROSS not in block.annotations:
        return []
    found: dict[Var, None] = {}
    for part in conjuncts(block.where):
        first = part.a if isinstance(part, Binary) and part.op == "or" else part
        if isinstance(first, Binary) and first.op == "eq":
            found.update((v, None) for v in postorder(first) if isinstance(v, Var))
    return list(found)


def kept_buffers(tree: Tree) -> dict[str, Var]:
    """The buffers that a scheduled program keeps across loops, and the innermost loop for each."""
    found: dict[str, Var] = {}
    for block in tree.blocks.values():
        loops = [v for v in kept_loops(block) if v in tree.loops]
        for region in block.writes if loops else ():
            found[region.buffer.name] = loops[-1]
    return found


def check_not_kept(state: State, blocks: Sequence[Block]) -> None:
    """Refuse to move or copy blocks that access a buffer kept across a loop: it holds only a window of the values."""
    for block in blocks:
        for region in (*block.reads, *block.writes):
            if region.buffer.name in state.kept:
                raise state.refuse(
                    "S063",
                    f"block '{block.name}' uses '{region.buffer.name}', which is kept across a loop",
                    at=block,
                    hint="move blocks before store_at",
                )
