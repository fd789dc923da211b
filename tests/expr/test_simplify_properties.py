"""Simplification keeps values, bounds contain them, and what is proved is true: on random expressions and bindings."""

from __future__ import annotations

import numpy as np
from expr_strategies import INDEX_VARS, conditions, index_expressions
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from weft.expr.evaluate import evaluate
from weft.expr.nodes import Binary, Const, Expr, Var
from weft.expr.prove import Facts
from weft.expr.simplify import simplify
from weft.expr.text import to_text
from weft.expr.visit import free_vars

i, j, k, n = INDEX_VARS
QUICK = settings(
    max_examples=250,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
RANGES = st.tuples(*(st.tuples(st.integers(-6, 6), st.integers(1, 40)) for _ in range(3)), st.integers(1, 9))


def bound(ranges: tuple[tuple[int, int], tuple[int, int], tuple[int, int], int]) -> Facts:
    facts = Facts(sizes=(n,))
    for var, (start, extent) in zip((i, j, k), ranges[:3], strict=True):
        facts.bind(var, start, extent)
    return facts


def bindings(
    data: st.DataObject, ranges: tuple[tuple[int, int], tuple[int, int], tuple[int, int], int]
) -> dict[Var, int]:
    values = {v: data.draw(st.integers(s, s + x - 1)) for v, (s, x) in zip((i, j, k), ranges[:3], strict=True)}
    return {**values, n: ranges[3]}


@QUICK
@given(index_expressions(16), RANGES, st.data())
def test_values_are_kept(e: Expr, ranges, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    values = bindings(data, ranges)
    assert evaluate(simplify(e), values) == evaluate(e, values)
    facts = bound(ranges)
    made = facts.simplify(e)
    assert evaluate(made, values) == evaluate(e, values), to_text(made)
    assert facts.simplify(made) is made or evaluate(facts.simplify(made), values) == evaluate(e, values)


@QUICK
@given(conditions(), RANGES, st.data())
def test_conditions_keep_their_truth(c: Expr, ranges, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    values = bindings(data, ranges)
    made = bound(ranges).simplify(c)
    assert bool(evaluate(made, values)) == bool(evaluate(c, values)), to_text(made)


@QUICK
@given(index_expressions(12), RANGES, st.data())
def test_bounds_contain_the_value(e: Expr, ranges, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    values = bindings(data, ranges)
    assert int(evaluate(e, values)) in bound(ranges).bounds(e)


@QUICK
@given(conditions(6), index_expressions(10), RANGES, st.data())
def test_under_assumptions(c: Expr, e: Expr, ranges, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    values = bindings(data, ranges)
    assume(bool(evaluate(c, values)))
    facts = bound(ranges)
    with facts.assuming(c):
        made = facts.simplify(e)
        assert evaluate(made, values) == evaluate(e, values), to_text(made)
        assert int(evaluate(e, values)) in facts.bounds(e)


@QUICK
@given(index_expressions(5), st.integers(0, 3), RANGES, st.data())
def test_symbolic_divisors(e: Expr, extra: int, ranges, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    """Loops over symbolic extents, divided by the extents."""
    size = ranges[3]
    facts = Facts(sizes=(n,))
    facts.bind(i, 0, n)
    facts.bind(j, 0, n + extra)
    facts.bind(k, 0, i + 1)
    values = {n: size, i: data.draw(st.integers(0, size - 1)), j: data.draw(st.integers(0, size + extra - 1))}
    values[k] = data.draw(st.integers(0, values[i]))
    for divisor in (n, n + extra, n * 2, n * n):
        for op in ("floordiv", "floormod"):
            whole = Binary(op, e * n + i + j * divisor, divisor)
            made = facts.simplify(whole)
            assert evaluate(made, values) == evaluate(whole, values), to_text(made)


@settings(max_examples=60)
@given(index_expressions(8), st.integers(2, 8), st.data())
def test_vectors_keep_every_lane(e: Expr, lanes: int, data: st.DataObject) -> None:
    from weft.expr.nodes import Ramp
    from weft.expr.visit import substitute

    ranges = data.draw(RANGES)
    values = bindings(data, ranges)
    vector = substitute(e, {i: Ramp(i * lanes, Const(1), lanes)})
    facts = bound(ranges)
    made = facts.simplify(vector)
    assert np.array_equal(
        np.broadcast_to(evaluate(made, values), lanes), np.broadcast_to(evaluate(vector, values), lanes)
    )


def test_variables_do_not_appear_from_nowhere() -> None:
    e = (i * 16 + j) // 16 + (i * 16 + j) % 16
    assert set(free_vars(simplify(e))) <= {i, j}
