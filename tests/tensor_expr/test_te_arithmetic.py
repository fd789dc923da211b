"""Arithmetic by name, against NumPy: on the interpreter and compiled."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.support.errors import UserError
from weft.tir.interpret import run

POINTS = np.array([0.0, -0.0, 1.0, -1.0, 3.5, -2.25, 1e-3, 40.0, -7.0, 0.5], np.float32)
EDGES = np.array([np.inf, -np.inf, np.nan], np.float32)


def both_ways(fn: Callable[..., Any], *values: np.ndarray) -> list[np.ndarray]:
    """What ``fn`` gives for each element, interpreted and compiled."""
    tensors = [te.placeholder(v.shape, str(v.dtype), name=f"x{n}") for n, v in enumerate(values)]
    out = te.compute(values[0].shape, lambda i: fn(*(t[i] for t in tensors)), name="out")
    s = te.create_schedule(out.op)
    args = [*tensors, out]
    return [run(weft.lower(s, args).program, list(values))[0], weft.build(s, args)(*values)]


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.meshgrid(values, values)
    return a.ravel().copy(), b.ravel().copy()


@pytest.mark.parametrize("name, oracle", [("atan2", np.arctan2), ("hypot", np.hypot), ("add", np.add),
                                          ("subtract", np.subtract), ("multiply", np.multiply)])  # fmt: skip
def test_of_two_numbers(name: str, oracle: Callable[..., Any]) -> None:
    a, b = (v + np.float32(0.0) for v in pairs(POINTS))  # no negative zeros: atan2 takes all zeros alike
    for got in both_ways(getattr(te, name), a, b):
        wanted = oracle(a, b)
        if name == "atan2":  # the sign of zeros is not told apart
            got, wanted = np.where(b < 0, np.abs(got), got), np.where(b < 0, np.abs(wanted), wanted)
        np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name, oracle", [("exp10", lambda x: 10.0**x), ("nearbyint", np.rint),
                                          ("log10", np.log10), ("isfinite", np.isfinite)])  # fmt: skip
def test_of_one_number(name: str, oracle: Callable[..., Any]) -> None:
    x = np.concatenate([POINTS[np.abs(POINTS) < 30], EDGES])
    with np.errstate(all="ignore"):
        wanted = oracle(x)
    for got in both_ways(getattr(te, name), x):
        np.testing.assert_allclose(got, wanted, rtol=3e-5, atol=1e-6)


def test_divisions_round_as_their_names_say() -> None:
    a, b = (v.astype(np.int32) for v in pairs(np.array([-7, -4, -1, 2, 3, 9], np.int32)))
    wanted = {
        "floordiv": a // b, "indexdiv": a // b, "floormod": a % b, "indexmod": a % b,
        "div": np.trunc(a / b), "truncdiv": np.trunc(a / b), "truncmod": np.fmod(a, b),
    }  # fmt: skip
    for name, values in wanted.items():
        for got in both_ways(getattr(te, name), a, b):
            np.testing.assert_array_equal(got, values, err_msg=name)
    up = np.abs(b)
    for got in both_ways(te.ceildiv, a, up):
        np.testing.assert_array_equal(got, -(-a // up))


def test_powers_of_two() -> None:
    x, power = POINTS, np.arange(-5, 5, dtype=np.int32)
    for got in both_ways(te.ldexp, x, power):
        np.testing.assert_allclose(got, np.ldexp(x, power), rtol=1e-6)
    with pytest.raises(UserError, match="is an integer"):
        te.ldexp(te.const(1.0, "float32"), 2.0)


def test_a_size_is_a_variable() -> None:
    n = te.size_var("n")
    a = te.placeholder((n,), name="A")
    s = te.create_schedule(te.compute((n,), lambda i: te.likely(i < n).astype("float32") * a[i], name="B").op)
    assert "[n]" in str(weft.lower(s, [a, s.outputs[0]]))


SPECIAL = [-np.inf, -7.0, -2.5, -1.0, -0.5, -0.1, -0.0, 0.0, 0.1, 0.25, 1.0, 3.0, 9.5, np.inf, np.nan]


def cut_quotients(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Exact quotients without their fractions, with the signs that IEEE gives them."""
    made = a / b
    for n, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        if not np.isfinite(x):
            made[n] = np.nan if y else made[n]  # as the remainder of an infinity
        elif np.isfinite(y) and y:
            made[n] = np.copysign(float(int(Fraction(x) / Fraction(y))), made[n])
        elif np.isinf(y):
            made[n] = np.copysign(0.0, made[n])
    return made


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_whole_quotients_of_floats_are_those_of_numpy(dtype: str) -> None:
    """Signs of zeros, infinities, NaN, and quotients next to whole numbers: 1 // 0.1 is 9."""
    drawn = np.random.default_rng(0).standard_normal((2, 200)) * [[1000], [1]]
    a, b = (np.concatenate(v).astype(dtype) for v in zip(pairs(np.array(SPECIAL)), drawn, strict=True))
    with np.errstate(all="ignore"):
        wanted = {
            "floordiv": a // b, "floormod": a % b, "truncmod": np.fmod(a, b), "ceildiv": -(-a // b),
            "truncdiv": cut_quotients(a, b),
        }  # fmt: skip
    for name, oracle in wanted.items():
        for got in both_ways(getattr(te, name), a, b):
            np.testing.assert_array_equal(got, oracle, err_msg=name)
            numbers = ~np.isnan(oracle)
            np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(oracle)[numbers], err_msg=name)
    for whole, rest_of in (("floordiv", "floormod"), ("truncdiv", "truncmod")):
        for q, r in zip(both_ways(getattr(te, whole), a, b), both_ways(getattr(te, rest_of), a, b), strict=True):
            known = np.isfinite(a) & np.isfinite(b) & (b != 0) & (np.abs(q) < 1 / np.finfo(dtype).eps)
            sums = q[known].astype(np.float64) * b[known] + r[known]
            rounded = 4 * np.finfo(dtype).eps * np.maximum(np.abs(a[known]), np.abs(b[known]))
            assert np.all(np.abs(sums - a[known]) <= rounded), whole


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_only_conditions_are_negated(dtype: str) -> None:
    x = te.placeholder((4,), dtype, name="x")
    with pytest.raises(UserError, match=f"takes a condition, not {dtype}"):
        te.logical_not(x[0])


@pytest.mark.parametrize(
    "name", ["add", "subtract", "multiply", "div", "floordiv", "floormod", "truncdiv", "truncmod", "ceildiv"]
)
def test_conditions_are_no_numbers(name: str) -> None:
    x = te.placeholder((4,), "bool", name="x")
    for a in (x[0], te.const(True)):
        for b in (x[1], te.const(False)):
            with pytest.raises(UserError, match="takes numbers, not conditions"):
                getattr(te, name)(a, b)
    assert str(getattr(te, name)(te.const(7, "int32"), te.const(True))) in ("8i32", "6i32", "7i32", "0i32")


def test_reducers_refuse_whole_tensors() -> None:
    x, k = te.placeholder((4,), name="x"), te.reduce_axis((0, 4))
    for make in (lambda: te.max(x, x), lambda: te.all(x > 0, x < 1), lambda: te.sum(x, axis=k)):
        with pytest.raises(UserError, match="a whole tensor: compute its elements"):
            make()
