"""Programs of a few iterations, built from index expressions over their loops, and what they access when they run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from weft.expr.evaluate import evaluate
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, Var, const
from weft.ir.frozen import EMPTY, FrozenMap
from weft.support.dtypes import BOOL
from weft.tir.nodes import Block, Buffer, For, Program, Region, Seq, Stmt, seq
from weft.tir.visit import substitution

I, J, K, N = Var("i"), Var("j"), Var("k"), Var("n")  # noqa: E741 (as loops are called)
ONE, TRUE = Const(1), const(True, BOOL)
Element = tuple[str, tuple[int, ...]]


def number(value: Expr | int) -> Expr:
    return Const(value) if isinstance(value, int) else value


def loop(var: Var, extent: Expr | int, *body: Stmt, start: Expr | int = 0) -> For:
    return For(var, number(start), number(extent), seq(*body))


def buffer(name: str, rank: int = 1) -> Buffer:
    return Buffer(name, (Const(64),) * rank, "float32")


Access = tuple[Buffer, Sequence["Expr | int | tuple[Expr | int, int]"]]
"""A buffer and an index, or a start and an extent, for each dimension, over the variables of loops."""


def block(
    name: str,
    loops: Mapping[Var, Expr | int],
    writes: Sequence[Access] = (),
    reads: Sequence[Access] = (),
    where: Expr = TRUE,
    body: Stmt | None = None,
    whole: bool = False,
) -> Block:
    """A block with one spatial variable for each of ``loops`` (with its extent), bound to the loop's variable.
    ``whole``: it writes all of its regions, as an instruction does."""
    own = {v: Var(f"{name}_{v.name}") for v in loops}
    swap = substitution(own)

    def region(access: Access) -> Region:
        ranges = [r if isinstance(r, tuple) else (r, 1) for r in access[1]]
        return Region(access[0], tuple((swap(number(start)), Const(extent)) for start, extent in ranges))

    return Block(
        name,
        tuple(IterVar(own[v], number(extent)) for v, extent in loops.items()),
        tuple(loops),
        tuple(map(region, reads)),
        tuple(map(region, writes)),
        Seq(()) if body is None else body,
        where=where,
        annotations=FrozenMap({"tensorized": "it"}) if whole else EMPTY,
    )


@dataclass(frozen=True)
class Axis:
    """A variable of a block: what it is bound to, and its domain."""

    value: Expr | int
    extent: Expr | int
    start: Expr | int = 0
    kind: str = IterVar.SPATIAL


def bound(name: str, *axes: Axis) -> Block:
    """A block that accesses nothing."""
    iters = tuple(IterVar(Var(f"{name}{n}"), number(a.extent), a.kind, number(a.start)) for n, a in enumerate(axes))
    return Block(name, iters, tuple(number(a.value) for a in axes), (), (), Seq(()))


def program(*body: Stmt, sizes: Sequence[Var] = ()) -> Program:
    return Program("p", (), seq(*body), 0, tuple(sizes))


@dataclass(frozen=True)
class Event:
    """One instance of a block: the iterations of the loops around it, its variables, and what it accesses."""

    at: Mapping[Var, int]
    block: Block
    values: tuple[int, ...]
    reads: frozenset[Element]
    writes: frozenset[Element]


def run(stmt: Stmt, at: Mapping[Var, int]) -> Iterator[Event]:
    """All instances of blocks that ``stmt`` runs, in order."""
    if isinstance(stmt, For):
        start, extent = (int(evaluate(e, at)) for e in (stmt.start, stmt.extent))
        for value in range(start, start + extent):
            yield from run(stmt.body, {**at, stmt.var: value})
    elif isinstance(stmt, Seq):
        for each in stmt.stmts:
            yield from run(each, at)
    elif isinstance(stmt, Block) and bool(evaluate(stmt.where, at)):
        values = tuple(int(evaluate(v, at)) for v in stmt.values)
        inside = {it.var: v for it, v in zip(stmt.iters, values, strict=True)}
        yield Event(at, stmt, values, elements(stmt.reads, inside), elements(stmt.writes, inside))


def elements(regions: Sequence[Region], at: Mapping[Var, int]) -> frozenset[Element]:
    found: set[Element] = set()
    for region in regions:
        bounds = [(int(evaluate(a, at)), int(evaluate(n, at))) for a, n in region.ranges]
        found |= {(region.buffer.name, place) for place in itertools.product(*(range(a, a + n) for a, n in bounds))}
    return frozenset(found)
