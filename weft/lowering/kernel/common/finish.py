"""Brings index arithmetic into canonical form, makes divisions of nonnegative values unsigned, and loops that run at
most once conditions."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from weft.expr.nodes import Binary, Cast, Const, Expr, Var, make
from weft.expr.prove import Facts
from weft.expr.visit import post_order, uses_var
from weft.lowering.kernel.common.context import facts_of, inside
from weft.support.dtypes import INDEX, DType
from weft.tir.nodes import For, If, Let, Program, Stmt
from weft.tir.visit import children, map_expressions, with_children

_UNSIGNED = DType("uint64")
_DIVISIONS = frozenset({"floordiv", "floormod"})


def finish(program: Program) -> Program:
    """Canonical indices (variable part first, one constant last) and unsigned divisions."""
    return replace(program, body=_visit(program.body, facts_of(program), ()))


def _visit(s: Stmt, facts: Facts, unrolled: tuple[Var, ...]) -> Stmt:
    """``unrolled`` are the enclosing loops that will be unrolled: divisions of their variables are folded later."""
    memo: dict[Expr, Expr] = {}
    s = map_expressions(s, lambda e: _cheap(facts.simplify(e), facts, unrolled, memo))
    parts = children(s)
    if not parts:
        return s
    if isinstance(s, For) and s.kind == "unrolled":
        unrolled = (*unrolled, s.var)
    with inside(facts, s) if isinstance(s, (For, Let)) else nullcontext():
        made = tuple(_visit(c, facts, unrolled) for c in parts)
    s = s if all(a is b for a, b in zip(made, parts, strict=True)) else with_children(s, made)
    return _at_most_once(s, facts) if isinstance(s, For) and s.kind == "serial" else s


def _at_most_once(s: For, facts: Facts) -> Stmt:
    """A loop that runs once or not at all, like that for the end of a row, becomes a condition: what its body computes
    from the sizes alone then leaves the loops around it."""
    if s.annotations or isinstance(s.extent, Const) or not facts.nonnegative(1 - s.extent):
        return s
    return If(make("lt", Const(0, INDEX), s.extent), Let(s.var, s.start, s.body))


def _cheap(root: Expr, facts: Facts, unrolled: tuple[Var, ...], memo: dict[Expr, Expr]) -> Expr:
    """Division by a power of two becomes a shift in any case; by another positive constant, unsigned division is
    cheaper."""
    for e in post_order(root):
        if e in memo:
            continue
        made = [memo[c] for c in e.children]
        if _is_cheaper_unsigned(e, facts, unrolled):
            assert isinstance(e, Binary) and isinstance(e.b, Const)
            quotient = Binary(e.op, Cast(made[0], _UNSIGNED), Const(e.b.value, _UNSIGNED))
            memo[e] = Cast(quotient, INDEX)
        else:
            memo[e] = e if all(a is b for a, b in zip(made, e.children, strict=True)) else e.rebuild(made)
    return memo[root]


def _is_cheaper_unsigned(e: Expr, facts: Facts, unrolled: tuple[Var, ...]) -> bool:
    if not isinstance(e, Binary) or e.op not in _DIVISIONS or e.dtype != INDEX or e.lanes != 1:
        return False
    by = int(e.b) if isinstance(e.b, Const) else 0
    return by > 0 and by & (by - 1) != 0 and not uses_var(e.a, unrolled) and facts.nonnegative(e.a)
