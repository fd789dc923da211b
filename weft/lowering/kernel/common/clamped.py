"""Rows that may be broadcast: whether an axis has one element or as many as the result is known only at run time.

Elements of such a row are at ``min(i, d - 1)``, which a vector would look up one by one. Each store of a vector gets
a version for each case that occurs: all rows are read in order, or one row gives the same element to all lanes::

    y[i0 + lane] = a[lane] + b[min(i0 + lane, d - 1)]
        →  if i0 + 15 <= d - 1:  y[...] = a[lane] + b[i0 + lane]
           else if d - 1 <= i0:  y[...] = a[lane] + b[d - 1]
           else:                 as before
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.expr.folds import all_of, conjuncts, members
from weft.expr.linear import ONE, ZERO
from weft.expr.nodes import Binary, Broadcast, Expr, Load, Ramp, make
from weft.expr.visit import collect
from weft.support.dtypes import INDEX
from weft.tir.nodes import If, Program, Stmt, Store
from weft.tir.visit import map_expr, transform

MAX_ROWS = 3
"""Most rows of one store that get versions of their own."""


@dataclass(frozen=True)
class _Row:
    """``min(first + lane, last)``, and the end of the lanes that count: ``first + lane < end`` if a mask says so."""

    first: Expr
    last: Expr
    lanes: int
    end: Expr | None

    @property
    def in_order(self) -> Expr:
        """Whether all lanes that count read elements one after another."""
        end = self.first + self.lanes if self.end is None else self.end
        return make("le", end - 1, self.last)

    @property
    def same(self) -> Expr:
        """Whether all lanes read the last element."""
        return make("le", self.last, self.first)


def read_rows_in_order(program: Program) -> Program:
    """The program with versions of stores that read rows which may be broadcast."""
    return replace(program, body=transform(program.body, _versions)) if program.sizes else program


def _versions(s: Stmt) -> Stmt | None:
    if not isinstance(s, Store) or s.indices[0].lanes == 1:
        return None
    known: dict[_Row, _Row] = {}  # a scale and a shift of the same row share its cases
    found: dict[Load, tuple[_Row, Expr]] = {}
    for e in collect(s.value, Load):
        if (parts := _row(e)) is not None:
            found[e] = (known.setdefault(parts[0], parts[0]), parts[1])
    rows = list(known)
    if not 1 <= len(rows) <= MAX_ROWS:
        return None

    def version(same: _Row | None) -> Stmt:
        def read(e: Expr) -> Expr | None:
            if not isinstance(e, Load) or e not in found:
                return None
            row, start = found[e]
            if row is not same:
                return Load(e.source, (Ramp(start + row.first, ONE, row.lanes),), e.mask)
            return Broadcast(Load(e.source, (start + row.last,)), row.lanes)

        assert isinstance(s, Store)
        return replace(s, value=map_expr(s.value, read))

    made: Stmt = s
    for row in rows:
        if row.end is None:
            others = (other.in_order for other in rows if other is not row)
            made = If(all_of(row.same, *others), version(row), made)
    return If(all_of(*(row.in_order for row in rows)), version(None), made)


def _row(e: Load) -> tuple[_Row, Expr] | None:
    """The row that a load reads, and the number of the element before its first one; None for other loads."""
    if e.lanes == 1 or len(e.indices) != 1 or e.indices[0].dtype is not INDEX:
        return None
    start: Expr = ZERO
    clamped: Binary | None = None
    for part in members(e.indices[0], "add"):
        if isinstance(part, Broadcast) and part.value.lanes == 1:
            start = start + part.value
        elif clamped is None and isinstance(part, Binary) and part.op == "min":
            clamped = part
        else:
            return None
    if clamped is None:
        return None
    for ramp, last in ((clamped.a, clamped.b), (clamped.b, clamped.a)):
        if isinstance(ramp, Ramp) and ramp.stride == ONE and isinstance(last, Broadcast) and last.value.lanes == 1:
            return _Row(ramp.base, last.value, ramp.lanes, None if e.mask is None else _end(e.mask, ramp)), start
    return None


def _end(mask: Expr, ramp: Ramp) -> Expr:
    """The end of the lanes of ``ramp`` that a mask allows."""
    for part in conjuncts(mask):
        if isinstance(part, Binary) and part.op == "lt" and part.a is ramp and isinstance(part.b, Broadcast):
            return part.b.value
    return ramp.base + ramp.lanes
