"""Arithmetic on integers of data wraps around as in NumPy."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from kernel_runner import run_kernel

import weft
from weft import te
from weft.backends import llvm
from weft.expr.nodes import Broadcast, Expr, Load, Ramp, Var, cast, const, make
from weft.target import Target
from weft.tir.nodes import Buffer, For, Let, Program, Stmt, Store, seq

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
    made = built(target, lambda i, x, y: (x + 1) // y, np.array([5, 8, LEAST, -2], np.int64), divisors)
    np.testing.assert_array_equal(made[1:3], [3, -(LEAST + 1)])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["int64", "int32", "int8"])
def test_the_least_number_divided_by_minus_one_wraps(target: str, dtype: str) -> None:
    """The only quotient that does not fit: the smallest integer divided by -1, for which processors end the process.
    Its remainder is 0."""
    least = np.iinfo(dtype).min
    a = np.array([least, least, least + 1, 7, least, -7, least] * 5, dtype)
    b = np.array([-1, 0, -1, -1, 3, 0, least] * 5, dtype)
    known = b != 0
    for formula in (lambda x, y: x // y, lambda x, y: x % y):
        with np.errstate(all="ignore"):
            wanted = formula(a, b)
        made = built(target, lambda i, x, y, f=formula: f(x, y), a, b, dtype=dtype)
        np.testing.assert_array_equal(made[known], wanted[known])


COUNT = 16
DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")


def divided(kind: str, lanes: int, dtype: str, bound: str) -> Program:
    """``C[op] = B[i] op d`` for the divisions, in a loop of ``kind`` where ``d`` comes from the buffer D: it is read
    before the loop, or is the variable of the loop, whose start or extent is read."""
    size = const(COUNT)
    b, d = Buffer("B", (size,), dtype), Buffer("D", (const(2),), "int64")
    outputs = [Buffer(f"C{n}", (size,), dtype) for n in range(len(DIVISIONS))]
    i, divisor, inner = Var("i"), Var("d"), Var("j")
    read = Load(d, (const(0),))
    by = cast(divisor if bound == "let" else inner if bound == "nested" else i, dtype)
    at = Ramp(i * lanes, const(1), lanes) if lanes > 1 else i
    by = Broadcast(by, lanes) if lanes > 1 else by
    body: Stmt = seq(*(Store(c, (at,), make(op, Load(b, (at,)), by)) for c, op in zip(outputs, DIVISIONS, strict=True)))
    start, extent = const(0), const(COUNT // lanes)
    if bound == "nested":  # a loop of one iteration at a place that is read
        body = For(inner, divisor, const(1), body)
    elif bound == "start":
        start = divisor
    elif bound == "extent":
        extent = divisor + COUNT // lanes
    loop = Let(divisor, read, For(i, start, extent, body, kind))
    return Program("divided", (b, d, *outputs), loop, len(outputs))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("kind", ["serial", "parallel"])
@pytest.mark.parametrize("bound", ["let", "start", "extent", "nested"])
def test_numbers_read_outside_of_a_loop_divide_as_data(
    bound: str, kind: str, dtype: str, lanes: int, target: str
) -> None:
    """A divisor of 0 counts as 1 in any loop, instead of ending the process."""
    a = np.arange(-COUNT // 2, COUNT // 2).astype(dtype) * 5
    made = [np.zeros(COUNT, dtype) for _ in DIVISIONS]
    run_kernel(divided(kind, lanes, dtype, bound), [a, np.zeros(2, np.int64), *made], target=Target(target))
    divisors = np.zeros(COUNT, np.int64) if bound in ("let", "nested") else np.arange(COUNT) // lanes
    divisors = np.where(divisors == 0, 1, divisors).astype(dtype)
    floors = np.floor_divide(a, divisors), np.mod(a, divisors)
    rest = np.fmod(a, divisors)
    wanted = {"floordiv": floors[0], "floormod": floors[1], "truncdiv": (a - rest) // divisors, "truncmod": rest}
    for op, found in zip(DIVISIONS, made, strict=True):
        np.testing.assert_array_equal(found, wanted[op], op)


@pytest.mark.parametrize("bound", ["let", "start", "extent"])
@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_arithmetic_on_numbers_read_outside_of_a_loop_may_wrap(kind: str, bound: str) -> None:
    """The code must not promise LLVM (``nsw``) that it does not wrap. For sizes it does promise that."""

    def text(first: Expr) -> str:
        i, n, c = Var("i"), Var("n"), Buffer("C", (const(COUNT),), "int64")
        start, extent = n if bound == "start" else const(0), n if bound == "extent" else const(COUNT)
        stored = Store(c, (i,), (n if bound == "let" else i) * 12345)
        body = Let(n, first, For(i, start, extent, stored, kind))
        return llvm.emit_ir(Program("wraps", (d, c), body, 1, (size,)), Target("llvm"))

    d, size = Buffer("D", (const(2),), "int64"), Var("size")
    assert "mul nsw" not in text(Load(d, (const(0),)))
    assert "mul nsw" in text(size)
