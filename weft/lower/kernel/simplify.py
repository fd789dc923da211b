"""Every expression of a program in normal form under what holds where it stands."""

from __future__ import annotations

from dataclasses import replace

from weft.expr.nodes import Const, Load, logical_not
from weft.expr.prove import Facts
from weft.support.dtypes import INDEX
from weft.tir.nodes import For, If, Let, Program, Stmt
from weft.tir.visit import children, map_expressions, postorder, with_children


def simplify_program(program: Program) -> Program:
    """The program with every expression simplified; no statement is added or removed."""
    facts = Facts()
    for size in program.sizes:
        facts.bind_size(size, 0)
    return replace(program, body=_visit(program.body, facts))


def _visit(s: Stmt, facts: Facts) -> Stmt:
    s = map_expressions(s, facts.simplify)
    parts = children(s)
    if not parts:
        return s
    if isinstance(s, For):
        if isinstance(s.extent, Const) and int(s.extent) <= 0:
            return s
        with facts.binding(s.var, s.start, s.extent):
            made: tuple[Stmt, ...] = (_visit(s.body, facts),)
    elif isinstance(s, If):
        with facts.assuming(s.condition):
            made = (_visit(s.then, facts),)
        if s.otherwise is not None:
            with facts.assuming(logical_not(s.condition)):
                made = (*made, _visit(s.otherwise, facts))
    elif isinstance(s, Let):
        made = (_let(s, facts),)
    else:
        made = tuple(_visit(c, facts) for c in parts)
    return s if all(a is b for a, b in zip(made, parts, strict=True)) else with_children(s, made)


def _let(s: Let, facts: Facts) -> Stmt:
    """An index that is bound once is known to be its value; one that is loaded must not be loaded again."""
    if s.var.dtype != INDEX or any(isinstance(e, Load) for e in postorder(s.value)):
        return _visit(s.body, facts)
    with facts.binding(s.var, s.value, 1):
        return _visit(s.body, facts)
