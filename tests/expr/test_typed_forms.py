"""Small expressions of all dtypes: their values stay, and their forms are the ones in the golden file. Bounds of
operations against all values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import numpy as np
import pytest

from weft.expr.bounds import EVERYTHING, Interval, dtype_range, floordiv, floormod, interval, truncdiv, truncmod
from weft.expr.evaluate import evaluate
from weft.expr.folds import all_of, any_of
from weft.expr.nodes import Binary, Call, Cast, Const, Expr, Not, Ramp, Select, Shuffle, Var, cast, minimum, select
from weft.expr.prove import Facts
from weft.expr.simplify import simplify
from weft.expr.text import to_text
from weft.support.dtypes import BOOL, DType
from weft.support.errors import UserError

Golden = Callable[[str, str], None]
ARITHMETIC = ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max", "div")
COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")
POINTS: dict[str, tuple[Any, ...]] = {
    "float": (0.0, -0.0, 1.5, np.nan, -np.inf, 3.0), "int": (0, 1, -1, 5, -7, 100), "uint": (0, 1, 5, 200),
    "bool": (False, True),
}  # fmt: skip


def of(dtype: str) -> tuple[Var, Var]:
    return Var("x", DType(dtype)), Var("y", DType(dtype))


def operands(dtype: str) -> list[Expr]:
    x, y = of(dtype)
    if dtype == "bool":
        return [x, y, Const(True, BOOL), Const(False, BOOL), Not(x), Binary("and", x, y), Binary("or", x, y)]
    values = (0.0, -0.0, 1.0, 2.0) if x.dtype.is_float else (0, 1, 2)
    return [x, y, *(Const(v, x.dtype) for v in values), Binary("min", x, y), Binary("max", x, y)]


def same(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "f":
        return bool((np.isnan(a) and np.isnan(b)) or (a == b and np.signbit(a) == np.signbit(b)))
    return bool(a == b)


def check(e: Expr, made: Expr, dtype: str) -> None:
    x, y = of(dtype)
    for a, b in itertools.product(POINTS[x.dtype.kind], repeat=2):
        try:
            before = evaluate(e, {x: a, y: b})
        except UserError:
            continue  # a division by zero has no value
        assert same(before, evaluate(made, {x: a, y: b})), f"{to_text(e)} became {to_text(made)} ({a}, {b})"


def forms(dtype: str) -> Iterator[tuple[Expr, Expr]]:
    """Expressions with their normal form, where that is another one."""
    x, y = of(dtype)
    found: list[Expr] = []
    if dtype == "bool":
        conditions = operands("bool")
        found += [Binary(op, a, b) for op in ("and", "or", "eq", "ne") for a in conditions for b in conditions]
        found += [Not(c) for c in conditions]
        found += [Select(c, a, b) for c in (*conditions[2:5], x) for a in conditions[:4] for b in conditions[:4]]
    else:
        ops = [op for op in (*ARITHMETIC, *COMPARED) if op != "div" or x.dtype.is_float]
        found += [Binary(op, a, b) for op in ops for a in operands(dtype) for b in operands(dtype)]
        two = Const(2.0 if x.dtype.is_float else 2, x.dtype)
        found += [Binary(op, Binary(inner, x, two), two) for op in ("add", "mul") for inner in ("add", "mul", "sub")]
        found += [Not(Binary(op, x, y)) for op in COMPARED]
        c, d = Binary("lt", x, y), Binary("le", x, y)
        inner = [Select(p, a, b) for p in (c, d, Not(c)) for a, b in ((x, y), (y, x))]
        found += [Select(p, a, b) for p in (c, Not(c)) for s in inner for a, b in ((s, x), (x, s), (s, s))]
    for e in dict.fromkeys(found):
        made = simplify(e)
        if made is not e:
            yield e, made


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "bool"])
def test_small_expressions(golden: Golden, dtype: str) -> None:
    lines = []
    for e, made in forms(dtype):
        check(e, made, dtype)
        lines.append(f"{to_text(e)}  →  {to_text(made)}")
    golden(f"typed_{dtype}.txt", "\n".join(lines) + "\n")


NAMES = (
    "bool", "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float8_e4m3fn",
    "float8_e5m2", "float16", "bfloat16", "float32", "float64",
)  # fmt: skip
_BITS = {
    "float8_e4m3fn": (4, 9), "float8_e5m2": (3, 16), "float16": (11, 16), "bfloat16": (8, 128), "float32": (24, 128),
    "float64": (53, 1024),
}  # fmt: skip


def holds_all(first: DType, middle: DType) -> bool:
    """Whether each value of ``first`` is a value of ``middle``."""
    if first.kind == "bool":
        return True
    if first.is_float:
        return middle.is_float and all(a <= b for a, b in zip(_BITS[str(first)], _BITS[str(middle)], strict=True))
    if middle.is_float:
        return first.bits - (first.kind == "int") <= _BITS[str(middle)][0] < _BITS[str(middle)][1]
    if not middle.is_integer:
        return False
    (low, high), (least, most) = first.limits(), middle.limits()
    return bool(least <= low and high <= most)


def test_casts_of_casts(golden: Golden) -> None:
    """A cast that keeps all values is left out before another; one that may not is kept."""
    lines = [f"marks: the outer dtype of {', '.join(NAMES)}"]
    for first, inner in itertools.product(map(DType, NAMES), map(DType, NAMES)):
        x, marks = Var("x", first), ""
        for outer in map(DType, NAMES):
            made = simplify(Cast(Cast(x, inner), outer))
            direct = made is cast(x, outer) and first != inner != outer
            assert holds_all(first, inner) or not direct, (first, inner, outer)
            marks += "." if direct else "=" if inner in (first, outer) else "!" if holds_all(first, inner) else "x"
        lines.append(f"{first} {inner}: {marks}")
    golden("typed_casts.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("inner", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("outside", [None, "low", "high"])
def test_there_and_back_inside_of_a_range(inner: str, outside: str | None) -> None:
    low, high = DType(inner).limits()
    x, facts = Var("x"), Facts()
    facts.bind(x, int(low) - (outside == "low"), int(high) - int(low) + 1 + (outside is not None))
    made = facts.simplify(Cast(Cast(x, DType(inner)), x.dtype))
    assert (made is x) == (outside is None)


DIVISIONS: dict[str, tuple[Callable[[Interval, Interval], Interval], Callable[[int, int], int]]] = {
    "floordiv": (floordiv, lambda a, b: a // b),
    "floormod": (floormod, lambda a, b: a % b),
    "truncdiv": (truncdiv, lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)),
    "truncmod": (truncmod, lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1)),
}
FAR = 10**4
"""Stands for an end that is not known: further away changes no result of the small divisors."""


@pytest.mark.parametrize("op", DIVISIONS)
def test_bounds_of_divisions(golden: Golden, op: str) -> None:
    """They hold all values; the golden file has those that are wider than needed."""
    bounds, value = DIVISIONS[op]
    ends = (-inf, -7, -2, -1, 0, 1, 3, 7, inf)
    spans = [(lo, hi) for lo, hi in itertools.product(ends, ends) if lo <= hi and lo != inf and hi != -inf]
    divisors = [(lo, hi) for lo in (-2, 0, 1, 2, 3) for hi in (1, 2, 3, 5, inf) if lo <= hi]
    lines = []
    for (lo, hi), (small, large) in itertools.product(spans, divisors):
        found = bounds(Interval(lo, hi), Interval(small, large))
        if small < 1 or (op.startswith("trunc") and lo < 0):
            assert found == EVERYTHING
            continue
        near = lambda end: int(max(min(end, FAR), -FAR))  # noqa: E731
        tops = {near(lo), near(hi), *range(max(near(lo), -9), min(near(hi), 9) + 1)}
        unders = [b for b in {*range(int(small), min(near(large), 6) + 1), near(large), 10 * near(large)} if b]
        values = [value(a, b) for a in tops for b in unders if b <= large]
        assert all(v in found for v in values), (lo, hi, small, large)
        ends_of = (min(values), max(values))
        wide = found.lo < ends_of[0] if found.lo != -inf else ends_of[0] > -FAR // 10
        wide |= found.hi > ends_of[1] if found.hi != inf else ends_of[1] < FAR // 10
        if wide:
            lines.append(f"{lo}..{hi} by {small}..{large}: {found.lo}..{found.hi}, values {ends_of[0]}..{ends_of[1]}")
    golden(f"bounds_{op}.txt", "\n".join(lines) + "\n")


def test_bounds_of_other_nodes() -> None:
    x, y, flag = Var("x"), Var("y"), Var("b", BOOL)
    known = {x: Interval(-3, 5), y: Interval(2, 9)}
    ask = lambda e: interval(e, known.get, {})  # noqa: E731
    assert ask(Select(flag, x, y)) == Interval(-3, 9) == ask(Select(flag, y, x))
    assert ask(flag) == Interval(0, 1) == ask(Binary("lt", x, y)) == dtype_range(BOOL)
    assert ask(Cast(Var("f", DType("float32")), DType("int64"))) == EVERYTHING == ask(Var("f", DType("float64")))
    assert ask(Shuffle((Ramp(x, Const(1), 4), Ramp(y, Const(1), 4)), (0, 5))) == Interval(-3, 12)
    assert ask(Shuffle((Ramp(y, Const(1), 4),), (0, 1))) == Interval(2, 12)
    assert ask(Call("likely", (Binary("min", x, y),), x.dtype)) == Interval(-3, 5)
    assert ask(Binary("max", x, y)) == Interval(2, 9)
    assert ask(x * -2 + y) == Interval(-8, 15)
    assert dtype_range(DType("uint64")) == Interval(0, inf) and dtype_range(DType("int64")) == EVERYTHING
    assert dtype_range(DType("int16")) == Interval(-(1 << 15), (1 << 15) - 1)
    assert Interval(1, 4).meet(Interval(2, 9)) == Interval(2, 4) and Interval(1, 2).union(Interval(4, 5)) == (1, 5)
    assert 4 in Interval(1, 4) and 1 in Interval(1, 4) and 5 not in Interval(1, 4) and 0 not in Interval(1, 4)
    assert "a" not in Interval(1, 4)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
def test_literals_that_are_no_values_of_the_dtype_are_refused(dtype: str) -> None:
    """They were taken modulo a power of two: ``x < 300`` was ``x < 44`` for int8."""
    x, (low, high) = Var("x", DType(dtype)), map(int, DType(dtype).limits())
    for literal, fits in ((low, True), (high, True), (low - 1, False), (high + 1, False), (1 << 70, False)):
        for made in (
            lambda v: x < v,
            lambda v: v >= x,
            lambda v: minimum(x, v),
            lambda v: x + v,
            lambda v: v - x,
            lambda v: x == v,
            lambda v: select(x == 0, x, v),
            lambda v: x // v,
        ):
            if fits:
                assert made(literal).dtype in (x.dtype, BOOL)
            else:
                with pytest.raises(UserError, match=f"{literal} does not fit {dtype}") as caught:
                    made(literal)
                assert caught.value.code == "E006"
    assert (x & -1).dtype == x.dtype, "the bits of a mask"


@pytest.mark.parametrize("operand", [3, 2.5, float("nan"), Var("n", DType("int32")), Var("f", DType("float32"))])
def test_conjunctions_take_conditions_only(operand: Any) -> None:
    for made in (all_of, any_of):
        for operands in ((operand,), (Var("b", BOOL), operand)):
            with pytest.raises(UserError) as caught:
                made(*operands)
            assert caught.value.code == "E022"
