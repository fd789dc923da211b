"""Selects that must not compute both sides."""

from __future__ import annotations

from typing import Final

from weft.expr.nodes import Binary, Const, Expr, Load, Select

DIVISIONS: Final = frozenset({"floordiv", "floormod", "truncdiv", "truncmod"})


def guards(e: Select) -> bool:
    """Whether a scalar select must branch: a side may read memory or divide."""
    if e.condition.lanes != 1:
        return False
    stack: list[Expr] = [e.then, e.otherwise]
    seen: set[Expr] = set()
    while stack:
        c = stack.pop()
        if c in seen:
            continue
        seen.add(c)
        if isinstance(c, Load) or (isinstance(c, Binary) and c.op in DIVISIONS and not isinstance(c.b, Const)):
            return True
        stack.extend(c.children)
    return False
