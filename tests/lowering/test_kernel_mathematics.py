"""The float32 and float64 functions that kernels compute: errors in units of the last place, edge cases as in NumPy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from kernel_runner import run_kernel, run_program

from weft import te
from weft.backends.llvm import assembly, emit_ir
from weft.backends.llvm.beyond import BEYOND
from weft.expr.evaluate import evaluate
from weft.expr.intrinsics import INTRINSICS, call
from weft.expr.nodes import Binary, Call, Load, Select, Var, const
from weft.expr.visit import post_order
from weft.lowering.kernel.common.intrinsics import EXPANSIONS, WIDE_EXPANSIONS
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule.rules.cpu import default_schedule
from weft.support.dtypes import FLOAT32, DType
from weft.target import Target
from weft.tir.nodes import Buffer, For, Program, Store
from weft.tir.visit import walk

COUNT = 1 << 14
rng = np.random.default_rng(11)
_LARGE = (88.7, 88.8, 89.5, -87.4, -103, -104, -105, 1e10, 16777215, 16777216, 3e38, -3e38, np.inf, -np.inf, np.nan)
_SMALL = (0, -0.0, 1e-45, -1e-45, 1e-38, 1e-8, 0.5, -0.5, 0.625, 0.921875, 1, -1, 2, -2, 3, -3, 20, -20)
_GONE = (-150, -170, -175.5, -176, -200, -252.5, -253.5, -254)
EDGES = np.array((*_LARGE, *_GONE, *_SMALL), np.float32)


def program(
    name: str, arity: int, dtype: str = "float32", vectorized: bool = True, *, last: float | None = None
) -> Program:
    """The function of one element of each input; ``last``: the last argument, if it is a constant."""
    known = [] if last is None else [const(last, dtype)]
    inputs = [Buffer(f"X{n}", (const(COUNT),), dtype) for n in range(arity - len(known))]
    out = Buffer("Y", (const(COUNT),), dtype)
    i, j = Var("i"), Var("j")
    body = Store(out, (i * 16 + j,), call(name, *(Load(b, (i * 16 + j,)) for b in inputs), *known))
    inner = For(j, const(0), const(16), body, "vectorized" if vectorized else "serial")
    return Program(f"apply_{name}", (*inputs, out), For(i, const(0), const(COUNT // 16), inner))


def apply(name: str, *inputs: np.ndarray, vectorized: bool = True, target: str = "cpu") -> np.ndarray:
    machine = Target(target)
    kernel = tir_to_kernel(program(name, len(inputs), str(inputs[0].dtype), vectorized), machine)
    out = np.zeros(COUNT, inputs[0].dtype)
    run_kernel(kernel, [*inputs, out], target=machine)
    return out


def points(low: float, high: float, everywhere: bool = True) -> np.ndarray:
    """Half of the points in the interval, a quarter over all bit patterns, and the edge cases."""
    x = rng.uniform(low, high, COUNT).astype(np.float32)
    if everywhere:
        quarter = COUNT // 4
        x[:quarter] = rng.integers(0, 2**32, quarter, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x[: len(EDGES)] = EDGES
    return x


def ulps(got: np.ndarray, want: np.ndarray) -> float:
    """The largest error in units of the last place; infinite where special values differ."""
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        error = np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(rounded)).astype(np.float64)
    finite = np.isfinite(rounded)
    special = (np.isnan(rounded) & np.isnan(got)) | (rounded == got)
    return float(np.where(finite, error, np.where(special, 0, np.inf)).max())


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


MAY_BE_ZERO = {"sigmoid": 2.0**-127.5}
"""Results below this may be 0; where powers of two have an instruction, more of them are numbers."""
UNARY: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float, float]] = {
    "exp": (np.exp, -110, 95, 2),
    "exp2": (np.exp2, -155, 130, 2),
    "expm1": (np.expm1, -30, 90, 4),
    "log": (np.log, 0, 3, 2),
    "log2": (np.log2, 0.2, 5, 3),
    "log1p": (np.log1p, -1.01, 4, 4),
    "tanh": (np.tanh, -5, 5, 3),
    "sigmoid": (sigmoid, -100, 30, 3),
    "erf": (np.vectorize(math.erf, otypes=[np.float64]), -5, 5, 2),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0, 10, 2),
    "asin": (np.arcsin, -1.01, 1.01, 3),
    "acos": (np.arccos, -1.01, 1.01, 3),
    "atan": (np.arctan, -3, 3, 3),
    "sinh": (np.sinh, -95, 95, 4),
    "cosh": (np.cosh, -95, 95, 3),
    "asinh": (np.arcsinh, -4, 4, 4),
    "acosh": (np.arccosh, 0.9, 4, 4),
    "atanh": (np.arctanh, -1.01, 1.01, 4),
}


@pytest.mark.parametrize("name", UNARY)
def test_error_bounds(name: str) -> None:
    reference, low, high, bound = UNARY[name]
    for spread in (False, True):
        x = points(low, high, spread)
        with np.errstate(all="ignore"):
            want = reference(x.astype(np.float64))
        got = apply(name, x)
        gone = (got == 0) & (want < MAY_BE_ZERO.get(name, 0.0))
        assert ulps(got, np.where(gone, 0.0, want)) <= bound


@pytest.mark.parametrize(("name", "bound"), [("sin", 2), ("cos", 2), ("tan", 4)])
def test_circular_functions(name: str, bound: float) -> None:
    for size in (4, 1000, 2.0**39):
        x = points(-size, size, everywhere=False)
        x[np.abs(x) > 2.0**40] = np.inf
        with np.errstate(all="ignore"):
            want = getattr(np, name)(x.astype(np.float64))
        assert ulps(apply(name, x), want) <= bound


def test_power() -> None:
    x, y = np.abs(points(0, 10)), points(-20, 20)
    grid = np.meshgrid(EDGES, EDGES)
    x[: grid[0].size], y[: grid[1].size] = grid[0].ravel(), grid[1].ravel()
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64))
    got = apply("pow", x, y)
    assert ulps(got, want) <= 1
    for negative in (-x, np.float32(-3)):
        base = np.broadcast_to(negative, x.shape).astype(np.float32)
        with np.errstate(all="ignore"):
            whole = np.rint(y)
            want = np.power(base, whole)
        numbers = ~np.isnan(want)
        got = apply("pow", base, whole)
        np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


@pytest.mark.parametrize("size", [1.0, 1e6, 1e30])
def test_remainders_are_exact(size: float) -> None:
    x, y = points(-size, size), points(-3, 3)
    grid = np.meshgrid(EDGES, EDGES)
    x[: grid[0].size], y[: grid[1].size] = grid[0].ravel(), grid[1].ravel()
    with np.errstate(all="ignore"):
        want = np.fmod(x, y)
    for vectorized in (True, False):
        got = apply("fmod", x, y, vectorized=vectorized)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid"])
def test_scalars_and_vectors_agree(name: str) -> None:
    x = points(-5, 5)
    vector, scalar = apply(name, x), apply(name, x, vectorized=False)
    np.testing.assert_array_equal(np.isnan(vector), np.isnan(scalar))
    np.testing.assert_allclose(vector, scalar, rtol=3e-7)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid", "sin", "pow"])
def test_without_fused_multiply_add(name: str) -> None:
    """A machine without FMA stays within one ulp more."""
    x = points(0.1, 5, everywhere=False)
    inputs = [x] if name != "pow" else [np.abs(x), points(-3, 3, everywhere=False)]
    got, want = apply(name, *inputs, target="llvm -mcpu=x86-64-v2"), apply(name, *inputs)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=6e-7, atol=1e-44)


@pytest.mark.parametrize("name", ["sqrt", "floor", "ceil", "round", "trunc", "abs"])
def test_machine_instructions(name: str) -> None:
    x = points(-100, 100)
    with np.errstate(all="ignore"):
        want = {"round": np.rint}.get(name, getattr(np, name))(x)
    np.testing.assert_array_equal(apply(name, x), want)


def test_no_float32_function_is_computed_lane_by_lane() -> None:
    """Every one is an expansion or an instruction: no call of the C library is left."""
    machine = Target("x86-64-v4")
    names = [
        r.name for r in INTRINSICS.values() if r.accepts == "float" and r.result and r.result([FLOAT32]) == FLOAT32
    ]
    names = [n for n in names if not n.endswith(BEYOND)]
    assert {"atan", "fmod", "sqrt", "acosh"} <= set(names)
    for name in names:
        kernel = tir_to_kernel(program(name, INTRINSICS[name].arity), machine)
        calls = [line for line in assembly(emit_ir(kernel, machine), machine).splitlines() if "\tcall" in line]
        assert all(f"apply_{name}" in line for line in calls), (name, calls)


WIDE_EDGES = np.array(
    (*EDGES.tolist(), *(5e-324, -5e-324, 2e-308, -1e-310, 1e-300, 1e-17, 0.41421356, 2.41421357, 6, 5.9999, 19.99, 22)),
    np.float64,
)
_FAR = (709.78, 709.79, 710.4, 710.5, -708.4, -745.1, -745.2, -745.3, -746, 1e9, -1e9, 1e154, 1e155, 1e308, -1e308)
WIDE_LARGE = np.array((*_FAR, *(1024, -1022, -1074, -1075, -1076)), np.float64)


def wide_points(low: float, high: float, everywhere: bool) -> np.ndarray:
    x = rng.uniform(low, high, COUNT)
    if everywhere:
        quarter = COUNT // 4
        x[:quarter] = rng.integers(0, 2**64, quarter, dtype=np.uint64).view(np.float64)
        x[quarter : 2 * quarter] = np.exp2(rng.uniform(-60, 4, quarter)) * rng.choice([-1, 1], quarter)
    edges = np.concatenate([WIDE_EDGES, WIDE_LARGE])
    x[: len(edges)] = edges
    return x


def exactly(name: str, x: float) -> tuple[float, float]:
    """The float64 nearest to the function, and how many of its units the function is above it."""
    if math.isnan(x):
        return x, 0.0
    with mpmath.workprec(1300 if name in CIRCULAR else 200):  # pi to the last place of the largest number
        try:
            value = EXACT[name](mpmath.mpf(x))
        except (ValueError, ZeroDivisionError):
            return math.nan, 0.0
        if isinstance(value, mpmath.mpc) or mpmath.isnan(value):
            return math.nan, 0.0
        if not mpmath.isfinite(value) or abs(value) > 1.7976931348623158e308:
            return math.copysign(math.inf, value), 0.0
        nearest = float(value) if abs(value) > 1e-320 else math.ldexp(float(mpmath.nint(value * 2**1074)), -1074)
        return nearest, float((value - mpmath.mpf(nearest)) / mpmath.mpf(math.ulp(nearest)))


CIRCULAR = ("sin", "cos", "tan")
EXACT: dict[str, Callable[..., Any]] = {
    **{name: getattr(mpmath, name) for name in CIRCULAR},
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "expm1": mpmath.expm1,
    "log": lambda x: -mpmath.inf if x == 0 else mpmath.log(x),
    "log2": lambda x: -mpmath.inf if x == 0 else mpmath.log(x) / mpmath.log(2),
    "log1p": lambda x: -mpmath.inf if x == -1 else mpmath.log1p(x),
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "erf": mpmath.erf,
    "asin": mpmath.asin,
    "acos": mpmath.acos,
    "atan": mpmath.atan,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "asinh": mpmath.asinh,
    "acosh": mpmath.acosh,
    "atanh": lambda x: mpmath.inf * x if abs(x) == 1 else mpmath.atanh(x),
}
WIDE = {name: (low, high) for name, (_, low, high, _) in UNARY.items() if name != "rsqrt"}
WIDE |= {**dict.fromkeys(CIRCULAR, (-40, 40)), "exp": (-750, 712), "exp2": (-1080, 1026)}


@pytest.mark.parametrize("name", WIDE)
def test_error_bounds_of_float64(name: str) -> None:
    """Against 60 digits: units of the last place, at the edges exactly what NumPy gives."""
    bound = float(str(WIDE_EXPANSIONS[name].__doc__).split("At most ")[1].split()[0])
    low, high = WIDE[name]
    for spread in (False, True):
        x = wide_points(low, high, spread)
        got = apply(name, x)
        chosen = np.unique(np.concatenate([np.arange(120), rng.integers(0, COUNT, 1200)]))
        worst, at = 0.0, 0.0
        for i in chosen:
            want, rest = exactly(name, float(x[i]))
            value = float(got[i])
            if math.isnan(want) or math.isinf(want):
                same = math.isnan(value) if math.isnan(want) else value == want
                error = 0.0 if same else math.inf
            elif not math.isfinite(value):
                error = math.inf
            else:
                error = abs((value - want) / math.ulp(want) - rest)
            if want == 0 and not math.isnan(value) and name not in ("exp", "exp2", "sigmoid", "log", "log2", "acos"):
                assert math.copysign(1, value) == math.copysign(1, float(x[i])), (name, x[i], value)
            if not error <= worst:
                worst, at = error, float(x[i])
        assert worst <= bound, (name, at, worst)


@pytest.mark.parametrize("name", WIDE)
def test_float64_scalars_and_machines_without_fma_agree(name: str) -> None:
    x = wide_points(*WIDE[name], True)
    usual = apply(name, x)
    for got in (apply(name, x, vectorized=False), apply(name, x, target="llvm -mcpu=x86-64-v2")):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(usual))
        np.testing.assert_allclose(got, usual, rtol=3e-15, atol=2e-323)


@pytest.mark.parametrize("name", CIRCULAR)
@pytest.mark.parametrize("vectorized", [True, False])
def test_circular_functions_of_float64_near_their_zeros_and_beyond(name: str, vectorized: bool) -> None:
    """Multiples of pi / 2, where nearly all bits of the argument cancel; numbers around the limit of the vector code;
    and single large numbers in vectors of small ones."""
    bound = float(str(WIDE_EXPANSIONS[name].__doc__).split("At most ")[1].split()[0])
    x = rng.uniform(-4, 4, COUNT)
    x[:2000] = np.rint(np.exp2(rng.uniform(0, 20, 2000))) * (np.pi / 2)
    x[2000:3000] = rng.uniform(1.59e6, 1.61e6, 1000)
    x[3000:4000:7] = np.exp2(rng.uniform(20, 1023, 143)) * rng.choice([-1, 1], 143)
    x[4000:4003] = 1.6e6, np.nextafter(1.6e6, 0), -1.6e6
    got = apply(name, x, vectorized=vectorized)
    for i in [*range(0, 4004, 3 if vectorized else 29), *range(4000, 4003)]:
        want, rest = exactly(name, float(x[i]))
        assert abs((got[i] - want) / math.ulp(want) - rest) <= bound, (x[i], got[i], want)


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize(
    ("base", "power"),
    [
        ((0, 10), 20),
        ((0.9, 1.1), 5000),
        ((1, 2), 1000),
        ((1 - 1e-9, 1 + 1e-9), 1e11),
        ((0, 5e-310), 1),
        ((0, 1e300), 1),
    ],
)
def test_powers_of_float64(base: tuple[float, float], power: float, target: str) -> None:
    """The reference has 64 bits."""
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("the long double of this machine is no longer than a double")
    x, y = rng.uniform(*base, COUNT), rng.uniform(-power, power, COUNT)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
        nearest = want.astype(np.float64)
        error = np.abs(apply("pow", x, y, target=target) - want) / np.spacing(np.abs(nearest)).astype(np.longdouble)
    normal = np.isfinite(nearest) & (nearest > 1e-300)
    assert normal.any() and float(error[normal].max()) <= 2


def test_special_powers_of_float64() -> None:
    edges = np.concatenate([WIDE_EDGES, WIDE_LARGE, [0.5, 3, 4, -4, 1 / 3]])
    x, y = (np.resize(g.ravel(), COUNT) for g in np.meshgrid(edges, edges))
    with np.errstate(all="ignore"):
        want = np.power(x, y)
    got = apply("pow", x, y)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))
    np.testing.assert_allclose(got, want, rtol=5e-16, atol=1e-323)


@pytest.mark.parametrize("vectorized", [True, False])
@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 4.0, -1.0, 0.5, -0.5, 5.0])
def test_powers_whose_exponent_is_known(exponent: float, dtype: str, target: str, vectorized: bool) -> None:
    """Also of numbers whose powers are infinite, subnormal or 0."""
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("the long double of this machine is no longer than a double")
    x = np.exp(rng.uniform(-740, 709, COUNT)) * rng.choice([1, -1], COUNT)
    x[: COUNT // 2] = rng.uniform(-9, 9, COUNT // 2)
    with np.errstate(all="ignore"):
        x = x.astype(dtype)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 3, -3, 1e-40, -1e-40, 1e30, -1e30], dtype)
    x[: len(edges)] = edges
    machine = Target(target)
    kernel = tir_to_kernel(program("pow", 2, dtype, vectorized, last=exponent), machine)
    got = np.zeros(COUNT, dtype)
    run_kernel(kernel, [x, got], target=machine)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), np.longdouble(exponent))
        want = exact.astype(dtype)
        error = np.abs(got - exact) / np.spacing(np.abs(want)).astype(np.longdouble)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    rounded = exponent in (0.0, 1.0, 2.0, -1.0, 0.5)
    few = np.isfinite(want) & (np.abs(want) > np.finfo(dtype).tiny * 4)
    assert few.any() and error[few].max() <= (0.5001 if rounded else 1 if dtype == "float32" else 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("exponent", "most"), [(0.0, 0), (1.0, 0), (2.0, 1), (3.0, 2), (-1.0, 1), (0.5, 14)])
def test_powers_whose_exponent_is_known_take_few_operations(exponent: float, most: int, dtype: str) -> None:
    """A third power of whole numbers took the logarithm: 2.6 times as long as onnxruntime's products."""
    target = Target("sapphire-rapids")
    text = emit_ir(tir_to_kernel(program("pow", 2, dtype, last=exponent), target), target)
    operations = re.findall(r"\b(?:fadd|fsub|fmul|fdiv|fcmp|floor|fma|sqrt)\b[^\n]*<", text)
    vectors = 2 if dtype == "float64" or exponent == 3.0 else 1  # of 8 numbers of float64, for 16 elements
    assert len(operations) <= most * vectors


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("vectorized", [True, False])
@pytest.mark.parametrize("size", [1.0, 1e6, 1e16, 1e300])
def test_remainders_of_float64_are_exact(size: float, vectorized: bool, target: str) -> None:
    x, y = wide_points(-size, size, size > 1e6), wide_points(-3, 3, size > 1e6)
    edges = np.concatenate([WIDE_EDGES[::3], WIDE_LARGE])
    grid = np.meshgrid(edges, edges)
    x[: grid[0].size], y[: grid[1].size] = grid[0].ravel(), grid[1].ravel()
    whole = slice(4000, 6000)
    with np.errstate(all="ignore"):
        x[whole] = np.rint(rng.uniform(0, 1e6, 2000)) * y[whole] + np.resize([0, 1e-12, -1e-12], 2000)
        want = np.fmod(x, y)
    got = apply("fmod", x, y, vectorized=vectorized, target=target)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))


@pytest.mark.parametrize("name", ["exp", "tanh", "log", "erf", "sigmoid", "atan", "pow", *CIRCULAR, "fmod"])
def test_float64_functions_call_no_library(name: str) -> None:
    """But for the rare arguments of some, outside of the loop."""
    machine = Target("x86-64-v4")
    listing = assembly(
        emit_ir(tir_to_kernel(program(name, INTRINSICS[name].arity, "float64"), machine), machine), machine
    )
    kernel = listing[listing.index(f"apply_{name}.work:") :].split(".Lfunc_end")[0]
    calls = [line for line in kernel.splitlines() if "\tcall" in line]
    assert all("_beyond" in line for line in calls), calls
    assert bool(calls) == (name in (*CIRCULAR, "fmod"))


@pytest.mark.parametrize("name", ["floor", "ceil", "round", "trunc"])
@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v2"])
def test_whole_numbers_of_float16(name: str, target: str) -> None:
    """All of them, signs of zeros included, and none computed element by element."""
    for start in range(4):
        x = np.arange(1 << 16, dtype=np.uint16)[start::4].copy().view(np.float16)
        with np.errstate(all="ignore"):
            want = {"round": np.rint}.get(name, getattr(np, name))(x)
        got = apply(name, x, target=target)
        np.testing.assert_array_equal(got, want)
        numbers = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))
    machine = Target("x86-64-v4")
    listing = assembly(emit_ir(tir_to_kernel(program(name, 1, "float16"), machine), machine), machine)
    assert listing.count("vcvtph2ps") <= 2


def test_every_expansion_states_its_error() -> None:
    assert all(
        f.__doc__ and ("ulp" in f.__doc__ or "rounded" in f.__doc__)
        for f in (*EXPANSIONS.values(), *WIDE_EXPANSIONS.values())
    )


@pytest.mark.parametrize("vectorized", [True, False])
@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v4", "llvm -mcpu=x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_multiplying_by_powers_of_two(dtype: str, target: str, vectorized: bool) -> None:
    """Once rounded, subnormal results and overflow included: by the instruction, by products, lane by lane."""
    if not set(Target(target).cpu.features) <= set(Target("cpu").cpu.features):
        target = "llvm -mcpu=x86-64-v3"
    x = rng.uniform(0.5, 2, COUNT).astype(dtype) * rng.choice([-1, 1], COUNT).astype(dtype)
    n = rng.integers(-250, 251, COUNT).astype(dtype)
    x[:6], n[:6] = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0), (3, -9, 9, 200, -200, 0)
    with np.errstate(all="ignore"):
        want = np.ldexp(x, n.astype(np.int64))
    np.testing.assert_array_equal(apply("ldexp", x, n, target=target, vectorized=vectorized), want)


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_of_numbers_below_zero(dtype: str, target: str) -> None:
    """At most 2 units of the last place, 0 where they would be subnormal, NaN of any kind stays NaN."""
    info = np.finfo(dtype)
    lowest = -87.33654 if dtype == "float32" else -708.396418
    with np.errstate(all="ignore"):
        x = -np.abs(points(lowest * 1.1, 0).astype(dtype))
    near = np.asarray(lowest, dtype)
    x[100:103] = near, np.nextafter(near, 0, dtype=dtype), np.nextafter(near, -np.inf, dtype=dtype)
    words = x.view(np.uint32 if dtype == "float32" else np.uint64)
    quiet = int(np.asarray(np.nan, dtype).view(words.dtype))
    words[200:456] = quiet + np.arange(256, dtype=words.dtype) * 5  # NaN with bits of their own
    with np.errstate(all="ignore"):
        want = np.exp(x.astype(np.longdouble))
    want = np.where(x < near, 0, want)
    for vectorized in (True, False):
        got = apply("exp_nonpositive", x, vectorized=vectorized, target=target)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(x))
        np.testing.assert_array_equal(got == 0, x < near)
        known = ~np.isnan(x) & (x >= near)
        error = np.abs(got[known] - want[known]) / np.spacing(want[known].astype(dtype))
        assert error.max() <= 2
    assert got[known].min() >= info.tiny * (1 - 4 * info.eps)


@pytest.mark.parametrize("name", ["exp", "exp2", "exp_nonpositive", "sigmoid"])
def test_one_instruction_multiplies_by_the_power(name: str) -> None:
    target = Target("x86-64-v4")
    listing = assembly(emit_ir(tir_to_kernel(program(name, 1), target), target), target)
    assert listing.count("vscalefps") == 1 and "vpslld" not in listing


@pytest.mark.parametrize("name, limit", [("exp", -104.0), ("exp2", -150.0)])
def test_powers_that_are_zero_are_not_computed(name: str, limit: float) -> None:
    """Products that underflow take a processor many times as long, and masks of attention make millions of them."""
    x = Var("x", "float32")
    expanded = EXPANSIONS[name](x)
    (product,) = {e for e in post_order(expanded) if isinstance(e, Call) and e.name == "ldexp"}
    for value in (np.nextafter(np.float32(limit), np.float32(-np.inf)), -170.0, -1e3, -3e38, -np.inf):
        fraction, power = (float(evaluate(a, {x: np.float32(value)})) for a in product.args)
        assert math.ldexp(fraction, int(power)) >= np.finfo(np.float32).tiny
        assert evaluate(expanded, {x: np.float32(value)}) == 0


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_half_a_wave_stays_within_one(name: str, target: str) -> None:
    """Around the tops of the waves, where rounding could pass 1; at 0 the results are exact."""
    tops = np.rint(rng.uniform(-1000, 1000, COUNT)) * np.pi + (np.pi / 2 if name == "sin" else 0.0)
    x = tops + rng.uniform(-1, 1, COUNT) * np.exp2(rng.uniform(-50, -1, COUNT))
    x[:2] = 0.0, -0.0
    got = apply(name, x, target=target)
    assert np.abs(got).max() <= 1
    if name == "cos":
        assert (got[:2] == 1).all()
    else:
        assert (got[:2] == 0).all() and np.signbit(got[:2]).tolist() == [False, True]


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v2"])
def test_no_hyperbolic_tangent_is_beyond_one(target: str) -> None:
    x = points(-20, 20)
    got = apply("tanh", x, target=target)
    numbers = ~np.isnan(x)
    assert np.abs(got[numbers]).max() == 1
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(x[numbers]))


@pytest.mark.parametrize(
    ("name", "target", "most"),
    [*(("sigmoid", f"x86-64-v{n}", 19) for n in (3, 4)), ("tanh", "x86-64-v3", 24), ("tanh", "x86-64-v4", 22)],
)
def test_instructions_of_a_vector_of_activations(name: str, target: str, most: int) -> None:
    """Activations may take as long as the convolution before them."""
    machine = Target(target)
    text = assembly(emit_ir(tir_to_kernel(program(name, 1), machine), machine), machine)
    own = text[text.index(f"\napply_{name}") :]
    executed = [
        w for w in re.findall(r"^\t(v\w+)\t", own, re.M) if not w.startswith(("vmov", "vbroadcast", "vpbroad", "vzero"))
    ]
    assert len(executed) <= most * executed.count("vdivps"), executed


@pytest.mark.parametrize(("name", "most"), [("sin", 42), ("cos", 44), ("tan", 50), ("erf", 40), ("log", 38)])
def test_instructions_of_a_vector_of_float64(name: str, most: int) -> None:
    """What the loop executes for each vector, without moves: functions are as fast as their instructions are few."""
    machine = Target("x86-64-v4")
    text = assembly(emit_ir(tir_to_kernel(program(name, 1, "float64"), machine), machine), machine)
    own = text[text.index(f"\napply_{name}") :]
    executed = [w for w in re.findall(r"^\t(v\w+)\t", own, re.M) if not w.startswith(("vmov", "vbroadcast", "vpbroad"))]
    vectors = COUNT // 8 // (COUNT // 16)  # in one turn of the loop
    assert "zmm" in own and len(executed) <= most * vectors, len(executed) / vectors


def halves(dtype: str, function: Callable[[Any], Any], target: Target) -> Program:
    """``function`` of all numbers of 16 bits, which is stored with 16 bits."""
    x = te.placeholder((1 << 16,), dtype, name="x")
    y = te.compute((1 << 16,), lambda i: function(x[i]), name="y")
    return default_schedule(te_to_tir("f", (x,), (y,)), target).program


def tail_and_line(x: Any) -> Any:
    return x * 0.5 * (te.erf(x) + 1.0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"])
def test_functions_of_16_bits(dtype: str, target: str) -> None:
    """All numbers. Results are nearly always the nearest number; where 1 + erf cancels, the rounding of 1 is left."""
    machine = Target(target)
    x = np.arange(1 << 16, dtype=np.uint16).view(DType(dtype).numpy)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        usual = np.isfinite(wide)
        erf = np.array([math.erf(v) for v in wide])
        parts = np.array([0.5 * v * math.erfc(-v) if v > -1e6 else v * 0.0 for v in wide])
        cases = ((te.erf, erf, 0.0), (te.tanh, np.tanh(wide), 0.0), (tail_and_line, parts, 2.0**-25))
    for function, want, slack in cases:
        (got,) = run_program(halves(dtype, function, machine), [x], target=machine)
        with np.errstate(all="ignore"):
            distance = np.abs(got.astype(np.float64) - want)
            unit = np.spacing(np.abs(want.astype(x.dtype))).astype(np.float64)
            allowed = 0.56 * unit + slack * np.minimum(np.abs(wide), 8.0)
        assert (distance <= allowed)[usual & np.isfinite(unit)].all()
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(np.signbit(got[usual]), np.signbit(x[usual]))


@pytest.mark.parametrize(("name", "share"), [("erf", 0.7), ("tanh", 0.8)])
def test_results_of_16_bits_take_fewer_operations(name: str, share: float) -> None:
    """Only where the result is stored: a float32 that is made of the same numbers has all of its bits."""
    machine = Target("sapphire-rapids")

    def operations(function: Callable[[Any], Any]) -> int:
        kernel = tir_to_kernel(halves("float16", function, machine), machine)
        values = [s.value for s in walk(kernel.body) if isinstance(s, Store)]
        counted = max((list(post_order(v)) for v in values), key=len)
        return sum(isinstance(e, (Binary, Call, Select)) for e in counted)

    function = getattr(te, name)
    assert operations(function) <= share * operations(lambda x: function(te.cast(x, "float32")))
