"""The primitive that computes the indices of an access beforehand: cache_index."""

from __future__ import annotations

from weft.expr.iter_var import IterVar
from weft.expr.linear import ONE, ZERO
from weft.expr.nodes import Expr, Load
from weft.schedule.primitives.cache import check_scope
from weft.schedule.primitives.reindex import check_alone_in_nest, only_place, root_of
from weft.schedule.ranges import index_var
from weft.schedule.refs import BlockRef
from weft.schedule.rewrite import map_loads, unique_regions
from weft.schedule.state import State
from weft.schedule.tree import nest, with_block
from weft.support.dtypes import INDEX
from weft.tir.nodes import Block, Buffer, For, Region, Store, seq
from weft.tir.visit import postorder, substitution


def cache_index(state: State, block: BlockRef, read_index: int, axis: int, scope: str = "global") -> BlockRef:
    """Compute the index along ``axis`` of what a block reads before the block, and store it in a buffer.

    ::

        B[i, j] = A[(i * 7 + 3) % n, j]   →   A_index[i] = (i * 7 + 3) % n;  B[i, j] = A[A_index[i], j]

    ``read_index`` is the position of the read region. Returns the block that computes the indices. The dimensions of
    the new buffer are the variables in the index, in their order. The block must read the buffer at one place only,
    whose index is computed from the block's variables (S040), and must be alone in its loop nest and complete (S020).
    """
    found = state.block(block)
    if not 0 <= read_index < len(found.reads):
        raise state.refuse("S040", f"block '{found.name}' has no region {read_index}", at=found)
    check_scope(state, scope)
    buffer = found.reads[read_index].buffer
    at = only_place(state, found, buffer, written=False)
    if not 0 <= axis < len(at):
        raise state.refuse("S004", f"'{buffer.name}' has no dimension {axis}", at=found)
    wanted = at[axis]
    if any(isinstance(e, Load) for e in postorder(wanted)):
        raise state.refuse(
            "S040", f"the index {wanted} is read from data", at=found, hint="cache_read copies the data that it reads"
        )
    check_alone_in_nest(state, found)
    own = [it for it in found.iters if it.var in postorder(wanted)]
    name = state.fresh_buffer(f"{buffer.name}_index")
    indices = Buffer(name, tuple(it.extent for it in own), INDEX, scope)
    computing = state.fresh_block(name)
    iters = tuple(IterVar(index_var(it.var.name), it.extent) for it in own)
    here = tuple(it.var for it in iters)
    value = substitution({old.var: new.var for old, new in zip(own, iters, strict=True)})(wanted)
    loops = [For(index_var(it.var.name), ZERO, it.extent, Store(indices, here, value)) for it in iters]
    point = Region(indices, tuple((v, ONE) for v in here))
    made = Block(computing, iters, tuple(x.var for x in loops), (), (point,), Store(indices, here, value))
    state.commit(
        state.tree.replace({found: _reading(found, buffer, axis, Load(indices, tuple(it.var for it in own)))}),
        new=[indices],
    )
    anchor = root_of(state, state.block(found.name))
    state.commit(state.tree.replace({anchor: seq(nest(loops, made), anchor)}))
    return BlockRef(computing)


def _reading(block: Block, buffer: Buffer, axis: int, index: Load) -> Block:
    """``block`` with ``index`` in the place of its index along ``axis`` of ``buffer``."""

    def on_load(load: Load) -> Expr | None:
        if load.source is not buffer:
            return None
        return Load(buffer, (*load.indices[:axis], index, *load.indices[axis + 1 :]), load.mask)

    whole = (ZERO, buffer.shape[axis])
    reads = [
        Region(r.buffer, (*r.ranges[:axis], whole, *r.ranges[axis + 1 :])) if r.buffer is buffer else r
        for r in block.reads
    ]
    assert isinstance(index.source, Buffer)
    reads.append(Region(index.source, tuple((i, ONE) for i in index.indices)))
    made = map_loads(block, on_load)
    assert isinstance(made, Block)
    return with_block(made, reads=unique_regions(reads))
