"""Reductions of columns: some rows at a time are added to a block of columns, for any rank and for open sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.expr.nodes import Expr, Var, maximum, minimum, select
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


@pytest.mark.thinned(3)
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


@pytest.mark.parametrize("over", ["windows", "rows", "columns"])
def test_rows_that_are_looked_up_are_reduced_where_they_are(over: str) -> None:
    """They are not copied first: windows that overlap would copy their rows again for each vector of results."""
    table, ids = te.placeholder((20, 64), name="table"), te.placeholder((40,), "int64", name="ids")

    def element(i: Expr, j: Expr) -> Expr:
        wanted = ids[i]
        return table[maximum(minimum(select(wanted < 0, wanted + 20, wanted), 19), 0), j]

    rows = te.compute((40, 64), element, name="rows")
    if over == "windows":
        k = te.reduce_axis((0, 3), "k")
        made = te.compute((40, 62), lambda i, j: te.sum(rows[i, j + k.var], axis=k), name="made")
    elif over == "rows":
        k = te.reduce_axis((0, 64), "k")
        made = te.compute((40,), lambda i: te.sum(rows[i, k.var], axis=k), name="made")
    else:
        k = te.reduce_axis((0, 40), "k")
        made = te.compute((64,), lambda j: te.sum(rows[k.var, j], axis=k), name="made")
    program = default_schedule(te_to_tir("looked_up", [table, ids], [made]), Target("cpu")).program
    assert 'block "rows"' not in to_text(program)
    numbers = np.random.default_rng(0)
    data, at = numbers.integers(-9, 9, (20, 64)).astype(np.float32), numbers.integers(-20, 20, 40)
    (got,) = run_program(program, [data, at])
    found = data[at]
    whole = {"rows": found.sum(1), "columns": found.sum(0)}
    expected = whole.get(over, found[:, :-2] + found[:, 1:-1] + found[:, 2:])
    np.testing.assert_array_equal(got, expected)
