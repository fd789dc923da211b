"""Arithmetic on integers of data wraps around as in NumPy."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import weft
from weft import te

MOST, LEAST = np.iinfo(np.int64).max, np.iinfo(np.int64).min
VALUES = np.array([0, 1, -1, MOST, LEAST, MOST - 3, LEAST + 5, 1 << 40, -(1 << 62)], np.int64)
TARGETS = ["llvm", pytest.param("c", marks=pytest.mark.skipif(not shutil.which("gcc"), reason="no C compiler"))]


def built(target: str, formula, *inputs: np.ndarray, dtype: str = "int64") -> np.ndarray:
    n = te.var("n")
    given = [te.placeholder((n,), str(x.dtype), name=f"A{i}") for i, x in enumerate(inputs)]
    made = te.compute((n,), lambda i: formula(i, *(t[i] for t in given)), name="B")
    out = np.empty(len(inputs[0]), dtype)
    weft.build(te.create_schedule(made.op), [*given, made], target)(*inputs, out)
    return out


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
def test_data_wraps(target: str, dtype: str) -> None:
    a = np.concatenate([VALUES] * 3).astype(dtype)
    b = np.roll(a, 4)
    for formula in (lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x * y - x * 3 + y):
        with np.errstate(all="ignore"):
            wanted = formula(a, b)
        np.testing.assert_array_equal(built(target, lambda i, x, y, f=formula: f(x, y), a, b, dtype=dtype), wanted)


@pytest.mark.parametrize("target", TARGETS)
def test_numbers_made_of_indices_wrap(target: str) -> None:
    step = 1 << 61
    with np.errstate(all="ignore"):
        wanted = np.arange(len(VALUES), dtype=np.int64) * step + VALUES
    np.testing.assert_array_equal(built(target, lambda i, x: i * step + x, VALUES), wanted)


@pytest.mark.parametrize("target", TARGETS)
def test_divisors_of_zero_that_data_gives_do_not_end_the_process(target: str) -> None:
    divisors = np.array([0, 3, -1, 0], np.int64)
    made = built(target, lambda i, x, y: (x + 1) // y, np.array([5, 8, LEAST - 1 + 1, -2], np.int64), divisors)
    assert made[1] == 3
