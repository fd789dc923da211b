"""Primitives that copy data to other buffers or memories: cache_read, cache_write, set_scope."""

from __future__ import annotations

from collections.abc import Container, Sequence

from weft.expr.iter_var import IterVar
from weft.expr.linear import ONE, ZERO, Ranges
from weft.expr.nodes import Expr, Load, Var
from weft.schedule.dependence import is_dense
from weft.schedule.movement import (
    Interval,
    Placed,
    check_covered,
    guards_domain,
    outer_guards,
    place_block,
    reads_earlier_steps,
    required_region,
    threads_together,
)
from weft.schedule.ranges import index_var
from weft.schedule.refs import BlockRef
from weft.schedule.rewrite import is_true, swap_buffer, uses
from weft.schedule.state import State
from weft.support.words import did_you_mean
from weft.tir.nodes import SCOPES, Block, Buffer, For, Region, Seq, Stmt, Store, seq
from weft.tir.visit import walk


def written_buffer(state: State, block: Block, write_index: int) -> Buffer:
    """The buffer of a write region of the block; refuses (S040) positions that it does not have."""
    return _region(state, block, block.writes, write_index).buffer


def set_scope(state: State, block: BlockRef, write_index: int, scope: str) -> None:
    """Put an intermediate buffer in another memory scope.   ``alloc C: f32[8]`` → ``alloc C: f32[8] register``

    ``register`` needs a constant size where the buffer is computed (G033), and registers have no addresses: the loops
    that index the buffer must be unrolled or vectorized. ``notes`` names a loop that is not.
    """
    found = state.block(block)
    buffer = written_buffer(state, found, write_index)
    check_scope(state, scope)
    if buffer in state.program.params:
        raise state.refuse(
            "S041", f"'{buffer.name}' is a parameter", at=found, hint="use cache_write to compute it elsewhere first"
        )
    for user in state.tree.accessors(buffer):
        wanted = user.annotations.get("operand_scopes", {}).get(buffer.name, scope)
        if wanted != scope:
            raise state.refuse("S083", f"the instruction in '{user.name}' takes '{buffer.name}' from {wanted}", at=user)
    swap_everywhere(state, buffer, buffer.replace(scope=scope))


def swap_everywhere(state: State, old: Buffer, new: Buffer) -> None:
    """Replace an intermediate buffer by ``new``, which has the same shape."""
    touching = state.tree.accessors(old)
    outermost = [b for b in touching if not any(b is not o and state.tree.is_under(b, o) for o in touching)]
    body = state.tree.replace({b: swap_buffer(b, old, new) for b in outermost})
    state.commit(body, swapped=[(old, new)])


def _region(state: State, block: Block, regions: tuple[Region, ...], position: int) -> Region:
    if not 0 <= position < len(regions):
        names = ", ".join(f"{n}: {r.buffer.name}" for n, r in enumerate(regions))
        raise state.refuse("S040", f"block '{block.name}' has no region {position}", at=block, hint=f"regions: {names}")
    return regions[position]


def check_scope(state: State, scope: str) -> None:
    """Refuse (S042) what is no memory space."""
    if scope not in SCOPES and "." not in scope:
        raise state.refuse(
            "S042", f"unknown scope '{scope}'", hint=did_you_mean(scope, SCOPES, "one of " + ", ".join(SCOPES))
        )


def cache_read(
    state: State,
    block: BlockRef,
    read_index: int,
    scope: str,
    others: Sequence[BlockRef] | None = None,
    preserve_unit_loops: bool = False,
) -> BlockRef:
    """Copy a buffer that a block reads to a new buffer, which can be moved and laid out independently.

    ::

        C[i] = f(A[i])   →   A_local[j] = A[j];  C[i] = f(A_local[i])

    Returns the copying block. ``block`` reads the copy, and so do the blocks ``others``, which read the same buffer.
    The copy is made just before the statement that contains the first of them. ``preserve_unit_loops`` is as for
    ``compute_at``.
    """
    first = state.block(block)
    buffer = _region(state, first, first.reads, read_index).buffer
    check_scope(state, scope)
    readers = sorted({first, *(state.block(b) for b in others or ())}, key=state.tree.position.__getitem__)
    scope_block = _check_readers(state, readers, buffer)
    tree = state.tree
    writers = tree.writers(buffer, scope_block)
    held = _shared_loop(state, [writers[-1], *readers]) if writers else None
    before = _child(state, held if held is not None else scope_block, readers[0])
    kept = {loop.var for loop in tree.loops_around(before)}
    late = [
        w
        for w in writers
        if tree.position[w] >= tree.position[before] and not _is_state(state, readers, w, buffer, kept)
    ]
    if late:
        raise state.refuse("S023", f"'{buffer.name}' is complete only inside the nest that reads it", at=late[0])
    name = f"{buffer.name}_{scope.split('.')[-1]}"
    copy = buffer.replace(name=state.fresh_buffer(name), scope=scope, strides=None)
    narrow = held is not None or scope_block is not None
    together = threads_together(state, held, [scope])
    needed = required_region(state, buffer, readers, held, together=together) if narrow else None
    guards = outer_guards(state, readers, held, together)
    placed = _copy_nest(
        state.fresh_block(name), [(buffer, copy)], needed, state.ranges(before), guards, preserve_unit_loops
    )
    copying = _block_of(placed)
    check_covered(state, scope_block, placed, held)
    if needed is not None:
        state.partial = state.partial | {copying.name}
    state.commit(tree.replace({before: seq(placed.stmt, before)}), new=[copy])
    moved = [state.tree.blocks[r.name] for r in readers]
    state.commit(state.tree.replace({r: swap_buffer(r, buffer, copy) for r in moved}))
    return BlockRef(copying.name)


def _is_state(state: State, readers: Sequence[Block], writer: Block, buffer: Buffer, kept: Container[Var]) -> bool:
    """Whether the readers need only what ``writer`` wrote in earlier steps of a recurrence."""
    regions = [(b, r) for b in readers for r in b.reads if r.buffer is buffer]
    return all(reads_earlier_steps(state, b, r, writer, kept) for b, r in regions)


def _check_readers(state: State, readers: list[Block], buffer: Buffer) -> Block | None:
    """The scope of ``readers``. Refuses unless all of them are in one scope, read a complete ``buffer`` and do not
    write it."""
    scope_block = state.tree.enclosing_block(readers[0])
    for reader in readers:
        _check_complete(state, reader, buffer)
        if not any(r.buffer is buffer for r in reader.reads):
            raise state.refuse("S040", f"block '{reader.name}' does not read '{buffer.name}'", at=reader)
        if any(r.buffer is buffer for r in reader.writes):
            raise state.refuse("S040", f"block '{reader.name}' also writes '{buffer.name}'", at=reader)
        if state.tree.enclosing_block(reader) is not scope_block:
            raise state.refuse("S025", f"'{reader.name}' and '{readers[0].name}' are in different blocks", at=reader)
    return scope_block


def cache_write(
    state: State,
    block: BlockRef,
    write_index: int,
    scope: str,
    others: Sequence[int] | None = None,
    preserve_unit_loops: bool = False,
) -> BlockRef:
    """Compute a block's result in a new buffer, then copy it to the old one.

    ::

        C[i] = f(A[i])   →   C_local[i] = f(A[i]);  C[j] = C_local[j]

    Returns the copying block; readers of the old buffer read its result. ``others`` are further write regions of the
    same shape, which the same block copies. ``preserve_unit_loops`` is as for ``compute_at``.
    """
    writer = state.block(block)
    buffers = _results(state, writer, (write_index, *(others or ())))
    check_scope(state, scope)
    tree = state.tree
    scope_block = tree.enclosing_block(writer)
    writers = _united(state, [tree.writers(b, scope_block) for b in buffers])
    readers = _united(state, [tree.readers(b, scope_block) for b in buffers])
    for buffer in buffers:
        _check_local(state, writer, buffer, writers, scope_block)
    held = _shared_loop(state, [*writers, *readers]) if readers else None
    held = _complete_above(state, writers, held)
    after = _child(state, held if held is not None else scope_block, writers[-1])
    early = [r for r in readers if tree.is_under(r, after)]
    if early:
        read = next(r.buffer.name for r in early[0].reads if r.buffer in buffers)
        raise state.refuse(
            "S022",
            f"block '{early[0].name}' reads '{read}' in the same nest, before it could be copied",
            at=early[0],
            hint="use cache_write before moving blocks together",
        )
    copies = _copies(state, buffers, scope)
    parts = []
    for buffer in buffers:
        _check_exact(state, tree.writers(buffer, scope_block), buffer, held)
        narrow = held is not None or scope_block is not None
        parts.append(required_region(state, buffer, writers, held, written=True) if narrow else None)
    if any(part != parts[0] for part in parts):
        raise state.refuse("S043", f"block '{writer.name}' writes different parts of its results", at=writer)
    guards = outer_guards(state, writers, held)
    pairs = list(zip(copies, buffers, strict=True))
    placed = _copy_nest(
        state.fresh_block(copies[0].name), pairs, parts[0], state.ranges(after), guards, preserve_unit_loops
    )
    if parts[0] is not None:
        state.partial = state.partial | {_block_of(placed).name}
    state.commit(tree.replace({after: seq(after, placed.stmt)}), new=copies)
    for copy, buffer in pairs:
        wrote = [state.tree.blocks[w.name] for w in writers]
        state.commit(state.tree.replace({w: swap_buffer(w, buffer, copy) for w in wrote}))
    return BlockRef(_block_of(placed).name)


def _results(state: State, writer: Block, positions: Sequence[int]) -> list[Buffer]:
    """The buffers of these write regions: different buffers of one shape."""
    buffers = [_region(state, writer, writer.writes, n).buffer for n in positions]
    if len(set(buffers)) != len(buffers) or any(b.shape != buffers[0].shape for b in buffers):
        raise state.refuse("S004", "results that are copied together must be different buffers of one shape", at=writer)
    return buffers


def _copies(state: State, buffers: list[Buffer], scope: str) -> list[Buffer]:
    suffix = scope.split(".")[-1]
    return [b.replace(name=state.fresh_buffer(f"{b.name}_{suffix}"), scope=scope, strides=None) for b in buffers]


def _united(state: State, blocks: Sequence[Sequence[Block]]) -> list[Block]:
    """All blocks of the lists, each once, in program order."""
    return sorted({b for some in blocks for b in some}, key=state.tree.position.__getitem__)


def _child(state: State, root: Stmt | None, block: Block) -> Stmt:
    """The direct child of ``root`` that contains ``block``."""
    found = state.tree.child_toward(root, block)
    return state.tree.child_toward(found, block) if isinstance(found, Seq) else found


def _check_local(state: State, writer: Block, buffer: Buffer, writers: list[Block], scope_block: Block | None) -> None:
    """Refuse buffers that are incomplete, are the state of a recurrence, or are used outside of the scope."""
    _check_complete(state, writer, buffer)
    if len(writers) > 1 and any(it.kind == IterVar.ORDERED for w in writers for it in w.iters):
        raise state.refuse("S020", f"'{buffer.name}' is the state of a recurrence", at=writer)
    if scope_block is None:
        return
    users = state.tree.accessors(buffer)
    outer = [b for b in users if not state.tree.is_under(b, scope_block) and b is not scope_block]
    if outer:
        raise state.refuse("S020", f"'{buffer.name}' is also used outside '{scope_block.name}'", at=outer[0])


def _check_exact(state: State, writers: list[Block], buffer: Buffer, held: For | None) -> None:
    """Refuse unless one iteration of ``held`` writes a box (without ``held``: everything)."""
    for writer in writers:
        regions = [r for r in writer.writes if r.buffer is buffer]
        points = all(extent is ONE for r in regions for _, extent in r.ranges)
        exact = held is not None or writer.name not in state.partial
        if held is not None or state.tree.enclosing_block(writer) is not None:
            exact = (
                exact
                and points
                and guards_domain(writer, state.ranges(writer))
                and (held is not None or is_true(writer.where))
            )
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
    """The innermost loop that contains all ``blocks``."""
    around = [state.tree.loops_around(b) for b in blocks]
    shared = [loop for loop in around[0] if all(loop in other for other in around[1:])]
    return shared[-1] if shared else None


def _complete_above(state: State, writers: list[Block], held: For | None) -> For | None:
    """The innermost loop, ``held`` or one around it, in each of whose iterations the writers complete their results."""
    if held is None:
        return None
    for loop in [*state.tree.loops_around(held), held]:
        if any(w.iters[n].kind != IterVar.SPATIAL for w in writers for n in uses(w, loop)):
            outer = state.tree.loops_around(loop)
            return outer[-1] if outer else None
    return held


def _copy_nest(
    name: str,
    pairs: Sequence[tuple[Buffer, Buffer]],
    part: list[Interval | None] | None,
    ranges: Ranges,
    guards: Sequence[Expr],
    preserve_unit_loops: bool,
) -> Placed:
    """A loop nest that copies buffers (source, target) element by element: completely, or the given part."""
    iters = tuple(IterVar(index_var(f"v{n}"), extent) for n, extent in enumerate(pairs[0][0].shape))
    at: tuple[Expr, ...] = tuple(it.var for it in iters)
    point = tuple((i, ONE) for i in at)
    block = Block(
        name,
        iters,
        tuple(ZERO for _ in iters),
        tuple(Region(source, point) for source, _ in pairs),
        tuple(Region(target, point) for _, target in pairs),
        seq(*(Store(target, at, Load(source, at)) for source, target in pairs)),
    )
    instances: dict[Var, Interval] = {}
    for it, interval in zip(iters, part or [None] * len(iters), strict=True):
        if interval is not None:
            instances[it.var] = interval
    return place_block(block, instances, ranges, guards, preserve_unit_loops=preserve_unit_loops)


def _block_of(placed: Placed) -> Block:
    return next(s for s in walk(placed.stmt) if isinstance(s, Block))
