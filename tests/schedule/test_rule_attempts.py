"""What default rules leave behind: nothing of what does not fit, and large results written past the caches."""

from __future__ import annotations

import pytest
from schedule_cases import matmul_relu

from weft import te
from weft.lower.te_to_tir import te_to_tir
from weft.schedule import Schedule, rules
from weft.schedule.refs import BlockRef
from weft.schedule.rules.context import Context
from weft.support.errors import ScheduleError
from weft.target import Target

ZEN4 = Target("zen4")


@pytest.mark.parametrize("refuses", [False, True])
def test_a_failed_attempt_leaves_the_context_as_it_was(refuses: bool) -> None:
    context = Context(Schedule(matmul_relu(rows=4, columns=8, depth=3)), ZEN4)
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
    context = Context(Schedule(matmul_relu(rows=4, columns=8, depth=3)), ZEN4)

    def rule(context: Context, block: BlockRef) -> bool:
        context.separate.add(block.name)
        return True

    assert rules._attempt(context, rule, context.schedule.get_block("C"))
    assert context.separate == {"C"}


def streams(shape: tuple[int, ...], perm: tuple[int, ...] | None = None) -> bool:
    """Whether the default schedule writes relu of a tensor, or its transpose, past the caches."""
    x = te.placeholder(shape, name="x")
    if perm is None:
        y = te.compute(shape, lambda *i: te.max(x[i], 0.0), name="y")
    else:
        y = te.compute(tuple(shape[p] for p in perm), lambda *i: x[tuple(i[perm.index(d)] for d in range(len(i)))])
    return "stream" in rules.default_schedule(te_to_tir("f", (x,), (y,)), ZEN4).trace.to_python()


def test_results_larger_than_the_caches_are_written_past_them() -> None:
    numbers = ZEN4.capabilities.l3 // 4
    assert streams((numbers // 1024 + 1, 1024))
    assert not streams((numbers // 1024, 1024))
    assert not streams((4096, numbers // 1024), (1, 0))
    assert not streams((0, 1024))


def test_parts_of_lines_are_not_written_past_the_caches() -> None:
    numbers = ZEN4.capabilities.l3 // 4

    def cut(rows: int, columns: int) -> bool:
        x = te.placeholder((rows, columns + 6), name="x")
        y = te.compute((rows, columns), lambda i, j: x[i, j + 3], name="y")
        return "stream" in rules.default_schedule(te_to_tir("f", (x,), (y,)), ZEN4).trace.to_python()

    assert cut(numbers // 192 + 1, 192)
    assert not cut(numbers // 192 + 1, 202)
