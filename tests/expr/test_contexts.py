"""Branches of selects are simplified under their condition, and only once if the condition does not affect them."""

from __future__ import annotations

import pytest

from weft.expr.nodes import Expr, Var, select
from weft.expr.normalize import Normalizer
from weft.expr.prove import Facts


def _chain(which: Expr, values: list[Expr]) -> Expr:
    made = values[-1]
    for k in range(len(values) - 2, -1, -1):
        made = select(which == k, values[k], made)
    return made


def test_conditions_simplify_expressions_of_their_variables() -> None:
    i, x = Var("i"), Var("x")
    facts = Facts(())
    facts.bind(i, 0, 16)
    made = facts.simplify(select(i < 4, x + i // 4, x))
    assert made is facts.simplify(x)


def test_other_expressions_are_simplified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    i, j, x, y = Var("i"), Var("j"), Var("x"), Var("y")
    shared = (x * 4 + y) // 3 + (y * 8 + x) // 5
    facts = Facts(())
    facts.bind(i, 0, 6)
    facts.bind(j, 0, 6)
    finished: list[Expr] = []
    plain = Normalizer._finish
    monkeypatch.setattr(Normalizer, "_finish", lambda self, node: finished.append(node) or plain(self, node))
    facts.simplify(_chain(j, [_chain(i, [shared + k * x for k in range(6)]) + k for k in range(6)]))
    assert sum(node is (x * 4 + y) // 3 for node in finished) == 1
