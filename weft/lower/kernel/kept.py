"""Buffers whose contents live from one iteration of a loop to the next: sliding windows."""

from __future__ import annotations

from weft.expr.nodes import Binary, Var
from weft.schedule.primitives.sliding import KEPT
from weft.schedule.rewrite import conjuncts
from weft.tir.nodes import Block, Buffer, Program
from weft.tir.visit import postorder, walk


def kept_across(program: Program) -> dict[Buffer, set[Var]]:
    """For each buffer of a block that relies on earlier iterations the loops that its condition mentions, which must
    stay inside of the place where the buffer is allocated."""
    found: dict[Buffer, set[Var]] = {}
    for block in walk(program.body):
        if isinstance(block, Block) and KEPT in block.annotations:
            parts = [c for c in conjuncts(block.where) if not isinstance(c, Binary) or c.op in ("or", "eq")]
            loops = {v for v in postorder(*parts) if isinstance(v, Var)}
            for region in block.writes:
                found.setdefault(region.buffer, set()).update(loops)
    return found
