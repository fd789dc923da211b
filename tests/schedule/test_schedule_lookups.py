"""Stages that are read at computed indices are computed once, not once for each row that reads them."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.interpret import execute


def test_tables_that_rows_look_up_are_computed_once() -> None:
    rows, width = 24, 8
    x, at, again = te.placeholder((rows, width), name="x"), *(te.placeholder((rows,), "int64", t) for t in "ab")
    first = te.compute((rows, width), lambda i, j: te.exp(x[at[i], j]), name="first")
    second = te.compute((rows, width), lambda i, j: first[again[i], j] - first[i, j], name="second")
    r = te.reduce_axis((0, width), name="r")
    total = te.compute((rows,), lambda i: te.max(second[i, r.var], axis=r), name="total")
    program = te_to_tir("lookup", [x, at, again], [total])
    rng = np.random.default_rng(0)
    inputs = [rng.random((rows, width)).astype(np.float32), *(rng.integers(0, rows, (2, rows)))]
    ran = execute(default_schedule(program, Target("x86-64-v4")).program, inputs)
    assert sum(ran.counts.get("first", {}).values()) <= rows * width
    taken = np.exp(inputs[0][inputs[1]])
    np.testing.assert_allclose(ran.outputs[0], (taken[inputs[2]] - taken).max(1), 1e-5)
