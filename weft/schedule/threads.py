"""Rules for programs with loops of GPU threads, which every primitive must keep."""

from __future__ import annotations

from weft.expr.iter_var import IterVar
from weft.schedule.dependence import repeats
from weft.schedule.state import State
from weft.tir.nodes import Block, For, Program
from weft.tir.threads import PRIVATE, misuse, starts_threads
from weft.tir.visit import walk


def has_threads(program: Program) -> bool:
    """Whether a loop is bound to a thread axis."""
    return any(isinstance(s, For) and s.kind == "thread" for s in walk(program.body))


def check_threads(state: State) -> None:
    """Refuse (S019) loops that the threads around them cannot share, and accumulation by several threads in one
    place."""
    state.threaded = has_threads(state.program)
    if not state.threaded:
        return
    wrong = misuse(state.program)
    if wrong is not None:
        raise state.refuse(
            "S019", f"the threads cannot share the loop '{wrong.loop.var.name}': {wrong.reason}", at=wrong.loop
        )
    for block in state.tree.blocks.values():
        if _accumulates(block):
            _check_apart(state, block)


def _accumulates(block: Block) -> bool:
    """Whether the block changes values that it has read."""
    written = {r.buffer for r in block.writes}
    reduces = any(it.kind == IterVar.REDUCE for it in block.iters)
    return reduces or any(r.buffer in written for r in block.reads)


def _check_apart(state: State, block: Block) -> None:
    around = state.tree.loops_around(block)
    for n, loop in enumerate(around):
        if loop.kind != "thread" or not repeats(state, loop, block):
            continue
        if any(x.kind == "thread" and x.thread == loop.thread for x in around[n + 1 :]):
            continue  # its threads share the reduction
        own = PRIVATE if starts_threads(loop) else (*PRIVATE, "shared")
        shared = next((r.buffer for r in block.writes if r.buffer.scope not in own), None)
        if shared is not None:
            raise state.refuse(
                "S019",
                f"all threads of '{loop.var.name}' would accumulate in '{shared.name}', which is {shared.scope}",
                at=loop,
                hint=f"put it in local memory with set_scope, or let the loop drive block '{block.name}'",
            )
