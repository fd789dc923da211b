"""Declarations of a classic schedule in every order: the same loops, the same results."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from seeds import seeds

import weft
from weft import te
from weft.support.errors import ScheduleError
from weft.tir.interpret import run
from weft.tir.nodes import For
from weft.tir.verify import verify

Declaration = tuple[str, tuple[str, ...], Callable[[Any, dict[str, Any]], Any]]
"""A name, the declarations whose results it uses, and the call."""


class Chain:
    """A -> P -> B -> C, a product with W: P is placed, B is inlined."""

    def __init__(self) -> None:
        self.a, self.w = te.placeholder((12, 10), name="A"), te.placeholder((10, 16), name="W")
        self.p = te.compute((12, 10), lambda i, k: self.a[i, k] * 2.0, name="P")
        self.b = te.compute((12, 10), lambda i, k: self.p[i, k] + 1.0, name="B")
        k = te.reduce_axis((0, 10), "k")
        self.c = te.compute((12, 16), lambda i, j: te.sum(self.b[i, k] * self.w[k, j], axis=k), name="C")
        self.schedule = te.create_schedule(self.c.op)

    def check(self) -> str:
        rng = np.random.default_rng(0)
        x, w = (rng.integers(-4, 5, shape).astype("float32") for shape in ((12, 10), (10, 16)))
        loops = weft.lower(self.schedule, [self.a, self.w, self.c])
        verify(loops.program)
        np.testing.assert_array_equal(run(loops.program, [x, w])[0], (2 * x + 1) @ w)
        return str(loops)


def declarations(c: Chain) -> list[Declaration]:
    return [
        ("inline", (), lambda s, r: s[c.b].compute_inline()),
        ("tile", (), lambda s, r: s[c.c].tile(c.c.op.axis[0], c.c.op.axis[1], 4, 8)),
        ("reduce", (), lambda s, r: s[c.c].split(c.c.op.reduce_axis[0], 5)),
        (
            "reorder",
            ("tile", "reduce"),
            lambda s, r: s[c.c].reorder(*r["tile"][:2], r["reduce"][0], r["tile"][2], r["reduce"][1], r["tile"][3]),
        ),
        ("place", ("tile",), lambda s, r: s[c.p].compute_at(s[c.c], r["tile"][0])),
        ("inner", (), lambda s, r: s[c.p].split(c.p.op.axis[1], 5)),
        ("lanes", ("inner",), lambda s, r: s[c.p].vectorize(r["inner"][1])),
        ("rows", ("tile",), lambda s, r: s[c.c].parallel(r["tile"][0])),
        ("columns", ("tile",), lambda s, r: s[c.c].vectorize(r["tile"][3])),
    ]


def declared(c: Chain, left: list[Declaration]) -> tuple[list[str], str]:
    """Make the declarations, each as soon as those that it uses are made; their order, and the loops."""
    results: dict[str, Any] = {}
    while left:
        ready = next(d for d in left if all(name in results for name in d[1]))
        left.remove(ready)
        results[ready[0]] = ready[2](c.schedule, results)
    return list(results), c.check()


@pytest.mark.parametrize("seed", seeds(12))
def test_any_order_gives_the_same_loops(seed: int) -> None:
    """The order as written, and another one."""
    first, second = Chain(), Chain()
    order, text = declared(first, declarations(first))
    pick, shuffled = random.Random(seed), declarations(second)
    while [d[0] for d in shuffled] == order:
        pick.shuffle(shuffled)
    _, again = declared(second, shuffled)
    assert text.count("vectorized") == 3 and 'block "B"' not in text
    assert text == again


@pytest.mark.parametrize("name", ["inline", "tile", "reorder", "place", "lanes", "rows", "columns"])
def test_every_declaration_shows_in_the_loops(name: str) -> None:
    """Every declaration matters: without any one of them the loops differ, or the schedule is refused. So it means
    something that the texts are equal."""
    whole, c = Chain(), Chain()
    _, text = declared(whole, declarations(whole))
    left = [d for d in declarations(c) if d[0] != name and name not in d[1]]
    try:
        _, without = declared(c, left)
    except ScheduleError:
        return
    assert without != text


def test_a_copy_may_be_declared_after_the_loops_of_its_stage() -> None:
    c = Chain()
    s = c.schedule
    outer, inner = s[c.c].split(c.c.op.axis[1], 8)
    s[c.c].vectorize(inner)
    local = s.cache_write(c.c, "local")
    s[local].compute_at(s[c.c], outer)
    i, j = local.op.axis
    s[local].reorder(local.op.reduce_axis[0], i, j)
    s[local].vectorize(j)
    assert c.check().count("vectorized") == 3  # the copy, the sum, and its start


def test_loops_declared_before_a_stage_is_placed_are_kept() -> None:
    c = Chain()
    s = c.schedule
    s[c.b].vectorize(c.b.op.axis[1])
    s[c.b].compute_at(s[c.c], c.c.op.axis[0])
    text = c.check()
    assert text.count("vectorized") == 1
    s[c.b].compute_root()
    assert c.check().index('block "B"') < c.check().index('block "C"')


def test_partial_results_are_a_stage_with_loops_of_its_own() -> None:
    c = Chain()
    s = c.schedule
    outer, _ = s[c.c].split(c.c.op.reduce_axis[0], 5)
    partial = s.rfactor(c.c, outer, reassociate=True)
    s[c.c].reorder(c.c.op.axis[1], c.c.op.axis[0])
    s[partial].compute_at(s[c.c], c.c.op.axis[1])
    s[partial].unroll(partial.op.axis[0])
    c.check()


def test_a_placement_waits_for_the_stages_between_to_be_inlined() -> None:
    c = Chain()
    s = c.schedule
    s[c.p].compute_at(s[c.c], c.c.op.axis[0])
    with pytest.raises(ScheduleError, match=r"S022.*'B' also reads 'P'"):
        c.check()
    s[c.b].compute_inline()
    assert c.check().index("for i") < c.check().index('block "P"')


@pytest.mark.parametrize("order", list(permutations(("largest", "powers", "total"))), ids="-".join)
def test_stages_that_read_each_other_move_into_one_loop_in_any_order(order: tuple[str, ...]) -> None:
    """The rows of a softmax: each placement but the last one is refused by the readers that are not inside yet."""
    a = te.placeholder((6, 8), name="A")
    j, k = te.reduce_axis((0, 8), "j"), te.reduce_axis((0, 8), "k")
    largest = te.compute((6,), lambda i: te.max(a[i, j], axis=j), name="largest")
    powers = te.compute((6, 8), lambda i, x: te.exp(a[i, x] - largest[i]), name="powers")
    total = te.compute((6,), lambda i: te.sum(powers[i, k], axis=k), name="total")
    out = te.compute((6, 8), lambda i, x: powers[i, x] / total[i], name="out")
    s = te.create_schedule(out.op)
    stages = {"largest": largest, "powers": powers, "total": total}
    for name in order:
        s[stages[name]].compute_at(s[out], out.op.axis[0])
    s[out].parallel(out.op.axis[0])
    assert isinstance(weft.lower(s, [a, out]).program.body, For)  # one loop around all
    x = np.random.default_rng(0).standard_normal((6, 8)).astype("float32")
    wanted = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(weft.build(s, [a, out])(x), wanted, rtol=1e-5)


@pytest.mark.parametrize("seed", seeds(8))
def test_random_graphs_of_stages_move_into_one_loop_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    a = te.placeholder((5, 4), "int32", name="A")
    stages: list[Any] = [a]
    for n in range(6):
        read = rng.sample(stages[-3:], min(2, len(stages)))
        stages.append(te.compute((5, 4), lambda i, j, read=read: sum((t[i, j] for t in read), 1), name=f"s{n}"))
    out = te.compute((5, 4), lambda i, j: sum((t[i, j] for t in stages[-3:]), 0), name="out")
    needed = list(stages[1:])
    s = te.create_schedule(out.op)
    rng.shuffle(needed)
    for t in needed:
        if t.op in s.stages.blocks:
            s[t].compute_at(s[out], out.op.axis[0])
    program = weft.lower(s, [a, out]).program
    assert isinstance(program.body, For)
    x = np.arange(20, dtype="int32").reshape(5, 4)
    right = run(weft.lower(te.create_schedule(out.op), [a, out]).program, [x])[0]
    np.testing.assert_array_equal(run(program, [x])[0], right)
    np.testing.assert_array_equal(weft.build(s, [a, out])(x), right)


def test_declarations_that_are_illegal_in_every_order_are_refused_and_change_nothing() -> None:
    c = Chain()
    s = c.schedule
    k = c.c.op.reduce_axis[0]
    s[c.b].compute_at(s[c.c], c.c.op.axis[0])
    before = c.check()
    for wrong in (
        lambda: s[c.c].parallel(k),
        lambda: s[c.c].compute_root(),
        lambda: s[c.b].compute_at(s[c.p], c.p.op.axis[0]),
        lambda: s[c.c].vectorize(c.p.op.axis[0]),
    ):
        with pytest.raises(ScheduleError):
            wrong()
        assert c.check() == before
