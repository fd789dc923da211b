"""Rows of bytes and halves become groups of one element of each row: contiguous loads, one store, no single lanes."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_program

import weft
from weft import te
from weft.expr.nodes import Const, Load, Ramp, Var
from weft.expr.visit import collect
from weft.lowering.kernel.cpu.interleave import interleave
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.support.dtypes import DType
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Buffer, Program, Store, seq
from weft.tir.visit import expressions, stores, walk

CASES = {
    "bytes": ("int8", (64, 48), 4),
    "unsigned bytes": ("uint8", (32, 192), 4),
    "one panel": ("int8", (8, 16), 4),
    "halves": ("bfloat16", (64, 48), 2),
    "float16": ("float16", (10, 64), 2),
    "more than a panel of lanes": ("int8", (16, 1024), 4),
}


def panels(dtype: str, shape: tuple[int, int], group: int, shift: bool = False) -> Program:
    k, n = shape
    x = te.placeholder(shape, dtype, "x")

    def element(p: te.Expr, g: te.Expr, c: te.Expr, r: te.Expr) -> te.Expr:
        value = x[g * group + r, p * 16 + c]
        return te.bitxor(value, te.const(-128, dtype)) if shift else value

    made = te.compute((n // 16, k // group, 16, group), element, name="panels")
    return default_schedule(te_to_tir("pack", [x], [made]), Target("llvm -mcpu=sapphirerapids")).program


def numbers(dtype: str, shape: tuple[int, int]) -> np.ndarray:
    made = np.random.default_rng(3).integers(0, 100, shape)
    return made.astype(DType(dtype).numpy)


@pytest.mark.parametrize("case", CASES)
def test_panels(case: str) -> None:
    dtype, (k, n), group = CASES[case]
    x, program = numbers(dtype, (k, n)), panels(dtype, (k, n), group)
    wanted = x.reshape(k // group, group, n // 16, 16).transpose(2, 0, 3, 1)
    for found in (run(program, [x]), run_program(program, [x])):
        np.testing.assert_array_equal(np.asarray(found[0]).view("u1"), np.ascontiguousarray(wanted).view("u1"))


@pytest.mark.parametrize("case", CASES)
def test_whole_vectors_are_read_and_written(case: str) -> None:
    target = Target("llvm -mcpu=sapphirerapids")
    kernel = tir_to_kernel(panels(*CASES[case]), target)
    written = [s for s in stores(kernel.body) if s.buffer is kernel.params[1]]
    read = [e for s in walk(kernel.body) for e in collect(expressions(s), Load) if e.source is kernel.params[0]]
    assert written and read
    for at in (*(s.indices[0] for s in written), *(e.indices[0] for e in read)):
        assert isinstance(at, Ramp) and at.stride == 1 and at.count >= 16


def test_values_that_are_computed() -> None:
    x = numbers("int8", (16, 32))
    wanted = (x ^ np.int8(-128)).reshape(4, 4, 2, 16).transpose(2, 0, 3, 1)
    np.testing.assert_array_equal(run_program(panels("int8", (16, 32), 4, shift=True), [x])[0], wanted)


def _stores(starts: list[int], stride: int, reads: bool = False) -> list[Store]:
    a, b = Buffer("A", (Const(999),), "int8"), Buffer("B", (Const(999),), "int8")
    i = Var("i")
    places = [Ramp(i * 64 + start, Const(stride), 8) for start in starts]
    return [Store(a, (p,), Load(a if reads else b, (Ramp(i * 8, Const(1), 8),))) for p in places]


@pytest.mark.parametrize(
    ("made", "count"),
    [
        (_stores([0, 1, 2, 3], 4), 1),
        (_stores([2, 0, 3, 1], 4), 1),
        (_stores([0, 1, 2], 3), 3),
        (_stores([0, 1, 16, 17], 2), 2),
        (_stores([0, 1, 2], 4), 3),
        (_stores([0, 1, 2, 4], 4), 4),
        (_stores([0, 0], 2), 2),
        (_stores([0, 1], 2, reads=True), 2),
        (_stores([0, 1, 2, 3, 4], 5), 5),
    ],
)
def test_only_whole_groups_are_joined(made: list[Store], count: int) -> None:
    program = Program("p", (made[0].buffer,), seq(*made), 1)
    assert len(list(stores(interleave(program).body))) == count


@pytest.mark.parametrize("group", [2, 3, 4, 5])
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_groups_that_a_user_schedules(group: int, target: str) -> None:
    """Vectors along the rows, groups unrolled: of every size, in LLVM and in C, which has no vectors of 24 elements."""
    x = te.placeholder((group, 64), "int8", "x")
    made = te.compute((64, group), lambda i, c: x[c, i] + te.const(1, "int8"), name="groups")
    s = te.create_schedule(made.op)
    outer, lanes = s[made].split(made.op.axis[0], 8)
    s[made].reorder(outer, made.op.axis[1], lanes)
    s[made].unroll(made.op.axis[1])
    s[made].vectorize(lanes)
    value = np.arange(group * 64, dtype=np.int8).reshape(group, 64)
    np.testing.assert_array_equal(weft.build(s, [x, made], target)(value), (value + np.int8(1)).T)
