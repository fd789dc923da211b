"""Square roots of AVX-512 vectors, most of them by products: the numbers that the instruction gives, which is used
where the other units have no time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from kernel_runner import run_kernel

from weft import te
from weft.backends.llvm import assembly, emit_ir
from weft.expr.intrinsics import call
from weft.expr.nodes import Expr, Load, Var, const
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Buffer, For, Program, Store

ROOT_BITS = {"float32": 24, "float64": 53}
"""Bits of a number, without those of its exponent."""


def loop(dtype: str, count: int) -> Program:
    """The roots of ``count`` numbers, one vector in each turn: all by products where there are such."""
    x, y = Buffer("X", (const(count),), dtype), Buffer("Y", (const(count),), dtype)
    lanes = 64 // (4 if dtype == "float32" else 8)
    i, j = Var("i"), Var("j")
    body = Store(y, (i * lanes + j,), call("sqrt", Load(x, (i * lanes + j,))))
    inner = For(j, const(0), const(lanes), body, "vectorized")
    return Program("roots", (x, y), For(i, const(0), const(count // lanes), inner))


def check(x: np.ndarray, target: str = "cpu") -> None:
    """Against NumPy, which has the instruction: signs of zeros and NaN included, in each lane."""
    machine = Target(target)
    given = np.concatenate([x, np.ones(-len(x) % 16, x.dtype)])
    got = np.full_like(given, 77)
    run_kernel(tir_to_kernel(loop(str(x.dtype), len(given)), machine), [given, got], target=machine)
    with np.errstate(all="ignore"):
        want = np.sqrt(given)
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    bits = f"u{x.dtype.itemsize}"
    wrong = (got.view(bits) != want.view(bits)) & ~nan
    wrong_numbers = zip(given[wrong][:4], got[wrong][:4], strict=True)
    assert not wrong.any(), [(float(v).hex(), float(g).hex()) for v, g in wrong_numbers]


def edges(dtype: str) -> np.ndarray:
    """Zeros, infinities, NaN of all kinds, the ends of all ranges, with both signs."""
    info, word = np.finfo(dtype), f"u{np.dtype(dtype).itemsize}"
    infinite = int(np.array(np.inf, dtype).view(word))
    nans = np.array([infinite + n for n in (1, 2, 1 << (ROOT_BITS[dtype] - 2))], word).view(dtype)
    most = np.array([(1 << (info.bits - 1)) - 1], word).view(dtype)
    least = [info.smallest_subnormal, info.tiny, np.nextafter(info.tiny, dtype_of(dtype, 0))]
    limits = [2.0**-100, 2.0**-102, 2.0**-36] if dtype == "float32" else [2.0**-968, 2.0**-970, 2.0**-840]
    near = [np.nextafter(dtype_of(dtype, v), dtype_of(dtype, side)) for v in limits for side in (0, 1)]
    numbers = np.array([0, 1, 2, 4, 0.25, info.max, info.eps, np.inf, *least, *limits, *near], dtype)
    ones = [np.nextafter(dtype_of(dtype, v), dtype_of(dtype, side)) for v in (1, 2, 4) for side in (0, 9)]
    made = np.concatenate([numbers, nans, most, np.array(ones, dtype)])
    return np.concatenate([made, -made])


def dtype_of(dtype: str, value: float) -> np.generic:
    return np.dtype(dtype).type(value)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_roots_of_numbers_of_all_sizes(dtype: str) -> None:
    rng, info, word = np.random.default_rng(5), np.finfo(dtype), f"u{np.dtype(dtype).itemsize}"
    any_bits = rng.integers(0, 1 << (info.bits - 1), 1 << 21, dtype=word, endpoint=True).view(dtype)
    small = rng.integers(0, 1 << ROOT_BITS[dtype], 1 << 18, dtype=word).view(dtype)
    lowest = np.arange(1 << 16, dtype=word).view(dtype)
    powers = np.ldexp(1.0, np.arange(info.minexp - info.nmant, info.maxexp)).astype(dtype)
    check(np.concatenate([any_bits, -any_bits[:1000], small, lowest, powers, np.nextafter(powers, dtype_of(dtype, 0))]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("at", range(3))
def test_special_numbers_in_each_lane(dtype: str, at: int) -> None:
    every = edges(dtype)
    x = np.full(len(every) * 17, dtype_of(dtype, 3.0))
    x[at::17] = every
    check(x)
    check(every)


def test_every_fraction_of_float32() -> None:
    """Two adjacent exponents have all roots but for their exponents."""
    check(np.arange(0x3F800000, 0x40800000, dtype=np.uint32).view(np.float32))


def near_half_way(bits: int, most: int) -> np.ndarray:
    """Numbers whose roots are nearest to those half way between two neighbours: ``m * m - k``, scaled, for the odd
    numbers ``m`` of one bit more than a number has, and small ``k``."""
    found = []
    for k in range(-most * 8 + 1, most * 8, 8):
        m = 1
        for bit in range(3, bits + 2):  # m^2 = k modulo 2^(bit + 1) for an m of so many bits
            if (m * m - k) >> bit & 1:
                m += 1 << (bit - 1)
        size = 1 << (bits + 1)
        for way in (m, size - m, m + size // 2, size // 2 - m):
            square = (way % size) ** 2 - k
            unit = bits + 2 if square >> (2 * bits + 1) else bits + 1
            if way % size >= size // 2 and square % (1 << unit) == 0:
                found.append(math.ldexp(square >> (bits + 1), 1 - bits))
    return np.array(found)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_roots_near_half_way_between_two_numbers(dtype: str) -> None:
    bits = ROOT_BITS[dtype]
    hard = near_half_way(bits, 4000)
    assert len(hard) > 4000 and (hard.astype(dtype) == hard).all()
    if dtype == "float64":  # that they are hard, in whole numbers
        for value in hard[::97].tolist():
            scaled = int(value * 2.0 ** (bits - 1)) << (bits + 1)
            root = math.isqrt(scaled)
            assert min(abs((root + n | 1) ** 2 - scaled) for n in (-2, 0, 2)) < 1 << 16
    scales = [2.0**n for n in ((-60, 0, 60) if dtype == "float32" else (-1000, -400, 0, 300, 1000))]
    check(np.concatenate([hard * s for s in scales]).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_roots_of_squares_and_their_neighbours(dtype: str) -> None:
    rng = np.random.default_rng(6)
    few = rng.integers(1, 1 << (ROOT_BITS[dtype] // 2), 1 << 16).astype(dtype)  # their squares are exact
    squares = np.concatenate([few * few, np.square(rng.uniform(1, 2, 1 << 18)).astype(dtype)])
    word = f"i{np.dtype(dtype).itemsize}"
    around = np.concatenate([(squares.view(word) + n).view(dtype) for n in (-2, -1, 0, 1, 2)])
    check(np.concatenate([around, around * dtype_of(dtype, 2.0**-20)]))


def scheduled(target: str, dtype: str, value: str = "sqrt", count: int | None = None) -> Program:
    """A function of ``count`` numbers, or of as many as come, by the default schedule."""
    n = te.var("n") if count is None else count
    x = te.placeholder((n,), dtype, name="x")
    made: dict[str, Callable[[Expr], Expr]] = {
        "sqrt": lambda i: te.sqrt(x[i]),
        "rsqrt": lambda i: te.rsqrt(x[i]),
        "divided": lambda i: x[i] / (te.sqrt(x[i]) + 1.0),
        "asin": lambda i: te.asin(x[i]),
    }
    y = te.compute((n,), made[value], name="y")
    return tir_to_kernel(default_schedule(te_to_tir("roots", [x], [y]), Target(target)).program, Target(target))


def instructions(target: str, dtype: str, value: str) -> tuple[int, int]:
    """Roots in the loop: by the instruction and by products."""
    machine = Target(target)
    text = assembly(emit_ir(scheduled(target, dtype, value, 1 << 16), machine), machine)
    loops = re.findall(r"^\.LBB\d+_\d+:.*?^\tj\w+\t\.LBB", text, re.M | re.S)
    code = max(loops, key=lambda c: c.count("\n"), default=text)
    return len(re.findall(r"\tvsqrtp[sd]\t", code)), len(re.findall(r"\tvrsqrt14p[sd]\t", code))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", ["sqrt", "rsqrt", "divided", "asin"])
def test_the_divider_and_the_other_units_share_the_roots(dtype: str, value: str) -> None:
    divider, products = instructions("x86-64-v4", dtype, value)
    assert divider + products
    if value == "asin":
        assert products == 0, "the other units have enough to do"
    elif value == "sqrt":
        assert products == (divider if dtype == "float32" else 3 * divider)
    else:
        assert divider == 0, "the divider has divisions to do"
    assert instructions("x86-64-v3", dtype, value)[1] == 0


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("count", [None, 1, 5, 31, 33, 257, 4096])
def test_roots_by_the_default_schedule(dtype: str, count: int | None) -> None:
    kernel = scheduled("cpu", dtype, "sqrt", count)
    for size in (0, 1, 7, 64, 1000, 5001) if count is None else (count,):
        x = np.random.default_rng(size).uniform(0, 9, size).astype(dtype)
        x[::5] = 0
        y = np.full_like(x, 77)
        run_kernel(kernel, [x, y], [size] if count is None else [], Target("cpu"))
        np.testing.assert_array_equal(y, np.sqrt(x))


def test_roots_of_one_number_of_several_and_of_roots() -> None:
    x, y = Buffer("X", (const(64),), "float64"), Buffer("Y", (const(64),), "float64")
    j = Var("j")

    def load(at: Expr) -> Expr:
        return Load(x, (at,))

    def stored(value: Expr) -> Program:
        return Program("roots", (x, y), For(j, const(0), const(64), Store(y, (j,), value), "vectorized"))

    data = np.random.default_rng(1).uniform(0, 9, 64)
    for value, want in (
        (call("sqrt", load(const(3))) * load(j), np.sqrt(data[3]) * data),
        (call("sqrt", load(j)) * call("sqrt", load(j) + 1.0), np.sqrt(data) * np.sqrt(data + 1)),
        (call("sqrt", call("sqrt", load(j))), np.sqrt(np.sqrt(data))),
    ):
        out = np.zeros(64)
        run_kernel(tir_to_kernel(stored(value), Target("cpu")), [data, out], target=Target("cpu"))
        np.testing.assert_array_equal(out, want)
