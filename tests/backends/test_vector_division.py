"""Vectors of integers are divided as floats: every quotient and remainder is that of whole numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_runner import run_kernel

from weft import te
from weft.backends.llvm import assembly, emit_ir
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


MEANING: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = {
    "truncdiv": (te.truncdiv, truncated),
    "truncmod": (te.truncmod, lambda a, b: a - truncated(a, b) * b),
    "floordiv": (te.floordiv, lambda a, b: a // b),
    "floormod": (te.floormod, lambda a, b: a % b),
}


def kernel(name: str, dtype: str, target: Target) -> Program:
    n = te.var("n")
    a, b = te.placeholder((n,), dtype, name="a"), te.placeholder((n,), dtype, name="b")
    made = te.compute((n,), lambda i: MEANING[name][0](a[i], b[i]), name="y")
    return tir_to_kernel(default_schedule(te_to_tir("divide", [a, b], [made]), target).program, target)


def operands(dtype: str) -> tuple[list[int], list[int]]:
    """All pairs of edges, random ones, and dividends next to multiples of the divisor."""
    info, rng = np.iinfo(dtype), np.random.default_rng(3)
    edges = [info.min, info.min + 1, info.max // 3, info.max // 2, info.max - 1, info.max, 1, 2, 3, 7]
    edges += [-1, -2, -7] if info.min else []
    pairs = [(a, b) for a, b in itertools.product(edges, repeat=2) if b]

    def draw(low: int, high: int) -> list[int]:
        return [int(x) for x in rng.integers(low, high, 3000, dtype=dtype, endpoint=True)]

    pairs += list(zip(draw(info.min, info.max), draw(1, info.max), strict=True))
    pairs += list(zip(draw(info.min, info.max), draw(1, min(100, info.max)), strict=True))
    for k in draw(1, min(1000, info.max)):
        times = int(rng.integers(0, info.max // k, dtype=dtype, endpoint=True)) if info.max // k else 0
        pairs += [(k * times - 1, k)] if k * times - 1 >= info.min else []
        pairs += [(k * times + 1, k)] if k * times + 1 <= info.max else []
    pairs = [(a, b) for a, b in pairs if not (a == info.min and b == -1)]
    return [a for a, _ in pairs], [b for _, b in pairs]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", MEANING)
@pytest.mark.parametrize("dtype", DTYPES)
def test_quotients_and_remainders(dtype: str, name: str) -> None:
    machine = Target("cpu")
    a, b = operands(dtype)
    out = np.zeros(len(a), dtype)
    run_kernel(kernel(name, dtype, machine), [np.array(a, dtype), np.array(b, dtype), out], [len(a)], machine)
    want = [MEANING[name][1](x, y) for x, y in zip(a, b, strict=True)]
    assert out.tolist() == want


@pytest.mark.parametrize("dtype", DTYPES[:4])
def test_every_byte_and_many_words(dtype: str) -> None:
    info, machine = np.iinfo(dtype), Target("cpu")
    every = np.arange(info.min, info.max + 1, 1 if info.bits == 8 else 251).astype(dtype)
    a, b = (x.ravel() for x in np.meshgrid(every, every[every != 0]))
    keep = ~((a == info.min) & (b.astype(np.int64) == -1))
    a, b = np.ascontiguousarray(a[keep]), np.ascontiguousarray(b[keep])
    for name, want in (("floordiv", np.floor_divide(a, b)), ("floormod", np.mod(a, b))):
        out = np.zeros_like(a)
        run_kernel(kernel(name, dtype, machine), [a, b, out], [a.size], machine)
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("dtype", DTYPES[:6])
def test_divisors_of_zero_and_overflow_do_not_stop_the_process(dtype: str) -> None:
    machine = Target("cpu")
    a = np.full(40, np.iinfo(dtype).min, dtype)
    for divisor in (0, np.iinfo(dtype).max if np.iinfo(dtype).min == 0 else -1):
        out = np.zeros(40, dtype)
        run_kernel(kernel("truncdiv", dtype, machine), [a, np.full(40, divisor, dtype), out], [40], machine)


@pytest.mark.parametrize("name", MEANING)
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int16"])
def test_vectors_are_not_divided_lane_by_lane(dtype: str, name: str) -> None:
    for machine, used in (("x86-64-v4", "vrcp14p"), ("x86-64-v3", "vdivp")):  # the divider is the slowest unit
        target = Target(machine)
        text = assembly(emit_ir(kernel(name, dtype, target), target), target)
        assert used in text and (machine == "x86-64-v3" or "idiv" not in text)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int16", "uint16"])
def test_quotients_by_estimates_next_to_whole_ones(dtype: str) -> None:
    """The largest dividends beside multiples of divisors of every size, where an estimate is most easily wrong."""
    info, rng, machine = np.iinfo(dtype), np.random.default_rng(8), Target("cpu")
    b = np.minimum(np.rint(np.exp2(rng.uniform(0, info.bits, 1 << 16))), info.max).astype(np.int64)
    times = info.max // b
    near = np.concatenate([b * times + n for n in (-1, 0, 1)])
    a = np.clip(near, 1, info.max).astype(dtype)
    b = np.tile(b, 3).astype(dtype)
    sides = [(a, b)] if info.min == 0 else [(a, b), (-a, b), (a, -b), (-a, -b)]
    for x, y in sides:
        out = np.zeros_like(x)
        run_kernel(kernel("truncdiv", dtype, machine), [x, y, out], [x.size], machine)
        wide, by = x.astype(np.int64), y.astype(np.int64)
        np.testing.assert_array_equal(out, np.sign(wide) * np.sign(by) * (np.abs(wide) // np.abs(by)))


@pytest.mark.parametrize("name", MEANING)
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_long_numbers_are_divided_in_floats_while_those_hold_them(dtype: str, name: str) -> None:
    """Vectors of small numbers, some with a large one in a lane, operands around the limit, multiples, neighbours."""
    rng, machine, signed = np.random.default_rng(9), Target("cpu"), dtype == "int64"
    edges = [(1 << n) + d for n in (31, 32, 51, 52, 53, 54) for d in (-2, -1, 0, 1)]
    b = np.exp2(rng.uniform(0, 52, 4000)).astype(np.int64)
    quotient = np.exp2(rng.uniform(0, 52 - np.log2(b))).astype(np.int64)
    a = np.concatenate([b * quotient + d for d in (-1, 0, 1)])
    b = np.tile(b, 3)
    pairs = [*zip(a.tolist(), b.tolist(), strict=True), *itertools.product(edges, [1, 2, 3, 7, *edges])]
    if signed:
        pairs += [(x * s, y * t) for x, y in pairs[::7] for s, t in ((-1, 1), (1, -1), (-1, -1))]
    pairs += [((1 << 62) + n, 3) if n % 50 == 0 else (n, 7) for n in range(1000)]
    x, y = (np.array(column, dtype) for column in zip(*pairs, strict=True))
    out = np.zeros_like(x)
    run_kernel(kernel(name, dtype, machine), [x, y, out], [x.size], machine)
    assert out.tolist() == [MEANING[name][1](p, q) for p, q in pairs]


def test_vectors_of_long_numbers_have_both_ways() -> None:
    target = Target("x86-64-v4")
    text = assembly(emit_ir(kernel("truncdiv", "int64", target), target), target)
    assert "vdivpd" in text and "idivq" in text
