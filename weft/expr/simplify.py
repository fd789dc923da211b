"""Simplification: the public function."""

from __future__ import annotations

from weft.expr.nodes import Expr
from weft.expr.prove import Facts


def simplify(e: Expr, facts: Facts | None = None) -> Expr:
    """An expression in normal form with the same value as ``e`` if ``facts`` hold.

    Floats are not re-associated. No division or load is added, so evaluation has no new undefined cases.
    """
    return (facts or Facts()).simplify(e)
