"""Primitives for the storage of buffers. They are hints, stored as annotations, which lowering may follow.

They never change the result of a program. A back end ignores hints that it does not know.
"""

from __future__ import annotations

from weft.schedule.primitives.kinds import annotate
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.state import State
from weft.tir.nodes import Block, Buffer


def double_buffer(state: State, block: BlockRef, write_index: int) -> None:
    """Keep two copies of an intermediate buffer, so that one is filled while the other is read.

    ::

        for i: P = f(i); C[i] = g(P)   →   P[0] = f(0);  for i: P[(i+1) % 2] = f(i+1); C[i] = g(P[i % 2])

    Lowering makes a pipeline of two stages if the innermost loop around the block and its readers allows it; otherwise
    it ignores the hint. Annotates the block with ``double_buffer = <write index>``. The block must be in a loop (S025).
    """
    found = state.block(block)
    _intermediate(state, found, write_index)
    if not state.tree.loops_around(found):
        raise state.refuse("S025", f"block '{found.name}' is in no loop", at=found, hint="use compute_at first")
    annotate(state, block, "double_buffer", write_index)


def storage_align(state: State, block: BlockRef, write_index: int, axis: int, factor: int, offset: int) -> None:
    """Make the stride of a dimension ``offset`` modulo ``factor`` elements (to spread banks and cache sets).

    Annotates the block with ``storage_align = ((write index, axis, factor, offset), …)``.
    """
    found = state.block(block)
    buffer = _intermediate(state, found, write_index)
    if not -len(buffer.shape) <= axis < len(buffer.shape) or factor < 1:
        raise state.refuse("S004", f"'{buffer.name}' has no axis {axis}, or factor {factor} is not positive", at=found)
    old = tuple(found.annotations.get("storage_align", ()))
    annotate(state, block, "storage_align", (*old, (write_index, axis % len(buffer.shape), factor, offset)))


def prefetch(
    state: State, loop: LoopRef, buffer: str, distance: int, within: LoopRef | None = None, unit: str = "iterations"
) -> None:
    """Prefetch the elements of ``buffer`` that the loop reads ``distance`` iterations later into the cache.

    ``within`` is a loop inside ``loop`` (S040). Each of its iterations then prefetches an equal share of the elements
    that the later iteration reads or writes first, into the second-level cache: for example a panel of weights that all
    rows are multiplied with, or one that is copied before. If the loops in between have open extents, their first
    iterations prefetch all of it.

    With ``unit="bytes"``, which needs ``within``, the distance is so many bytes of whole iterations, at least one: rows
    of open length differ.

    Annotates the loop with ``prefetch = ((buffer name, distance), …)``, or with ``prefetch_shares`` and the loop inside
    with ``prefetch_share = (buffer name, …)``; bytes are noted as ``(buffer name, distance, "bytes")``.
    """
    found = state.loop(loop)
    if unit not in ("iterations", "bytes") or (unit == "bytes" and within is None):
        hint = 'unit="iterations", or unit="bytes" with within='
        raise state.refuse("S004", f"a prefetch cannot be {distance} {unit} ahead here", at=found, hint=hint)
    below = list(state.tree.blocks_under(found.body))
    read = {r.buffer.name for b in below for r in b.reads}
    usable = read if within is None else read | {w.buffer.name for b in below for w in b.writes}
    if buffer not in usable:
        what, hint = "reads" if within is None else "accesses", "one of " + ", ".join(sorted(usable))
        raise state.refuse("S040", f"nothing below '{loop.name}' {what} '{buffer}'", at=found, hint=hint)
    if within is None:
        annotate(state, loop, "prefetch", (*found.annotations.get("prefetch", ()), (buffer, distance)))
        return
    inner = state.loop(within)
    if found not in state.tree.loops_around(inner):
        raise state.refuse("S040", f"'{inner.var.name}' is no loop inside of '{found.var.name}'", at=inner)
    share = (buffer, distance) if unit == "iterations" else (buffer, distance, unit)
    annotate(state, loop, "prefetch_shares", (*found.annotations.get("prefetch_shares", ()), share))
    annotate(state, within, "prefetch_share", (*inner.annotations.get("prefetch_share", ()), buffer))


def stream(state: State, block: BlockRef, write_index: int) -> None:
    """Write a result with streaming stores, which bypass the caches. Use it for large results that are not read soon.

    Annotates the block with ``stream = <write index>``. Refuses a block that reads its own result (S044).
    """
    found = state.block(block)
    if not 0 <= write_index < len(found.writes):
        raise state.refuse("S040", f"block '{found.name}' has no write region {write_index}", at=found)
    buffer = found.writes[write_index].buffer
    if found.init is not None or any(r.buffer is buffer for r in found.reads):
        raise state.refuse(
            "S044", f"block '{found.name}' reads '{buffer.name}' back", at=found, hint="use cache_write first"
        )
    annotate(state, block, "stream", write_index)


def _intermediate(state: State, block: Block, write_index: int) -> Buffer:
    if not 0 <= write_index < len(block.writes):
        raise state.refuse("S040", f"block '{block.name}' has no write region {write_index}", at=block)
    buffer = block.writes[write_index].buffer
    if buffer in state.program.params:
        raise state.refuse("S041", f"'{buffer.name}' is a parameter", at=block, hint="use cache_write first")
    return buffer
