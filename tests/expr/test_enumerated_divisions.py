"""Quotients and remainders under several facts about the divisor: its sign known, unknown, or known of a product only.

The value stays at every point that the facts allow; the forms are the ones in the golden files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from exact import exact

from weft.expr.nodes import Binary, Const, Expr, Var, maximum, minimum
from weft.expr.prove import Facts
from weft.expr.text import to_text
from weft.expr.visit import post_order

Golden = Callable[[str, str], None]
X, Y, N, M = Var("x"), Var("y"), Var("n"), Var("m")
PLACES = np.array(list(itertools.product(range(-5, 9, 2), (-1, 0, 2), (-3, -2, -1, 1, 2, 4), (-2, 1, 3))), np.int64).T
AT = dict(zip((X, Y, N, M), PLACES, strict=True))

DIVIDENDS: tuple[Expr, ...] = (
    X, X * 2 + 1, X * N, X * N * 2 + Y, X * N * M + Y * N, X * M * 4 - N * 2, X % 4 * (Y % 4), X % 4 * (X % 8) + Y,
    X % (N * 2), X % (N * M), X % (N * 4) + 2, X // 2, X // 2 + 1, X // N, X // N - 1, X % 6 * 2 + Y % 3 * 4, X % -6,
    X % 12 * N + Y, minimum(X, 3) * N, X % (N * 2) * M + Y, X * 6 + Y * 4 + 3, N * 6 + Y,
)  # fmt: skip
DIVISORS: tuple[Expr, ...] = (
    Const(2), Const(3), Const(4), Const(6), Const(-2), Const(-3), N, N * 2, -N, N * M, N * M * 2, N + M, N * N,
)  # fmt: skip
KNOWN: dict[str, tuple[Expr, ...]] = {
    "nothing": (),
    "sizes": (N >= 1, M >= 1),
    "product": (N * M > 0,),
    "negative": (N < 0,),
    "inside": (N >= 1, X >= 0, X < N, Y >= 0, Y < 2),
}


@pytest.mark.parametrize("known", KNOWN)
def test_quotients_and_remainders(golden: Golden, known: str) -> None:
    allowed = np.ones(PLACES.shape[1], bool)
    for e in KNOWN[known]:
        allowed &= exact(e, AT)
    assert allowed.any()
    facts = Facts()
    for e in KNOWN[known]:
        facts.assume(e)
    at = {v: a[allowed] for v, a in AT.items()}
    lines, zeros = [], np.zeros(int(allowed.sum()), np.int64)
    for p, d in itertools.product(DIVIDENDS, DIVISORS):
        told = []
        for op in ("floordiv", "floormod"):
            e = Binary(op, p, d)
            made = facts.simplify(e)
            there = exact(d, at) + zeros != 0
            with np.errstate(divide="ignore"):
                before, after = exact(e, at) + zeros, exact(made, at) + zeros
            assert np.array_equal(before[there], after[there]), f"{to_text(e)} became {to_text(made)}"
            told.append(to_text(made))
        lines.append(f"{to_text(p)} by {to_text(d)}: {'  '.join(told)}")
    golden(f"enumerated_divisions_{known}.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("zero", [Const(0), X - X, N * 0, X % 1, Const(3) // 4])
@pytest.mark.parametrize("op", ["floordiv", "floormod", "truncdiv", "truncmod"])
def test_a_division_by_zero_stays_one(op: str, zero: Expr) -> None:
    """It is an error where it is computed; no value is made up for it."""
    for facts in (Facts(), Facts([X, N])):
        for p in (X, X * N + 1, X * 2, Const(7), Const(0), X // 2):
            made = facts.simplify(Binary(op, p, zero) + N)
            assert any(isinstance(s, Binary) and s.op == op and s.b is Const(0) for s in post_order(made)), to_text(
                made
            )


LARGEST = 1 << 31


@pytest.mark.parametrize(("a", "d"), [(1 << 16, 1 << 15), (2, 1 << 30), (1 << 31, 1), (3, (1 << 31) // 3)])
@pytest.mark.parametrize("sized", [False, True])
def test_divisors_are_joined_up_to_the_largest_and_not_beyond(a: int, d: int, sized: bool) -> None:
    facts, size = Facts(), N if sized else Const(1)
    facts.bind_size(N)
    assert a * d <= LARGEST < a * (d + 1)
    made = facts.simplify(X // (size * a) // d)
    assert made is facts.simplify(X // (size * (a * d))), to_text(made)
    apart = facts.simplify(X // (size * a) // (d + 1))
    assert count_of("floordiv", apart) == 2 - (d == 0), to_text(apart)


@pytest.mark.parametrize("moved", [LARGEST // 4, -LARGEST // 4])
def test_what_is_added_to_a_quotient_moves_inside_up_to_the_largest(moved: int) -> None:
    """``(x // 4 + c) // n`` is ``(x + 4 * c) // (4 * n)``."""
    facts, further = Facts([N]), 1 if moved > 0 else -1
    assert facts.simplify((X // 4 + moved) // N) is facts.simplify((X + moved * 4) // (N * 4))
    assert count_of("floordiv", facts.simplify((X // 4 + (moved + further)) // N)) == 2


def count_of(op: str, e: Expr) -> int:
    return sum(isinstance(s, Binary) and s.op == op for s in post_order(e))


def test_parts_that_lie_between_multiples() -> None:
    """``k*d <= p < (k+1)*d``, with constants and with sizes, at and beside each end."""
    for d, k, low, width in itertools.product((3, 4), (-2, -1, 0, 1), (-1, 0, 1), (1, 2, 3, 4)):
        facts = Facts()
        facts.bind(X, d * k + low, width)
        inside = low >= 0 and low + width <= d
        made = facts.simplify(X // d)
        assert (made is Const(k)) == inside or width == 1, (d, k, low, width)
        if inside and width > 1:
            assert facts.simplify(X % d) is facts.simplify(X - d * k)
    for low, high, quotient in ((0, 0, 0), (-1, 0, None), (0, 1, None), (1, 0, 0)):
        facts = Facts([N])
        facts.bind(X, low, N + high - low)
        made = facts.simplify(X // N)
        assert (made is Const(0)) == (quotient == 0), (low, high)
    for low, high, below in ((0, 0, True), (-1, 0, False), (0, 1, False), (1, -1, True)):
        facts = Facts([N])
        facts.bind(X, low - N, N + high - low)
        assert (facts.simplify(X // N) is Const(-1)) == below, (low, high)
        assert (facts.simplify(X % N) is facts.simplify(X + N)) == below, (low, high)
    facts = Facts([N])
    facts.bind(X)
    assert facts.simplify(minimum(X, N - 1) // N) is Const(0)
    assert facts.simplify(maximum(X, N) // N) is not Const(0)
