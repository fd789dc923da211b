"""Indices that are computed before the block that reads with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program
from schedule_cases import check, inputs_for

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule, Trace
from weft.support.errors import ScheduleError
from weft.tir.interpret import run
from weft.tir.nodes import Program
from weft.tir.text import to_text


def rotated(rows: Any) -> Program:
    a, b = te.placeholder((rows, 4), name="A"), te.placeholder((rows,), name="B")
    k = te.reduce_axis((0, 3), "k")
    c = te.compute((rows, 4), lambda i, j: te.sum(a[(i * 7 + k * k) % rows, (j * 3) % 4] * b[i], axis=k), name="C")
    return te_to_tir("rotated", [a, b], [c])


@pytest.mark.parametrize("open_size", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_indices_are_computed_once(axis: int, open_size: bool) -> None:
    original = rotated(te.var("n") if open_size else 5)
    s = Schedule(original)
    region = [r.buffer.name for r in s.state.block("C").reads].index("A")
    made = s.cache_index("C", region, axis)
    buffer = s.state.block(made).writes[0].buffer
    assert [str(e) for e in buffer.shape] == ([str(original.params[1].shape[0]), "3"] if axis == 0 else ["4"])
    s.vectorize(s.split(s.get_loops(made)[-1], factor=4)[1])
    s.parallel(s.get_loops("C")[0])
    again = Schedule(original).replay(Trace.from_json(s.trace.to_json()))
    assert to_text(again.program) == to_text(s.program)
    for n in (5, 1, 0) if open_size else (5,):
        sizes = {"n": n} if open_size else {}
        check(original, s.program, sizes)
        given = inputs_for(original, sizes)
        np.testing.assert_array_equal(
            run_program(s.program, given, list(sizes.values()))[0], run(original, given, sizes)[0]
        )


def test_both_indices_and_the_place_of_their_block() -> None:
    original = rotated(5)
    s = Schedule(original)
    region = [r.buffer.name for r in s.state.block("C").reads].index("A")
    s.cache_index("C", region, 0)
    columns = s.cache_index("C", region, 1)
    s.compute_at(columns, s.get_loops("C")[0])
    check(original, s.program)


def test_refusals() -> None:
    s = Schedule(rotated(5))
    region = [r.buffer.name for r in s.state.block("C").reads].index("A")
    for given, code in (((9, 0), "S040"), ((-1, 0), "S040"), ((region, 2), "S004"), ((region, 0, "nowhere"), "S042")):
        with pytest.raises(ScheduleError, match=code):
            s.cache_index("C", *given)
    s.cache_index("C", region, 0)
    region = [r.buffer.name for r in s.state.block("C").reads].index("A")
    with pytest.raises(ScheduleError, match="read from data"):
        s.cache_index("C", region, 0)
    s.split(s.get_loops("C")[0], factor=2)
    with pytest.raises(ScheduleError, match="S020"):
        s.cache_index("C", region, 1)
