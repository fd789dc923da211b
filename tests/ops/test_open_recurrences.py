"""Recurrences along an axis of open size that has no element, or few: nothing outside of the tensors is touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.expr.nodes import Expr, Var
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target

N, M = Var("n"), Var("m")
SHAPES: list[tuple[Any, ...]] = [(N,), (N, 7), (N, M, 6), (4, N), (4, N, 3), (M, 5, N)]
CASES = [
    ("cumsum", {"exclusive": False, "reverse": False}),
    ("cumsum", {"exclusive": True, "reverse": True}),
    ("cumprod", {"exclusive": True, "reverse": False}),
    ("linear_recurrence", {"reverse": False}),
    ("linear_recurrence", {"reverse": True}),
]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("name", "attrs"), CASES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_axis_and_few_elements(shape: tuple[Any, ...], name: str, attrs: dict[str, bool]) -> None:
    operator = op(name)
    numbers = np.random.default_rng(0)
    for axis in range(len(shape)):
        given = operator.complete({"axis": axis, **attrs})
        inputs = [te.placeholder(shape, name=f"x{i}") for i in range(1 + (name == "linear_recurrence"))]
        result = operator.compute(given, TensorType.of(shape, "float32"), *inputs)
        program = default_schedule(te_to_tir("recurrence", inputs, [result]), Target("cpu")).program
        for count in (0, 1, 2, 5):
            sizes = {N: count, M: 3}
            fixed = tuple(sizes.get(d, d) for d in shape)
            arrays = [numbers.standard_normal(fixed).astype(np.float32) for _ in inputs]
            (got,) = run_program(program, arrays, [sizes[v] for v in program.sizes])
            np.testing.assert_allclose(got, operator.reference(given, *arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 6])
def test_fewer_rows_than_first_values(count: int) -> None:
    """Of the three rows a recurrence starts with, those that do not exist are not written."""
    start = te.placeholder((3, 4), name="start")
    state = te.placeholder((N, 4), name="state")

    def step(t: Expr, i: Expr) -> Expr:
        return state[t - 1, i] + state[t - 3, i]

    result = te.scan(start, te.compute((N, 4), step, name="step"), state, [start], name="sums")
    program = default_schedule(te_to_tir("recurrence", [start], [result]), Target("cpu")).program
    first = np.arange(12, dtype=np.float32).reshape(3, 4)
    (got,) = run_program(program, [first], [count])
    want = list(first[:count])
    while len(want) < count:
        want.append(want[-1] + want[-3])
    np.testing.assert_array_equal(got, np.reshape(want, (count, 4)))
