"""Rows in private memory that end within a vector are written in whole vectors."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.expr.nodes import Expr, Var
from weft.lowering.kernel.common.masks import uniform
from weft.lowering.kernel.cpu.whole_stores import write_whole_vectors
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.text import parse, to_text
from weft.tir.visit import stores

TARGET = Target("x86-64-v4")
N = Var("n")


def kernel(mask: str, index: str = "ramp(16, 1, 16)", size: str = "18", value: str = "p0[ramp(0, 1, 16)]") -> Program:
    return parse(
        f"""
program "p"[n](p0: f32[n]) -> (out: f32[n]):
  allocate row: f32[{size}] local
  row[{index}; {mask}] = {value}
  out[ramp(0, 1, 16)] = row[ramp(0, 1, 16)]
"""
    )


@pytest.mark.parametrize(
    ("mask", "index", "size", "whole"),
    [
        ("ramp(0, 1, 16) < broadcast(2, 16)", "ramp(16, 1, 16)", "18", True),
        ("ramp(16, 1, 16) < broadcast(18, 16)", "ramp(16, 1, 16)", "18", True),
        ("ramp(n - 5, 1, 16) < broadcast(n, 16)", "ramp(n - 5, 1, 16)", "n", True),
        ("ramp(n - 5, 1, 16) < broadcast(n, 16)", "ramp(n - 2, 1, 16)", "n + 3", True),
        ("ramp(0, 1, 16) < broadcast(2, 16)", "ramp(16, 1, 16)", "36", False),  # the next row follows
        ("ramp(n - 5, 1, 16) < broadcast(n - 1, 16)", "ramp(n - 5, 1, 16)", "n", False),
        ("broadcast(2, 16) < ramp(0, 1, 16)", "ramp(16, 1, 16)", "18", False),  # the first lanes
        ("ramp(0, 1, 16) < broadcast(2, 16)", "ramp(16, 2, 16)", "18", False),
    ],
)
def test_only_masks_that_end_the_memory_are_dropped(mask: str, index: str, size: str, whole: bool) -> None:
    program = kernel(mask, index, size)
    made = write_whole_vectors(program)
    (row,) = (s for s in stores(made.body) if s.buffer.name == "row")
    assert (row.mask is None) == whole
    if not whole:
        assert to_text(made) == to_text(program)


def test_a_division_of_integers_keeps_its_mask() -> None:
    """It fails for the zeros that lanes beyond the end may hold."""
    text = to_text(kernel("ramp(0, 1, 16) < broadcast(2, 16)")).replace("f32", "i32")
    divided = text.replace("= p0[ramp(0, 1, 16)]", "= truncdiv(p0[ramp(0, 1, 16)], p0[ramp(1, 1, 16)])")
    assert divided != text
    program = parse(divided)
    assert to_text(write_whole_vectors(program)) == to_text(program)


@pytest.mark.parametrize("columns", [17, 18, 31, 33, 57])
@pytest.mark.parametrize("opened", [False, True])
def test_rows_that_are_stored_and_read_again(columns: int, opened: bool) -> None:
    size = N if opened else columns
    a, k = te.placeholder((6, size), name="a"), te.reduce_axis((0, size), "k")
    made = te.compute((6, size), lambda i, j: te.exp(a[i, j]), name="made")
    total = te.compute((6,), lambda i: te.sum(made[i, k.var], axis=k), name="total")

    def share(i: Expr, j: Expr) -> Expr:
        return made[i, j] / total[i]

    program = default_schedule(te_to_tir("softmax", [a], [te.compute((6, size), share, name="share")]), TARGET).program
    lowered = tir_to_kernel(program, TARGET)
    masks = [s.mask for s in stores(lowered.body) if s.buffer.scope == "local"]
    assert masks and all(m is None or uniform(m) for m in masks)
    x = np.random.default_rng(0).standard_normal((6, columns)).astype(np.float32)
    (got,) = run_program(program, [x], [columns] * opened)
    np.testing.assert_allclose(got, np.exp(x) / np.exp(x).sum(1, keepdims=True), rtol=2e-6)
