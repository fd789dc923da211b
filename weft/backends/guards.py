"""What machine code may compute unasked: selects that must not compute both sides, and arithmetic that may overflow."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from weft.expr.nodes import Binary, Broadcast, Call, Cast, Const, Expr, Load, Select
from weft.expr.operators import DIVISIONS
from weft.expr.visit import post_order


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


MAX_INDEX_CONSTANT: Final = 1 << 31
"""Constants below this limit occur in indices; arithmetic on larger ones counts as data, which may overflow."""


def is_data(e: Expr, data: Container[Expr]) -> bool:
    """Whether arithmetic on ``e`` may overflow, and then wraps around as in NumPy; ``data`` are the variables and
    operands known to be like that. Everything else consists of sizes and loop variables."""
    if isinstance(e, Broadcast):
        return is_data(e.value, data)
    if isinstance(e, Const):
        return not isinstance(e.value, float) and abs(int(e.value)) >= MAX_INDEX_CONSTANT
    return isinstance(e, (Load, Cast, Call)) or e in data or any(c in data for c in e.children)


def comes_from_data(root: Expr, data: Container[Expr]) -> bool:
    """Whether any part of ``root`` is data; ``data`` are the variables known to be like that."""
    return any(is_data(e, data) for e in post_order(root))
