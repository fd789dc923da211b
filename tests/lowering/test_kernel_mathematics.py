"""The float32 functions that kernels compute: error bounds in units of the last place, and edge cases as in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from kernel_runner import run_kernel

from weft.backends.llvm import assembly, emit_ir
from weft.expr.evaluate import evaluate
from weft.expr.intrinsics import INTRINSICS, call
from weft.expr.nodes import Call, Load, Var, const
from weft.expr.visit import post_order
from weft.lowering.kernel.common.intrinsics import EXPANSIONS
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.support.dtypes import FLOAT32
from weft.target import Target
from weft.tir.nodes import Buffer, For, Program, Store

COUNT = 1 << 14
rng = np.random.default_rng(11)
_LARGE = (88.7, 88.8, 89.5, -87.4, -103, -104, -105, 1e10, 16777215, 16777216, 3e38, -3e38, np.inf, -np.inf, np.nan)
_SMALL = (0, -0.0, 1e-45, -1e-45, 1e-38, 1e-8, 0.5, -0.5, 0.625, 0.921875, 1, -1, 2, -2, 3, -3, 20, -20)
_GONE = (-150, -170, -175.5, -176, -200, -252.5, -253.5, -254)
EDGES = np.array((*_LARGE, *_GONE, *_SMALL), np.float32)


def program(name: str, arity: int, dtype: str = "float32", vectorized: bool = True) -> Program:
    inputs = [Buffer(f"X{n}", (const(COUNT),), dtype) for n in range(arity)]
    out = Buffer("Y", (const(COUNT),), dtype)
    i, j = Var("i"), Var("j")
    body = Store(out, (i * 16 + j,), call(name, *(Load(b, (i * 16 + j,)) for b in inputs)))
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
    small = np.exp(-np.abs(x))
    return np.where(np.signbit(x) & (x < 0), small, 1) / (1 + small)


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
        assert ulps(apply(name, x), want) <= bound


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
    assert ulps(apply("pow", x, y), want) <= 1


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
    assert {"atan", "fmod", "sqrt", "acosh"} <= set(names)
    for name in names:
        kernel = tir_to_kernel(program(name, INTRINSICS[name].arity), machine)
        calls = [line for line in assembly(emit_ir(kernel, machine), machine).splitlines() if "\tcall" in line]
        assert all(f"apply_{name}" in line for line in calls), (name, calls)


def test_float64_uses_the_c_library() -> None:
    x = rng.uniform(-3, 3, COUNT)
    np.testing.assert_allclose(apply("exp", x), np.exp(x), rtol=1e-15)
    np.testing.assert_allclose(apply("sigmoid", x), 1 / (1 + np.exp(-x)), rtol=1e-14)


def test_every_expansion_states_its_error() -> None:
    assert all(f.__doc__ and ("ulp" in f.__doc__ or "rounded" in f.__doc__) for f in EXPANSIONS.values())


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


@pytest.mark.parametrize("name", ["exp", "exp2", "sigmoid"])
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
