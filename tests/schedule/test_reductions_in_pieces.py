"""Long reductions of several axes run in pieces of all axes as one, in whole vectors; short rows keep their partial
results in registers."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.backends.llvm import assembly, emit_ir
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program
from weft.view.assembly import hot_loop


def largest(shape: tuple[int, ...], axes: int, dtype: str) -> Program:
    """The maximum over the last ``axes`` axes, scheduled by the rules."""
    a = te.placeholder(shape, dtype, name="a")
    rows = shape[: len(shape) - axes]
    reduced = [te.reduce_axis((0, n), name=f"k{i}") for i, n in enumerate(shape[len(rows) :])]
    made = te.compute(rows, lambda *i: te.max(a[(*i, *(k.var for k in reduced))], axis=reduced), name="made")
    return default_schedule(te_to_tir("largest", [a], [made]), Target("x86-64-v4")).program


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("shape", [(67, 32, 28, 28), (129, 33, 7, 31), (1001, 501), (131, 5, 3, 63, 17)])
def test_pieces_of_all_axes_are_whole_vectors(shape: tuple[int, ...], dtype: str) -> None:
    program = largest(shape, len(shape), dtype)
    machine = Target("x86-64-v4")
    assert hot_loop(assembly(emit_ir(tir_to_kernel(program, machine), machine), machine)).vector_bits == 512
    x = np.random.default_rng(1).integers(-(10**6), 10**6, shape).astype(dtype)
    (got,) = run_program(program, [x])
    assert got == x.max()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("length", [9, 17, 18, 35, 67])
def test_ends_of_rows_leave_partial_results_in_registers(length: int, dtype: str) -> None:
    program = largest((6, 5, 50, length), 1, dtype)
    machine = Target("x86-64-v4")
    text = assembly(emit_ir(tir_to_kernel(program, machine), machine), machine)
    assert hot_loop(text).spills == 0
    x = np.random.default_rng(2).integers(-1000, 1000, (6, 5, 50, length)).astype(dtype)
    (got,) = run_program(program, [x])
    np.testing.assert_array_equal(got, x.max(-1))
