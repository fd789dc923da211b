"""The primitive that divides a loop into two: partition."""

from __future__ import annotations

import dataclasses

from weft.expr.linear import linear
from weft.expr.nodes import Const, Var
from weft.schedule.dependence import check_copied, inherit_carried
from weft.schedule.ranges import index_var, loop_range
from weft.schedule.refs import LoopRef
from weft.schedule.rewrite import rebind
from weft.schedule.state import State
from weft.schedule.tree import with_loop
from weft.support.dtypes import INDEX
from weft.tir.nodes import Block, For, Stmt, seq
from weft.tir.visit import substitute, transform, walk


def partition(state: State, loop: LoopRef, at: int) -> tuple[LoopRef, LoopRef]:
    """Divide a loop into two consecutive loops, so that guards can be removed in the part where they always hold.

    ::

        for i in n: B(i) where i < 30   →   for i in 24: B(i);  for i in 24..n: B_1(i) where i < 30

    Blocks of the first part keep their names, blocks of the second part get new names. Returns both loops.
    """
    old = state.loop(loop)
    extent = linear(old.extent)
    if old.kind not in ("serial", "parallel"):
        raise state.refuse("S011", f"loop '{loop.name}' is {old.kind}", at=old, hint="partition first, then mark it")
    if not extent.is_constant or not 0 < at < extent.constant:
        raise state.refuse("S004", f"{at} does not cut the {old.extent} iterations of '{loop.name}' in two", at=old)
    check_copied(state, old)
    ranges = state.ranges(old)
    cut = Const(at, INDEX)
    parts: list[For] = []
    for start, length in ((old.start, cut), (old.start + at, old.extent - at)):
        made = with_loop(old, var=index_var(old.var.name), start=start, extent=length)
        body = rebind(old.body, {old.var: made.var}, {**ranges, made.var: loop_range(made)})
        parts.append(with_loop(made, body=body))
    names: dict[str, str] = {}
    for stmt in walk(parts[1]):
        if isinstance(stmt, Block):
            names[stmt.name] = state.fresh_block(stmt.name)
    second = _renamed(parts[1], names)
    refs = (LoopRef(parts[0].var), LoopRef(second.var))
    state.commit(state.tree.replace({old: seq(parts[0], second)}))
    state.consume([loop], refs)
    state.partial = state.partial | set(names) | set(names.values())
    inherit_carried(state, [old.var], refs)
    return refs


def _renamed(loop: For, names: dict[str, str]) -> For:
    """A copy with fresh variables for inner loops and blocks, and new block names."""
    fresh: dict[Var, Var] = {}
    for stmt in walk(loop.body):
        if isinstance(stmt, For):
            fresh[stmt.var] = index_var(stmt.var.name)
        elif isinstance(stmt, Block):
            fresh.update((it.var, index_var(it.var.name)) for it in stmt.iters)

    def rename(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, For) and stmt.var in fresh:
            return with_loop(stmt, var=fresh[stmt.var])
        if isinstance(stmt, Block):
            iters = tuple(dataclasses.replace(it, var=fresh[it.var]) for it in stmt.iters)
            return dataclasses.replace(stmt, name=names[stmt.name], iters=iters)
        return None

    return with_loop(loop, body=transform(substitute(loop.body, dict(fresh)), rename))
