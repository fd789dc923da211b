"""Index arithmetic in canonical form, divisions of what is surely not negative made unsigned."""

from __future__ import annotations

from dataclasses import replace

from weft.expr.nodes import Binary, Cast, Const, Expr, Var
from weft.lower.kernel.context import Context
from weft.schedule.affine import linear, mentions, minimum_of
from weft.support.dtypes import INDEX, DType
from weft.tir.nodes import For, Let, Program, Stmt
from weft.tir.visit import children, map_expressions, with_children

_LINEAR = frozenset({"add", "sub", "mul"})
_UNSIGNED = DType("uint64")


class _Context(Context):
    """Also knows which loops will be unrolled: divisions of their variables fold away later."""

    def __init__(self) -> None:
        super().__init__()
        self.unrolled: dict[Var, None] = {}


def finish(program: Program) -> Program:
    """Canonical indices (variable part first, one constant last) and cheap divisions."""
    return replace(program, body=_visit(program.body, _Context(), {}))


def _visit(s: Stmt, context: _Context, memo: dict[Expr, Expr]) -> Stmt:
    s = map_expressions(s, lambda e: _expression(e, context, memo))
    parts = children(s)
    if not parts:
        return s
    if isinstance(s, For):
        with context.loop(s):
            if s.kind == "unrolled":
                context.unrolled[s.var] = None
            made = tuple(_visit(c, context, {}) for c in parts)
    elif isinstance(s, Let):
        with context.let(s):
            made = (_visit(s.body, context, {}),)
    else:
        made = tuple(_visit(c, context, memo) for c in parts)
    return s if all(a is b for a, b in zip(made, parts, strict=True)) else with_children(s, made)


def _expression(root: Expr, context: _Context, memo: dict[Expr, Expr]) -> Expr:
    stack = [root]
    while stack:
        e = stack[-1]
        if e in memo:
            stack.pop()
            continue
        if e.dtype == INDEX and e.lanes == 1 and isinstance(e, Binary) and e.op in _LINEAR:
            parts: tuple[Expr, ...] = tuple(linear(e, context.ranges).terms)
        else:
            parts = e.children
        todo = [c for c in parts if c not in memo and c is not e]
        if todo:
            stack.extend(todo)
            continue
        stack.pop()
        memo[e] = _one(e, parts, context, memo)
    return memo[root]


def _one(e: Expr, parts: tuple[Expr, ...], context: _Context, memo: dict[Expr, Expr]) -> Expr:
    if e.dtype == INDEX and e.lanes == 1 and isinstance(e, Binary):
        if e.op in _LINEAR:
            form = linear(e, context.ranges)
            if e in form.terms:
                return e.rebuild([memo.get(c, c) for c in e.children])
            return replace(form, terms={memo[t]: f for t, f in form.terms.items()}).expr()
        if e.op in ("floordiv", "floormod"):
            return _division(e.op, e.a, memo[e.a], memo[e.b], context)
    made = [memo[c] for c in parts]
    return e if all(a is b for a, b in zip(made, e.children, strict=True)) else e.rebuild(made)


def _division(op: str, original: Expr, a: Expr, b: Expr, context: _Context) -> Expr:
    """Division by a power of two is a shift anyway; by another positive constant it is cheaper unsigned."""
    by = int(b) if isinstance(b, Const) else 0
    least = minimum_of(linear(original, context.ranges), context.ranges)
    if by > 0 and by & (by - 1) and least is not None and least >= 0 and not mentions(original, context.unrolled):
        return Cast(Binary(op, Cast(a, _UNSIGNED), Const(by, _UNSIGNED)), INDEX)
    return Binary(op, a, b)
