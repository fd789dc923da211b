"""The axes of a stage name its own loops, whatever primitives did to its block: partial results, layouts, orders."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.schedule.rewrite import uses
from weft.support.errors import ScheduleError
from weft.tir.interpret import run
from weft.tir.verify import verify


def driven(s: Any, stage: Any, loop: Any) -> tuple[str, ...]:
    """The kinds and extents of the variables of the block of ``stage`` that ``loop``, which is around it, drives."""
    state = s.schedule.state
    block = state.block(s[stage].block)
    found = state.loop(loop)
    assert found in state.tree.loops_around(block), f"{loop} is not around {block.name}"
    return tuple(f"{block.iters[n].kind} {block.iters[n].extent}" for n in uses(block, found))


class Sums:
    """B sums A over two axes and its result is read by C; all extents differ."""

    def __init__(self) -> None:
        self.a = te.placeholder((6, 4, 10, 3), "int32", name="A")
        self.k, self.r = te.reduce_axis((0, 10), "k"), te.reduce_axis((0, 3), "r")
        self.b = te.compute((6, 4), lambda i, j: te.sum(self.a[i, j, self.k, self.r], axis=[self.k, self.r]), name="B")
        self.c = te.compute((6, 4), lambda i, j: self.b[i, j] + 1, name="C")
        self.s = te.create_schedule(self.c.op)

    def check(self) -> None:
        x = np.random.default_rng(0).integers(-4, 5, (6, 4, 10, 3)).astype("int32")
        program = weft.lower(self.s, [self.a, self.c]).program
        verify(program)
        wanted = x.sum((2, 3)) + 1
        np.testing.assert_array_equal(run(program, [x])[0], wanted)
        np.testing.assert_array_equal(weft.build(self.s, [self.a, self.c])(x), wanted)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("split", ["whole", "outer", "inner"])
@pytest.mark.parametrize("order", ["as written", "reduction outside", "reduction between"])
@pytest.mark.parametrize("place", ["root", "at rows", "at columns"])
@pytest.mark.parametrize("second", [False, True])
def test_after_rfactor_the_axes_are_loops_around_the_stage_itself(
    split: str, order: str, place: str, second: bool
) -> None:
    p = Sums()
    s, (i, j) = p.s, p.b.op.axis
    if place != "root":
        s[p.b].compute_at(s[p.c], p.c.op.axis[place == "at columns"])
    k, left = (p.r, p.k) if second else (p.k, p.r)
    if order == "reduction outside":
        s[p.b].reorder(k, left, i, j)
    elif order == "reduction between":
        s[p.b].reorder(i, k, left, j)
    axis: Any = k
    if split != "whole":
        axis = s[p.b].split(k, 2)[split == "inner"]
    partial = s.rfactor(p.b, axis)
    factored = int(s.schedule.state.block(s[p.b].block).iters[2].extent)
    assert driven(s, p.b, s[p.b].loop(i)) == ("spatial 6",)
    assert driven(s, p.b, s[p.b].loop(j)) == ("spatial 4",)
    assert driven(s, p.b, s[p.b].loop(p.b.op.reduce_axis[0])) == (f"reduce {factored}",)
    with pytest.raises(ScheduleError, match="is not an axis of 'B'"):
        s[p.b].unroll(p.r)  # there is one axis left
    spatial = [f"spatial {n}" for n in (6, 4, factored)]
    assert sorted(driven(s, partial, s[partial].loop(x))[0] for x in partial.op.axis) == sorted(spatial)
    s[p.b].reorder(j, p.b.op.reduce_axis[0], i)
    s[p.b].unroll(p.b.op.reduce_axis[0])
    s[partial].reorder(*reversed([*partial.op.axis, *partial.op.reduce_axis]))
    loops = s.schedule.state.tree.loops_around(s.schedule.state.block(s[p.b].block))
    assert [x.kind for x in loops][-2:] == ["unrolled", "serial"]
    p.check()


def test_rfactor_and_the_place_of_the_stage_in_both_orders() -> None:
    texts = []
    for place_first in (True, False):
        p = Sums()
        s = p.s
        if place_first:
            s[p.b].compute_at(s[p.c], p.c.op.axis[0])
        partial = s.rfactor(p.b, p.k)
        if not place_first:
            s[p.b].compute_at(s[p.c], p.c.op.axis[0])
        s[partial].unroll(partial.op.axis[1])
        p.check()
        texts.append(str(weft.lower(s, [p.a, p.c])))
    assert texts[0] == texts[1]


def test_a_loop_of_a_stage_that_was_factored_is_not_that_of_its_partial_results() -> None:
    """Loops that were taken before; in a recurrence, the partial results keep the loops of the step."""
    x, state = te.placeholder((5, 8), name="X"), te.placeholder((5, 8), name="S")
    first = te.compute((1, 8), lambda _, i: x[0, i], name="I")
    k = te.reduce_axis((0, 8), "k")
    total = te.compute((5, 8), lambda t, i: te.sum(state[t - 1, k] * x[t, i], axis=k), name="P")
    update = te.compute((5, 8), lambda t, i: total[t, i] + 1.0, name="U")
    out = te.scan(first, update, state, [x], name="R")
    s = te.create_schedule(out.op)
    _, _, before = s[total].axis
    partial = s.rfactor(total, k, reassociate=True)
    assert driven(s, total, s[total].loop(before)) == ("reduce 8",)
    assert driven(s, total, s[total].loop(total.op.reduce_axis[0])) == ("reduce 8",)
    assert driven(s, total, s[total].loop(total.op.axis[1])) == ("spatial 8",)
    assert driven(s, partial, s[partial].loop(partial.op.axis[1])) == ("spatial 8",)
    s[partial].reorder(partial.op.axis[2], partial.op.axis[1])
    s[total].reorder(total.op.reduce_axis[0], total.op.axis[1])
    s[total].unroll(before)
    text = str(s.program)
    assert text.count("unrolled") == 1 and text.index("unrolled") > text.index('block "P_rf"')
    values = np.random.default_rng(0).integers(-1, 2, (5, 8)).astype("float32")
    wanted = [values[0]]
    for t in range(1, 5):
        wanted.append(wanted[-1].sum() * values[t] + 1)
    np.testing.assert_array_equal(weft.build(s, [x, out])(values), np.stack(wanted))


class Moved:
    """P is read by C; the layout of P, or of a copy of A, is transformed."""

    def __init__(self, copy: bool) -> None:
        self.a = te.placeholder((4, 6, 10), "int32", name="A")
        self.p = te.compute((4, 6, 10), lambda i, j, k: self.a[i, j, k] * 2, name="P")
        self.c = te.compute((4, 6, 10), lambda i, j, k: self.p[i, j, k] + 1, name="C")
        self.s = te.create_schedule(self.c.op)
        self.stage = self.s.cache_read(self.a, "global", [self.p]) if copy else self.p
        self.axes = list(self.stage.op.axis)

    def check(self) -> str:
        x = np.arange(240, dtype="int32").reshape(4, 6, 10)
        loops = weft.lower(self.s, [self.a, self.c])
        verify(loops.program)
        np.testing.assert_array_equal(run(loops.program, [x])[0], 2 * x + 1)
        np.testing.assert_array_equal(weft.build(self.s, [self.a, self.c])(x), 2 * x + 1)
        return str(loops)


EXTENTS = (4, 6, 10)


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_axes_keep_their_loops_in_another_layout(order: tuple[int, ...], copy: bool) -> None:
    p = Moved(copy)
    s = p.s
    before = list(s[p.stage].axis)
    s[p.stage].transform_layout(lambda *i: tuple(i[n] for n in order))
    for loops in (p.axes, list(p.stage.op.axis), before):
        found = [driven(s, p.stage, s[p.stage].loop(x)) for x in loops]
        fresh = copy and loops is not p.axes and loops is not before  # those that the block of the copy has now
        assert found == [(f"spatial {EXTENTS[order[n] if fresh else n]}",) for n in range(3)]
    assert [driven(s, p.stage, x) for x in s[p.stage].axis] == [(f"spatial {EXTENTS[n]}",) for n in order]
    s[p.stage].transform_layout(lambda x, y, z: (z, x, y))  # once more
    assert [driven(s, p.stage, s[p.stage].loop(x)) for x in p.axes] == [(f"spatial {n}",) for n in EXTENTS]
    s[p.stage].parallel(p.axes[1])
    assert f"parallel(0, {EXTENTS[1]})" in p.check()


@pytest.mark.parametrize("copy", [False, True])
def test_an_axis_that_a_layout_splits_has_no_loop(copy: bool) -> None:
    p = Moved(copy)
    s = p.s
    s[p.stage].transform_layout(lambda i, j, k: (j // 2, k, j % 2, i))
    assert driven(s, p.stage, s[p.stage].loop(p.axes[0])) == ("spatial 4",)
    assert driven(s, p.stage, s[p.stage].loop(p.axes[2])) == ("spatial 10",)
    with pytest.raises(ScheduleError, match=r"S003.*was split or fused"):
        s[p.stage].unroll(p.axes[1])
    digits = s[p.stage].axis
    s[p.stage].transform_layout(lambda j, k, d, i: (i, d, k, j))  # the digits change places
    assert driven(s, p.stage, s[p.stage].loop(digits[0])) == ("spatial 3",)
    s[p.stage].unroll(digits[2])
    s[p.stage].vectorize(p.axes[2])
    text = p.check()
    assert "unrolled(0, 2)" in text and "vectorized(0, 10)" in text


@pytest.mark.parametrize("copy", [False, True])
def test_loops_and_layouts_in_both_orders(copy: bool) -> None:
    texts = []
    for layout_first in (True, False):
        p = Moved(copy)
        s = p.s
        if layout_first:
            s[p.stage].transform_layout(lambda i, j, k: (k, j, i))
        _, inner = s[p.stage].split(p.axes[0], 2)
        s[p.stage].vectorize(inner)
        if not layout_first:
            s[p.stage].transform_layout(lambda i, j, k: (k, j, i))
        texts.append(p.check())
    assert texts[0] == texts[1] and "vectorized(0, 2)" in texts[0]
