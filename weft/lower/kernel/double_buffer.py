"""Double buffering: while one copy of a buffer is read, the other is filled for the next iteration.

::

    for i:                          fill B[0] for the first i
      fill B for i           →      for i:
      use B                           if i + 1 is an iteration: fill B[(i + 1) % 2] for i + 1
                                      use B[i % 2]
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from weft.expr.nodes import Const, Expr, Load, Var
from weft.support.dtypes import INDEX
from weft.tir.nodes import Allocate, Block, Buffer, For, If, Program, Seq, Stmt, Store, seq
from weft.tir.visit import expressions, map_expr, map_expressions, postorder, substitute, transform, walk

TWO = Const(2, INDEX)


def asked_twice(program: Program) -> set[str]:
    """The names of the buffers of a scheduled program that shall have two copies."""
    found: set[str] = set()
    for block in walk(program.body):
        if isinstance(block, Block) and "double_buffer" in block.annotations:
            found.add(block.writes[int(block.annotations["double_buffer"])].buffer.name)
    return found


def double_buffers(program: Program, wanted: set[str]) -> Program:
    """Give buffers two copies where they live in a serial loop and its first statements fill them, using nothing
    that the loop computes; elsewhere the wish is left alone. Runs when buffers are as small as they get."""
    if not wanted:
        return program
    return replace(program, body=transform(program.body, partial(_rewrite, wanted=wanted)))


def _rewrite(loop: Stmt, wanted: set[str]) -> Stmt | None:
    if not isinstance(loop, For) or loop.kind != "serial" or not isinstance(loop.body, Allocate):
        return None
    buffer, body = loop.body.buffer, loop.body.body
    if buffer.name not in wanted or not isinstance(body, Seq) or not _fits(body, buffer):
        return None
    pair = buffer.replace(shape=(TWO, *buffer.shape))
    count = _filling(body, buffer)
    fill, rest = (_in_half(seq(*part), buffer, pair, loop.var) for part in (body.stmts[:count], body.stmts[count:]))
    later = loop.var + 1
    ahead = If(later < loop.start + loop.extent, substitute(fill, {loop.var: later}))
    first = If(loop.extent > 0, substitute(fill, {loop.var: loop.start}))
    return Allocate(pair, seq(first, replace(loop, body=seq(ahead, rest))))


def _fits(body: Seq, buffer: Buffer) -> bool:
    count = _filling(body, buffer)
    rest = body.stmts[count:]
    if not count or not rest or any(buffer in _writes(s) for s in rest):
        return False
    made = set().union(*map(_writes, rest))
    return not any(_reads(s) & made for s in body.stmts[:count])


def _filling(body: Seq, buffer: Buffer) -> int:
    """How many statements at the start write nothing but ``buffer``."""
    count = 0
    for s in body.stmts:
        if _writes(s) != {buffer}:
            break
        count += 1
    return count


def _writes(s: Stmt) -> set[Buffer]:
    return {x.buffer for x in walk(s) if isinstance(x, Store)}


def _reads(s: Stmt) -> set[object]:
    return {e.source for x in walk(s) for e in postorder(*expressions(x)) if isinstance(e, Load)}


def _in_half(s: Stmt, buffer: Buffer, pair: Buffer, var: Var) -> Stmt:
    half = var % 2
    memo: dict[Expr, Expr] = {}

    def load(e: Expr) -> Expr | None:
        return Load(pair, (half, *e.indices), e.mask) if isinstance(e, Load) and e.source is buffer else None

    def each(x: Stmt) -> Stmt:
        x = map_expressions(x, lambda e: map_expr(e, load, memo))
        if isinstance(x, Store) and x.buffer is buffer:
            return Store(pair, (half, *x.indices), x.value, x.mask)
        return x

    return transform(s, each)
