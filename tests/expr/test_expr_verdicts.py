"""Questions that return under equal assumptions are answered from memory; under others they are proved anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from weft.expr.affine import Poly
from weft.expr.nodes import Var
from weft.expr.prove import Facts
from weft.expr.solver import Solver


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Poly]]:
    """The inequalities that proofs examine."""
    seen: list[Poly] = []
    prove = Solver._prove

    def counted(self: Solver, p: Poly, depth: int) -> bool:
        seen.append(p)
        return prove(self, p, depth)

    monkeypatch.setattr(Solver, "_prove", counted)
    yield seen


def _asked(facts: Facts, i: Var, n: Var, m: Var) -> list[bool]:
    with facts.scope():
        facts.bind(i, 0, n)
        return [facts.nonnegative(n * m - i * m - 1), facts.nonnegative(n + m - i - 3)]


def test_questions_that_return_are_not_proved_again(steps: list[Poly]) -> None:
    n, m, i = Var("n"), Var("m"), Var("i")
    facts = Facts((n, m))
    first = _asked(facts, i, n, m)
    count = len(steps)
    assert count
    assert _asked(facts, i, n, m) == first
    assert len(steps) == count


def test_other_assumptions_are_other_questions() -> None:
    n, m, i = Var("n"), Var("m"), Var("i")
    facts = Facts()
    facts.bind_size(n, 0)
    facts.bind_size(m, 0)
    assert _asked(facts, i, n, m) == [False, False]
    with facts.assuming(m >= 2):
        assert _asked(facts, i, n, m) == [True, True]
    with facts.scope():
        facts.bind_size(m, 1)
        assert _asked(facts, i, n, m) == [True, False]
    with facts.scope():
        facts.bind(m, 0, n)
        assert _asked(facts, i, n, m) == [False, False]
    assert _asked(facts, i, n, m) == [False, False]
    with facts.assuming(n + m >= i + 3):
        assert _asked(facts, i, n, m)[1]
    assert _asked(facts, i, n, m) == [False, False]
