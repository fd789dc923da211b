"""The side of a select that nothing reads is not stored; nothing else changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from weft import te
from weft.expr.nodes import Expr, select
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule import Schedule
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Program
from weft.tir.text import to_text

ROWS, COLUMNS = 9, 13
Guard = Callable[[Expr, Expr], Expr]


def rows_of(stored: Guard, read: Guard | None, everything: bool = False) -> Program:
    """``o[y] = sum of p[y, k] where read``, with ``p`` doubled ``s`` where ``stored`` and -7 elsewhere; with
    ``everything`` somebody else reads all of ``p``."""
    s = te.placeholder((ROWS, COLUMNS), name="s")
    p = te.compute(
        (ROWS, COLUMNS), lambda y, x: select(stored(y, x), s[y, x] * 2.0, te.const(-7.0, "float32")), name="p"
    )
    k = te.reduce_axis((0, COLUMNS), "k")
    where = None if read is None else lambda y: read(y, k.var)
    o = te.compute((ROWS,), lambda y: te.sum(p[y, k], axis=k, where=None if where is None else where(y)), name="o")
    if everything:
        o = te.compute((ROWS,), lambda y: o[y] + p[y, COLUMNS - 1], name="sum")
    return te_to_tir("rows", [s], [o])


def kernel_of(program: Program) -> Program:
    schedule = Schedule(program)
    last = schedule.get_blocks()[-1]
    for block in reversed(schedule.get_blocks()[:-1]):
        schedule.compute_at(block, schedule.get_loops(last)[0])
    return tir_to_kernel(schedule.program, Target("cpu"))


def stores_the_rest(kernel: Program) -> bool:
    return "-7.0" in to_text(kernel)


@pytest.mark.parametrize(
    ("stored", "read", "everything", "kept"),
    [
        (lambda y, x: x <= y, lambda y, k: k <= y, False, False),
        (lambda y, x: x <= y + 2, lambda y, k: k < y + 1, False, False),
        (lambda y, x: x <= y, lambda y, k: k <= y + 1, False, True),
        (lambda y, x: x >= y, lambda y, k: k >= y, False, False),
        (lambda y, x: x >= y, lambda y, k: k <= y, False, True),
        (lambda y, x: x <= y, None, False, True),
        (lambda y, x: x <= y, lambda y, k: k <= y, True, True),
        (lambda y, x: te.all(x <= y, x != 3), lambda y, k: k <= y, False, True),
        (lambda y, x: te.any(x <= y, x > 9), lambda y, k: k <= y, False, True),
        (lambda y, x: x <= y, lambda y, k: te.all(k <= y, k != 2), False, False),
    ],
)
def test_only_elements_that_no_reader_can_read_are_not_stored(
    stored: Guard, read: Guard | None, everything: bool, kept: bool
) -> None:
    program = rows_of(stored, read, everything)
    kernel = kernel_of(program)
    assert stores_the_rest(kernel) == kept
    s = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    (want,), (found,) = run(program, [s]), run(kernel, [s.reshape(-1)])
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
