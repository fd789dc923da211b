"""Products of float16 with packed weights: operands that many results use are converted once, others where they are
multiplied."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.graph.build import constant, function, size, var
from weft.graph.nodes import Function, Module, call
from weft.kernels.machine_code import scheduled
from weft.ops.catalogue import op
from weft.pipeline import unscheduled
from weft.target import Target

DEPTH, COLUMNS = 33, 40
PANELS = -(-COLUMNS // 16)
ATTRS = {"b_layout": "NK16n", "columns": COLUMNS}


@pytest.mark.parametrize(
    ("rows", "columns", "converted"), [(64, COLUMNS, 2), (1, COLUMNS, 1), (None, COLUMNS, 1), (64, 3, 1), (1, 3, 0)]
)
def test_which_operands_are_converted_first(rows: int | None, columns: int, converted: int) -> None:
    x = var("x", [size("n") if rows is None else rows, DEPTH], "float16")
    w = var("w", [-(-columns // 16), DEPTH, 16], "float16")
    group = Function((x, w), call(op("matmul"), [x, w], ATTRS | {"columns": columns}))
    schedule = scheduled(unscheduled(group)[0], Target("x86-64-v4"))
    assert sum(b.name.startswith("matmul_wide") for b in schedule.get_blocks()) == converted


def test_any_number_of_rows() -> None:
    rng = np.random.default_rng(0)
    b = rng.standard_normal((DEPTH, COLUMNS)).astype(np.float16)
    x = var("x", [size("n"), DEPTH], "float16")
    exe = weft.compile(Module({"main": function([x], call(op("matmul"), [x, constant(b)], {}))}), threads=1)
    for n in (0, 1, 2, 7, 8, 9, 15, 16, 17, 40):
        a = rng.standard_normal((n, DEPTH)).astype(np.float16)
        wanted = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float16)
        np.testing.assert_allclose(exe(a).astype(np.float32), wanted.astype(np.float32), 2e-3, 2e-3)
