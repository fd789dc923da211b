"""Primitives that stage data: cache_read, cache_write, set_scope."""

from __future__ import annotations

from collections.abc import Sequence

from weft.expr.linear import ONE, ZERO, Ranges
from weft.expr.nodes import Expr, IterVar, Load, Var
from weft.schedule.dependence import is_dense
from weft.schedule.movement import (
    Interval,
    Placed,
    check_covered,
    guards_domain,
    outer_guards,
    place_block,
    required_region,
)
from weft.schedule.ranges import index_var
from weft.schedule.refs import BlockRef
from weft.schedule.rewrite import is_true, swap_buffer, uses
from weft.schedule.state import State
from weft.tir.nodes import SCOPES, Block, Buffer, For, Region, Seq, Stmt, Store, seq
from weft.tir.visit import walk


def set_scope(state: State, block: BlockRef, write_index: int, scope: str) -> None:
    """Keep an intermediate buffer in another memory.   ``alloc C: f32[8]`` → ``alloc C: f32[8] register``"""
    found = state.block(block)
    buffer = _region(state, found, found.writes, write_index).buffer
    _check_scope(state, scope)
    if buffer in state.program.params:
        raise state.refuse(
            "S041", f"'{buffer.name}' is a parameter", at=found, hint="use cache_write to compute it elsewhere first"
        )
    swap_everywhere(state, buffer, buffer.replace(scope=scope))


def swap_everywhere(state: State, old: Buffer, new: Buffer) -> None:
    """Put ``new`` (of the same shape) in the place of an intermediate buffer."""
    touching = state.tree.accessors(old)
    outermost = [b for b in touching if not any(b is not o and state.tree.is_under(b, o) for o in touching)]
    body = state.tree.replace({b: swap_buffer(b, old, new) for b in outermost})
    state.commit(body, swapped=[(old, new)])


def _region(state: State, block: Block, regions: tuple[Region, ...], position: int) -> Region:
    if not 0 <= position < len(regions):
        names = ", ".join(f"{n}: {r.buffer.name}" for n, r in enumerate(regions))
        raise state.refuse("S040", f"block '{block.name}' has no region {position}", at=block, hint=f"regions: {names}")
    return regions[position]


def _check_scope(state: State, scope: str) -> None:
    if scope not in SCOPES and "." not in scope:
        raise state.refuse("S042", f"unknown scope '{scope}'", hint="one of " + ", ".join(SCOPES))


def cache_read(state: State, block: BlockRef, read_index: int, scope: str) -> BlockRef:
    """Copy what a block reads into a buffer of its own, to be moved and laid out at will.

    ::

        C[i] = f(A[i])   →   A_local[j] = A[j];  C[i] = f(A_local[i])

    Returns the copying block. Only ``block`` reads the copy; it is made just before the statement that holds both.
    """
    reader = state.block(block)
    buffer = _region(state, reader, reader.reads, read_index).buffer
    _check_scope(state, scope)
    _check_complete(state, reader, buffer)
    if any(r.buffer is buffer for r in reader.writes):
        raise state.refuse("S040", f"block '{reader.name}' also writes '{buffer.name}'", at=reader)
    tree = state.tree
    scope_block = tree.enclosing_block(reader)
    writers = tree.writers(buffer, scope_block)
    held = _shared_loop(state, [writers[-1], reader]) if writers else None
    root: Stmt | None = held if held is not None else scope_block
    before = tree.child_toward(root, reader)
    if isinstance(before, Seq):
        before = tree.child_toward(before, reader)
    late = [w for w in writers if tree.position[w] >= tree.position[before]]
    if late:
        raise state.refuse("S023", f"'{buffer.name}' is complete only inside the nest that reads it", at=late[0])
    name = f"{buffer.name}_{scope.split('.')[-1]}"
    copy = buffer.replace(name=state.fresh_buffer(name), scope=scope, strides=None)
    narrow = held is not None or scope_block is not None
    needed = required_region(state, buffer, [reader], held) if narrow else None
    guards = outer_guards(state, [reader], held)
    placed = _copy_nest(state.fresh_block(name), (buffer, copy), needed, state.ranges(before), guards)
    copying = _block_of(placed)
    check_covered(state, scope_block, placed, held)
    if needed is not None:
        state.partial = state.partial | {copying.name}
    state.commit(tree.replace({before: seq(placed.stmt, before)}), new=[copy])
    state.commit(state.tree.replace({reader: swap_buffer(reader, buffer, copy)}))
    return BlockRef(copying.name)


def cache_write(state: State, block: BlockRef, write_index: int, scope: str) -> BlockRef:
    """Compute a block's result in a buffer of its own and copy it to its place afterwards.

    ::

        C[i] = f(A[i])   →   C_local[i] = f(A[i]);  C[j] = C_local[j]

    Returns the copying block; readers of the old buffer read what it wrote.
    """
    writer = state.block(block)
    buffer = _region(state, writer, writer.writes, write_index).buffer
    _check_scope(state, scope)
    _check_complete(state, writer, buffer)
    tree = state.tree
    scope_block = tree.enclosing_block(writer)
    writers = tree.writers(buffer, scope_block)
    if len(writers) > 1 and any(it.kind == IterVar.ORDERED for w in writers for it in w.iters):
        raise state.refuse("S020", f"'{buffer.name}' is the state of a recurrence", at=writer)
    readers = tree.readers(buffer, scope_block)
    if scope_block is not None and any(not tree.is_under(b, scope_block) for b in tree.accessors(buffer)):
        outer = [b for b in tree.accessors(buffer) if not tree.is_under(b, scope_block) and b is not scope_block]
        if outer:
            raise state.refuse("S020", f"'{buffer.name}' is also used outside '{scope_block.name}'", at=outer[0])
    held = _shared_loop(state, [*writers, *readers]) if readers else None
    held = _complete_above(state, writers, held)
    root: Stmt | None = held if held is not None else scope_block
    last = max(writers, key=tree.position.__getitem__)
    after = tree.child_toward(root, last)
    if isinstance(after, Seq):
        after = tree.child_toward(after, last)
    copy = buffer.replace(name=state.fresh_buffer(f"{buffer.name}_{scope.split('.')[-1]}"), scope=scope, strides=None)
    early = [r for r in readers if tree.is_under(r, after)]
    if early:
        raise state.refuse(
            "S022",
            f"block '{early[0].name}' reads '{buffer.name}' in the same nest, before it could be copied",
            at=early[0],
            hint="use cache_write before moving blocks together",
        )
    _check_exact(state, writers, buffer, held)
    narrow = held is not None or scope_block is not None
    made = required_region(state, buffer, writers, held, written=True) if narrow else None
    guards = outer_guards(state, writers, held)
    placed = _copy_nest(state.fresh_block(copy.name), (copy, buffer), made, state.ranges(after), guards)
    if made is not None:
        state.partial = state.partial | {_block_of(placed).name}
    state.commit(tree.replace({after: seq(after, placed.stmt)}), new=[copy])
    state.commit(state.tree.replace({w: swap_buffer(w, buffer, copy) for w in writers}))
    return BlockRef(_block_of(placed).name)


def _check_exact(state: State, writers: list[Block], buffer: Buffer, held: For | None) -> None:
    """Refuse unless one iteration of ``held`` writes a box (without ``held``: everything)."""
    for writer in writers:
        regions = [r for r in writer.writes if r.buffer is buffer]
        points = all(extent is ONE for r in regions for _, extent in r.ranges)
        exact = held is not None or writer.name not in state.partial
        if held is not None or state.tree.enclosing_block(writer) is not None:
            exact = exact and points and guards_domain(writer) and (held is not None or is_true(writer.where))
            exact = exact and all(is_dense(state.tree, held, writer, r) for r in regions)
        inner = [b for b in state.tree.accessors(buffer) if b is not writer and state.tree.is_under(b, writer)]
        exact = exact and all(is_true(b.where) and b.name not in state.partial for b in inner)
        if not exact:
            raise state.refuse(
                "S043",
                f"the part of '{buffer.name}' that block '{writer.name}' writes is not a box",
                at=writer,
                hint="use cache_write before moving or fusing its loops",
            )


def _check_complete(state: State, block: Block, buffer: Buffer) -> None:
    if buffer.name in state.holes:
        raise state.refuse(
            "S043",
            f"'{buffer.name}' has elements that nothing writes",
            at=block,
            hint="give transform_layout a value for the padding",
        )


def _shared_loop(state: State, blocks: list[Block]) -> For | None:
    """The innermost loop around all of ``blocks``."""
    around = [state.tree.loops_around(b) for b in blocks]
    shared = [loop for loop in around[0] if all(loop in other for other in around[1:])]
    return shared[-1] if shared else None


def _complete_above(state: State, writers: list[Block], held: For | None) -> For | None:
    """The innermost loop at or around ``held`` in whose iterations the writers finish what they write."""
    if held is None:
        return None
    for loop in [*state.tree.loops_around(held), held]:
        if any(w.iters[n].kind != IterVar.SPATIAL for w in writers for n in uses(w, loop)):
            outer = state.tree.loops_around(loop)
            return outer[-1] if outer else None
    return held


def _copy_nest(
    name: str,
    buffers: tuple[Buffer, Buffer],
    part: list[Interval | None] | None,
    ranges: Ranges,
    guards: Sequence[Expr],
) -> Placed:
    """A nest that copies one buffer to the same places of another: all of it, or the given part."""
    source, target = buffers
    iters = tuple(IterVar(index_var(f"v{n}"), extent) for n, extent in enumerate(source.shape))
    at: tuple[Expr, ...] = tuple(it.var for it in iters)
    point = tuple((i, ONE) for i in at)
    block = Block(
        name,
        iters,
        tuple(ZERO for _ in iters),
        (Region(source, point),),
        (Region(target, point),),
        Store(target, at, Load(source, at)),
    )
    instances: dict[Var, Interval] = {}
    for it, interval in zip(iters, part or [None] * len(iters), strict=True):
        if interval is not None:
            instances[it.var] = interval
    return place_block(block, instances, ranges, guards)


def _block_of(placed: Placed) -> Block:
    return next(s for s in walk(placed.stmt) if isinstance(s, Block))
