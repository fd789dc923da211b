"""Double buffering: while one copy of a buffer is read, the other is filled for the next iteration.

This is a pipeline of two stages: the statements that fill the buffer, and those on which they depend, run one iteration
ahead of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.schedule.schedule import Schedule
from weft.schedule.tree import STAGES, Tree, statements_of
from weft.support.errors import ScheduleError
from weft.tir.nodes import Block, Buffer, For, Program, Stmt

WISH = "double_buffer"


def double_buffers(program: Program) -> Program:
    """Pipeline the loops around blocks that request two copies of their result. The request is ignored if the loop, or
    the order of its statements, does not allow it."""
    tree = Tree(program)
    wishes = [b for b in tree.blocks.values() if WISH in b.annotations]
    if not wishes:
        return program
    s = Schedule(program)
    for block in wishes:
        buffer = block.writes[int(block.annotations[WISH])].buffer
        loop = _loop_of(tree, block, buffer)
        ref = next((r for r in s.get_loops(block.name) if loop is not None and r.var is loop.var), None)
        if loop is None or ref is None or STAGES in s.state.loop(ref).annotations:
            continue
        stages = _ahead(tree, loop, block)
        try:
            s.pipeline(ref, stages, range(len(stages)))
        except ScheduleError:
            continue
    return s.program


def _loop_of(tree: Tree, block: Block, buffer: Buffer) -> For | None:
    """The innermost loop around the block and all accesses to the buffer."""
    touching = tree.accessors(buffer)
    for loop in reversed(tree.loops_around(block)):
        if all(tree.is_under(b, loop) for b in touching):
            return loop
    return None


def _ahead(tree: Tree, loop: For, block: Block) -> list[int]:
    """Stage 0 for the statement of ``block`` and the earlier statements on which it depends, 1 for all others."""
    body = statements_of(loop)
    own = next(n for n, s in enumerate(body) if tree.is_under(block, s))
    needed = {own}
    for n in reversed(range(own)):
        if any(_share(tree, body[n], body[m]) for m in needed):
            needed.add(n)
    return [int(n not in needed) for n in range(len(body))]


def _share(tree: Tree, a: Stmt, b: Stmt) -> bool:
    """Whether one of two statements writes a buffer that the other accesses."""
    (written, touched), (also_written, also_touched) = (_accesses(tree.blocks_under(s)) for s in (a, b))
    return not (written.isdisjoint(also_touched) and also_written.isdisjoint(touched))


def _accesses(blocks: Sequence[Block]) -> tuple[set[Buffer], set[Buffer]]:
    """The buffers that blocks write, and all buffers that they access."""
    written = {r.buffer for b in blocks for r in b.writes}
    return written, written | {r.buffer for b in blocks for r in b.reads}
