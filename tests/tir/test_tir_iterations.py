"""Iterations of independent loops, run one by one, give the results of the whole program together."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule import Schedule
from weft.target import Target
from weft.tir.interpret import Interpreter, run
from weft.tir.iterations import independent_loops
from weft.tir.nodes import Program
from weft.tir.text import parse

rng = np.random.default_rng(0)
GIVEN = [rng.standard_normal(s).astype(np.float32) for s in ((6, 5), (5, 8))]


def matmul() -> Program:
    a, b, k = te.placeholder((6, 5), name="A"), te.placeholder((5, 8), name="B"), te.reduce_axis((0, 5), "k")
    return te_to_tir("f", [a, b], [te.compute((6, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])


def parallel_kernel() -> Program:
    s = Schedule(matmul())
    s.parallel(s.get_loops("C")[0])
    return tir_to_kernel(s.program, Target("x86-64-v3"))


@pytest.mark.parametrize(("program", "count"), [(matmul(), 48), (parallel_kernel(), 6)])
def test_together_they_are_the_whole(program: Program, count: int) -> None:
    (wanted,) = run(program, GIVEN)
    found = independent_loops(program, {}, 1000)
    assert found.count == count
    times, made = np.zeros(wanted.shape, int), np.zeros_like(wanted)
    for iteration in product(*found.ranges):
        part = Interpreter(found.only(iteration)).run(GIVEN, partial=True)
        times += part.written[0]
        made[part.written[0]] = part.outputs[0][part.written[0]]
    assert (times == 1).all() and (made == wanted).all()
    assert independent_loops(program, {}, 2).count == 6 and independent_loops(program, {}, 1).loops == ()


@pytest.mark.parametrize(
    "body",
    [
        "for k in serial(0, 4):\n    C[0] = C[0] + A[k]",  # kernel form: iterations of a serial loop may depend
        "for i in parallel(0, 4):\n    C[i] = 1.0\n  for i in parallel(0, 4):\n    C[i] = C[i] + A[i]",
    ],
)
def test_loops_that_cannot_run_in_part(body: str) -> None:
    program = parse(f'program "f"(A: f32[4]) -> (C: f32[4]):\n  {body}\n')
    assert independent_loops(program, {}, 1000).loops == ()
