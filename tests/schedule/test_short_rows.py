"""Reductions of rows that are shorter than two vectors use narrower vectors, not single elements."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import For
from weft.tir.visit import walk


@pytest.mark.parametrize("length", [8, 9, 15, 17, 28, 31])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "int64"])
def test_short_rows(length: int, dtype: str) -> None:
    a = te.placeholder((40, length), dtype, name="a")
    k = te.reduce_axis((0, length), name="k")
    total = te.compute((40,), lambda i: te.sum(a[i, k.var], axis=k), name="total")
    target = Target("llvm -mcpu=x86-64-v3")
    program = default_schedule(te_to_tir("rows", [a], [total]), target).program
    assert any(isinstance(s, For) and s.kind == "vectorized" for s in walk(program.body))
    x = np.random.default_rng(length).integers(-50, 50, (40, length)).astype(dtype)
    (got,) = run_program(program, [x], target=target)
    np.testing.assert_array_equal(got, x.sum(1))
