"""Loops split by symbolic sizes: any value of the size gives the same result."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule, Trace
from weft.support.errors import InputError, ScheduleError
from weft.tir.interpret import run
from weft.tir.text import parse, to_text
from weft.tir.verify import verify


@pytest.mark.parametrize("outside", [False, True], ids=["factor", "nparts"])
def test_a_size_that_only_the_schedule_has(outside: bool) -> None:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, 6), name="A")
    b = te.compute((n, 6), lambda i, j: a[i, j] * 2.0, name="B")
    k = te.reduce_axis((0, 6), "k")
    c = te.compute((n,), lambda i: te.sum(b[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], nparts=m) if outside else s[c].split(c.op.axis[0], factor=m)
    s[b].compute_at(s[c], outer)
    s[c].parallel(outer)
    program = weft.lower(s, [a, m, c]).program
    verify(program)
    assert to_text(parse(to_text(program))) == to_text(program)
    built = weft.build(s, [a, m, c])
    for rows in (0, 1, 7, 12):
        x = np.random.default_rng(0).integers(-3, 4, (rows, 6)).astype("float32")
        for width in (0, 1, 3, 7, 100):
            np.testing.assert_array_equal(run(program, [x], {"m": width})[0], 2 * x.sum(1))
            np.testing.assert_array_equal(built(x, width), 2 * x.sum(1))
        with pytest.raises(InputError):
            built(x, -1)


def test_a_size_of_the_program_and_traces() -> None:
    n = te.var("n")
    a = te.placeholder((n, 10), name="A")
    original = te_to_tir("rows", [a], [te.compute((n, 10), lambda i, j: a[i, j] + 1.0, name="C")])
    s = Schedule(original)
    i, j = s.get_loops("C")
    s.split(j, factor=n)
    s.split(i, (None, "m", 2))
    assert [v.name for v in s.program.sizes] == ["n", "m"]
    read = Trace.from_json(s.trace.to_json())
    executed = Schedule(original)
    exec(read.to_python(), {"s": executed})
    for again in (Schedule(original).replay(read), executed):
        assert to_text(again.program) == to_text(s.program)
    for rows in (0, 3, 12):
        x = np.arange(rows * 10, dtype="float32").reshape(rows, 10)
        np.testing.assert_array_equal(run(s.program, [x], {"m": 4})[0], x + 1)


@pytest.mark.parametrize(
    "factors", [("n", 4), (None, None, "n"), ("not a name", None), (0, "n", None)], ids=["all", "none", "name", "zero"]
)
def test_factors_that_are_refused(factors: tuple[object, ...]) -> None:
    a = te.placeholder((8,), name="A")
    s = Schedule(te_to_tir("row", [a], [te.compute((8,), lambda i: a[i] + 1.0, name="C")]))
    before = s.program
    with pytest.raises(ScheduleError) as caught:
        s.split(s.get_loops("C")[0], factors)
    assert caught.value.code == "S004" and s.program is before


def test_a_size_has_one_name() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    s = Schedule(te_to_tir("row", [a], [te.compute((n,), lambda i: a[i] + 1.0, name="C")]))
    with pytest.raises(ScheduleError, match="not the size of this name"):
        s.split(s.get_loops("C")[0], factor=te.var("n"))
