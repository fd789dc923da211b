"""Powers of whole numbers: by squaring, in the width of the base."""

from __future__ import annotations

import re

import numpy as np
import pytest
from kernel_runner import run_program

from weft import te
from weft.backends.llvm import emit_ir
from weft.graph.types import TensorType
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import op
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.tir.nodes import Program

POW = op("pow")
BASES = ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"]


def program(count: int, base: str, exponent: str) -> Program:
    a, b = te.placeholder((count,), base, "a"), te.placeholder((count,), exponent, "b")
    return te_to_tir("power", [a, b], [POW.compute(POW.complete({}), TensorType.of((count,), base), a, b)])


def wrapped(a: int, b: int, bits: int, signed: bool) -> int:
    """In exact numbers, for exponents below 64, and where the result is 0 or has the absolute value 1."""
    exact = a**b if b >= 0 else a if a == 1 else (-1) ** (b % 2) if a == -1 else 0
    low = exact % (1 << bits)
    return low - (1 << bits) if signed and low >> (bits - 1) else low


@pytest.mark.thinned(2)
@pytest.mark.parametrize("exponent", ["int32", "int64", "uint8", "int8"])
@pytest.mark.parametrize("base", BASES)
def test_powers_of_every_dtype(base: str, exponent: str) -> None:
    rng = np.random.default_rng(0)
    low = 0 if base[0] == "u" else -9
    a = np.concatenate([rng.integers(low, 10, 150), np.repeat([0, 1, max(low, -1), 3], 12)]).astype(base)
    least = 0 if exponent[0] == "u" else -3
    special = np.array([least, -least, 0, 1, 2, 63, 5, 31, 33, 7, 3, 40])
    b = np.concatenate([rng.integers(least, 25, 150), np.tile(special, 4)]).astype(exponent)
    bits, signed = np.dtype(base).itemsize * 8, base[0] == "i"
    want = [wrapped(int(x), int(y), bits, signed) for x, y in zip(a, b, strict=True)]
    made = default_schedule(program(len(a), base, exponent), Target("cpu")).program
    np.testing.assert_array_equal(run_program(made, [a, b])[0], np.array(want, base))
    np.testing.assert_array_equal(POW.reference(POW.complete({}), a, b), np.array(want, base))


@pytest.mark.parametrize("b", [64, 65, 1000, -64, -65])
def test_large_exponents_of_zero_and_one(b: int) -> None:
    a = np.array([0, 1, -1], np.int64)
    want = np.array([0, 1, (-1) ** (b % 2)])
    made = default_schedule(program(3, "int64", "int64"), Target("cpu")).program
    np.testing.assert_array_equal(run_program(made, [a, np.full(3, b)])[0], want)


@pytest.mark.parametrize("base", ["int32", "int64"])
def test_a_power_takes_a_dozen_products(base: str) -> None:
    """Choices between powers were expanded: hundreds of products for each vector, 3 to 4 times as long as PyTorch."""
    target = Target("sapphire-rapids")
    lanes = 512 // (np.dtype(base).itemsize * 8)
    made = default_schedule(program(lanes, base, base), target).program
    text = emit_ir(tir_to_kernel(made, target), target)
    assert 0 < len(re.findall(rf"mul <{lanes} x i", text)) <= 12
    assert "x i64>" not in text or base == "int64", "32 bits are enough"


@pytest.mark.thinned(2)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 4.0, -1.0, 0.5, 1.5, -2.0])
def test_known_float_exponents(base: str, exponent: float) -> None:
    """The same numbers as with the exponent in a tensor: toward zero, and whole where the exact power is."""
    low = 0 if base[0] == "u" else -60
    a = np.arange(low, 128).astype(base)
    a = a[a != 0] if exponent < 0 else a
    with np.errstate(all="ignore"):
        exact = np.power(a.astype(np.longdouble), np.longdouble(exponent))
        fits = np.isfinite(exact) & (np.abs(exact) < 2.0 ** (np.dtype(base).itemsize * 8 - 1))
    x = te.placeholder((len(a),), base, "a")
    number = te.compute((), lambda: te.const(exponent, "float64"), name="exponent")
    made = te_to_tir("power", [x], [POW.compute(POW.complete({}), TensorType.of((len(a),), base), x, number)])
    got = run_program(default_schedule(made, Target("cpu")).program, [a])[0]
    np.testing.assert_array_equal(got[fits], np.trunc(exact[fits]).astype(base))
