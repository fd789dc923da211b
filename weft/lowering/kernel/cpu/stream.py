"""Results that schedules want written past the caches: a wish in the attributes of the kernel, for code generators."""

from __future__ import annotations

from dataclasses import replace

from weft.tir.nodes import Block, Program
from weft.tir.visit import walk

STREAM = "stream"


def asked_streams(program: Program) -> tuple[str, ...]:
    """The names of the buffers of a scheduled program that are written past the caches."""
    found: dict[str, None] = {}
    for block in walk(program.body):
        if isinstance(block, Block) and STREAM in block.annotations:
            found[block.writes[int(block.annotations[STREAM])].buffer.name] = None
    return tuple(found)


def with_streams(program: Program, names: tuple[str, ...]) -> Program:
    """The kernel with ``stream = (buffer names)``, if there are any."""
    return replace(program, attrs=program.attrs.replace(**{STREAM: names})) if names else program
