"""Look-ups. They do not change the program; they are recorded so that a trace can refer to blocks and loops."""

from __future__ import annotations

from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.state import State


def get_block(state: State, name: str) -> BlockRef:
    """The block called ``name``."""
    return BlockRef(state.block(name).name)


def get_blocks(state: State) -> tuple[BlockRef, ...]:
    """All blocks, in program order."""
    return tuple(BlockRef(name) for name in state.tree.blocks)


def get_loops(state: State, block: BlockRef) -> tuple[LoopRef, ...]:
    """The loops around ``block`` within its scope, outermost first."""
    return tuple(LoopRef(loop.var) for loop in state.tree.loops_around(state.block(block)))


def get_loop(state: State, block: BlockRef, at: int) -> LoopRef:
    """One of the loops around ``block``: 0 is the outermost, -1 the innermost.

    A trace that asks for the innermost loop stays valid if a decision changes the number of loops.
    """
    loops = get_loops(state, block)
    if not -len(loops) <= at < len(loops):
        raise state.refuse("S004", f"'{block.name}' has {len(loops)} loops around it, none at {at}")
    return loops[at]


def get_producers(state: State, block: BlockRef) -> tuple[BlockRef, ...]:
    """Blocks of the same scope that write a buffer that ``block`` reads, in program order."""
    found = state.block(block)
    scope = state.tree.enclosing_block(found)
    read = {r.buffer for r in found.reads}
    blocks = {w for buffer in read for w in state.tree.writers(buffer, scope) if w is not found}
    return tuple(BlockRef(b.name) for b in sorted(blocks, key=state.tree.position.__getitem__))


def get_consumers(state: State, block: BlockRef) -> tuple[BlockRef, ...]:
    """Blocks of the same scope that read a buffer that ``block`` writes, in program order."""
    found = state.block(block)
    scope = state.tree.enclosing_block(found)
    written = {r.buffer for r in found.writes}
    blocks = {r for buffer in written for r in state.tree.readers(buffer, scope) if r is not found}
    return tuple(BlockRef(b.name) for b in sorted(blocks, key=state.tree.position.__getitem__))
