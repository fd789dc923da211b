"""Arithmetic of intervals: all small ones, with open ends too, against the values that they hold."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable
from math import inf

import pytest
from expr_strategies import Tensor

from weft.expr.bounds import BINARY_BOUNDS, EVERYTHING, Interval, dtype_range, interval, point, scaled
from weft.expr.nodes import Call, Const, Expr, Load, Var, cast, logical_not, make
from weft.support.dtypes import DType

FAR = 10**9
"""Stands for an open end; a result of its size is one, too."""
LOWS, HIGHS = (-inf, -7, -3, -1, 0, 1, 2, 5), (-7, -2, -1, 0, 1, 3, 6, inf)
INTERVALS = [Interval(lo, hi) for lo in LOWS for hi in HIGHS if lo <= hi]
Number = Callable[[int, int], int]


def near(a: Interval) -> tuple[int, int]:
    return (-FAR if a.lo == -inf else int(a.lo), FAR if a.hi == inf else int(a.hi))


def hull(values: Iterable[int]) -> Interval:
    found = list(values)
    low, high = min(found), max(found)
    return Interval(-inf if low < -FAR // 100 else low, inf if high > FAR // 100 else high)


@pytest.mark.parametrize(
    ("name", "compute"),
    [("add", operator.add), ("sub", operator.sub), ("mul", operator.mul), ("min", min), ("max", max)],
)
def test_extremes_are_those_of_the_ends(name: str, compute: Number) -> None:
    for a, b in itertools.product(INTERVALS, INTERVALS):
        found = BINARY_BOUNDS[name](a, b)
        assert found == hull(compute(x, y) for x in near(a) for y in near(b)), (a, b)


@pytest.mark.parametrize("factor", [-5, -1, 0, 1, 2, 9])
def test_multiples(factor: int) -> None:
    for a in INTERVALS:
        assert scaled(a, factor) == hull(x * factor for x in near(a)) == BINARY_BOUNDS["mul"](a, point(factor)), a


@pytest.mark.parametrize("name", ["floordiv", "truncdiv"])
def test_quotients(name: str) -> None:
    for a, b in itertools.product(INTERVALS, INTERVALS):
        known = b.lo >= 1 and (name == "floordiv" or a.lo >= 0)
        expected = hull(x // y for x in near(a) for y in near(b)) if known else EVERYTHING
        assert BINARY_BOUNDS[name](a, b) == expected, (a, b)


@pytest.mark.parametrize("name", ["floormod", "truncmod"])
def test_remainders(name: str) -> None:
    for a, b in itertools.product(INTERVALS, INTERVALS):
        found = BINARY_BOUNDS[name](a, b)
        if b.lo < 1 or (name == "truncmod" and a.lo < 0):
            assert found == EVERYTHING
            continue
        ends = (-30 if a.lo == -inf else int(a.lo), 30 if a.hi == inf else int(a.hi))
        values = [x % y for x in range(ends[0], ends[1] + 1) for y in range(int(b.lo), min(int(near(b)[1]), 12) + 1)]
        assert all(v in found for v in values), (a, b)
        if b.is_point:
            assert found == Interval(min(values), max(values)), (a, b)
        else:
            assert found == (0, min(b.hi - 1, a.hi) if a.lo >= 0 else b.hi - 1), (a, b)


def test_unions_and_meets() -> None:
    for a, b in itertools.product(INTERVALS, INTERVALS):
        assert a.union(b) == (min(a.lo, b.lo), max(a.hi, b.hi))
        for v in range(-8, 8):
            assert (v in a.meet(b)) == (v in a and v in b)
        assert a.is_point == (len([v for v in range(-9, 9) if v in a]) == 1)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("bool", (0, 1)), ("int8", (-128, 127)), ("uint8", (0, 255)), ("int32", (-(1 << 31), (1 << 31) - 1)),
        ("uint32", (0, (1 << 32) - 1)), ("int64", (-inf, inf)), ("uint64", (0, inf)), ("float32", (-inf, inf)),
        ("float16", (-inf, inf)), ("float64", (-inf, inf)),
    ],
)  # fmt: skip
def test_ranges_of_types(dtype: str, expected: tuple[float, float]) -> None:
    assert dtype_range(DType(dtype)) == expected


def of(e: Expr) -> Interval:
    return interval(e, lambda _: None, {})


def test_what_has_no_bounds() -> None:
    """Floats have none, and what is not known of an integer is the range of its dtype."""
    byte, x = Var("b", "uint8"), Var("x", "float32")
    assert of(Const(2.5, "float32")) == EVERYTHING == of(x + 1.0)
    assert of(Call("popcount", (byte,), DType("uint8"))) == Interval(0, 255) == of(byte)
    assert of(Call("popcount", (Const(3, "uint8"),), DType("uint8"))) == Interval(0, 255), "not that of its operand"
    assert of(Call("likely", (make("lt", byte, 7),), DType("bool"))) == Interval(0, 1)
    assert of(logical_not(make("lt", byte, 7))) == Interval(0, 1)
    assert of(make("lt", x, 1.0)) == Interval(0, 1) == dtype_range(DType("bool"))
    assert of(cast(x, "int16")) == dtype_range(DType("int16"))


def test_what_an_interval_does_not_depend_on_is_not_looked_at() -> None:
    """A load has the range of its dtype: its indices, which may be long chains of loads, do not matter."""
    table = Tensor("table", 1, "int64")
    looked: list[Expr] = []

    def known(e: Expr) -> Interval | None:
        looked.append(e)
        return None

    at: Expr = Var("i", "int64")
    for _ in range(50):
        at = Load(table, (at + 1,))
    assert interval(at + 1, known, {}) == EVERYTHING
    assert len(looked) == 3
