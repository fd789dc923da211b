"""Loops that store at places from data → vectors that are scattered.

An update changes elements step by step, because two steps may change the same one. A machine that scatters stores the
lanes of a vector in their order, so a later lane overwrites an earlier one as a later step does, and vectors of steps
are exact where no step reads what another has stored::

    for u in serial(0, n):          for v in serial(0, n / 16):
      B[f(P[u])] = A[u]         →     for l in vectorized(0, 16): B[f(P[16 v + l])] = A[16 v + l]
                                    for u in serial(n / 16 · 16, n % 16): B[f(P[u])] = A[u]

Only loops whose operands are read in order: operands from places of their own would be gathered.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from weft.expr.nodes import Const, Load, Var
from weft.expr.prove import Facts
from weft.expr.visit import collect, occurs
from weft.lowering.kernel.common.context import facts_of, inside
from weft.support.dtypes import INDEX
from weft.target import Target
from weft.tir.nodes import For, Let, Program, Stmt, Store, seq
from weft.tir.visit import children, substitute, with_children

_SCATTERED_BITS = (32, 64)
"""Bits of elements that machines scatter."""


def scatter_vectors(program: Program, target: Target) -> Program:
    """The program in which loops that store at places from data scatter vectors, if the machine does that."""
    if not target.cpu.has("avx512f"):
        return program
    return replace(program, body=_visit(program.body, facts_of(program), target))


def _visit(s: Stmt, facts: Facts, target: Target) -> Stmt:
    with inside(facts, s) if isinstance(s, (For, Let)) else nullcontext():
        if isinstance(s, For) and _scatters(s, facts):
            return _vectors(s, target)
        parts = children(s)
        made = tuple(_visit(c, facts, target) for c in parts)
    return s if all(a is b for a, b in zip(made, parts, strict=True)) else with_children(s, made)


def _scatters(s: For, facts: Facts) -> bool:
    store = s.body
    if s.kind != "serial" or not isinstance(store, Store) or store.mask is not None or store.value.lanes > 1:
        return False
    if store.buffer.dtype.bits not in _SCATTERED_BITS:
        return False
    places = collect(store.indices[0], Load)
    loads = (*places, *collect(store.value, Load))
    from_data = any(occurs(s.var, e) for e in places)
    return from_data and all(e.source is not store.buffer and _in_order(e, s.var, facts) for e in loads)


def _in_order(e: Load, var: Var, facts: Facts) -> bool:
    """Whether adjacent iterations read one element or adjacent ones."""
    parts = facts.linear(e.indices[0], var)
    return not occurs(var, e) or (parts is not None and parts[0].get(var) == 1)


def _vectors(s: For, target: Target) -> Stmt:
    assert isinstance(s.body, Store)
    lanes = target.cpu.lanes(s.body.buffer.dtype.bits)
    if isinstance(s.extent, Const) and int(s.extent) < lanes:
        return s
    outer, lane = Var(f"{s.var.name}_v", INDEX), Var(f"{s.var.name}_l", INDEX)
    count = s.extent // lanes
    step = substitute(s.body, {s.var: s.start + outer * lanes + lane})
    vectors = replace(
        s,
        var=outer,
        start=Const(0, INDEX),
        extent=count,
        body=For(lane, Const(0, INDEX), Const(lanes), step, "vectorized"),
    )
    rest = s.extent % lanes
    if isinstance(rest, Const) and not int(rest):
        return vectors
    return seq(vectors, replace(s, start=s.start + count * lanes, extent=rest))
