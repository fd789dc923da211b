"""A kernel that remote machines run, and what it takes."""

from __future__ import annotations

import numpy as np

from weft.kernels.one_program import one_program
from weft.kernels.task import KernelTask
from weft.runtime import Artifact
from weft.target import Target
from weft.tir.text import parse

ROWS, INNER, COLUMNS = 24, 40, 56
MATMUL = f"""program "matmul"[n](a: f32[n, {INNER}], b: f32[{INNER}, {COLUMNS}]) -> (c: f32[n, {COLUMNS}]):
  for i in serial(0, n):
    for j in serial(0, {COLUMNS}):
      for k in serial(0, {INNER}):
        block "c"(y: spatial n = i, x: spatial {COLUMNS} = j, r: reduce {INNER} = k):
          reads a[y, r], b[r, x]
          writes c[y, x]
          init:
            c[y, x] = 0.0
          body:
            c[y, x] = c[y, x] + a[y, r] * b[r, x]
"""


def matmul_task(target: str) -> KernelTask:
    """The product of two matrices, by the default schedule of a target; its size is the number of rows."""
    return KernelTask(parse(MATMUL), Target(target))


def matmul_model(target: str) -> Artifact:
    """The same product as a model of one kernel."""
    return one_program(parse(MATMUL), Target(target))


def matrices(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two matrices, and their product."""
    source = np.random.default_rng(rows)
    a = source.standard_normal((rows, INNER)).astype(np.float32)
    b = source.standard_normal((INNER, COLUMNS)).astype(np.float32)
    return a, b, a @ b
