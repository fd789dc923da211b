"""Work on rows shorter than half a vector: what costs much is computed on all rows as one, in whole vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program
from weft.tir.text import to_text

ROWS = 1000


def joined(x: te.Tensor, y: te.Tensor, n: Any) -> te.Tensor:
    concat = op("concat")
    made: te.Tensor = concat.compute(concat.complete({"axis": 1}), TensorType.of((n, 3), "float32"), x, y)
    return made


def function(x: te.Tensor, n: Any, width: int) -> te.Tensor:
    return te.compute((n, width), lambda i, j: te.erf(x[i, j]) * te.exp(x[i, j]), name="function")


def program(first: str, n: Any) -> Program:
    x, y = te.placeholder((n, 2), name="x"), te.placeholder((n, 1), name="y")
    made = function(joined(x, y, n), n, 3) if first == "joined" else joined(function(x, n, 2), y, n)
    return te_to_tir("rows", [x, y], [made])


def cheap(n: Any) -> Program:
    x, y = te.placeholder((n, 2), name="x"), te.placeholder((n, 1), name="y")
    whole = joined(x, y, n)
    return te_to_tir("rows", [x, y], [te.compute((n, 3), lambda i, j: whole[i, j] * 2.0, name="twice")])


@pytest.mark.parametrize("n", [ROWS, te.var("n")])
@pytest.mark.parametrize("first", ["joined", "function"])
def test_functions_are_computed_in_whole_vectors(first: str, n: Any) -> None:
    """They were on three elements at a time: 7 times as long as onnxruntime for an error function after a join."""
    target = Target("sapphire-rapids")
    before, _, _ = to_text(default_schedule(program(first, n), target).program).partition("erf(")
    assert before[before.rindex("vectorized(") :].startswith("vectorized(0, 16)")


def test_cheap_work_stays_in_one_loop() -> None:
    text = to_text(default_schedule(cheap(ROWS), Target("sapphire-rapids")).program)
    assert text.count("block ") == 1


@pytest.mark.parametrize("rows", [0, 1, 5, 333])
@pytest.mark.parametrize("first", ["joined", "function"])
def test_results(first: str, rows: int) -> None:
    from math import erf

    rng = np.random.default_rng(rows)
    x, y = rng.standard_normal((rows, 2), dtype=np.float32), rng.standard_normal((rows, 1), dtype=np.float32)
    made = default_schedule(program(first, te.var("n")), Target("cpu")).program
    both = np.concatenate([x, y], 1)
    want = np.vectorize(erf, otypes=[np.float32])(both) * np.exp(both)
    if first == "function":
        want = np.concatenate([want[:, :2], y], 1)
    np.testing.assert_allclose(run_program(made, [x, y], [rows])[0], want, rtol=2e-5, atol=1e-6)


def normalized(rows: int) -> Program:
    """The layer normalization of rows of 96 elements: two numbers for each row, in a result that costs much."""
    types = [TensorType.of((rows, 96), "float32")] + [TensorType.of((96,), "float32")] * 2
    inputs = [te.placeholder(t.shape, name=name) for t, name in zip(types, "xgb", strict=True)]
    norm = op("layer_norm")
    return te_to_tir("rows", inputs, [norm.compute(norm.complete({}), types[0], *inputs)])


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 64])
def test_a_number_for_a_whole_row_is_computed_once(rows: int) -> None:
    """Fewer rows than half a vector are no short rows of the result: its loop over all elements computed the sums of
    the row anew for each."""
    text = to_text(default_schedule(normalized(rows), Target("sapphire-rapids")).program)
    assert f"(0, {rows * 96})" not in text, text


@pytest.mark.parametrize("rows", [0, 1, 3, 7, 8])
def test_results_of_few_rows(rows: int) -> None:
    rng = np.random.default_rng(rows)
    x, g, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((rows, 96), 96, 96))
    mean, variance = x.mean(1, keepdims=True), x.var(1, keepdims=True)
    made = default_schedule(normalized(rows), Target("cpu")).program
    found = run_program(made, [x, g, b])[0]
    np.testing.assert_allclose(found, (x - mean) / np.sqrt(variance + 1e-5) * g + b, rtol=2e-5, atol=2e-5)
