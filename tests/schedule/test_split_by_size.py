"""Loops split by sizes: of the program, computed from them, and new ones that the caller passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule, Trace
from weft.support.errors import ScheduleError
from weft.tir.interpret import run

FACTORS = (0, 1, 3, 8, 40)


def product() -> tuple[Any, Any, Any, Any, Any]:
    n = te.var("n")
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    return n, a, b, k, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_tiles_of_any_size(target: str) -> None:
    _, a, b, k, c = product()
    t = te.var("t")
    s = te.create_schedule(c.op)
    io, jo, ii, ji = s[c].tile(*c.op.axis, t, t)
    ko, ki = s[c].split(k, t)
    s[c].reorder(io, jo, ko, ii, ki, ji)
    copied = s.cache_read(a, "global", [c])
    s[copied].compute_at(s[c], ko)
    s[c].parallel(io)
    s[c].vectorize(s[c].split(ji, 8)[1])
    f = weft.build(s, [a, b, t, c], target)
    rng = np.random.default_rng(0)
    for n in (0, 1, 5, 17):
        x, y = (rng.integers(-3, 4, (n, n)).astype(np.float32) for _ in range(2))
        for factor in FACTORS:
            np.testing.assert_array_equal(f(x, y, factor), x @ y, f"n = {n}, t = {factor}")


@pytest.mark.parametrize("parts", ["factor", "nparts", "half", "both"])
def test_factors_of_the_block_notation(parts: str) -> None:
    n, a, b, _, c = product()
    t = te.var("t")
    original = te_to_tir("product", [a, b], [c])
    s = Schedule(original)
    i = s.get_loops("C")[0]
    if parts == "both":
        s.split(i, factors=(t, None, n // 2 + 1))
    else:
        s.split(i, **{"nparts": {"nparts": t}, "half": {"factor": n // 2}}.get(parts, {"factor": t}))
    again = Schedule(original).replay(Trace.from_json(s.trace.to_json()))
    executed = Schedule(original)
    exec(s.trace.to_python(), {"s": executed})
    for size in (0, 1, 5):
        x, y = np.arange(2 * size * size, dtype=np.float32).reshape(2, size, size)
        for made in (s, again, executed):
            sizes = {v.name: v_size for v, v_size in zip(made.program.sizes, (size, 3), strict=False)}
            np.testing.assert_array_equal(run(made.program, [x, y], sizes)[0], x @ y)


def test_factors_that_cover_the_extent() -> None:
    n = te.var("n")
    a = te.placeholder((n * 8,), name="A")
    b = te.compute((n * 8,), lambda i: a[i] + 1.0, name="B")
    s = Schedule(te_to_tir("p", [a], [b]))
    s.split(s.get_loops("B")[0], factors=(n + 1, 8))
    with pytest.raises(ScheduleError, match="S010"):
        s.split(s.get_loops("B")[0], factors=(n, 1))


def test_what_is_no_size_is_refused() -> None:
    n, a, b, _, c = product()
    s = Schedule(te_to_tir("product", [a, b], [c]))
    i, j, _ = s.get_loops("C")
    before = s.program
    for factor in (j.var, i.var, a[0, 0], te.const(2.0), n > 2, te.const(0), te.const(-1)):
        with pytest.raises(ScheduleError, match="S004"):
            s.split(i, factor=factor)
    for text in ("n +", "n > 1", "1.5", "A[0]", ""):
        with pytest.raises(ScheduleError, match="S004"):
            s.size(text)
    assert s.program is before
    assert [v.name for v in s.program.sizes] == ["n"]


def test_names_of_sizes_are_unique_in_a_trace() -> None:
    _, a, b, _, c = product()
    s = Schedule(te_to_tir("product", [a, b], [c]))
    with pytest.raises(ScheduleError, match="two sizes called 'n'"):
        s.split(s.get_loops("C")[0], factor=te.var("n"))
