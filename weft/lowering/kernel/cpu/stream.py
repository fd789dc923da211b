"""Results that schedules request to be written past the caches: recorded as a kernel attribute for code generators."""

from __future__ import annotations

from dataclasses import replace

from weft.tir.nodes import Block, Program
from weft.tir.visit import walk

STREAM = "stream"


def mark_streams(program: Program) -> Program:
    """The program with the attribute ``stream = (names)``: the buffers whose stores bypass the caches, if any."""
    found: dict[str, None] = {}
    for block in walk(program.body):
        if isinstance(block, Block) and STREAM in block.annotations:
            found[block.writes[int(block.annotations[STREAM])].buffer.name] = None
    return replace(program, attrs=program.attrs.replace(**{STREAM: tuple(found)})) if found else program
