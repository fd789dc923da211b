"""Results of single rules, and bounds of single operations. Random tests do not notice if one of these is missing: the
result is less simple, but right."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from weft.expr.bounds import Interval, dtype_range, interval
from weft.expr.nodes import Binary, Broadcast, Cast, Const, Expr, Ramp, Var
from weft.expr.prove import Facts
from weft.expr.simplify import simplify
from weft.expr.text import to_text
from weft.support.dtypes import DType


def value(name: str, dtype: str) -> Var:
    return Var(name, DType(dtype))


def test_ramps_of_one_value_are_broadcasts() -> None:
    x = Var("x")
    assert simplify(Ramp(x, Const(0, x.dtype), 4)) == Broadcast(x, 4)
    for stride in (-1, 1, 2):
        assert simplify(Ramp(x, Const(stride, x.dtype), 4)) == Ramp(x, Const(stride, x.dtype), 4)


@pytest.mark.parametrize(("least", "most"), [(0, 1), (1, 2), (0, 3), (-1, 1)])
def test_lanes_of_a_stride_that_may_be_zero_stay_within_a_divisor(least: int, most: int) -> None:
    """Four lanes from ``8 <= x < 12`` on, whose stride is a number that is not known."""
    facts, x, stride = Facts(), Var("x"), Var("s")
    facts.bind(x, 8, 4)
    facts.bind(stride, least, most - least + 1)
    lanes = Ramp(x, stride, 4)
    for divisor in (16, 18, 24):
        within = least >= 0 and 11 + most * 3 < divisor
        by = Broadcast(Const(divisor), 4)
        assert (facts.simplify(lanes // by) is Broadcast(Const(0), 4)) == within, divisor
        assert (facts.simplify(lanes % by) is lanes) == within, divisor


@pytest.mark.parametrize(
    ("dtype", "op", "first", "second", "result"),
    [
        ("uint8", "add", 200, 100, 44),
        ("int8", "add", 100, 100, -56),
        ("int32", "add", 3, 4, 7),
        ("uint8", "mul", 16, 32, 0),
        ("int32", "mul", 3, -4, -12),
    ],
)
def test_constants_meet_and_wrap(dtype: str, op: str, first: int, second: int, result: int) -> None:
    x = value("x", dtype)
    made = simplify(Binary(op, Binary(op, x, Const(first, x.dtype)), Const(second, x.dtype)))
    folded = {Binary(op, x, Const(result, x.dtype)), Binary(op, Const(result, x.dtype), x)}
    assert made in folded or (result == 0 and made == Const(0, x.dtype)), to_text(made)


def facts(*given: Expr) -> Facts:
    made = Facts()
    for each in given:
        made.assume(each)
    return made


def test_what_lies_between_equal_bounds_is_equal() -> None:
    n, m = Var("n"), Var("m")
    both = facts(n <= m, n >= m)
    assert both.simplify(Binary("eq", n, m)) == Const(True, DType("bool"))
    assert both.simplify(Binary("ne", n, m)) == Const(False, DType("bool"))
    for half in (facts(n <= m), facts(n >= m)):
        assert not isinstance(half.simplify(Binary("eq", n, m)), Const)


def test_exact_quotients_by_what_has_no_known_sign() -> None:
    x, n = Var("x"), Var("n")
    assert simplify((x * n) // n) == x
    assert simplify((x * n) % n) == Const(0, x.dtype)
    assert to_text(simplify((x + 1) // n)) == "(x + 1) // n"
    assert to_text(simplify((x + 1) % n)) == "(x + 1) % n"


SMALL = ("int8", "uint8")
OPERATIONS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip
EDGES = {"int8": (-128, -127, -3, 0, 2, 126, 127), "uint8": (0, 1, 5, 250, 254, 255)}


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("op", OPERATIONS)
def test_bounds_hold_and_are_exact_where_nothing_wraps(dtype: str, op: str) -> None:
    x, y = value("x", dtype), value("y", dtype)
    whole = dtype_range(x.dtype)
    ranges = [Interval(a, b) for a, b in itertools.combinations_with_replacement(EDGES[dtype], 2)]
    for first, second in itertools.product(ranges, ranges):
        found = interval(Binary(op, x, y), {x: first, y: second}.get, {})
        exact = [
            int(OPERATIONS[op](np.int64(a), np.int64(b))) for a in (first.lo, first.hi) for b in (second.lo, second.hi)
        ]
        low, high = min(exact), max(exact)
        wraps = low < whole.lo or high > whole.hi
        assert found == (whole if wraps else Interval(low, high)), (first, second)


def test_bounds_of_vectors_and_casts() -> None:
    x = value("x", "int64")
    known = {x: Interval(3, 5)}.get
    assert interval(Ramp(x, Const(2, x.dtype), 4), known, {}) == Interval(3, 11)
    assert interval(Ramp(x, Const(-2, x.dtype), 4), known, {}) == Interval(-3, 5)
    assert interval(Broadcast(x, 4), known, {}) == Interval(3, 5)
    assert interval(Cast(x, DType("int8")), known, {}) == Interval(3, 5)
    wide = {x: Interval(3, 500)}.get
    assert interval(Cast(x, DType("int8")), wide, {}) == dtype_range(DType("int8"))
    half = value("h", "float32")
    assert interval(Cast(half, DType("int8")), lambda _: None, {}) == dtype_range(DType("int8"))
