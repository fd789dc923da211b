"""Recurrences: each step of an ordered axis needs the one before; vectors run along the last of the other axes."""

from __future__ import annotations

from weft.expr.nodes import IterVar
from weft.schedule.refs import BlockRef
from weft.schedule.rules.context import Context

UNROLL = 2
"""Vectors in flight at a time."""


def schedule_recurrence(context: Context, block: BlockRef) -> bool:
    """Schedule a block of one store with an ordered axis first; False where it is none, or has no vectors."""
    s, view = context.schedule, context.view(block)
    kinds = [i.kind for i in view.block.iters]
    if not view.is_simple or view.block.init is not None or kinds.count(IterVar.ORDERED) != 1 or view.reduce:
        return False
    loops, lanes = s.get_loops(block), context.lanes(view)
    if len(loops) != len(kinds) or kinds[0] != IterVar.ORDERED or len(kinds) < 2 or lanes < 2:
        return False
    last = view.spatial[-1]
    if view.stride(view.output, last) != 1 or any(view.stride(a, last) not in (0, 1) for a in view.loads):
        return False
    context.vectorize(loops[-1], lanes, UNROLL)
    context.done.add(block.name)
    return True
