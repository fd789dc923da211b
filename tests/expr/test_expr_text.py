"""Printing and parsing of expressions."""

from __future__ import annotations

import math

import pytest
from expr_strategies import SCOPE, TENSORS, typed_expressions
from hypothesis import given, settings

from weft.expr import intrinsics as intrin
from weft.expr.nodes import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Var,
    logical_not,
    select,
)
from weft.expr.text import parse, to_text
from weft.support.errors import ParseError

i, j, n = SCOPE["i"], SCOPE["j"], SCOPE["n"]
A, OUT, Z = TENSORS


@settings(max_examples=300)
@given(typed_expressions())
def test_round_trip(e: Expr) -> None:
    assert parse(to_text(e), SCOPE) is e


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (i + j * 2, "i + j * 2"),
        ((i + j) * 2, "(i + j) * 2"),
        (i - (j - n), "i - (j - n)"),
        (i - j - n, "i - j - n"),
        (i // 4 % n, "i // 4 % n"),
        (i * (j // 4), "i * (j // 4)"),
        (-i, "0 - i"),
        (i + -3, "i + -3"),
        ((i < j) == (j < n), "i < j == j < n"),
        (logical_not(i < j), "not (i < j)"),
        (Not(SCOPE["x_bool"]), "not x_bool"),
        (select(i < n, Load(A, (i, j + 1)), 0.0), "select(i < n, A[i, j + 1], 0.0)"),
        (Load(Z, ()), "z[]"),
        (Load(OUT, (Ramp(i, Const(1), 8),), Broadcast(i < n, 8)), "conv.out[ramp(i, 1, 8); broadcast(i < n, 8)]"),
        (SCOPE["x_f16"] + 0.1, "x_f16 + 0.1"),
        (SCOPE["x_f64"] + 0.1, "x_f64 + 0.1f64"),
        (SCOPE["x_i32"] * 3, "x_i32 * 3"),
        (Const(3, "int32"), "3i32"),
        (Const(-3, "uint8"), "253u8"),
        (Const(math.inf, "float16"), "inf_f16"),
        (Const(-math.inf, "float32"), "-inf"),
        (Cast(i, "float32"), "f32(i)"),
        (intrin.exp(SCOPE["x_f32"]), "exp(x_f32)"),
        (Call("target.dot", (i, j), "int32"), "target.dot:i32(i, j)"),
        (intrin.reinterpret(SCOPE["x_i32"], "float32"), "reinterpret:f32(x_i32)"),
        (Binary("and", i < j, Binary("or", j < n, n < i)), "i < j and (j < n or n < i)"),
    ],
)
def test_text(e: Expr, text: str) -> None:
    assert to_text(e) == text
    assert parse(text, SCOPE) is e


def test_two_variables_of_one_name_print_apart() -> None:
    assert to_text(Var("i") + Var("i")) == "i + i_1"


def test_deep_expressions_do_not_meet_the_recursion_limit() -> None:
    left: Expr = i
    right: Expr = i
    for step in range(5000):
        left = Binary("sub", left, j)
        right = Binary("sub", j, right) if step % 2 else Not(Binary("eq", right, j)) if right.dtype == "bool" else right
    for e in (left, right):
        assert parse(to_text(e), SCOPE) is e


def test_shared_parts_are_named_where_the_text_would_be_long() -> None:
    e: Expr = i + j
    for step in range(40):
        e = Binary("mul", Binary("add", e, Const(step)), e)
    text = to_text(e)
    assert text.startswith("let(t0 = (i + j + 0) * (i + j), ") and len(text) < 4000
    assert parse(text, SCOPE) is e
    assert parse(f"1 + {text} * 2", SCOPE) is 1 + e * 2
    t0 = Var("t0")
    assert parse(to_text(e + t0), {**SCOPE, "t0": t0}) is e + t0
    with pytest.raises(ParseError, match="unknown name 't0'"):
        parse("let(t0 = i, t0) + t0", SCOPE)


def test_a_variable_may_be_called_like_a_function() -> None:
    x = Var("x", "float32")
    exp32 = Var("exp", "float32")
    assert parse("exp(exp + x)", {"exp": exp32, "x": x}) is intrin.exp(exp32 + x)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("i +", "expected an expression", 3),
        ("i + q", "unknown name 'q'", 4),
        ("A[i]", "has 2 dimensions, not 1", 0),
        ("A + 1", "needs indices", 0),
        ("(i, j)", "one expression", 0),
        ("foo(i)", "unknown function 'foo'", 0),
        ("exp(i, j)", "does not take 2 arguments", 0),
        ("x_f32 + i", "dtypes", 6),
        ("i + 1.5", "dtypes", 2),
        ("i + 3q", "malformed", 4),
        ("i 3", "expected the end", 2),
        ("reinterpret(x_i32)", "must say its dtype", 0),
        ("(i", "expected ')'", 2),
    ],
)
def test_errors_point(text: str, message: str, column: int) -> None:
    with pytest.raises(ParseError, match=message.replace("(", r"\(").replace(")", r"\)")) as caught:
        parse(text, SCOPE)
    assert caught.value.place is not None
    assert caught.value.place.column == column


def test_select_round_trips_with_literals() -> None:
    assert to_text(Select(i < j, Const(1, "int32"), SCOPE["x_i32"])) == "select(i < j, 1, x_i32)"
