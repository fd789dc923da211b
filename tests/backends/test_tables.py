"""Tables of 16 numbers, looked up by one instruction or chosen bit by bit, and functions that use them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
from kernel_runner import run_kernel

from weft.backends.llvm import assembly, emit_ir
from weft.expr.evaluate import evaluate
from weft.expr.intrinsics import call, lookup16
from weft.expr.nodes import Call, Const, Expr, Load, Ramp, Var, const
from weft.expr.visit import collect
from weft.lowering.kernel.common import tables
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.support.dtypes import DType
from weft.target import Target
from weft.tir.nodes import Buffer, For, Program, Store
from weft.tir.visit import all_expressions

COUNT = 29
"""Several vectors, and parts of one."""
MACHINES = ["cpu", "llvm -mcpu=x86-64-v4", "llvm -mcpu=x86-64-v3"]


def program(dtype: str, place: str, kind: str, table: Sequence[Expr] | None = None) -> Program:
    p, y = Buffer("P", (const(COUNT),), place), Buffer("Y", (const(COUNT),), dtype)
    t = Buffer("T", (const(16),), dtype)
    j = Var("j")
    listed = table or [Load(t, (const(n),)) for n in range(16)]
    made = Store(y, (j,), lookup16(Load(p, (j,)), *listed))
    return Program("tables", (p, t, y), For(j, const(0), const(COUNT), made, kind))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", ["vectorized", "serial"])
@pytest.mark.parametrize("place", ["int64", "int32", "uint64"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int32"])
@pytest.mark.parametrize("target", MACHINES)
def test_numbers_are_looked_up(target: str, dtype: str, place: str, kind: str) -> None:
    """By constants and by numbers that are loaded; only the last four bits of the place count."""
    if not set(Target(target).cpu.features) <= set(Target("cpu").cpu.features):
        target = "llvm -mcpu=x86-64-v3"
    table = np.array([n * n - 40 for n in range(16)], dtype)
    places = np.random.default_rng(3).integers(-(1 << 30), 1 << 30, COUNT).astype(place)
    constants = [Const(v, DType(dtype)) for v in (table.tolist() if dtype == "int32" else map(float, table))]
    for listed in (constants, None):
        kernel = tir_to_kernel(program(dtype, place, kind, listed), Target(target))
        out = np.zeros(COUNT, dtype)
        run_kernel(kernel, [places, table, out], target=Target(target))
        np.testing.assert_array_equal(out, table[places.astype(np.int64) & 15])


def test_the_meaning_of_a_table() -> None:
    i = Var("i", "int64")
    table = [Const(float(n), DType("float64")) for n in range(16)]
    assert evaluate(lookup16(i, *table), {i: 35}) == 3.0
    lanes = lookup16(Ramp(i, Const(1), 4), *table)
    assert lanes.lanes == 4 and evaluate(lanes, {i: 14}).tolist() == [14, 15, 0, 1]


def test_only_constants_of_float64_are_left_to_the_instruction() -> None:
    def left(dtype: str, target: str, constant: bool) -> int:
        table = [Const(float(n), DType(dtype)) for n in range(16)] if constant else None
        kernel = tir_to_kernel(program(dtype, "int64", "vectorized", table), Target(target))
        calls = [c for e in all_expressions(kernel.body) for c in collect(e, Call)]
        return sum(c.name == "lookup16" for c in calls)

    assert left("float64", "x86-64-v4", True)
    others = [("float64", "x86-64-v4", False), ("float32", "x86-64-v4", True), ("float64", "x86-64-v3", True)]
    assert not any(left(*other) for other in [*others, ("float64", "c", True), ("float64", "raspberry-pi-4", True)])


def test_the_error_function_looks_its_coefficients_up() -> None:
    """One of each power for a vector, in registers: nothing is gathered."""
    x, y = Buffer("X", (const(64),), "float64"), Buffer("Y", (const(64),), "float64")
    j = Var("j")
    body = For(j, const(0), const(64), Store(y, (j,), call("erf", Load(x, (j,)))), "vectorized")
    for name, count in (("x86-64-v4", 14 * 8), ("x86-64-v3", 0)):
        machine = Target(name)
        text = assembly(emit_ir(tir_to_kernel(Program("errors", (x, y), body), machine), machine), machine)
        assert len(re.findall(r"\tvperm[it]2pd\t", text)) == count
        assert "gather" not in text and "\tcallq\terf" not in text


def test_the_error_function_by_tables_is_accurate() -> None:
    """Against 45 digits, at the ends of all pieces and between them; on other machines other functions are tested."""
    rng = np.random.default_rng(12)
    ends = np.concatenate([(np.arange(16) + half) * tables._ERF_STEP for half in (0, 0.5)])
    near = np.concatenate([ends, np.nextafter(ends, 0), np.nextafter(ends, 9)])
    x = np.concatenate([near, -near, rng.uniform(-6.2, 6.2, 1600), np.exp2(rng.uniform(-1074, 2, 400))])
    a, y, j = Buffer("A", (const(len(x)),), "float64"), Buffer("Y", (const(len(x)),), "float64"), Var("j")
    body = For(j, const(0), const(len(x)), Store(y, (j,), call("erf", Load(a, (j,)))), "vectorized")
    out = np.zeros_like(x)
    run_kernel(tir_to_kernel(Program("errors", (a, y), body), Target("cpu")), [x, out], target=Target("cpu"))
    assert np.abs(out).max() == 1 and (np.signbit(out) == np.signbit(x)).all()
    bound = 2 if "avx512f" in Target("cpu").cpu.features else 3
    with mpmath.workprec(150):
        for at, got in zip(x.tolist(), out.tolist(), strict=True):
            want = mpmath.erf(mpmath.mpf(at))
            assert abs(mpmath.mpf(got) - want) <= bound * mpmath.mpf(math.ulp(float(want))), (at, got)


@pytest.mark.parametrize("kind", ["vectorized", "serial"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("target", MACHINES)
def test_significands_and_exponents(target: str, dtype: str, kind: str) -> None:
    """Of numbers of all sizes: their product is the number. Special ones have those that logarithms need."""
    if not set(Target(target).cpu.features) <= set(Target("cpu").cpu.features):
        target = "llvm -mcpu=x86-64-v3"
    info, rng, parts = np.finfo(dtype), np.random.default_rng(4), []
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, -float(info.max)]
    edges = [info.tiny, info.smallest_subnormal, info.max, 0.75, 1.5, 1.0, np.nextafter(np.dtype(dtype).type(1.5), 0)]
    drawn = np.ldexp(rng.uniform(1, 2, 40), rng.integers(info.minexp - info.nmant, info.maxexp - 1, 40))
    x = np.concatenate([np.array([*special, *edges], dtype), drawn.astype(dtype)])
    for name in ("significand", "exponent"):
        a, y, j = Buffer("A", (const(len(x)),), dtype), Buffer("Y", (const(len(x)),), dtype), Var("j")
        body = For(j, const(0), const(len(x)), Store(y, (j,), call(name, Load(a, (j,)))), kind)
        out = np.zeros_like(x)
        run_kernel(tir_to_kernel(Program("parts", (a, y), body), Target(target)), [x, out], target=Target(target))
        v = Var("v", dtype)
        with np.errstate(all="ignore"):
            meant = np.array([evaluate(call(name, v), {v: one}) for one in x], dtype)
        np.testing.assert_array_equal(out, meant)
        parts.append(out)
    usual = (x > 0) & np.isfinite(x)
    assert usual.sum() > 40
    size, power = (p[usual].astype(np.float64) for p in parts)
    assert ((size >= 0.75) & (size < 1.5)).all() and (np.rint(power) == power).all()
    np.testing.assert_array_equal(np.ldexp(size, power.astype(int)), x[usual].astype(np.float64))
    assert np.isnan(parts[0][x < 0]).all() and (parts[0][(x == 0) | (x == np.inf)] == 1).all()
    assert (parts[1][x == 0] == -np.inf).all() and (parts[1][x == np.inf] == np.inf).all()


def test_instructions_of_a_logarithm() -> None:
    """What the loop executes for each vector of float32, without moves."""
    x, y = Buffer("X", (const(1 << 12),), "float32"), Buffer("Y", (const(1 << 12),), "float32")
    i, j = Var("i"), Var("j")
    inner = For(j, const(0), const(16), Store(y, (i * 16 + j,), call("log", Load(x, (i * 16 + j,)))), "vectorized")
    machine = Target("x86-64-v4")
    kernel = tir_to_kernel(Program("logs", (x, y), For(i, const(0), const(256), inner)), machine)
    text = assembly(emit_ir(kernel, machine), machine)
    own = text[text.index("\nlogs") :]
    executed = [w for w in re.findall(r"^\t(v\w+)\t", own, re.M) if not w.startswith(("vmov", "vbroadcast", "vpbroad"))]
    assert "zmm" in own and len(executed) <= 22, executed
