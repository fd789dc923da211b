"""Register buffers that cannot be in registers: a register has no address, so each access must know its index."""

from __future__ import annotations

from collections.abc import Iterator

from weft.expr.nodes import Const
from weft.expr.visit import occurs
from weft.schedule.rewrite import bound_region
from weft.schedule.state import State
from weft.tir.nodes import Block, Buffer, For


def register_notes(state: State) -> Iterator[str]:
    """A remark for each register buffer that a loop indexes which is neither unrolled nor made of lanes."""
    for buffer in state.program.allocs:
        if buffer.scope != "register":
            continue
        found = _indexing_loop(state, buffer)
        if found is not None:
            block, loop = found
            yield (
                f"the register buffer '{buffer.name}' is in memory unless LLVM or the C compiler unrolls the loop "
                f"'{loop.var.name}' around '{block.name}': unroll or vectorize it, or compute the buffer inside of it"
            )


def _indexing_loop(state: State, buffer: Buffer) -> tuple[Block, For] | None:
    """A block, and a loop around it alone that decides which element of ``buffer`` it accesses and stays a loop."""
    blocks = state.tree.accessors(buffer)
    around = [state.tree.loops_around(b) for b in blocks]
    shared = 0
    while around and all(len(a) > shared and a[shared] is around[0][shared] for a in around):
        shared += 1
    for block, loops in zip(blocks, around, strict=True):
        regions = [r for r in (*block.reads, *block.writes) if r.buffer is buffer]
        indices = [start for r in regions for start, _ in bound_region(block, r)]
        for loop in loops[shared:]:
            once = isinstance(loop.extent, Const) and loop.extent.value <= 1
            gone = once or loop.kind in ("unrolled", "vectorized")
            if not gone and any(occurs(loop.var, i) for i in indices):
                return block, loop
    return None
