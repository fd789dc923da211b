"""Linear forms, bounds and sweeps, against evaluation over whole ranges."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from weft.expr.linear import Linear, linear, maximum_of, minimum_of, relax
from weft.expr.nodes import BINARY, Binary, Const, Expr, Var, maximum, minimum
from weft.schedule import IndexMap
from weft.support.dtypes import INDEX

X, Y, Z = (Var(name, INDEX) for name in "xyz")
EXTENTS = {X: 5, Y: 4, Z: 3}
RANGES = {v: (Linear({}), Linear({}, n - 1)) for v, n in EXTENTS.items()}

leaves = st.sampled_from([X, Y, Z]) | st.integers(-6, 6).map(lambda n: Const(n, INDEX))


def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    factor = st.integers(1, 6)
    return (
        st.builds(lambda a, b: a + b, inner, inner)
        | st.builds(lambda a, b: a - b, inner, inner)
        | st.builds(lambda a, f: a * f, inner, factor)
        | st.builds(lambda a, f: a // f, inner, factor)
        | st.builds(lambda a, f: a % f, inner, factor)
        | st.builds(minimum, inner, inner)
        | st.builds(maximum, inner, inner)
    )


expressions = st.recursive(leaves, grow, max_leaves=8)


def value(e: Expr, at: dict[Expr, int]) -> int:
    if isinstance(e, Const):
        return int(e.value)
    if isinstance(e, Var):
        return at[e]
    assert isinstance(e, Binary)
    return int(BINARY[e.op].evaluate(value(e.a, at), value(e.b, at)))


def places() -> list[dict[Expr, int]]:
    return [dict(zip(EXTENTS, p, strict=True)) for p in product(*(range(n) for n in EXTENTS.values()))]


@settings(max_examples=150)
@given(expressions)
def test_linear_forms_and_bounds_are_sound(e: Expr) -> None:
    form = linear(e, RANGES)
    simple, least, greatest = form.expr(), minimum_of(form, RANGES), maximum_of(form, RANGES)
    for at in places():
        found = value(e, at)
        assert value(simple, at) == found
        assert least is None or least <= found
        assert greatest is None or found <= greatest


@settings(max_examples=150)
@given(expressions, st.sets(st.sampled_from([X, Y, Z]), max_size=3))
def test_sweeps_hold_all_values(e: Expr, moving: set[Var]) -> None:
    swept = relax(e, {v: r for v, r in RANGES.items() if v in moving}, RANGES)
    if swept is None:
        return
    low, width = swept.low.expr(), swept.width.expr()
    for at in places():
        fixed = {v: n for v, n in at.items() if v not in moving}
        first = value(low, fixed)  # type: ignore[arg-type]
        assert first <= value(e, at) <= first + value(width, fixed)  # type: ignore[arg-type]


def test_linear_forms_of_tiled_indices_are_exact() -> None:
    ranges = {**RANGES, Z: (Linear({}), Linear({}, 15))}
    assert linear((X * 16 + Z) // 16, ranges).expr() is X
    assert linear((X * 16 + Z) % 16, ranges).expr() is Z
    swept = relax(X * 16 + Z, {Z: ranges[Z]}, ranges)
    assert swept is not None and swept.low.expr() is linear(X * 16).expr() and swept.width.constant == 15
    window = relax(X * 2 + Y, {Y: RANGES[Y]}, RANGES)
    assert window is not None and window.width.constant == 3


def test_index_maps_invert_only_if_complete() -> None:
    assert IndexMap.of(lambda k, n: (n // 32, k, n % 32)).is_invertible
    assert IndexMap.of(lambda a, b: (b // 8, (b // 2) % 4, b % 2, a)).is_invertible
    for bad in (lambda a, b: (a, b // 2), lambda a, b: (a, b % 2), lambda a, b: (a, a), lambda a, b: (a + b, b)):
        assert not IndexMap.of(bad).is_invertible


def test_loops_of_one_iteration_stay_in_indices() -> None:
    once = {**RANGES, X: (Linear({}), Linear({}))}
    assert linear(X * 4 + Y, once).terms == {X: 4, Y: 1}
    assert linear((X * 4 + Y) // 4, once).expr() is X
