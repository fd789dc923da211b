"""Rows of open length: several short ones are computed at a time, long ones one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import call

from weft import te
from weft.backends.catalogue import backend_of
from weft.expr.nodes import Const, Var
from weft.graph.types import TensorType
from weft.lowering.kernel.cpu.together import MAX_ELEMENTS
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Allocate, For, If, Program
from weft.tir.text import to_text
from weft.tir.verify import verify
from weft.tir.visit import substitution, walk

TARGET = Target("sapphire-rapids")
N, M, H = te.var("n"), te.var("m"), te.var("h")


def made(name: str, shape: tuple[Any, ...], dtype: str = "float32") -> Program:
    """An operator over the last axis."""
    operator, x = op(name), te.placeholder(shape, dtype, name="x")
    given = operator.complete({"axis": len(shape) - 1})
    return te_to_tir(name, [x], [operator.compute(given, operator.infer(given, TensorType.of(shape, dtype)), x)])


def expected(name: str, x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    if not x.shape[-1]:
        return x
    with np.errstate(all="ignore"):
        if name == "rms_norm":
            return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5))
        if name == "layer_norm":
            return np.asarray((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5))
        x = x - x.max(-1, keepdims=True)
        total = np.exp(x).sum(-1, keepdims=True)
        return np.asarray(x - np.log(total) if name == "log_softmax" else np.exp(x) / total)


def compiled(program: Program, target: Target) -> Any:
    """A function of an input and the sizes."""
    kernel = tir_to_kernel(default_schedule(program, target).program, target)
    verify(kernel, "kernel")
    code, needed = backend_of(target).emit(kernel, target), kernel.attrs.get("workspace")

    def run(x: np.ndarray, values: dict[Var, int]) -> np.ndarray:
        got, sizes = np.full_like(x, 77), [values[v] for v in kernel.sizes]
        swap = substitution({v: Const(size) for v, size in zip(kernel.sizes, sizes, strict=True)})
        call(code.data, code.entry, [x, got], sizes, None if needed is None else int(swap(needed)))
        return got

    return run


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
def test_four_rows_of_open_length_are_interleaved(name: str) -> None:
    """Each waited for its own reductions: softmax of rows of 18 elements took 1.6 times as long as onnxruntime."""
    program = default_schedule(made(name, (N, M)), TARGET).program
    assert "rows_together = 4" in to_text(program)
    kernel = tir_to_kernel(program, TARGET)
    verify(kernel, "kernel")
    parallel = [s for s in walk(kernel.body) if isinstance(s, For) and s.kind == "parallel"]
    assert [s.var.name.endswith("_group") for s in parallel] == [True, False, False]
    steps = next(s for s in walk(parallel[0].body) if isinstance(s, If))
    assert not any(isinstance(s, For) and s.kind == "parallel" for s in walk(steps.then))
    own = [s.buffer.name for s in walk(steps.then) if isinstance(s, Allocate)]
    first = [b[:-2] for b in own if b.endswith("_0")]
    assert first and sorted(own) == sorted(f"{b}_{row}" for b in first for row in range(4))


@pytest.mark.parametrize("shape", [(N, 64), (64, 768), (N, 96, 1000)])
def test_rows_of_known_length_are_not(shape: tuple[Any, ...]) -> None:
    assert "rows_together" not in to_text(default_schedule(made("softmax", shape), TARGET).program)


def test_rows_of_much_work_are_not() -> None:
    x, k = te.placeholder((N, M), name="x"), te.reduce_axis((0, M), "k")
    deep = te.compute((N, M), lambda i, j: te.erf(te.tanh(te.exp(te.sin(x[i, j])))), name="deep")
    value = te.compute((N, M), lambda i, j: te.erf(te.tanh(te.exp(te.sin(deep[i, j])))), name="value")
    total = te.compute((N,), lambda i: te.sum(value[i, k.var], axis=k), name="total")
    share = te.compute((N, M), lambda i, j: value[i, j] / total[i], name="share")
    assert "rows_together" not in to_text(default_schedule(te_to_tir("much", [x], [share]), TARGET).program)


def test_rows_whose_number_is_divided_are_not() -> None:
    """A loop counts the quotient of its variable; each row of a group would divide."""
    x, bias, k = te.placeholder((N, H, M), name="x"), te.placeholder((N, M), name="bias"), te.reduce_axis((0, M), "k")
    total = te.compute((N, H), lambda i, j: te.sum(x[i, j, k.var] * bias[i, k.var], axis=k), name="total")
    most = te.compute((N, H, M), lambda i, j, c: x[i, j, c] * bias[i, c] - total[i, j], name="most")
    program = default_schedule(te_to_tir("divided", [x, bias], [most]), TARGET).program
    assert "_group" not in to_text(tir_to_kernel(program, TARGET))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
def test_results(name: str, dtype: str) -> None:
    """Groups with and without a rest, rows with and without rests, around the limit on short rows."""
    run = compiled(made(name, (N, M), dtype), Target("cpu"))
    rng = np.random.default_rng(0)
    tolerance = {"float16": 4e-3, "float32": 3e-5, "float64": 1e-12}[dtype]
    for rows in (0, 1, 3, 4, 5, 7, 8, 30):
        for columns in (1, 2, 15, 16, 18, 33, 64, 100, MAX_ELEMENTS - 1, MAX_ELEMENTS, MAX_ELEMENTS + 1, 700):
            x = rng.uniform(-4, 4, (rows, columns)).astype(dtype)
            got = run(x, {N: rows, M: columns})
            np.testing.assert_allclose(got, expected(name, x), tolerance, tolerance, err_msg=f"{x.shape}")


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_a_row_does_not_change_its_neighbours(name: str) -> None:
    run = compiled(made(name, (N, M)), Target("cpu"))
    x = np.random.default_rng(1).uniform(-4, 4, (9, 21)).astype(np.float32)
    x[1, 3], x[2], x[6, 0] = np.nan, -np.inf, np.inf
    np.testing.assert_allclose(run(x, {N: 9, M: 21}), expected(name, x), 3e-6, 3e-6)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("shape", [(0, 3, 5, 18), (1, 1, 1, 18), (2, 3, 5, 18), (3, 1, 7, 600), (2, 2, 2, 0)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm"])
def test_rows_of_several_axes(name: str, shape: tuple[int, ...]) -> None:
    axes = [te.var(f"d{n}") for n in range(len(shape))]
    program = made(name, tuple(axes))
    assert "_group" in to_text(tir_to_kernel(default_schedule(program, TARGET).program, TARGET))
    x = np.random.default_rng(2).uniform(-4, 4, shape).astype(np.float32)
    got = compiled(program, Target("cpu"))(x, dict(zip(axes, shape, strict=True)))
    np.testing.assert_allclose(got, expected(name, x), 3e-5, 3e-5)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("columns", [0, 3, 18, 40, 600])
@pytest.mark.parametrize("rows", [1, 4, 11])
def test_sums(rows: int, columns: int) -> None:
    x, k = te.placeholder((N, M), name="x"), te.reduce_axis((0, M), "k")
    program = te_to_tir("sums", [x], [te.compute((N, 1), lambda i, j: te.sum(x[i, k.var], axis=k), name="total")])
    target = Target("cpu")
    kernel = tir_to_kernel(default_schedule(program, target).program, target)
    assert "_group" in to_text(kernel)
    code, data = backend_of(target).emit(kernel, target), np.arange(rows * columns, dtype=np.float32)
    data, got = data.reshape(rows, columns), np.full((rows, 1), 77, np.float32)
    call(code.data, code.entry, [data, got], [{N: rows, M: columns}[v] for v in kernel.sizes], None)
    np.testing.assert_allclose(got, data.sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_results_in_c(name: str) -> None:
    run = compiled(made(name, (N, M)), Target("c"))
    for shape in ((0, 18), (3, 18), (9, 21), (8, 200)):
        x = np.random.default_rng(3).uniform(-4, 4, shape).astype(np.float32)
        np.testing.assert_allclose(run(x, {N: shape[0], M: shape[1]}), expected(name, x), 3e-5, 3e-5)
