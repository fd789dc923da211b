"""The last vector of a row, of numbers that are narrowed as they are stored, writes no element behind the row."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_kernel

from weft.target import Target
from weft.tir.text import parse

ROWS, LANES = 4, 16
NARROW = {"u8": np.uint8, "i8": np.int8, "i16": np.int16}


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v4"])
@pytest.mark.parametrize("tail", [1, 2, 3, 15])
@pytest.mark.parametrize("kind", NARROW)
def test_tails_end_with_the_row(kind: str, tail: int, target: str) -> None:
    """Rows are written from the last to the first: what is written behind a row hits one that is complete."""
    width = LANES + tail
    text = f"""
program "p"(a: i32[{ROWS * width + LANES}]) -> (c: {kind}[{ROWS * width}]):
  for i in serial(0, {ROWS}):
    c[ramp(({ROWS - 1} - i) * {width}, 1, 16)] = {kind}(a[ramp(({ROWS - 1} - i) * {width}, 1, 16)])
    c[ramp(({ROWS - 1} - i) * {width} + 16, 1, 16); ramp(16, 1, 16) < broadcast({width}, 16)] = \
{kind}(a[ramp(({ROWS - 1} - i) * {width} + 16, 1, 16)])
"""
    a = np.arange(1, ROWS * width + LANES + 1, dtype=np.int32)
    got = np.zeros(ROWS * width, NARROW[kind])
    run_kernel(parse(text), [a, got], target=Target(target))
    np.testing.assert_array_equal(got, a[: ROWS * width].astype(NARROW[kind]))
