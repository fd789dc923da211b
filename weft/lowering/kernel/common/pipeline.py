"""Software pipelines: statements of a loop run some iterations late, so that those of different iterations overlap.

::

    for i in 0..n:              for i in 0..T:        what has started: statement k runs where i - t[k] >= 0
      S0(i); S1(i)      →       for i in T..n:        all statements, S_k(i - t[k]), in the requested order
                                for i in n..n+T:      what is not done yet: where i - t[k] < n

A buffer that passes from stage ``a`` to stage ``b`` has ``b - a + 1`` copies, which iterations take in turn. Marks
(lets of variables that nothing uses) keep the statements apart while other passes simplify them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from weft.expr.folds import all_of
from weft.expr.nodes import Const, Expr, Load, Var, make, maximum
from weft.schedule.primitives.pipelining import ORDER
from weft.schedule.tree import STAGES, statements_of
from weft.support.dtypes import INDEX
from weft.support.errors import InternalError
from weft.tir.nodes import Allocate, Buffer, For, If, Let, Program, Seq, Stmt, Store, seq
from weft.tir.visit import expressions, map_expr, map_expressions, postorder, substitute, transform, walk


def mark_statements(program: Program) -> tuple[Program, set[Var]]:
    """The program with the statements of pipelined loops inside lets, and the variables of these lets."""
    marks: set[Var] = set()

    def visit(s: Stmt) -> Stmt | None:
        if not isinstance(s, For) or STAGES not in s.annotations:
            return None
        made = []
        for n, one in enumerate(statements_of(s)):
            mark = Var("statement", INDEX)
            marks.add(mark)
            made.append(Let(mark, Const(n, INDEX), one))
        return replace(s, body=seq(*made))

    return replace(program, body=transform(program.body, visit)), marks


def pipeline_loops(program: Program, marks: set[Var]) -> Program:
    """Turn each pipelined loop into three loops, and remove the marks. Runs after buffers have their final sizes."""
    if not marks:
        return program
    body = transform(program.body, partial(_pipelined, marks=marks))
    return replace(program, body=transform(body, lambda s: s.body if isinstance(s, Let) and s.var in marks else None))


def _pipelined(loop: Stmt, marks: set[Var]) -> Stmt | None:
    if not isinstance(loop, For) or STAGES not in loop.annotations:
        return None
    stages, order = loop.annotations[STAGES], loop.annotations[ORDER]
    buffers: list[Buffer] = []
    body = loop.body
    while isinstance(body, Allocate):
        buffers.append(body.buffer)
        body = body.body
    parts: dict[int, Stmt] = {}
    for s in body.stmts if isinstance(body, Seq) else (body,):
        assert isinstance(s, Let) and s.var in marks and isinstance(s.value, Const)
        parts[int(s.value.value)] = s.body
    copies = _copies(buffers, parts, stages)
    _check_private(parts, stages, set(buffers))
    for old, new in copies.items():
        for n in parts:
            parts[n] = _in_turn(parts[n], old, new, loop.var)
    late = [(stages[n], parts[n]) for n in sorted(parts, key=lambda n: int(order[n]))]
    made = _stretches(loop, late)
    for b in reversed(buffers):
        made = Allocate(copies.get(b, b), made)
    return made


def _copies(buffers: Sequence[Buffer], parts: dict[int, Stmt], stages: Sequence[int]) -> dict[Buffer, Buffer]:
    """For each buffer that several stages access: a buffer with as many copies as iterations overlap."""
    found: dict[Buffer, Buffer] = {}
    for b in buffers:
        touching = [int(stages[n]) for n, s in parts.items() if b in _touched(s)]
        if touching and (apart := max(touching) - min(touching)):
            found[b] = b.replace(shape=(Const(apart + 1, INDEX), *b.shape))
    return found


def _check_private(parts: dict[int, Stmt], stages: Sequence[int], own: set[Buffer]) -> None:
    """Check that buffers passed between stages belong to the loop, as was found when the loop was scheduled."""
    for n, s in parts.items():
        for b in {x.buffer for x in walk(s) if isinstance(x, Store)} - own:
            if any(b in _touched(parts[m]) for m in parts if stages[m] != stages[n]):
                raise InternalError(f"'{b.name}' passes between stages of a pipeline and is not the loop's own")


def _touched(s: Stmt) -> set[object]:
    loads = {e.source for x in walk(s) for e in postorder(*expressions(x)) if isinstance(e, Load)}
    return loads | {x.buffer for x in walk(s) if isinstance(x, Store)}


def _in_turn(s: Stmt, old: Buffer, new: Buffer, var: Var) -> Stmt:
    """``s`` with ``old`` replaced by the copy that belongs to iteration ``var``."""
    copy = var % new.shape[0]
    memo: dict[Expr, Expr] = {}

    def load(e: Expr) -> Expr | None:
        return Load(new, (copy, *e.indices), e.mask) if isinstance(e, Load) and e.source is old else None

    def each(x: Stmt) -> Stmt:
        x = map_expressions(x, lambda e: map_expr(e, load, memo))
        if isinstance(x, Store) and x.buffer is old:
            return Store(new, (copy, *x.indices), x.value, x.mask)
        return x

    return transform(s, each)


def _stretches(loop: For, late: Sequence[tuple[int, Stmt]]) -> Stmt:
    """The loops that fill, run and drain the pipeline; ``late`` are the statements in their order."""
    least, depth = min(t for t, _ in late), max(t for t, _ in late)
    span = Const(depth - least, INDEX)
    end = loop.start + loop.extent
    plain = replace(loop, annotations=loop.annotations.without(STAGES).without(ORDER))

    def step(at: Expr, guard: bool) -> Stmt:
        made = []
        for t, s in late:
            own = at - (t - least)
            one = substitute(s, {loop.var: own})
            inside = all_of(make("ge", own, loop.start), make("lt", own, end))
            made.append(If(inside, one) if guard else one)
        return seq(*made)

    before, after = Var(loop.var.name, INDEX), Var(loop.var.name, INDEX)
    longest = maximum(loop.extent, span)
    return seq(
        For(before, Const(0, INDEX), span, step(loop.start + before, True), "unrolled"),
        replace(plain, start=loop.start + span, extent=loop.extent - span, body=step(loop.var, False)),
        For(after, Const(0, INDEX), span, step(loop.start + longest + after, True), "unrolled"),
    )
