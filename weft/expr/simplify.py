"""Simplification: the front door."""

from __future__ import annotations

from weft.expr.nodes import Expr
from weft.expr.prove import Facts


def simplify(e: Expr, facts: Facts | None = None) -> Expr:
    """An expression of the same value as ``e``, where ``facts`` hold, in normal form.

    Floats are not re-associated. Evaluation is not made less defined: no division or load is added.
    """
    return (facts or Facts()).simplify(e)
