"""Memory of GPU threads on a CPU: what threads of a block share is plain memory where there is one thread."""

from __future__ import annotations

from dataclasses import replace

from weft.tir.nodes import Program
from weft.tir.visit import substitute

_OF_THREADS = ("shared", "warp")


def use_plain_memory(program: Program) -> Program:
    """The program with intermediate buffers of scope ``shared`` and ``warp`` in plain memory."""
    swaps = {b: b.replace(scope="global") for b in program.allocs if b.scope in _OF_THREADS}
    if not swaps:
        return program
    allocs = tuple(swaps.get(b, b) for b in program.allocs)
    return replace(program, allocs=allocs, body=substitute(program.body, {}, swaps))
