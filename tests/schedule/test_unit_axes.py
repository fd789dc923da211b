"""Innermost axes of extent 1 do not keep the axis around them from vectors."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import For, Program
from weft.tir.visit import walk


def picked(shape: tuple[int, ...], rows: int) -> Program:
    """An image of as many elements as the indices in it, looked up in a table of rows."""
    table = te.placeholder((rows, *shape[2:]), "float32", "table")
    at = te.placeholder(shape[:2], "int64", "at")
    made = te.compute(shape, lambda i, j, *k: table[(te.max(te.min(at[i, j], rows - 1), 0), *k)] * 2.0, name="made")
    return te_to_tir("picked", [table, at], [made])


@pytest.mark.parametrize("shape", [(3, 48), (3, 48, 1), (3, 48, 1, 1), (1, 100, 1), (2, 7, 1), (1, 1, 1)])
def test_look_ups_of_single_elements(shape: tuple[int, ...]) -> None:
    """Sampling an image of one channel was scalar code, 3.5 times as long as PyTorch."""
    made = default_schedule(picked(shape, 50), Target("sapphire-rapids")).program
    vectors = [e for e in walk(made.body) if isinstance(e, For) and e.kind == "vectorized"]
    assert bool(vectors) == (shape[1] > 1)
    rng = np.random.default_rng(0)
    table, at = rng.standard_normal((50, *shape[2:])).astype(np.float32), rng.integers(-5, 60, shape[:2])
    got = run_program(default_schedule(picked(shape, 50), Target("cpu")).program, [table, at])[0]
    np.testing.assert_array_equal(got, table[np.clip(at, 0, 49)] * 2)
