"""Rows of which data choose the elements are prefetched while earlier ones are read: no order that hardware sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program

MACHINE = Target("x86-64-v4 -l2=65536")


def chosen(rows: Any, length: Any, places: Any, dtype: str = "float32") -> Program:
    """Elements of each row of a matrix, at places that another matrix tells."""
    x = te.placeholder((rows, length), dtype, name="x")
    at = te.placeholder((rows, places), "int32", name="at")

    def element(i: Any, j: Any) -> Any:
        return x[i, te.max(te.min(at[i, j], te.cast(length, "int32") - 1), 0)]

    y = te.compute((rows, places), element, name="y")
    return default_schedule(te_to_tir("chosen", [x, at], [y]), MACHINE).program


def prefetches(program: Program) -> bool:
    return "prefetch" in str(tir_to_kernel(program, MACHINE))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize(("rows", "length"), [(300, 512), (301, 509), (1000, 67), (2000, 48)])
def test_rows_of_which_elements_are_chosen_are_prefetched(rows: int, length: int, dtype: str) -> None:
    program = chosen(rows, length, length, dtype)
    assert prefetches(program) == (rows * length * np.dtype(dtype).itemsize > MACHINE.cpu.l2)
    rng = np.random.default_rng(1)
    x, at = rng.integers(-100, 100, (rows, length)).astype(dtype), rng.integers(0, length, (rows, length), np.int32)
    (got,) = run_program(program, [x, at])
    np.testing.assert_array_equal(got, np.take_along_axis(x, at, 1))


@pytest.mark.parametrize("shape", [(1, 1), (3, 40), (129, 1000), (0, 7), (5, 0), (4097, 3)])
def test_open_rows_are_prefetched(shape: tuple[int, int]) -> None:
    n, m = te.var("n"), te.var("m")
    program = chosen(n, m, m)
    assert prefetches(program)
    rng = np.random.default_rng(2)
    x, at = rng.standard_normal(shape).astype(np.float32), rng.integers(0, max(1, shape[1]), shape, np.int32)
    (got,) = run_program(program, [x, at], shape)
    np.testing.assert_array_equal(got, np.take_along_axis(x, at, 1))


def test_only_rows_that_are_read_whole_are_prefetched() -> None:
    """A few elements of a long row are in few of its lines; rows in the cache need no prefetch."""
    assert not prefetches(chosen(300, 512, 40))
    assert not prefetches(chosen(300, te.var("m"), te.var("k")))
    assert not prefetches(chosen(8, 512, 512))
    assert not prefetches(chosen(4, 100_000, 100_000))  # the next row would replace this one
