"""Prefetching the data that the next iteration copies, one share in each iteration of an inner loop."""

from __future__ import annotations

import numpy as np
import pytest

from weft import te
from weft.expr.evaluate import evaluate
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Trace
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Evaluate, For, Program
from weft.tir.visit import loops_around, walk

ZEN = Target("zen4")


def product(rows: int, columns: int, depth: int) -> Program:
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te_to_tir("product", [a, b], [c])


def shared(rows: int, columns: int, depth: int, panel: int, distance: int = 1) -> Schedule:
    """Panels of ``B`` are copied, then multiplied with all rows; the next one is fetched meanwhile."""
    s = Schedule(product(rows, columns, depth))
    copy = s.cache_read("C", 1, "local")
    i, j, k = s.get_loops("C")
    outer, inner = s.split(j, factors=(None, panel))
    s.reorder(outer, i, inner, k)
    s.compute_at(copy, outer)
    s.vectorize(s.get_loops(copy)[-1])
    s.prefetch(outer, "B", distance, within=s.get_loops("C")[2])
    return s


def asked(program: Program) -> dict[int, list[int]]:
    """The places of ``B`` asked for, by the number of the outermost iteration."""
    kernel = tir_to_kernel(program, ZEN)
    (wish,) = (e for e in walk(kernel.body) if isinstance(e, Evaluate))
    around = loops_around(kernel.body, wish)
    found: dict[int, list[int]] = {}
    for at in np.ndindex(*(int(loop.extent.value) for loop in around)):  # type: ignore[attr-defined]
        values = dict(zip((loop.var for loop in around), map(int, at), strict=True))
        place = evaluate(wish.value.args[0].indices[0], values)  # type: ignore[attr-defined]
        found.setdefault(at[0], []).append(int(place))
    return found


@pytest.mark.parametrize("rows, columns, depth, panel", [(4, 64, 12, 16), (3, 48, 7, 16), (8, 32, 5, 16)])
def test_every_line_of_the_next_panel_is_asked_for(rows: int, columns: int, depth: int, panel: int) -> None:
    for panel_number, places in asked(shared(rows, columns, depth, panel).program).items():
        following = min(panel_number + 1, columns // panel - 1)
        assert set(places) == {k * columns + following * panel for k in range(depth)}
        assert len(places) == rows * panel, "one wish in each iteration"
        assert places == sorted(places)


@pytest.mark.parametrize("rows, columns, depth", [(0, 32, 4), (2, 0, 4)])
def test_nothing_to_ask_for(rows: int, columns: int, depth: int) -> None:
    s = Schedule(product(rows, columns, depth))
    i, _, k = s.get_loops("C")
    s.prefetch(i, "B", within=k)
    assert not tir_to_kernel(s.program, ZEN).attrs.get("workspace")


def test_schedules_with_shares_mean_the_same_and_replay() -> None:
    s = shared(4, 64, 12, 16, distance=2)
    rng = np.random.default_rng(0)
    inputs = [rng.random(shape, dtype=np.float32) for shape in ((4, 12), (12, 64))]
    np.testing.assert_allclose(run(s.program, inputs)[0], inputs[0] @ inputs[1], rtol=1e-5)
    again = Schedule(product(4, 64, 12)).replay(Trace.from_json(s.trace.to_json()))
    assert asked(again.program) == asked(s.program)


def test_loops_that_cannot_share() -> None:
    s = Schedule(product(4, 64, 12))
    i, j, _ = s.get_loops("C")
    with pytest.raises(ScheduleError, match="S040"):
        s.prefetch(j, "B", within=i)
    with pytest.raises(ScheduleError, match="S040"):
        s.prefetch(i, "B", within=i)
    n = te.var("n")
    a = te.placeholder((n, n), name="A")
    open_size = Schedule(te_to_tir("double", [a], [te.compute((n, n), lambda i, j: a[i, j] * 2.0, name="C")]))
    rows, columns = open_size.get_loops("C")
    with pytest.raises(ScheduleError, match="known length"):
        open_size.prefetch(rows, "A", within=columns)


@pytest.mark.parametrize("rows, columns, depth, fetched", [(128, 3072, 768, True), (128, 768, 768, False)])
def test_large_operands_are_fetched_a_panel_ahead(rows: int, columns: int, depth: int, fetched: bool) -> None:
    kernel = tir_to_kernel(default_schedule(product(rows, columns, depth), ZEN).program, ZEN)
    wishes = [e for e in walk(kernel.body) if isinstance(e, Evaluate)]
    assert bool(wishes) == fetched
    if fetched:
        inner = [s for s in walk(kernel.body) if isinstance(s, For)]
        assert loops_around(kernel.body, wishes[0])[-1] is inner[-1], "in the reduction"
