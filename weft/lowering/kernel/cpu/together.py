"""Short rows are computed several at a time.

The stages of a row (a maximum, powers, a sum, quotients) wait for each other, and so do the steps that combine the
lanes of a vector. A processor looks for other work only among few instructions that wait: those of about one short row.
So several rows are interleaved, loop by loop, as virtual threads are::

    parallel i in n:             if m <= 128:
      a = f(i)                     parallel g in ceil(n / 4):
      C[i] = h(a)          →         if g < n // 4:
                                       a0 = f(4 g); a1 = f(4 g + 1); …
                                       C[4 g] = h(a0); C[4 g + 1] = h(a1); …
                                     else:
                                       for i in 4 g .. n: a = f(i); C[i] = h(a)
                                 else:
                                   parallel i in n: a = f(i); C[i] = h(a)

Long rows keep a processor busy one by one.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Final

from weft.expr.folds import all_of
from weft.expr.linear import ZERO
from weft.expr.nodes import Binary, Const, Expr, Load, Var, integer, make
from weft.expr.prove import Facts
from weft.expr.visit import occurs
from weft.ir.text import Names
from weft.lowering.kernel.common.context import dimensions_of, facts_of, inside
from weft.lowering.kernel.common.virtual_threads import interleaved
from weft.schedule.primitives.kinds import ROWS_TOGETHER
from weft.tir.nodes import Buffer, Evaluate, For, If, Let, Program, Stmt, Store
from weft.tir.placement import offset, strides_of
from weft.tir.visit import buffers, children, expressions, postorder, substitute, transform, walk

MAX_ELEMENTS: Final = 128
"""Limit on the elements of rows that are computed together. The stages of longer rows take so long that others begin
meanwhile, and rows in memory that take turns are fetched more slowly: 256 elements took 1.4 times as long."""


def compute_rows_together(program: Program) -> Program:
    """The program in which loops annotated with :data:`ROWS_TOGETHER` compute so many short rows at a time. Runs after
    buffers have their final sizes."""
    marked = [s for s in walk(program.body) if isinstance(s, For) and ROWS_TOGETHER in s.annotations]
    if not marked:
        return program
    names = Names(b.name for b in (*program.params, *buffers(program.body)))
    facts = facts_of(program, dimensions_of(program))

    def visit(s: Stmt) -> Stmt | None:
        return _together(s, facts, names) if isinstance(s, For) and ROWS_TOGETHER in s.annotations else None

    return replace(program, body=transform(program.body, visit))


def _together(s: For, facts: Facts, names: Names) -> Stmt:
    """The loop in two versions, for short rows and for long ones; or one, where the length is known."""
    count = int(s.annotations[ROWS_TOGETHER])
    plain = replace(s, annotations=s.annotations.without(ROWS_TOGETHER))
    lengths = _lengths(s.body, facts)
    known = [int(n.value) for n in lengths if isinstance(n, Const)]
    few = isinstance(s.extent, Const) and int(s.extent.value) < count
    if s.kind != "parallel" or count < 2 or few or not lengths or max(known, default=0) > MAX_ELEMENTS:
        return plain
    with inside(facts, s):
        if _divides(s.body, s.var, facts):
            return plain
    groups = _groups(plain, count, names)
    short = all_of(*(make("le", n, MAX_ELEMENTS) for n in lengths if not isinstance(n, Const)))
    return groups if isinstance(short, Const) else If(short, groups, plain)


def _groups(s: For, count: int, names: Names) -> For:
    """The loop over groups of ``count`` rows; the rows of the last group, if there are fewer, are computed one by
    one."""
    group, row = Var(f"{s.var.name}_group"), Var(f"{s.var.name}_row")
    first = s.start + group * count
    threads = For(row, ZERO, integer(count), substitute(s.body, {s.var: first + row}), "virtual")
    rest = For(s.var, first, s.extent - group * count, s.body, "parallel")
    body = If(make("lt", group, s.extent // count), interleaved(threads, names), rest)
    notes = s.annotations
    if "grain" in notes:
        notes = notes.replace(grain=max(1, int(notes["grain"]) // count))
    return For(group, ZERO, (s.extent + (count - 1)) // count, body, "parallel", annotations=notes)


def _lengths(s: Stmt, facts: Facts) -> list[Expr]:
    """How often the loops in ``s`` run their innermost bodies: for each nest of loops the product of its extents."""
    found: dict[Expr, None] = {}
    stack: list[tuple[Stmt, Expr | None]] = [(s, None)]
    while stack:
        x, length = stack.pop()
        if isinstance(x, For):
            length = x.extent if length is None else length * x.extent
        parts = children(x)
        stack.extend((c, length) for c in parts)
        if not parts and length is not None:
            found[facts.simplify(length)] = None
    return list(found)


def _divides(s: Stmt, row: Var, facts: Facts) -> bool:
    """Whether addresses in ``s`` take quotients or remainders of the number of the row by sizes. Loops count those from
    row to row; for the rows of a group they would be divided."""
    if not isinstance(s, Evaluate):
        places = [(e.source, e.indices) for e in postorder(*expressions(s)) if isinstance(e, Load)]
        if isinstance(s, Store):
            places.append((s.buffer, s.indices))
        for buffer, indices in places:
            if isinstance(buffer, Buffer) and any(occurs(row, i) for i in indices):
                address = facts.simplify(offset(indices, strides_of(buffer)))
                if any(_is_division(e) and occurs(row, e) for e in postorder(address)):
                    return True
    with inside(facts, s) if isinstance(s, (For, Let)) else nullcontext():
        return any(_divides(c, row, facts) for c in children(s))


def _is_division(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op in ("floordiv", "floormod") and not isinstance(e.b, Const)
