"""Blocks → plain statements: iteration variables are replaced by their bindings, and predicates become conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from weft.expr.folds import all_of
from weft.expr.nodes import Const, Expr, Var
from weft.expr.visit import free_vars
from weft.tir.empty_reductions import initialize_empty
from weft.tir.nodes import Block, Buffer, If, Program, Stmt, seq
from weft.tir.visit import children, map_expressions, substitution, with_children

_ORDERED = ("reduce", "ordered")


def lower_blocks(program: Program) -> tuple[Program, dict[Buffer, set[Var]]]:
    """The program without blocks, and for each buffer the loops across whose iterations it keeps its contents.

    A block's ``init`` runs where its reduce variables have their first values, and on its own where their range is
    empty. The whole instance runs where ``where`` holds.
    """
    program = initialize_empty(program)
    carried: dict[Buffer, set[Var]] = {}
    body = _lower(program.body, {}, carried)
    return replace(program, body=body), carried


def _lower(s: Stmt, values: Mapping[Var, Expr], carried: dict[Buffer, set[Var]]) -> Stmt:
    if isinstance(s, Block):
        return _block(s, values, carried)
    if values:
        s = map_expressions(s, substitution(values))
    parts = children(s)
    if not parts:
        return s
    made = tuple(_lower(c, values, carried) for c in parts)
    return s if all(a is b for a, b in zip(made, parts, strict=True)) else with_children(s, made)


def _block(s: Block, values: Mapping[Var, Expr], carried: dict[Buffer, set[Var]]) -> Stmt:
    swap = substitution(values)
    bound = {it.var: swap(v) for it, v in zip(s.iters, s.values, strict=True)}
    inner = {**values, **bound}
    carrying = {v for it in s.iters if it.kind in _ORDERED for v in free_vars(bound[it.var])}
    for region in s.writes:
        carried.setdefault(region.buffer, set()).update(carrying)
    body = _lower(s.body, inner, carried)
    if s.init is not None:
        at_start = [bound[it.var] == swap(it.start) for it in s.iters if it.kind == "reduce"]
        init, condition = _lower(s.init, inner, carried), all_of(*at_start)
        body = seq(init if isinstance(condition, Const) else If(condition, init), body)
    where = substitution(inner)(s.where)
    if isinstance(where, Const) and where.value:
        return body
    return If(where, body)
