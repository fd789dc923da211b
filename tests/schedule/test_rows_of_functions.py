"""Rows of which a function is computed: their reductions, the functions of their results, and rows along other axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import call, run_program

from weft import te
from weft.backends.catalogue import backend_of
from weft.expr.nodes import Const, Ramp
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.text import to_text
from weft.tir.visit import loads, substitution

TARGET = Target("zen4")


def made(name: str, shape: tuple[Any, ...], axis: int, dtype: str = "float32") -> Program:
    operator, x = op(name), te.placeholder(shape, dtype, name="x")
    given = operator.complete({"axis": axis})
    result = operator.compute(given, operator.infer(given, TensorType.of(shape, dtype)), x)
    return te_to_tir(name, [x], [result])


def expected(name: str, x: np.ndarray, axis: int) -> np.ndarray:
    wide = x.astype(np.float64)
    if not x.shape[axis]:
        return wide
    wide = wide - wide.max(axis, keepdims=True)
    total = np.exp(wide).sum(axis, keepdims=True)
    return wide - np.log(total) if name == "log_softmax" else np.exp(wide) / total


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_rows_of_open_length_have_few_partial_results(name: str) -> None:
    """Combining many partial vectors takes longer than a short row; the functions hide the latency of two."""
    n, m = te.var("n"), te.var("m")
    text = to_text(default_schedule(made(name, (n, m), 1), TARGET).program)
    assert "softmax_max_rf: f32[32," in text and "softmax_sum_rf: f32[32," in text


def test_rows_without_functions_have_many() -> None:
    n, m = te.var("n"), te.var("m")
    x, k = te.placeholder((n, m), name="x"), te.reduce_axis((0, m), "k")
    total = te.compute((n,), lambda i: te.sum(x[i, k.var], axis=k), name="total")
    assert "total_rf: f32[64," in to_text(default_schedule(te_to_tir("sums", [x], [total]), TARGET).program)


def test_the_logarithm_of_a_row_is_computed_once() -> None:
    """Not in each of the loops into which a row of open length is split."""
    n, m = te.var("n"), te.var("m")
    kernel = to_text(tir_to_kernel(default_schedule(made("log_softmax", (n, m), 1), TARGET).program, TARGET))
    rows = 4 + 1 + 1  # of a group, one after the other at the end, and long ones
    assert kernel.count("exponent(") == 2 * rows, "a logarithm multiplies the exponent with both parts of ln 2"


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("shape", [(4096, 1024), (4096, 1000), (te.var("n"), te.var("m")), (te.var("n"), 1000)])
def test_columns_are_read_by_whole_cache_lines(shape: tuple[Any, ...], dtype: str) -> None:
    """One vector of float16 columns is half of a line, and memory prefers longer parts of rows."""
    kernel = tir_to_kernel(default_schedule(made("softmax", shape, 0, dtype), TARGET).program, TARGET)
    read = [e.indices[-1] for e in loads(kernel.body) if e.lanes > 1 and getattr(e.source, "name", "") == "x"]
    starts = {str(at.base) for at in read if isinstance(at, Ramp)}
    assert len(starts) >= 8, "eight vectors of each row are read one after the other"


@pytest.mark.thinned(3)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_sizes(name: str, dtype: str, axis: int) -> None:
    """Open lengths, with and without rests, infinities and NaN."""
    n, m = te.var("n"), te.var("m")
    target = Target("cpu")
    kernel = tir_to_kernel(default_schedule(made(name, (n, m), axis, dtype), target).program, target)
    code = backend_of(target).emit(kernel, target)
    needed = kernel.attrs.get("workspace")
    rng = np.random.default_rng(0)
    for rows in (0, 1, 5, 33):
        for columns in (0, 1, 15, 16, 17, 18, 32, 33, 65, 127, 128, 129, 300):
            x = rng.uniform(-4, 4, (rows, columns)).astype(dtype)
            if rows == 33 and columns > 20:
                x[3, 5], x[7, 11] = np.nan, -np.inf
            got, sizes = np.empty_like(x), [{n: rows, m: columns}[v] for v in kernel.sizes]
            swap = substitution({v: Const(size) for v, size in zip(kernel.sizes, sizes, strict=True)})
            call(code.data, code.entry, [x, got], sizes, None if needed is None else int(swap(needed)))
            tolerance = {"float16": 4e-3, "float32": 2e-6, "float64": 1e-13}[dtype]
            np.testing.assert_allclose(got, expected(name, x, axis), tolerance, tolerance, err_msg=f"{x.shape}")


@pytest.mark.parametrize("columns", [7, 40, 129])
def test_known_columns(columns: int) -> None:
    target = Target("cpu")
    x = np.random.default_rng(1).uniform(-4, 4, (600, columns)).astype(np.float16)
    (got,) = run_program(default_schedule(made("softmax", x.shape, 0, "float16"), target).program, [x], target=target)
    np.testing.assert_allclose(got, expected("softmax", x, 0), 4e-3, 4e-3)


@pytest.mark.parametrize("shape", [(32768, 256), (te.var("n"), 256), (2000, 4096), (16, 100, 1024), (9, te.var("n"))])
def test_rows_in_memory_are_fetched_while_others_are_computed(shape: tuple[Any, ...]) -> None:
    """Reading, computing and writing took turns: 1.6 times as long as onnxruntime."""
    text = to_text(default_schedule(made("softmax", shape, len(shape) - 1), TARGET).program)
    ahead = f"{max(1, 1024 // shape[-1])}" if isinstance(shape[-1], int) else '4096, "bytes"'
    assert f'prefetch_shares = [["x", {ahead}], ["softmax", {ahead}]]' in text


@pytest.mark.parametrize("shape", [(100, 256), (8, 1 << 20), (64, 64, 4)])
def test_rows_that_stay_near_and_rows_as_large_as_the_cache_are_not(shape: tuple[Any, ...]) -> None:
    assert "prefetch" not in to_text(default_schedule(made("softmax", shape, len(shape) - 1), TARGET).program)


@pytest.mark.parametrize("shape", [(2100, 256), (513, 1023), (4, 300, 520)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_results_of_rows_in_memory(name: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    program = default_schedule(made(name, shape, len(shape) - 1), Target("cpu")).program
    np.testing.assert_allclose(run_program(program, [x])[0], expected(name, x, -1), rtol=2e-5, atol=2e-6)
