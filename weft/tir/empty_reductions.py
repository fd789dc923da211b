"""Reductions whose range may be empty at run time: their ``init`` runs on its own.

No instance of such a block runs if the range is empty, so no instance initializes the result. The init is added in
front of the outermost loop of the reduction, under the condition that the range is empty::

    for i in 4:                  for i in 4:
      for k in n:          →       if n <= 0: C[i] = 0
        init: C[i] = 0             for k in n:
        C[i] += A[i, k]              init: C[i] = 0
                                     C[i] += A[i, k]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from weft.expr.folds import all_of, any_of
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Expr, Var, logical_not
from weft.expr.prove import Facts
from weft.expr.visit import free_vars
from weft.ir.text import Names
from weft.support.dtypes import INDEX
from weft.tir.nodes import Block, For, If, Let, LoopKind, Program, Region, Stmt, seq
from weft.tir.visit import blocks, children, path_to, regions_read, substitute, substitution, with_children


def initialize_empty(program: Program) -> Program:
    """``program`` in scheduled form, with an init of its own for each reduction whose range may be empty."""
    facts = Facts()
    for size in program.sizes:
        facts.bind_size(size, 0)
    made = blocks(program.body)
    empty = {b: condition for b in made if b.init is not None and (condition := _empty_if(b, facts)) is not None}
    if not empty:
        return program
    before: dict[Stmt, list[Stmt]] = {}
    names = Names(b.name for b in made)
    for block in empty:
        path = path_to(program.body, block)[:-1]
        place = _outermost(block, path)
        if place is not None:
            init = _init_nest(block, empty[block], path[place:], names.fresh(f"{block.name}_empty"))
            before.setdefault(path[place], []).append(init)
    return replace(program, body=_with(program.body, before))


def may_be_empty(block: Block, sizes: Iterable[Var]) -> bool:
    """Whether a reduction over ranges that depend on ``sizes`` may have no instance at run time."""
    facts = Facts()
    for size in sizes:
        facts.bind_size(size, 0)
    return _empty_if(block, facts) is not None


def _empty_if(block: Block, facts: Facts) -> Expr | None:
    """The condition under which no instance of the reduction runs; None if its range is certainly not empty."""
    extents = dict.fromkeys(it.extent for it in block.iters if it.kind == IterVar.REDUCE)
    unsure = [e <= 0 for e in extents if not facts.prove(e >= 1)]
    return any_of(*unsure) if unsure else None


def _with(s: Stmt, before: dict[Stmt, list[Stmt]]) -> Stmt:
    """``s`` with statements added in front of some of its loops."""
    parts = children(s)
    made = tuple(_with(c, before) for c in parts)
    new = with_children(s, made) if any(a is not b for a, b in zip(made, parts, strict=True)) else s
    return seq(*before[s], new) if s in before else new


def _outermost(block: Block, path: list[Stmt]) -> int | None:
    """The position on ``path`` of the outermost loop on which a reduce variable of ``block`` depends."""
    wanted = {
        v for it, e in zip(block.iters, block.values, strict=True) if it.kind == IterVar.REDUCE for v in free_vars(e)
    }
    for s in reversed(path):
        if isinstance(s, Block):
            bound = zip(s.iters, s.values, strict=True)
            wanted |= {v for it, e in bound if it.var in wanted for v in free_vars(e)}
        elif isinstance(s, Let) and s.var in wanted:
            wanted |= set(free_vars(s.value))
    return next((n for n, s in enumerate(path) if isinstance(s, For) and s.var in wanted), None)


@dataclass
class _Inside:
    """What the statements between the outermost loop of a reduction and its block define: loops, the values of other
    variables in terms of these loops, and conditions."""

    loops: list[For]
    values: dict[Var, Expr]
    conditions: list[Expr]


def _resolve(path: list[Stmt]) -> _Inside:
    found = _Inside([], {}, [])
    for s, inner in zip(path, [*path[1:], None], strict=True):
        swap = substitution(dict(found.values))
        if isinstance(s, For):
            found.loops.append(replace(s, start=swap(s.start), extent=swap(s.extent)))
        elif isinstance(s, Block):
            found.values.update((it.var, swap(e)) for it, e in zip(s.iters, s.values, strict=True))
            found.conditions += _parts(substitution(dict(found.values))(s.where))
        elif isinstance(s, Let):
            found.values[s.var] = swap(s.value)
        elif isinstance(s, If):
            condition = swap(s.condition)
            found.conditions += _parts(logical_not(condition) if inner is s.otherwise else condition)
    return found


def _parts(condition: Expr) -> list[Expr]:
    if isinstance(condition, Binary) and condition.op == "and":
        return [*_parts(condition.a), *_parts(condition.b)]
    return [condition]


def _init_nest(block: Block, condition: Expr, path: list[Stmt], name: str) -> Stmt:
    """The init of ``block`` in copies of those loops on ``path`` on which only its other variables depend: spatial
    ones, and the time of a scan; and of the loops on which the bounds of these depend.

    A variable that also depends on a loop of the reduction (the two were fused) runs over its whole domain.
    """
    known = _resolve([*path, block])
    bound = [(it, known.values[it.var]) for it in block.iters]
    reduced = {v for it, e in bound if it.kind == IterVar.REDUCE for v in free_vars(e)}
    for loop in known.loops:  # outer ones first
        if not reduced.isdisjoint(free_vars(loop.start, loop.extent)):
            reduced.add(loop.var)
    spatial = [(it, e) for it, e in bound if it.kind != IterVar.REDUCE]
    used = {v for _, e in spatial for v in free_vars(e)}
    copied: list[For] = []
    for loop in reversed(known.loops):  # their bounds may depend on loops around them
        if loop.var in used and loop.var not in reduced:
            copied.insert(0, loop)
            used.update(free_vars(loop.start, loop.extent))
    renamed: dict[Var, Expr] = {x.var: Var(f"{x.var.name}_empty", INDEX) for x in copied}
    swap = substitution(renamed)
    loops = [For(_var(renamed[x.var]), swap(x.start), swap(x.extent), x.body, _kind(x), x.thread) for x in copied]
    gone = {x.var for x in known.loops} - {x.var for x in copied}
    values: list[Expr] = []
    for it, e in spatial:
        if gone.isdisjoint(free_vars(e)):
            values.append(swap(e))
        else:
            loops.append(For(Var(f"{it.var.name}_empty", INDEX), it.start, it.extent, block))
            values.append(loops[-1].var)
    where = [swap(c) for c in known.conditions if gone.isdisjoint(free_vars(c))]
    fresh: dict[Var, Expr] = {it.var: Var(it.var.name, INDEX) for it, _ in spatial}
    rename = substitution(fresh)
    assert block.init is not None
    start = substitute(block.init, fresh)
    init: Stmt = Block(
        name,
        tuple(replace(it, var=_var(fresh[it.var])) for it, _ in spatial),
        tuple(values),
        regions_read(start, {_var(v) for v in fresh.values()}),
        tuple(Region(r.buffer, tuple((rename(a), rename(b)) for a, b in r.ranges)) for r in block.writes),
        start,
        where=all_of(*where, *_in_domain(spatial, values)),
    )
    for loop in reversed(loops):
        init = replace(loop, body=init)
    return If(condition, init)


def _in_domain(spatial: list[tuple[IterVar, Expr]], values: list[Expr]) -> list[Expr]:
    """Conditions that keep copies of loops inside the domains; needed where a guard also mentioned the reduction."""
    return [c for (it, _), v in zip(spatial, values, strict=True) for c in (v >= it.start, v < it.start + it.extent)]


def _var(e: Expr) -> Var:
    assert isinstance(e, Var)
    return e


def _kind(loop: For) -> LoopKind:
    """Loops of threads stay; all others are serial, because this code runs for empty data only."""
    return loop.kind if loop.kind in ("thread", "virtual") else "serial"
