"""Operands of products that are computed before the block that multiplies them."""

from __future__ import annotations

from collections.abc import Callable
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

Operand = Callable[..., te.Expr]


def there(at: te.Expr, n: Any, data: Callable[[te.Expr], te.Expr]) -> te.Expr:
    return te.if_then_else(te.all(at >= 0, at < n), data(at), 0.0)


OPERANDS: dict[str, tuple[Operand, list[str]]] = {
    "quotient": (lambda x, z, i, k, n: x[i] / (z[k] + 8.0), ["6", "5"]),
    "of one axis": (lambda x, z, i, k, n: z[k] * z[k], ["5"]),
    "window": (lambda x, z, i, k, n: there(i + k - 2, n, lambda p: x[p]), ["10"]),
    "turned window": (lambda x, z, i, k, n: there(3 + i - k, n, lambda p: x[p]), ["10"]),
    "every second": (lambda x, z, i, k, n: there(2 * i + k - 2, n, lambda p: x[p]), ["15"]),
    "with gaps": (lambda x, z, i, k, n: there(7 * i + 3 * k - 2, n, lambda p: x[p]), ["6", "5"]),
    "in multiples": (lambda x, z, i, k, n: there(2 * i + 4 * k - 2, n, lambda p: x[p]), ["14"]),
    "between": (
        lambda x, z, i, k, n: te.if_then_else((i + k) % 2 == 0, there((i + k) // 2, n, lambda p: x[p]), 0.0),
        ["10"],
    ),
    "two sums": (lambda x, z, i, k, n: there(i + k, n, lambda p: x[p]) + there(i - k, n, lambda p: x[p]), ["6", "5"]),
    "sum and variable": (lambda x, z, i, k, n: there(i + k - 2, n, lambda p: x[p]) + z[k], ["6", "5"]),
}


def summed(operand: Operand, rows: Any = 6) -> Program:
    """Y[i, j] = sum over k of an operand (of i and k) and W[k, j]."""
    x, z, w = te.placeholder((rows,), name="X"), te.placeholder((5,), name="Z"), te.placeholder((5, 3), name="W")
    k = te.reduce_axis((0, 5), "k")
    y = te.compute((rows, 3), lambda i, j: te.sum(operand(x, z, i, k, rows) * w[k, j], axis=k), name="Y")
    return te_to_tir("summed", [x, z, w], [y])


@pytest.mark.parametrize("case", OPERANDS)
def test_operands_are_computed_once(case: str) -> None:
    operand, shape = OPERANDS[case]
    original = summed(operand)
    s = Schedule(original)
    made = s.cache_operand("Y", 0)
    assert [str(e) for e in s.state.block(made).writes[0].buffer.shape] == shape
    s.parallel(s.get_loops(made)[0])
    assert to_text(Schedule(original).replay(Trace.from_json(s.trace.to_json())).program) == to_text(s.program)
    check(original, s.program)


@pytest.mark.parametrize("case", OPERANDS)
def test_open_sizes(case: str) -> None:
    """Of a window over an open number of elements, each has all positions: there may be no element at all."""
    original = summed(OPERANDS[case][0], te.var("n"))
    s = Schedule(original)
    s.cache_operand("Y", 0)
    for n in (0, 1, 7):
        check(original, s.program, {"n": n})
    given = inputs_for(original, {"n": 7})
    np.testing.assert_allclose(run_program(s.program, given, [7])[0], run(original, given, {"n": 7})[0], rtol=1e-5)


def test_both_operands_and_data_in_an_index() -> None:
    at, x, w = te.placeholder((6,), dtype="int64", name="At"), te.placeholder((9, 5), name="X"), te.placeholder((5, 4))
    k = te.reduce_axis((0, 5), "k")
    y = te.compute(
        (6, 4), lambda i, j: te.sum((x[at[i] + 3, k] - 1.0) * (2.0 * w[k, j]), axis=k), name="Y"
    )  # inputs are between -3 and 3
    original = te_to_tir("looked_up", [at, x, w], [y])
    s = Schedule(original)
    first, second = s.cache_operand("Y", 0), s.cache_operand("Y", 1)
    s.compute_at(first, s.get_loops("Y")[0])
    assert first != second
    check(original, s.program)


def test_refusals() -> None:
    s = Schedule(summed(OPERANDS["window"][0]))
    for given, code in (((2,), "S040"), ((-1,), "S040"), ((0, "nowhere"), "S042")):
        with pytest.raises(ScheduleError, match=code):
            s.cache_operand("Y", *given)
    made = s.cache_operand("Y", 0)
    with pytest.raises(ScheduleError, match="does not sum products"):
        s.cache_operand(made, 0)
    s.split(s.get_loops("Y")[0], factor=4)
    with pytest.raises(ScheduleError, match="S020"):
        s.cache_operand("Y", 1)
