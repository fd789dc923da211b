"""Buffers that keep their contents across iterations of a loop: sliding windows."""

from __future__ import annotations

from weft.expr.nodes import Var
from weft.schedule.primitives.sliding import kept_loops
from weft.tir.nodes import Block, Buffer, For, Program
from weft.tir.visit import walk


def kept_across(program: Program) -> dict[Buffer, set[Var]]:
    """For each buffer of a block that uses results of earlier iterations: the loops that must be inside the buffer's
    allocation. Iterations of a parallel loop never use each other's results; each has a buffer of its own."""
    found: dict[Buffer, set[Var]] = {}
    parallel: set[Var] = set()
    for s in walk(program.body):
        if isinstance(s, For) and s.kind == "parallel":
            parallel.add(s.var)
        elif isinstance(s, Block) and (loops := kept_loops(s)):
            for region in s.writes:
                found.setdefault(region.buffer, set()).update(loops)
    return {buffer: loops - parallel for buffer, loops in found.items()}
