"""Counts how often each expression occurs in a sequence of statements: one that occurs twice gets a variable."""

from __future__ import annotations

from collections.abc import Iterable

from weft.backends.c_like.forms import first_lanes, known_condition, near_elements
from weft.backends.guards import guards
from weft.backends.packing import is_packed_load
from weft.expr.intrinsic_table import PREFETCH_LEVELS
from weft.expr.nodes import Broadcast, Call, Const, Expr, Load, Ramp, Select, Var
from weft.tir.foreign import is_pointer
from weft.tir.nodes import Buffer, Seq, Stmt
from weft.tir.visit import expressions


def count_uses(statements: Iterable[Stmt]) -> dict[Expr, int]:
    """How often each expression occurs directly in the statements, without their nested statements. Operands of
    guarding selects are counted where they are emitted."""
    found: dict[Expr, int] = {}
    for s in statements:
        if not isinstance(s, Seq):
            for e in expressions(s):
                count_in(e, found)
    return found


def count_in(root: Expr, found: dict[Expr, int]) -> None:
    """Add the occurrences in ``root``."""
    stack = [root]
    while stack:
        e = stack.pop()
        seen = found.get(e, 0)
        found[e] = seen + 1
        if not seen:
            stack.extend(operands(e))


def operands(e: Expr) -> tuple[Expr, ...]:
    """The expressions that are emitted separately before ``e``."""
    if isinstance(e, Load):
        return (*_address(e), *(() if e.mask is None else (e.mask,)))
    if e.dtype == "bool" and e.lanes > 1 and known_condition(e) is not None:
        return ()
    counted = first_lanes(e)
    if counted is not None:
        return (counted[0],)
    if isinstance(e, Select) and guards(e):
        return (e.condition,)
    if isinstance(e, Call) and (is_packed_load(e) or e.name in PREFETCH_LEVELS or is_pointer(e)):
        return _address(e.args[0]) if isinstance(e.args[0], Load) else ()
    return e.children


def _address(e: Load) -> tuple[Expr, ...]:
    at, near = e.indices[0], near_elements(e)
    if near is not None:
        return (near[0],)
    if isinstance(at, Ramp) and isinstance(at.stride, Const):
        return (at.base,)
    return (at.value,) if isinstance(at, Broadcast) and e.mask is None else (at,)


def is_cheap(e: Expr) -> bool:
    """Whether ``e`` is as short as a variable would be."""
    if isinstance(e, (Const, Var)):
        return True
    if isinstance(e, Broadcast):
        return is_cheap(e.value)
    if isinstance(e, Load):
        assert isinstance(e.source, Buffer)
        return e.source.scope == "register" and e.mask is None
    return False


def multiple_inside(roots: Iterable[Expr]) -> bool:
    """Whether an expression that needs a variable occurs more than once in ``roots``, operands of selects included."""
    seen: set[Expr] = set()
    stack = list(roots)
    while stack:
        e = stack.pop()
        if is_cheap(e):
            continue
        if e in seen:
            return True
        seen.add(e)
        stack.extend(e.children)
    return False
