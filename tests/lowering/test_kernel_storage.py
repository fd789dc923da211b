"""Conversions from and to types that exist only in memory, against ml_dtypes: every code, and numbers between codes."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import run_kernel

from weft.expr.nodes import Cast, Load, Var, const
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.support.dtypes import DType
from weft.target import Target
from weft.tir.nodes import Buffer, For, Program, Store

FLOATS = (
    *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"),
    *("float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
)
INTEGERS = ("int4", "uint4", "int2", "uint2", "int1", "uint1")


def convert(x: np.ndarray, to: str) -> np.ndarray:
    """``x`` in another type, by a kernel."""
    source, out = (Buffer(n, (const(x.size),), d) for n, d in (("X", str(DType(x.dtype))), ("Y", to)))
    i = Var("i")
    body = Store(out, (i,), Cast(Load(source, (i,)), DType(to)))
    machine = Target("cpu")
    program = Program("convert", (source, out), For(i, const(0), const(x.size), body, "serial"))
    made = np.zeros(x.size, DType(to).numpy)
    run_kernel(tir_to_kernel(program, machine), [x, made], target=machine)
    return made


def codes(dtype: str) -> np.ndarray:
    return np.arange(1 << DType(dtype).bits, dtype=np.uint8).view(DType(dtype).numpy)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    a, b = a.astype(np.float32), b.astype(np.float32)
    nan = np.isnan(a) & np.isnan(b)
    return bool(np.all(nan | ((a == b) & (np.signbit(a) == np.signbit(b)))))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_every_code_reads(dtype: str) -> None:
    assert same(convert(codes(dtype), "float32"), codes(dtype).astype(np.float32))


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_round(dtype: str) -> None:
    values = np.sort(codes(dtype).astype(np.float32))
    values = values[np.isfinite(values)]
    middles = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
    above = np.nextafter(middles, np.inf, dtype=np.float32)
    below = np.nextafter(middles, -np.inf, dtype=np.float32)
    extremes = np.array([np.inf, -np.inf, np.nan, 1e38, -1e38], np.float32)
    with np.errstate(all="ignore"):
        points = np.concatenate([values, middles, above, below, values * 1.0625, values * 3, extremes])
        points = points.astype(np.float32)
        wanted = points.astype(DType(dtype).numpy)
    assert same(convert(points, dtype), wanted)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap(dtype: str) -> None:
    points = np.arange(-40, 40).astype(np.int32)
    made = convert(points, dtype)
    assert np.array_equal(made.astype(np.int32), points.astype(DType(dtype).numpy).astype(np.int32))
    assert np.array_equal(convert(points.astype(np.float32), dtype).astype(np.int32), made.astype(np.int32))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_moves_keep_codes(dtype: str) -> None:
    assert np.array_equal(convert(codes(dtype), dtype).view(np.uint8), codes(dtype).view(np.uint8))
