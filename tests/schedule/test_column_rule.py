"""Reductions of columns: some rows at a time are added to a block of columns, for any rank and for open sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.expr.nodes import Var
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.text import to_text

TARGET = Target("zen4")
N, M, K = Var("n"), Var("m"), Var("k")
SIZES = {N: 37, M: 21, K: 19}


def reduced(shape: tuple[Any, ...], axes: tuple[int, ...], dtype: str = "float32", name: str = "reduce_sum") -> Program:
    operator, x = op(name), te.placeholder(shape, dtype, name="x")
    given = operator.complete({"axes": axes, "keepdims": False})
    kind = TensorType.of(shape, dtype)
    result = operator.compute(given, operator.infer(given, kind), x)
    return te_to_tir("reduced", [x], [result])


def by_rows(program: Program) -> bool:
    return "unrolled(0, 4)" in to_text(default_schedule(program, TARGET).program)


@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [
        ((N, M), (0,), True),
        ((N, 256), (0,), True),
        ((N, M, 7, K), (0,), True),
        ((4, N, M), (1,), True),
        ((N, 300, M), (0, 1), True),
        ((334, 32, 28, 28), (0,), True),
        ((40, 16, 4, 4), (0,), True),
        ((32, 256, 28, 28), (1,), True),
        ((40, 128), (0,), False),  # in registers, from the first-level cache
        ((3, 32, 28, 28), (0,), False),  # few rows
        ((1000, 4), (0,), False),  # no vector of columns
        ((N, M), (1,), False),
        ((N, M, K), (0, 2), False),
    ],
)
def test_which_reductions_run_row_by_row(shape: tuple[Any, ...], axes: tuple[int, ...], expected: bool) -> None:
    assert by_rows(reduced(shape, axes)) == expected
    assert by_rows(reduced(shape, axes, name="reduce_mean")) == expected


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_max", "reduce_mean", "reduce_l2"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((N, M), (0,)),
        ((N, 3, M), (0,)),
        ((N, M), (1,)),
        ((2, N, M), (1,)),
        ((N, 3, M), (0, 1)),
        ((N, M, 5, K), (0,)),
        ((9, 16, 4, 4), (0,)),
        ((1100, 33, 9), (0,)),
        ((3, 300, 520), (1,)),
    ],
)
def test_reductions_of_columns_are_right(shape: tuple[Any, ...], axes: tuple[int, ...], name: str) -> None:
    operator = op(name)
    program = default_schedule(reduced(shape, axes, name=name), Target("cpu")).program
    given = operator.complete({"axes": axes, "keepdims": False})
    for sizes in (SIZES, {N: 1, M: 1, K: 1}, {N: 0, M: 5, K: 3}, {N: 8, M: 64, K: 2}):
        fixed = tuple(sizes.get(d, d) for d in shape)
        x = np.random.default_rng(0).integers(-9, 9, fixed).astype(np.float32)
        if 0 in fixed and name == "reduce_mean":
            continue  # 0 / 0
        (got,) = run_program(program, [x], [sizes[v] for v in program.sizes])
        np.testing.assert_allclose(got, operator.reference(given, x), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "int64", "int32", "float16", "uint8"])
def test_reductions_of_other_types_are_right(dtype: str) -> None:
    shape = (43, 5, 29)
    x = np.random.default_rng(0).integers(0, 90, shape).astype(dtype)
    for axes in ((0,), (1,), (0, 1)):
        program = default_schedule(reduced(shape, axes, dtype, "reduce_max"), Target("cpu")).program
        (got,) = run_program(program, [x])
        np.testing.assert_array_equal(got, x.max(axes))
