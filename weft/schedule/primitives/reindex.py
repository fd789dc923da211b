"""The primitive that copies an operand into the shape of a block's own variables: reindex."""

from __future__ import annotations

from collections.abc import Sequence

from weft.expr.iter_var import IterVar
from weft.expr.linear import ONE, ZERO, is_nonnegative, linear, relax
from weft.expr.nodes import Expr, Load, Var
from weft.schedule.movement import emptied_loops
from weft.schedule.primitives.cache import written_buffer
from weft.schedule.ranges import index_var, iter_ranges
from weft.schedule.refs import BlockRef
from weft.schedule.rewrite import is_true, map_loads, unique_regions
from weft.schedule.state import State
from weft.schedule.tree import nest, with_block
from weft.tir.nodes import Block, Buffer, For, Region, Stmt, Store, seq
from weft.tir.visit import loads, postorder, stores, substitution, transform


def reindex(state: State, block: BlockRef, index: int, written: bool = False) -> BlockRef:
    """Copy an operand or a result of a block into a buffer that is indexed by the block's variables.

    ::

        C[n] += A[n * 2 + k] * W[k]   →   A_reindex[n, k] = A[n * 2 + k];  C[n] += A_reindex[n, k] * W[k]

    ``index`` is the position of the read region, or with ``written`` of the write region; the result is then copied to
    its old place afterwards. Returns the copying block. The dimensions of the new buffer are the variables that the
    accesses use, in their order. The block must access the buffer at one place only (S040), must be alone in its loop
    nest, complete (S020), and the place must exist for all values of the variables (S045).
    """
    found = state.block(block)
    regions = found.writes if written else found.reads
    if not 0 <= index < len(regions):
        raise state.refuse("S040", f"block '{found.name}' has no region {index}", at=found)
    buffer = written_buffer(state, found, index) if written else regions[index].buffer
    at = only_place(state, found, buffer, written)
    _check_alone(state, found, buffer, written)
    own = [it for it in found.iters if any(it.var in postorder(e) for e in at)]
    _check_exists(state, found, buffer, at)
    copy = Buffer(
        state.fresh_buffer(f"{buffer.name}_reindex"),
        tuple(it.extent for it in own),
        buffer.dtype,
        buffer.scope if buffer not in state.program.params else "global",
    )
    name = state.fresh_block(copy.name)
    copying = _copying(name, buffer, copy, own, at, written)
    made = _redirected(found, buffer, copy, tuple(it.var for it in own))
    root = root_of(state, found)
    whole = state.tree.replace({found: made})
    state.commit(whole, new=[copy])
    anchor = root_of(state, state.block(found.name))
    assert root is not None
    state.commit(state.tree.replace({anchor: seq(anchor, copying) if written else seq(copying, anchor)}))
    return BlockRef(name)


def root_of(state: State, block: Block) -> Stmt:
    """The outermost loop around the block in its scope, or the block itself."""
    around = state.tree.loops_around(block)
    return around[0] if around else block


def only_place(state: State, block: Block, buffer: Buffer, written: bool) -> tuple[Expr, ...]:
    """The only indices at which the block accesses ``buffer``, as expressions of its variables."""
    parts = [block.body] if block.init is None else [block.init, block.body]
    places = {e.indices for s in parts for e in loads(s) if e.source is buffer}
    places |= {s.indices for part in parts for s in stores(part) if s.buffer is buffer}
    if len(places) != 1:
        raise state.refuse(
            "S040",
            f"block '{block.name}' accesses '{buffer.name}' at {len(places)} places",
            at=block,
            hint="one is needed",
        )
    writes = any(r.buffer is buffer for r in block.writes)
    if writes != written:
        raise state.refuse(
            "S040", f"block '{block.name}' {'also writes' if writes else 'reads'} '{buffer.name}'", at=block
        )
    return next(iter(places))


def _check_alone(state: State, block: Block, buffer: Buffer, written: bool) -> None:
    check_alone_in_nest(state, block)
    writers = [b for b in state.tree.writers(buffer) if b is not block]
    late = [b for b in writers if state.tree.position[b] > state.tree.position[root_of(state, block)]]
    if (written and writers) or late:
        raise state.refuse("S023", f"'{buffer.name}' is also written by '{writers[0].name}'", at=writers[0])
    if buffer.name in state.holes:
        raise state.refuse("S043", f"'{buffer.name}' has elements that nothing writes", at=block)


def check_nest_of_its_own(state: State, block: Block, hint: str) -> None:
    """Refuse (S020) unless the block is complete and alone in its loop nest; ``hint`` says what would help."""
    around = state.tree.loops_around(block)
    alone = len(emptied_loops(state, block)) == len(around) and is_true(block.where)
    if not alone or block.name in state.partial or state.tree.enclosing_block(block) is not None:
        raise state.refuse("S020", f"block '{block.name}' is not complete in a nest of its own", at=block, hint=hint)


def check_alone_in_nest(state: State, block: Block) -> None:
    """Refuse (S020) unless the block is complete, alone in its loop nest, and its variables run from 0 in any order."""
    check_nest_of_its_own(state, block, f"use {state.running} before other primitives on its loops")
    if any(it.kind not in (IterVar.SPATIAL, IterVar.REDUCE) or it.start is not ZERO for it in block.iters):
        raise state.refuse("S020", f"the variables of block '{block.name}' are ordered or do not start at 0", at=block)


def _check_exists(state: State, block: Block, buffer: Buffer, at: Sequence[Expr]) -> None:
    """Refuse unless all indices are in bounds for all values of the block's variables."""
    ranges = iter_ranges(block)
    for e, size in zip(at, buffer.shape, strict=True):
        swept = relax(e, ranges, ranges)
        inside = swept is not None and is_nonnegative(swept.low, {})
        if swept is None or not inside or not is_nonnegative(linear(size) - swept.low - swept.width.plus(1), {}):
            raise state.refuse(
                "S045",
                f"'{buffer.name}' may have no element at {e} for some values of the variables of '{block.name}'",
                at=block,
                hint="pad it in a stage of its own",
            )


def _copying(
    name: str, buffer: Buffer, copy: Buffer, own: Sequence[IterVar], at: Sequence[Expr], written: bool
) -> Stmt:
    """The nest that copies between the buffer and its copy."""
    iters = tuple(IterVar(index_var(it.var.name), it.extent) for it in own)
    swap = substitution({old.var: new.var for old, new in zip(own, iters, strict=True)})
    here: tuple[Expr, ...] = tuple(it.var for it in iters)
    there = tuple(swap(e) for e in at)
    source, target = ((copy, here), (buffer, there)) if written else ((buffer, there), (copy, here))
    made_loops = [For(index_var(it.var.name), ZERO, it.extent, Store(*target, Load(*source))) for it in iters]
    block = Block(
        name,
        iters,
        tuple(x.var for x in made_loops),
        (Region(source[0], tuple((i, ONE) for i in source[1])),),
        (Region(target[0], tuple((i, ONE) for i in target[1])),),
        Store(target[0], target[1], Load(source[0], source[1])),
    )
    return nest(made_loops, block)


def _redirected(block: Block, old: Buffer, new: Buffer, at: tuple[Var, ...]) -> Block:
    """``block`` with its accesses of ``old`` replaced by those of ``new`` at its own variables."""

    def on_load(load: Load) -> Expr | None:
        return Load(new, at, load.mask) if load.source is old else None

    def on_stmt(stmt: Stmt) -> Stmt | None:
        return Store(new, at, stmt.value, stmt.mask) if isinstance(stmt, Store) and stmt.buffer is old else None

    def regions(given: Sequence[Region]) -> tuple[Region, ...]:
        point = Region(new, tuple((v, ONE) for v in at))
        return unique_regions(point if r.buffer is old else r for r in given)

    made = transform(map_loads(block, on_load), on_stmt)
    assert isinstance(made, Block)
    return with_block(made, reads=regions(block.reads), writes=regions(block.writes))
