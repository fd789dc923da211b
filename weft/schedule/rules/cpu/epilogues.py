"""What reads the sums of a tile while they are in registers, and what finishes them before."""

from __future__ import annotations

from weft.schedule.refs import BlockRef
from weft.schedule.rules.common.context import Context, reads_whole


def epilogue_of(context: Context, block: BlockRef) -> BlockRef | None:
    """The only reader of the contraction's result, if it is injective and reads each element at its own index."""
    view = context.view(block)
    readers = context.schedule.get_consumers(block)
    if len(readers) == 1 and not context.is_output(block) and context.is_injective(readers[0]):
        reader = context.view(readers[0])
        axes = [i.var for i in reader.spatial]
        if reads_whole(reader, view.output.buffer, axes):
            return readers[0]
    return None


def epilogue(context: Context, block: BlockRef) -> BlockRef:
    """The block of :func:`epilogue_of`, or a new block that copies the result."""
    reader = epilogue_of(context, block)
    if reader is None:
        return context.schedule.cache_write(block, 0, "register")
    context.schedule.set_scope(block, 0, "register")
    return reader


def finished_epilogue(context: Context, block: BlockRef) -> tuple[BlockRef | None, BlockRef]:
    """The block that finishes all sums of a tile, if there is one (:attr:`Context.finishing`), and the block of
    :func:`epilogue`, which reads finished sums from local memory then."""
    reader = epilogue_of(context, block)
    behind = None if reader is None or reader.name not in (context.finishing or ()) else epilogue_of(context, reader)
    if reader is None or behind is None:
        return None, epilogue(context, block)
    context.schedule.set_scope(block, 0, "register")
    context.schedule.set_scope(reader, 0, "local")
    return reader, behind
