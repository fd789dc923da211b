"""Whether what is refused now may be legal later: once other stages are inlined, or computed in the same loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.schedule import Schedule
from weft.support.errors import ScheduleError

Attempt = Callable[[], Any]


def legal_later(
    schedule: Schedule, save: Callable[[], Callable[[], None]], block: BlockRef, loop: LoopRef, attempt: Attempt
) -> bool:
    """Whether ``attempt``, which computes ``block`` at ``loop``, succeeds after other stages moved out of its way.

    The blocks that depend on ``block`` are inlined, or else computed at ``loop``, the last one first; then the other
    way round. ``save`` returns a function that restores the schedule, which is unchanged at the end.
    """

    def inline(b: BlockRef) -> Attempt:
        return partial(schedule.compute_inline, b)

    def place(b: BlockRef) -> Attempt:
        return partial(schedule.compute_at, b, loop)  # refused for those that are inside already

    return any(_succeeds(schedule, save(), block, attempt, steps) for steps in ((inline, place), (place, inline)))


def is_movable(schedule: Schedule, save: Callable[[], Callable[[], None]], block: BlockRef) -> bool:
    """Whether ``block`` may be computed elsewhere: it is read, and is no output. The schedule is unchanged."""
    restore = save()
    try:
        return _done(partial(schedule.compute_root, block))
    finally:
        restore()


def _succeeds(
    schedule: Schedule,
    restore: Callable[[], None],
    block: BlockRef,
    attempt: Attempt,
    steps: Sequence[Callable[[BlockRef], Attempt]],
) -> bool:
    try:
        for dependent in _dependents(schedule, block):
            any(_done(step(dependent)) for step in steps)
        return _done(attempt)
    finally:
        restore()


def _done(attempt: Attempt) -> bool:
    try:
        attempt()
    except ScheduleError:
        return False
    return True


def _dependents(schedule: Schedule, block: BlockRef) -> list[BlockRef]:
    """All other blocks that depend on ``block`` (which in a recurrence depends on itself), the last one first."""
    found: dict[str, BlockRef] = {block.name: block}
    pending = [block]
    while pending:
        for reader in schedule.get_consumers(pending.pop()):
            if reader.name not in found:
                found[reader.name] = reader
                pending.append(reader)
    order = list(schedule.state.tree.blocks)
    del found[block.name]
    return sorted(found.values(), key=lambda b: order.index(b.name), reverse=True)
