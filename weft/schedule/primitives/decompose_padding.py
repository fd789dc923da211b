"""The primitive that separates padding from what is padded: decompose_padding."""

from __future__ import annotations

import dataclasses

from weft.expr.folds import all_of
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, Load, Select
from weft.schedule.movement import check_movable
from weft.schedule.primitives.reduction import initial_nest
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import simplify_where
from weft.schedule.state import State
from weft.schedule.tree import with_block
from weft.tir.nodes import Block, Store, seq
from weft.tir.visit import loads, postorder, substitution, walk


def decompose_padding(state: State, block: BlockRef, loop: LoopRef) -> BlockRef:
    """Fill a padded buffer with the padding value, in front of ``loop``; the block then copies the data into it.

    ::

        for i in 10: P[i] = A[i - 1] if 1 <= i < 9 else 0

        for i in 10: P[i] = 0
        for i in 10: P[i] = A[i - 1] where 1 <= i < 9

    Returns the block that fills; ``block`` keeps its name. The block must store one choice between a value and a
    constant, without a reduction (S057), in a loop nest that belongs to it alone (S051).
    """
    found, target = state.block(block), state.loop(loop)
    check_movable(state, found)
    store = found.body
    chosen = store.value if isinstance(store, Store) and store.mask is None else None
    spatial = found.init is None and all(it.kind == IterVar.SPATIAL for it in found.iters)
    if not (
        isinstance(store, Store) and isinstance(chosen, Select) and isinstance(chosen.otherwise, Const) and spatial
    ):
        raise state.refuse(
            "S057", f"block '{found.name}' does not store a choice between a value and a constant", at=found
        )
    around = state.tree.loops_around(found)
    if target not in around:
        raise state.refuse("S051", f"'{loop.name}' is not a loop around block '{found.name}'", at=target)
    inside = around[around.index(target) :]
    if any(b is not found for b in state.tree.blocks_under(target)):
        raise state.refuse(
            "S051",
            f"'{loop.name}' contains other blocks, which might read the padding",
            at=target,
            hint="choose an inner loop",
        )
    written = [r.buffer for r in found.writes]
    if any(e.source in written for e in loads(store)) or any(isinstance(e, Load) for e in postorder(chosen.condition)):
        raise state.refuse("S057", f"the choice of block '{found.name}' depends on data", at=found)
    filling = dataclasses.replace(found, init=Store(store.buffer, store.indices, chosen.otherwise))
    fill = initial_nest(state, filling, inside, inside, f"{found.name}_pad")
    (made,) = [s for s in walk(fill) if isinstance(s, Block)]
    to_loops = substitution(dict(zip((it.var for it in found.iters), found.values, strict=True)))
    where: Expr = simplify_where(all_of(found.where, to_loops(chosen.condition)), state.ranges(found))
    rest = with_block(found, body=Store(store.buffer, store.indices, chosen.then), where=where)
    if found.name in state.partial:
        state.partial = state.partial | {made.name}
    state.conditional = state.conditional | {found.name}
    state.commit(state.tree.replace({found: rest}))
    anchor = state.loop(loop)
    state.commit(state.tree.replace({anchor: seq(fill, anchor)}))
    return BlockRef(made.name)
