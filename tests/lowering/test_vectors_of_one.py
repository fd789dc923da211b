"""The last vector of an axis that has one element more than whole vectors: that element, without a loop."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_program

from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.target import Target
from weft.tir.nodes import For
from weft.tir.text import parse
from weft.tir.visit import walk

TEXT = """
program "p"(a: f32[4, 33]) -> (c: f32[4, 33]):
  for i in serial(0, 4):
    for j0 in serial(0, 3):
      for j1 in vectorized(0, 16):
        block "c"(x: spatial 4 = i, y: spatial 33 = j0 * 16 + j1):
          reads a[x, y]
          writes c[x, y]
          where j0 * 16 + j1 < 33 CONDITION
          body:
            c[x, y] = max(a[x, y], 0.0)
"""


@pytest.mark.parametrize("condition", ["", "and i < 3"])
def test_one_element_is_no_loop(condition: str) -> None:
    program = parse(TEXT.replace("CONDITION", condition))
    kernel = tir_to_kernel(program, Target("cpu"))
    loops = [s for s in walk(kernel.body) if isinstance(s, For)]
    assert all(loop.extent.value != 16 for loop in loops), "a loop over the lanes of one element"  # type: ignore[attr-defined]  # known extents
    a = np.random.default_rng(0).standard_normal((4, 33)).astype(np.float32)
    (got,) = run_program(program, [a])
    rows = 4 if not condition else 3
    np.testing.assert_array_equal(got[:rows], np.maximum(a, 0)[:rows])
