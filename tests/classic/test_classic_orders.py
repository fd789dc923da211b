"""Declarations of a classic schedule in every order: the same loops, the same results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from seeds import seeds

import weft
from weft import te
from weft.support.errors import ScheduleError
from weft.tir.interpret import run
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
    """So that equal texts mean something: without one of them the loops are others, or the schedule is refused."""
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
