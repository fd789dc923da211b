"""A rule that does not fit leaves nothing behind of what it tried."""

from __future__ import annotations

import pytest
from schedule_cases import matmul_relu

from weft.schedule import Schedule, rules
from weft.schedule.refs import BlockRef
from weft.schedule.rules.context import Context
from weft.support.errors import ScheduleError
from weft.target import Target


@pytest.mark.parametrize("refuses", [False, True])
def test_a_failed_attempt_leaves_the_context_as_it_was(refuses: bool) -> None:
    context = Context(Schedule(matmul_relu(rows=4, columns=8, depth=3)), Target("zen4"))
    context.separate.add("kept")
    context.done.add("placed")
    before = str(context.schedule.program)

    def rule(context: Context, block: BlockRef) -> bool:
        context.separate.add("C")
        context.done.add("C")
        context.nested = True
        context.schedule.split(context.schedule.get_loops(block)[0], factor=2)
        if refuses:
            context.schedule.split(context.schedule.get_loops(block)[0], factor=0)
        return False

    assert not rules._attempt(context, rule, context.schedule.get_block("C"))
    assert (context.separate, context.done, context.nested) == ({"kept"}, {"placed"}, False)
    assert str(context.schedule.program) == before
    if refuses:
        with pytest.raises(ScheduleError):
            rule(context, context.schedule.get_block("C"))


def test_a_rule_that_fits_keeps_what_it_decided() -> None:
    context = Context(Schedule(matmul_relu(rows=4, columns=8, depth=3)), Target("zen4"))

    def rule(context: Context, block: BlockRef) -> bool:
        context.separate.add(block.name)
        return True

    assert rules._attempt(context, rule, context.schedule.get_block("C"))
    assert context.separate == {"C"}
