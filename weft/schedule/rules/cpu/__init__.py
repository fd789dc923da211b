"""Default schedules, which need no tuning and apply to any program.

A rule looks at the shape of the loops and at the target's properties, never at names. :func:`default_schedule` inlines
cheap work, gives each contraction a register tile, computes chains of reductions row by row, and runs all other blocks
as parallel vector loops.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.refs import BlockRef
from weft.schedule.rules.common.context import Context, Rule
from weft.schedule.rules.common.inlining import inline_producers
from weft.schedule.rules.cpu.bands import schedule_bands
from weft.schedule.rules.cpu.cases import schedule_cases
from weft.schedule.rules.cpu.computed_operands import store_operands
from weft.schedule.rules.cpu.contraction import schedule_contraction
from weft.schedule.rules.cpu.elementwise import schedule_elementwise
from weft.schedule.rules.cpu.matrix import schedule_matrix
from weft.schedule.rules.cpu.recurrence import schedule_recurrence
from weft.schedule.rules.cpu.reduction import schedule_rows
from weft.schedule.rules.cpu.scans import schedule_scan
from weft.schedule.rules.cpu.streamed import schedule_streamed
from weft.schedule.rules.cpu.strips import schedule_strips
from weft.schedule.rules.cpu.windows import schedule_windows
from weft.schedule.schedule import Schedule
from weft.support import settings
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.nodes import Program

RULES: tuple[Rule, ...] = (
    schedule_windows,
    schedule_scan,
    schedule_rows,
    schedule_cases,
    schedule_elementwise,
    schedule_recurrence,
)
"""In order of preference. Each is called as ``rule(context, block)`` and returns whether it applies."""

CONTRACTIONS: tuple[Rule, ...] = (schedule_matrix, schedule_bands, schedule_streamed, schedule_contraction)
"""The same for sums of products, which are scheduled before all other blocks."""


def default_schedule(
    program: Program, target: Target, rules: Sequence[Rule] = (), intrinsics: Sequence[TensorIntrinsic] = ()
) -> Schedule:
    """The schedule that the rules construct for ``program`` on ``target``.

    ``rules`` are tried before these, for each block from the last to the first. They may name ``intrinsics``.
    """
    return _scheduled(Context(Schedule(program, intrinsics=intrinsics), target), rules)


def other_schedule(
    program: Program, target: Target, flipped: Collection[str], rules: Sequence[Rule] = ()
) -> tuple[Schedule, tuple[str, ...]]:
    """The schedule that the rules construct if the decisions ``flipped`` are taken otherwise, with ``rules`` before
    them, and the names of all decisions that were asked for. Raises ScheduleError where a rule then asks for what a
    primitive refuses."""
    context = Context(Schedule(program), target, flipped=frozenset(flipped))
    schedule = _scheduled(context, rules)
    return schedule, tuple(context.asked)


def _scheduled(context: Context, rules: Sequence[Rule]) -> Schedule:
    store_operands(context)
    before = context.saved()
    context.finishing = None if rules else set()
    _schedule_blocks(context, rules)
    if context.finishing and not context.finishing <= context.done:  # the tiles are not those of a contraction
        context.restore(before)
        _schedule_blocks(context, rules)
    context.schedule.forget_unused()
    return context.schedule


def _schedule_blocks(context: Context, rules: Sequence[Rule]) -> None:
    inline_producers(context)
    for block in reversed(context.schedule.get_blocks() if rules else ()):
        if block.name not in context.done:
            any(_attempt(context, rule, block) for rule in rules)
    contractions = [b for b in context.schedule.get_blocks() if context.is_reduction(b) and context.view(b).product]
    for block in reversed(contractions):
        if block.name not in context.done:
            _attempt(context, schedule_strips, block)
    for block in contractions:
        if block.name not in context.done:
            any(_attempt(context, rule, block) for rule in CONTRACTIONS)
    for block in reversed(context.schedule.get_blocks()):
        if block.name not in context.done:
            any(_attempt(context, rule, block) for rule in RULES)


def _attempt(context: Context, rule: Rule, block: BlockRef) -> bool:
    """Apply a rule, or leave the context unchanged.

    A rule checks before it acts, and returns False if it does not apply. If a primitive refuses a step of the rule, the
    rule has a defect. The schedule is then made without the rule, which only costs speed. Under ``WEFT_STRICT`` (as in
    tests) the refusal is raised.
    """
    before, name = context.saved(), f"{rule.__name__} {block.name}"
    if name in context.flipped:
        context.asked[name] = None
        return False
    try:
        if rule(context, block):
            context.nested = False
            context.asked[name] = None
            return True
    except ScheduleError:
        if settings.strict_rules():
            raise
        context.note(block, "a rule asked for what a primitive refuses, and was left out")
    notes = context.schedule.notes
    context.restore(before)
    for note in notes:
        context.schedule.note(note)
    return False


__all__ = ["RULES", "default_schedule", "other_schedule"]
