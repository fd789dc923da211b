"""Operations on any number of operands."""

from __future__ import annotations

from collections.abc import Sequence

from weft.expr.nodes import Const, Expr, ExprLike, index, make
from weft.support.dtypes import BOOL, INDEX


def all_of(*conditions: ExprLike) -> Expr:
    """Conjunction; true when empty."""
    out: Expr = Const(True, BOOL)
    for c in conditions:
        out = make("and", out, c)
    return out


def any_of(*conditions: ExprLike) -> Expr:
    """Disjunction; false when empty."""
    out: Expr = Const(False, BOOL)
    for c in conditions:
        out = make("or", out, c)
    return out


def product(values: Sequence[ExprLike]) -> Expr:
    out: Expr = Const(1, INDEX)
    for v in values:
        out = out * index(v)
    return out
