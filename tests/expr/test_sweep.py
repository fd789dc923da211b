"""Least values and sweeps of indices against evaluation over whole ranges."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from weft.expr.evaluate import evaluate
from weft.expr.nodes import Const, Expr, Var, maximum, minimum
from weft.expr.prove import Facts

X, Y, N = Var("x"), Var("y"), Var("n")
leaves = st.sampled_from([X, Y]) | st.integers(-6, 6).map(Const)


def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    by = st.integers(1, 6)
    return (
        st.builds(lambda a, b: a + b, inner, inner)
        | st.builds(lambda a, b: a - b, inner, inner)
        | st.builds(lambda a, f: a * f, inner, by)
        | st.builds(lambda a, f: a // f, inner, by)
        | st.builds(lambda a, f: a % f, inner, by)
        | st.builds(minimum, inner, inner)
        | st.builds(maximum, inner, inner)
    )


expressions = st.recursive(leaves, grow, max_leaves=8)
PLACES = [{X: x, Y: y} for x, y in product(range(1, 6), range(4))]


def facts() -> Facts:
    made = Facts()
    made.bind(X, 1, 5)
    made.bind(Y, 0, 4)
    return made


@settings(max_examples=120)
@given(expressions)
def test_least_and_greatest_are_sound(e: Expr) -> None:
    known = facts()
    least, greatest = known.minimum(e), known.maximum(e)
    values = [int(evaluate(e, at)) for at in PLACES]
    assert least is None or least <= min(values)
    assert greatest is None or greatest >= max(values)


@settings(max_examples=120)
@given(expressions, st.sampled_from([(X,), (Y,), (X, Y)]))
def test_sweeps_hold_all_values(e: Expr, moving: tuple[Var, ...]) -> None:
    swept = facts().sweep(e, moving)
    if swept is None:
        return
    for at in PLACES:
        fixed = {v: n for v, n in at.items() if v not in moving}
        low = int(evaluate(swept.low, fixed))
        assert low <= int(evaluate(e, at)) <= low + int(evaluate(swept.width, fixed))


def test_symbolic_ends() -> None:
    known = Facts()
    known.bind_size(N, 0)
    known.bind(X, 0, N)
    assert known.minimum(N - X) == 1
    assert known.maximum(X - N) == -1
    swept = known.sweep(X * 2 + 3, [X])
    assert swept is not None and swept.low.value == 3 and known.equal(swept.width, N * 2 - 2)  # type: ignore[attr-defined]


def test_sums_of_loop_variables() -> None:
    known = facts()
    assert known.linear((X * 4 + Y) // 4 * 8 + Y, X, Y) == ({X: 8, Y: 1}, Const(0))
    assert known.linear(X * Y, X, Y) is None
    factors, rest = known.linear(X * 3 + Y // 2 + 1, X) or ({}, X)
    assert factors == {X: 3} and rest is known.simplify(Y // 2 + 1)
