"""Default schedules: good without tuning, for programs nobody has seen before.

A rule looks at the shape of the loops and at the target's record, never at names. :func:`default_schedule` inlines
cheap work, gives each contraction its tile, runs chains of reductions row by row, and the rest in parallel vectors.
"""

from __future__ import annotations

from weft.schedule.rules.context import Context
from weft.schedule.rules.contraction import schedule_contraction
from weft.schedule.rules.elementwise import schedule_elementwise
from weft.schedule.rules.inlining import inline_producers
from weft.schedule.rules.reduction import schedule_rows
from weft.schedule.schedule import Schedule
from weft.target import Target
from weft.tir.nodes import Program

RULES = (schedule_contraction, schedule_rows, schedule_elementwise)
"""In order of preference; each is called as ``rule(context, block)`` and says whether it fits."""


def default_schedule(program: Program, target: Target) -> Schedule:
    """The schedule that the rules give ``program`` on ``target``."""
    schedule = Schedule(program)
    context = Context(schedule, target)
    inline_producers(context)
    contractions = [b for b in schedule.get_blocks() if context.is_reduction(b) and context.view(b).product]
    for block in contractions:
        schedule_contraction(context, block)
    for block in reversed(schedule.get_blocks()):
        if block.name not in context.done:
            any(rule(context, block) for rule in RULES[1:])
    return schedule


__all__ = ["RULES", "default_schedule"]
