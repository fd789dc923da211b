"""Instructions on slices of buffers: columns, planes and rows, from any start."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_program
from random_moves import INTRINSICS
from schedule_cases import check, inputs_for

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule, TensorIntrinsic
from weft.support.errors import ScheduleError
from weft.tir.interpret import run
from weft.tir.nodes import Program
from weft.tir.text import parse

ROW_SUM = next(i for i in INTRINSICS if i.name == "row_sum_4")
VECTORS = TensorIntrinsic(
    "vector_add",
    parse("""program "v"(A: f32[4]) -> (C: f32[4]):
  for k in serial(0, 4):
    block "C"(x: spatial 4 = k):
      reads A[x]
      writes C[x]
      body:
        C[x] = A[x] + 1.0
"""),
    parse("""program "v"(A: f32[4]) -> (C: f32[4]):
  C[ramp(0, 1, 4)] = A[ramp(0, 1, 4)] + broadcast(1.0, 4)
"""),
)


def product(transposed: bool, planes: bool) -> Program:
    shape = (4, 6) if transposed else (6, 4)
    a, b = te.placeholder((3, *shape) if planes else shape, name="A"), te.placeholder((4, 5), name="B")
    k = te.reduce_axis((0, 4), "k")

    def element(i: object, row: object) -> object:
        at = (row, i) if transposed else (i, row)
        return a[(1, *at)] if planes else a[at]

    c = te.compute((6, 5), lambda i, j: te.sum(element(i, k.var) * b[k, j], axis=k), name="C")
    return te_to_tir("product", [a, b], [c])


@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize("transposed", [False, True], ids=["rows", "columns"])
def test_the_operands_are_slices(transposed: bool, planes: bool) -> None:
    """The second operand is a column of B; the first one is a row or a column, in a plane."""
    original = product(transposed, planes)
    s = Schedule(original, intrinsics=[ROW_SUM])
    s.decompose_reduction("C", s.get_loops("C")[-1])
    s.tensorize(s.get_loops("C")[-1], "row_sum_4")
    check(original, s.program)
    given = inputs_for(original)
    np.testing.assert_allclose(run_program(s.program, given, [])[0], run(original, given)[0])


@pytest.mark.parametrize("transposed", [False, True])
def test_vectors_need_the_last_dimension(transposed: bool) -> None:
    a = te.placeholder((4, 4), name="A")
    c = te.compute((4, 4), lambda i, j: (a[j, i] if transposed else a[i, j]) + 1.0, name="C")
    original = te_to_tir("rows", [a], [c])
    s = Schedule(original)
    if transposed:
        with pytest.raises(ScheduleError, match="not indexed like") as caught:
            s.tensorize(s.get_loops("C")[1], VECTORS)
        assert caught.value.code == "S081"
        return
    s.tensorize(s.get_loops("C")[1], VECTORS)
    check(original, s.program)
