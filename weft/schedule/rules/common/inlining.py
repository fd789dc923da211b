"""Which intermediate tensors are never stored: cheap element-wise work moves into what reads it."""

from __future__ import annotations

from weft.expr.nodes import Load
from weft.expr.visit import collect
from weft.schedule.refs import BlockRef
from weft.schedule.rules.common.access import View, contiguous_elsewhere
from weft.schedule.rules.common.context import Context, guarded_load
from weft.schedule.rules.common.work import cost_of
from weft.support.errors import ScheduleError

MAX_REPEATED_OPERATIONS = 6
"""Operations that may be done again for each reader or each step of a reduction."""


def inline_producers(context: Context) -> None:
    """Inline injective blocks into their readers, the last first, where that repeats no expensive work.

    A block that pads is kept in front of a reduction: its conditions would otherwise stand in the innermost loop.
    """
    s = context.schedule
    for block in reversed(s.get_blocks()):
        if context.is_output(block) or not context.is_injective(block):
            continue
        if _worthwhile(context, block):
            try:
                s.compute_inline(block)
            except ScheduleError:
                continue  # keeps its own loops; the rules below find a place for it


def _worthwhile(context: Context, block: BlockRef) -> bool:
    view = context.view(block)
    readers = [context.view(r) for r in context.schedule.get_consumers(block)]
    cost = sum(cost_of(s.value) for s in view.stores)
    buffer = view.output.buffer
    for reader in readers:
        if any(load.source is buffer for a in reader.loads for i in a.indices for load in collect(i, Load)):
            return False  # a position looked up by another one: such chains would grow into each other
        reused = _reuse(reader, view)
        if (
            reader.product is not None
            and reused
            and any(map(context.is_reduction, context.schedule.get_producers(block)))
        ):
            return False  # a product of two loads is what contractions are known by
        if reader.product is not None and reused and _narrows(view):
            return False  # rounded once, and products of halves have instructions of their own
        if any(i.kind == i.ORDERED for i in reader.block.iters) and contiguous_elsewhere(view) is not None:
            return False  # transposed once, so that each step of a recurrence reads vectors
        if reader.reduce and (guarded_load(view) or (cost > MAX_REPEATED_OPERATIONS and reused)):
            return False
    loads = sum(sum(a.buffer is buffer for a in r.loads) for r in readers)
    return cost <= MAX_REPEATED_OPERATIONS or loads <= 1


def _narrows(view: View) -> bool:
    """Whether the block rounds to fewer bits than it reads."""
    dtype = view.output.buffer.dtype
    return dtype.is_float and any(a.buffer.dtype.is_float and a.buffer.dtype.bits > dtype.bits for a in view.loads)


def _reuse(reader: View, producer: View) -> bool:
    """Whether ``reader`` uses an element several times: it has axes that its loads do not move along."""
    buffer = producer.output.buffer
    for access in reader.loads:
        if access.buffer is buffer and not all(access.uses(i.var) for i in reader.block.iters):
            return True
    return False
