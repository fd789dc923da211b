"""Quotients of float16 by an estimated reciprocal: the same bits as one rounded division gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program
from seeds import seeds

from weft import te
from weft.backends.llvm import assembly, emit_ir
from weft.expr.nodes import Expr
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program

Array = np.ndarray[Any, Any]
HALF = te.const(1, "float16")
SIZE = 1 << 16


def program(target: Target, divide: Callable[[Expr, Expr], Expr], size: int = SIZE, dtype: str = "float16") -> Program:
    a, b = te.placeholder((size,), dtype, name="a"), te.placeholder((size,), dtype, name="b")
    y = te.compute((size,), lambda i: divide(a[i], b[i]), name="y")
    return default_schedule(te_to_tir("f", (a, b), (y,)), target).program


def quotients(a: Array, b: Array) -> Array:
    """One rounding: float64 holds the quotient to more than twice the bits of float16."""
    with np.errstate(all="ignore"):
        return (a.astype(np.float64) / b.astype(np.float64)).astype(np.float16)


def check(a: Array, b: Array, divide: Callable[[Expr, Expr], Expr] = lambda x, y: x / y) -> None:
    target = Target("cpu")
    (found,) = run_program(program(target, divide, len(a)), [a, b], target=target)
    one = np.ones_like(a)
    wanted = quotients(one if divide is _reciprocal else a, b)
    np.testing.assert_array_equal(found, wanted)
    told = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[told]), np.signbit(wanted[told]))


def _reciprocal(x: Expr, y: Expr) -> Expr:
    return HALF / y


def every_number() -> Array:
    return np.arange(SIZE, dtype=np.uint16).view(np.float16)


def test_reciprocals_of_all_numbers() -> None:
    check(every_number(), every_number(), _reciprocal)


@pytest.mark.parametrize("divisor", [0.0, -0.0, 1.0, 3.0, -2047.0, 65504.0, 2.0**-24, 1023 * 2.0**-24, np.inf, np.nan])
def test_all_numbers_by_one(divisor: float) -> None:
    b = np.full(SIZE, divisor, np.float16)
    check(every_number(), b)
    check(b, every_number())


@pytest.mark.parametrize("seed", seeds(8))
def test_any_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(0, SIZE, 1 << 18).astype(np.uint16).view(np.float16) for _ in range(2))
    check(a, b)


@pytest.mark.parametrize("seed", seeds(2))
def test_quotients_next_to_the_middle_of_two_numbers(seed: int) -> None:
    """Divisors with all bits, and dividends that make the quotient as near to a middle as it can be."""
    rng = np.random.default_rng(seed)
    divisors = rng.integers(1024, 2048, 1 << 18)
    middles = 2 * rng.integers(1024, 2048, divisors.size) + 1
    dividends = np.rint(divisors * middles / 2.0**12) + rng.integers(-1, 2, divisors.size)
    low = rng.integers(-14, 5, divisors.size)
    a = np.ldexp(dividends, low).astype(np.float16)
    check(a, divisors.astype(np.float16))


@pytest.mark.parametrize("size", [1, 15, 16, 33, 1000])
def test_rows_that_end_within_a_vector(size: int) -> None:
    rng = np.random.default_rng(size)
    check(*(rng.integers(0, SIZE, size).astype(np.uint16).view(np.float16) for _ in range(2)))


@pytest.mark.parametrize("machine", ["zen4", "sapphire-rapids"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_divider_is_left_out_for_float16_alone(machine: str, dtype: str) -> None:
    target = Target(machine)
    text = assembly(emit_ir(tir_to_kernel(program(target, lambda x, y: x / y, 4096, dtype), target), target), target)
    assert ("vrcp14ps" in text) == (dtype == "float16")
    assert ("vdivps" in text) == (dtype != "float16")


def test_quotients_that_are_not_rounded_at_once_are_divided() -> None:
    target = Target("sapphire-rapids")
    made = program(target, lambda x, y: x / y + x, 4096)
    text = assembly(emit_ir(tir_to_kernel(made, target), target), target)
    assert "vdivps" in text and "vrcp14ps" not in text


def test_a_buffer_that_is_written_is_read_again() -> None:
    """A quotient depends on what its operands were read from."""
    a = te.placeholder((16,), "float16", name="a")
    y = te.update(a, (3, 16), lambda old, i, j: ((j,), old[j] / a[j]), name="y", independent=(1,))
    x = np.linspace(1, 8, 16).astype(np.float16)
    (found,) = run_program(te_to_tir("f", [a], [y]), [x], target=Target("cpu"))
    once = quotients(x, x)
    np.testing.assert_array_equal(found, quotients(quotients(once, x), x))
