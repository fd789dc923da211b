"""Forms that depend on the order in which a simplifier meets its terms, and sums of products, enumerated.

Terms are numbered when they are first seen, and products are kept in the order of these numbers. What can be simplified
must not depend on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from exact import exact

from weft.expr.nodes import Binary, Const, Expr, Var
from weft.expr.prove import Facts
from weft.expr.text import to_text

Golden = Callable[[str, str], None]
U, V, W = Var("u"), Var("v"), Var("w")
FACTORS: tuple[Expr, ...] = (V, W, V * W, W * V, V * V, V * 3 - W, V * W * 2 + W)


def seen(order: Sequence[Expr]) -> Facts:
    """Facts of nothing, whose terms have their numbers in this order."""
    facts = Facts()
    for e in order:
        facts.terms(e)
    return facts


def orders(*terms: Expr) -> Iterator[Facts]:
    for order in itertools.permutations(terms):
        yield seen(order)


@pytest.mark.parametrize("a", [2, 3, 12])
def test_digits_with_a_common_factor_are_the_number(a: int) -> None:
    for factor, scale in itertools.product(FACTORS, (1, -2, 5)):
        for facts in orders(U // a, U % a, V, W):
            whole = facts.simplify(U * factor * scale)
            assert facts.simplify((U // a * a + U % a) * factor * scale) is whole
            assert facts.simplify((U // a * a) * factor * scale + U % a * scale * factor + W) is facts.simplify(
                whole + W
            )
            rest = facts.simplify(U % a * factor * scale)
            assert facts.simplify(U * factor * scale - U // a * a * factor * scale) is rest
            assert facts.simplify(U * factor * scale - U // a * factor * scale * a + U) is facts.simplify(rest + U)


@pytest.mark.parametrize(("a", "b"), [(2, 3), (3, 2), (4, 4)])
def test_two_digits_with_a_common_factor_are_a_remainder(a: int, b: int) -> None:
    for factor in FACTORS:
        for facts in orders(U // a % b, U % a, V, W):
            both = facts.simplify((U // a % b * a + U % a) * factor)
            assert both is facts.simplify(U % (a * b) * factor), to_text(both)


@pytest.mark.parametrize("size", [V, W, V * W, V + 2])
def test_digits_of_symbolic_size_with_a_common_factor(size: Expr) -> None:
    """If the size is a sum, the factor must be one term: the terms of a product of sums are not collected."""
    single = size is not V + 2
    for factor in (*FACTORS, V * V * W) if single else FACTORS[:5]:
        for order in itertools.permutations((U // size, U % size, V, W)):
            facts = seen(order)
            for v in (V, W):
                facts.bind_size(v)
            made = facts.simplify((U // size * size + U % size) * factor)
            assert made is facts.simplify(U * factor), to_text(made)
            if single:
                made = facts.simplify(U * factor - U // size * size * factor)
                assert made is facts.simplify(U % size * factor), to_text(made)


P, Q, R = Var("p"), Var("q"), Var("r")
PLACES = np.array(list(itertools.product(range(3), range(2), range(-2, 1))), np.int64).T
AT = dict(zip((P, Q, R), PLACES, strict=True))


def bounded(order: Sequence[Expr]) -> Facts:
    """``0 <= p < 3``, ``0 <= q < 2``, ``-2 <= r <= 0``."""
    facts = seen(order)
    facts.bind(P, 0, 3)
    facts.bind(Q, 0, 2)
    facts.bind(R, -2, 3)
    return facts


ENDED: tuple[Expr, ...] = (P, Q, R, P * Q, Q * R, P * R, P * P, P * 2, P // 2, P * Q * R, Q * 3)


def test_sums_that_are_at_an_end(golden: Golden) -> None:
    """Where a sum is at its least or greatest, so is each of its terms, if they are variables."""
    lines = []
    sums = [a + b * s for a, b in itertools.combinations(ENDED, 2) for s in (1, -1, 4)]
    sums += [a + b * 3 - c * 9 for a, b, c in itertools.combinations(ENDED[:6], 3)]
    for e in sums:
        values = exact(e, AT)
        told = []
        for bound in (values.min() - 1, values.min(), values.min() + 1, values.max(), values.max() + 1):
            forms = []
            for op in ("eq", "ne", "lt", "le"):
                claim = Binary(op, e, Const(int(bound)))
                made = {to_text(found) for order in ((P, Q, R), (R, Q, P)) for found in [checked(order, claim)]}
                forms += sorted(made)
            told.append(" | ".join(forms))
        lines += [f"{to_text(e)}", *(f"  {t}" for t in told)]
    golden("enumerated_ends.txt", "\n".join(lines) + "\n")


def checked(order: Sequence[Expr], claim: Expr) -> Expr:
    made = bounded(order).simplify(claim)
    assert np.all(exact(made, AT) == exact(claim, AT)), f"{to_text(claim)} became {to_text(made)}"
    assert bounded(order).simplify(made) is made, "with nothing remembered"
    return made


@pytest.mark.parametrize("op", ["floordiv", "floormod", "truncdiv", "truncmod", "min", "max"])
@pytest.mark.parametrize("by", [Const(2), Const(3), Const(4), Q + 2, P + 1])
def test_sums_with_a_number_and_what_is_computed_of_it(op: str, by: Expr) -> None:
    """Only quotients and remainders are digits of the number; a minimum of the same operands is not."""
    for u in (P, P * 3 + Q, P - R * 2):
        inner = Binary(op, u, by)
        for c, f in itertools.product((-4, -3, -1, 1, 2), (-1, 0, 1, 2)):
            for e in (u * f + inner * c, u * f + inner * by * c, u * f + inner * c + Binary("floormod", u, by) * f):
                checked((P, Q, R), e)


@pytest.mark.parametrize("op", ["floordiv", "floormod", "truncdiv", "truncmod", "min", "max"])
def test_only_a_remainder_of_the_quotient_is_the_next_digit(op: str) -> None:
    """``u % a + a * (u // a % b)`` is ``u % (a * b)``."""
    for u, a, b, more in itertools.product((P * 3 + Q, P - R), (2, 3), (Const(2), Q + 1), (0, 1, -3)):
        second = Binary(op, u // a + more, b)
        for e in (u % a + second * a, u % a * -2 - second * (2 * a) + P, u % a + second, second * a - u % a):
            checked((P, Q, R), e)
        if op == "floormod" and isinstance(b, Const):
            facts = bounded((P, Q, R))
            made = facts.simplify(u % a + second * a)
            assert made is facts.simplify((u + more * a) % (a * b)), to_text(made)


@pytest.mark.parametrize(("low", "extent"), [(-3, 7), (-3, 4), (-1, 6), (0, 4), (2, 3), (-5, 2)])
def test_bounds_of_squares(low: int, extent: int) -> None:
    facts, values = Facts(), range(low, low + extent)
    facts.bind(U, low, extent)
    ends = max(values[0] ** 2, values[-1] ** 2), min(values[0] * values[-1], values[0] ** 2, values[-1] ** 2)
    for factor, offset in itertools.product((-2, 1, 3), (-1, 0, 4)):
        found = sorted(factor * end + offset for end in (ends[0], max(0, ends[1])))
        assert list(facts.bounds(U * U * factor + offset)) == found
        assert facts.minimum(U * U * factor + offset) == found[0]
        assert facts.maximum(U * U * factor + offset) == found[1]


CONDITIONS: tuple[Expr, ...] = (
    U < V, U < W, U <= V, U <= W, V < U, W < U, V <= U, W <= U, V < W, V <= W, U + V < W, U < W + 1, U + 1 < V,
    Binary("eq", U, V), Binary("ne", U, W),
)  # fmt: skip


@pytest.mark.parametrize("given", [(), (V <= W, W <= V), (V <= W,), (V <= U, U <= W), (U <= V, V <= W, W <= U)])
@pytest.mark.parametrize("op", ["and", "or"])
def test_conditions_that_the_facts_make_equal(given: tuple[Expr, ...], op: str) -> None:
    """Of two members that imply one another, one stays."""
    places = np.array(list(itertools.product(range(-1, 3), repeat=3)), np.int64).T
    at = dict(zip((U, V, W), places, strict=True))
    allowed = np.ones(places.shape[1], bool)
    for e in given:
        allowed &= exact(e, at)
    facts = Facts()
    for e in given:
        facts.assume(e)
    pairs = [Binary(op, a, b) for a, b in itertools.permutations(CONDITIONS, 2)]
    for e in pairs + [Binary(op, a, b) for a, b in itertools.product(pairs[::17], CONDITIONS)]:
        made = facts.simplify(e)
        right = exact(made, at) == exact(e, at)
        assert np.all(right | ~allowed), f"{to_text(e)} became {to_text(made)}"
        again = facts.simplify(Binary(op, made, made))
        assert again is made, f"{to_text(made)} twice became {to_text(again)}"
