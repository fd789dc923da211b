"""The primitive that keeps what a step of a recurrence hands to the next one in a buffer of its own: cache_state."""

from __future__ import annotations

from weft.expr.iter_var import IterVar
from weft.expr.linear import ONE, ZERO, linear, simplify_index
from weft.expr.nodes import Const, Expr, Load, Select, Var
from weft.expr.visit import collect
from weft.schedule.primitives.cache import check_scope
from weft.schedule.primitives.reindex import check_nest_of_its_own, root_of
from weft.schedule.ranges import index_var
from weft.schedule.refs import BlockRef
from weft.schedule.rewrite import map_loads, unique_regions
from weft.schedule.state import State
from weft.schedule.tree import nest, with_block
from weft.tir.nodes import Block, Buffer, For, Region, Store, seq


def cache_state(state: State, block: BlockRef, scope: str = "global") -> BlockRef:
    """Keep the last step of a recurrence in a buffer of its own, which the next step reads and overwrites.

    ::

        for t in 1..n:                               for i: S_state[i] = S[0, i]
          for i: S[t, i] = f(S[t-1, i], A[t, i])  →  for t in 1..n:
                                                       for i: S_state[i] = f(S_state[i], A[t, i]); S[t, i] = S_state[i]

    Returns the block that copies the state before the first step. The recurrence no longer reads the results that it
    writes. Each step must read the state of the step before it, in its own column only, on every path (S046), and the
    number of steps must be known. The block must be complete and alone in its loop nest (S020).
    """
    found = state.block(block)
    check_scope(state, scope)
    hint = "use cache_state before primitives that split its loops or move other blocks there"
    check_nest_of_its_own(state, found, hint)
    reason = why_not_last_step(found)
    if reason is not None:
        raise state.refuse("S046", f"block '{found.name}' {reason}", at=found)
    store, steps = found.body, next(it for it in found.iters if it.kind == IterVar.ORDERED)
    assert isinstance(store, Store)
    columns = {it.var: it for it in found.iters if it is not steps}
    at = tuple(i for i in store.indices if isinstance(i, Var) and i in columns)
    buffer = store.buffer
    kept = Buffer(state.fresh_buffer(f"{buffer.name}_state"), tuple(columns[i].extent for i in at), buffer.dtype, scope)
    copying = _copying(state.fresh_block(kept.name), store, steps, [columns[i] for i in at], kept)

    def on_load(load: Load) -> Expr | None:
        return Load(kept, at) if load.source is buffer else None

    step = map_loads(store, on_load)
    assert isinstance(step, Store)
    point = Region(kept, tuple((i, ONE) for i in at))
    made = with_block(
        found,
        body=seq(Store(kept, at, step.value), Store(buffer, store.indices, Load(kept, at))),
        reads=unique_regions(point if r.buffer is buffer else r for r in found.reads),
        writes=(*found.writes, point),
    )
    state.commit(state.tree.replace({found: made}), new=[kept])
    root = root_of(state, state.block(found.name))
    loops = [For(index_var(it.var.name), it.start, it.extent, root) for it in copying.iters]
    values = tuple(loop.var for loop in loops)
    state.commit(state.tree.replace({root: seq(nest(loops, with_block(copying, values=values)), root)}))
    return BlockRef(copying.name)


def why_not_last_step(block: Block) -> str | None:
    """What keeps ``block`` from being a step of a recurrence that reads the state of the step before it, in its own
    column, on every path; None if it is one."""
    store, ordered = block.body, [it for it in block.iters if it.kind == IterVar.ORDERED]
    plain = all(it.kind == IterVar.SPATIAL and it.start is ZERO for it in block.iters if it not in ordered)
    if not isinstance(store, Store) or store.mask is not None or block.init is not None or len(ordered) != 1:
        return "is not one store for each step of a recurrence"
    (steps,) = ordered
    if not plain or sorted(map(id, store.indices)) != sorted(id(it.var) for it in block.iters):
        return "does not write each result at its own variables"
    if min(int(e.value) if isinstance(e, Const) else 0 for e in (steps.start, steps.extent)) < 1:
        return "may have no first step, or no state before it"
    before = linear(steps.var - 1).key
    reads = [e for e in collect(store.value, Load) if e.source is store.buffer]
    own = all(
        linear(i).key == before if wanted is steps.var else i is wanted
        for read in reads
        for i, wanted in zip(read.indices, store.indices, strict=True)
    )
    if not reads or not own or any(read.mask is not None for read in reads):
        return "reads other results than that of the step before, in its column"
    branches = [b for e in collect(store.value, Select) for b in (e.then, e.otherwise)]
    if any(e.source is store.buffer for b in branches for e in collect(b, Load)):
        return "reads the step before it under a condition"
    return None


def _copying(name: str, store: Store, steps: IterVar, columns: list[IterVar], kept: Buffer) -> Block:
    """The block that copies the state before the first step; its variables are not bound yet."""
    fresh = {it.var: IterVar(index_var(it.var.name), it.extent) for it in columns}
    here: tuple[Expr, ...] = tuple(it.var for it in fresh.values())
    last = simplify_index(steps.start - 1)
    there = tuple(fresh[i].var if isinstance(i, Var) and i in fresh else last for i in store.indices)
    source, target = (Region(b, tuple((i, ONE) for i in at)) for b, at in ((store.buffer, there), (kept, here)))
    return Block(name, tuple(fresh.values()), here, (source,), (target,), Store(kept, here, Load(store.buffer, there)))
