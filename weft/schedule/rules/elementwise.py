"""Element-wise and other injective blocks: one parallel loop outside, vectors inside."""

from __future__ import annotations

from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rules.access import View, static_extent
from weft.schedule.rules.context import Context, work_of

UNROLL = 2
"""Vectors in flight at a time."""


def schedule_elementwise(context: Context, block: BlockRef) -> bool:
    """Schedule an injective block by itself; False where it is none."""
    if not context.is_injective(block):
        return False
    s, view = context.schedule, context.view(block)
    loops = list(s.get_loops(block))
    if not loops:
        context.done.add(block.name)
        return True
    lanes = context.lanes(view)
    flat = contiguous_suffix(view)
    inner = context.fuse(loops[len(loops) - flat :]) if flat > 1 else loops[-1]
    outer = loops[: len(loops) - max(1, flat)]
    work = work_of(view)
    extent = context.extent(inner)
    if not outer and (extent is None or extent > 4 * lanes):
        outer, inner = _cut(context, inner, lanes, extent)
    if lanes > 1:
        context.vectorize(inner, lanes, UNROLL)
    if outer:
        context.parallelize(context.fuse(outer), work)
    context.done.add(block.name)
    return True


def _cut(context: Context, loop: LoopRef, lanes: int, extent: int | None) -> tuple[list[LoopRef], LoopRef]:
    """One long loop as chunks to share between threads and the loop over one chunk."""
    chunk = 16 * lanes
    if extent is not None:
        while chunk > 2 * lanes and extent % chunk and extent < 8 * chunk:
            chunk //= 2
    outer, inner = context.schedule.split(loop, factors=(None, chunk))
    return [outer], inner


def contiguous_suffix(view: View) -> int:
    """How many of the innermost axes can be fused so that every access still moves by one element (or not at all).

    That holds for axes over which the result and all operands are compact in the same order; an operand that does not
    move along any of them is fine too.
    """
    axes = view.spatial
    accesses = [view.output, *view.loads]
    count = 0
    expected = 1
    for position in range(len(axes) - 1, -1, -1):
        extent = static_extent(axes[position])
        strides = [view.stride(a, axes[position]) for a in accesses]
        moving = [a for a, s in zip(accesses, strides, strict=True) if s != 0]
        if extent != 1 and (strides[0] != expected or any(s not in (0, expected) for s in strides)):
            break
        if count and extent != 1 and len(moving) != len([a for a in accesses if _moves(view, a, axes[position + 1 :])]):
            break
        count += 1
        if extent is None:
            break
        expected *= extent
    return count


def _moves(view: View, access: object, axes: object) -> bool:
    return any(view.stride(access, a) != 0 for a in axes if static_extent(a) != 1)  # type: ignore[arg-type, attr-defined]
