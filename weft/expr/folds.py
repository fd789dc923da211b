"""Operations on any number of operands, and the operands of nests of them."""

from __future__ import annotations

from collections.abc import Sequence

from weft.expr.nodes import Binary, Const, Expr, ExprLike, index, make, wrap
from weft.support.dtypes import BOOL, INDEX
from weft.support.errors import UserError


def all_of(*conditions: ExprLike) -> Expr:
    """Conjunction; true when empty. Raises UserError E022 for what is no condition."""
    out: Expr = Const(True, BOOL)
    for c in conditions:
        out = make("and", out, _condition(c))
    return out


def any_of(*conditions: ExprLike) -> Expr:
    """Disjunction; false when empty. Raises UserError E022 for what is no condition."""
    out: Expr = Const(False, BOOL)
    for c in conditions:
        out = make("or", out, _condition(c))
    return out


def _condition(e: ExprLike) -> Expr:
    made = wrap(e)
    if made.dtype != BOOL:
        raise UserError(f"a condition is expected, not {made.dtype}", code="E022", hint="compare with 0")
    return made


def members(e: Expr, op: str) -> list[Expr]:
    """The operands of a nest of ``op``, in order."""
    found: list[Expr] = []
    stack = [e]
    while stack:
        top = stack.pop()
        if isinstance(top, Binary) and top.op == op:
            stack += (top.b, top.a)
        else:
            found.append(top)
    return found


def conjuncts(condition: Expr) -> list[Expr]:
    """The parts of a conjunction, in order, without those that are true."""
    return [part for part in members(condition, "and") if not (isinstance(part, Const) and part.value is True)]


def product(values: Sequence[ExprLike]) -> Expr:
    out: Expr = Const(1, INDEX)
    for v in values:
        out = out * index(v)
    return out
