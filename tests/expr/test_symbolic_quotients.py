"""Quotients and remainders by symbolic sizes, as fused loops have them."""

from __future__ import annotations

import itertools

import pytest

from weft.expr.evaluate import evaluate
from weft.expr.nodes import Expr, Var, maximum, minimum
from weft.expr.prove import Facts
from weft.support.dtypes import INDEX

B, S, X = (Var(n, INDEX) for n in "BSX")
TILES = (S + 47) // 48


def _facts(extent: Expr) -> Facts:
    facts = Facts()
    facts.bind_size(B, 0)
    facts.bind_size(S, 0)
    facts.bind(X, 0, extent)
    return facts


PROVED = [
    (B * TILES * 12, X // (TILES * 12) < B),
    (B * TILES * 12, X // (TILES * 12) >= 0),
    (B * TILES * 12, X // 12 % TILES < TILES),
    (B * TILES * 12, X // 12 % TILES >= 0),
    (B * TILES * 12, X // 12 % TILES * 48 < S + 47),
    (TILES * B, X // TILES < B),
    (B * S, X // S < B),
    (B * 24, X // 24 < B),
    (B * S * 24, X // 24 < B * S),
    (B * S, X // S * S + X % S < B * S),
    (S - 3, S >= 4),
    (B * S, S >= 1),
    ((B * S + 15) // 16, S >= 1),
    ((B * S + 15) // 16, B >= 1),
    (B * S // 16, B * S >= 16),
    ((B * S - 1) // 2, S >= 1),
    (B * S - 7, S >= 1),
    (minimum(B * S // 16, (B * S + 15) // 16), S >= 1),
    ((B * S + 15) // 16 - minimum(B * S // 16, (B * S + 15) // 16), B >= 1),
    (B * S - minimum(S, 3), B >= 1),
    *(
        (S, claim)
        for claim in (
            (S + 15) // 16 <= S // 16 + 1,
            S // 16 <= (S + 15) // 16,
            (S + 32) // 16 <= S // 16 + 2,
            (S - 1) // 48 + 1 >= S // 48,
            2 * ((S + 7) // 8) <= 2 * (S // 8) + 2,
            3 * (S // 8) >= 3 * ((S + 7) // 8) - 3,
            (B + S) // 4 + 1 >= (B + S + 4) // 4,
            minimum(S // 16, (S + 15) // 16 - 1) >= (S + 15) // 16 - 1,
        )
    ),
]
NOT_PROVED = [
    (B * TILES * 12, X // 12 % TILES * 48 + 47 < S),
    (B * TILES * 12, X // (TILES * 12) < B - 1),
    (B * S, X // (S + 1) < B - 1),
    (B * S, S >= 2),
    (S + B, S >= 1),
    (S - 3, S >= 5),
    ((B * S + 16) // 16, S >= 1),
    ((B * S + 15) // 16, S >= 2),
    (maximum(B, S), S >= 1),
    (B * S + 1, S >= 1),
    (S - B, B >= 1),
    *(
        (S, claim)
        for claim in (
            (S + 16) // 16 <= S // 16,
            (S + 17) // 16 <= S // 16 + 1,
            S // 16 <= (S - 1) // 16,
            (B + S + 5) // 4 <= (B + S) // 4 + 1,
            S // 8 <= (S + 7) // 16 + 1,
            (B + 15) // 16 <= S // 16 + 1,
            2 * ((S + 7) // 8) <= 2 * (S // 8) + 1,
        )
    ),
]


@pytest.mark.parametrize(("extent", "claim"), PROVED, ids=lambda e: str(e))
def test_proved_inside_the_loop(extent: Expr, claim: Expr) -> None:
    assert _facts(extent).prove(claim)
    for b, s in itertools.product(range(4), (0, 1, 2, 3, 4, 5, 47, 48, 49, 97)):
        for x in range(int(evaluate(extent, {B: b, S: s}))):
            assert evaluate(claim, {B: b, S: s, X: x}), (b, s, x)


@pytest.mark.parametrize(("extent", "claim"), NOT_PROVED, ids=lambda e: str(e))
def test_not_proved(extent: Expr, claim: Expr) -> None:
    assert not _facts(extent).prove(claim)


def test_a_size_is_not_positive_outside_of_the_loop() -> None:
    facts = Facts()
    facts.bind_size(S, 0)
    with facts.binding(X, 0, S * 4):
        assert facts.prove(S >= 1)
    assert not facts.prove(S >= 1)


@pytest.mark.parametrize("extent", [B * S * 5, (B * S * 5 + 15) // 16 * 16])
def test_the_digits_of_a_fused_index_are_the_index(extent: Expr) -> None:
    """The address of an element in a compact tensor, all of whose axes are one loop in vectors."""
    facts = _facts(extent)
    address = (X // (S * 5) * S + X // 5 % S) * 5 + X % 5
    assert facts.simplify(address) is X
