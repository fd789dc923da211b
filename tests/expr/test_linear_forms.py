"""Linear forms can be compared however much was asked in between."""

from __future__ import annotations

import pytest

import weft.expr.linear as linear_forms
from weft.expr.linear import Linear, forget_many, linear
from weft.expr.nodes import Binary, Const, Expr, Select, Var
from weft.support.dtypes import INDEX


def around(product: Expr, b: Expr) -> Expr:
    """A term with a product inside, which linear forms take whole."""
    none = Binary("eq", Binary("min", product, b), Const(0, INDEX))
    return Select(none, Const(0, INDEX), Binary("max", product, b))


def test_forms_before_and_after_many_questions() -> None:
    a, b = Var("a", INDEX), Var("b", INDEX)
    linear(b * a)  # the order in which the factors are written from now on
    before = linear(around(a * b, b))
    for k in range(3000):
        linear(Var(f"v{k}", INDEX) * 2 + 1)
    for k in range(200):
        i = Var("i", INDEX)
        linear(i * 2 + a, {i: (Linear({}), Linear({}, k))})
    linear(a * b)
    assert (linear(around(b * a, b)) - before).is_constant
    assert (linear(around(a * b, b)) - before).is_constant


def test_what_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two steps much is forgotten, little is kept."""
    monkeypatch.setattr(linear_forms, "_MAX_CACHED_TERMS", 10)
    monkeypatch.setattr(linear_forms, "_known", {})
    linear(Var("a", INDEX) + 1)
    forget_many()
    assert len(linear_forms._known) == 1
    for k in range(20):
        linear(Var(f"v{k}", INDEX) + 1)
    forget_many()
    assert not linear_forms._known
