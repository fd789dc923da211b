"""Masked vectors that are updated in memory stay in registers.

A processor does not forward what a masked store wrote to a masked load: each step of a reduction whose rows are no
whole vectors would wait for memory. So steps that follow one another become one store, a loop that updates one vector
keeps it in a buffer of its own, and a buffer that only the next statement reads is not used::

    B[i; m] = a; B[i; m] = max(B[i; m], b)     →   B[i; m] = max(a, b)
    T[j; m] = a; B[i; m] = f(T[j; m])          →   B[i; m] = f(a)
    for k: B[i; m] = max(B[i; m], A[i, k; m])  →   r = B[i; m]; for k: r = max(r, A[i, k; m]); B[i; m] = r

The compiler behind does this itself where all lanes are stored.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TypeAlias

from weft.expr.linear import ONE, ZERO
from weft.expr.nodes import Const, Expr, Load, Ramp
from weft.expr.prove import Facts
from weft.expr.visit import collect, occurs, post_order
from weft.support.dtypes import INDEX
from weft.tir.nodes import Allocate, Buffer, For, If, Program, Seq, Stmt, Store, seq
from weft.tir.visit import expressions, map_expr, stores, transform, walk

MAX_JOINED_NODES = 2000
"""Limit on the nodes of an expression that joined steps become."""

_Place: TypeAlias = Store | Load


def join_updates(program: Program) -> Program:
    """The program in which masked vectors are not updated in memory."""
    numbers = count()

    def visit(s: Stmt) -> Stmt | None:
        if isinstance(s, For):
            return _kept(s, f"kept{next(numbers)}")
        if isinstance(s, Allocate):
            return _passed_on(s)
        return _joined(s) if isinstance(s, Seq) else None

    return replace(program, body=transform(program.body, visit))


def _joined(s: Seq) -> Stmt | None:
    made: list[Stmt] = []
    for part in s.stmts:
        made.append(part)
        while len(made) > 1 and (one := _both(made[-2], made[-1])) is not None:
            made[-2:] = [one]
    return seq(*made) if len(made) < len(s.stmts) else None


def _both(first: Stmt, second: Stmt) -> Stmt | None:
    """One statement that does the same as two, if they update one masked vector."""
    if isinstance(first, If) and isinstance(second, If):
        if first.condition is not second.condition or first.otherwise is not None or second.otherwise is not None:
            return None
        if not _parts(first.then) or not _parts(second.then):  # nothing is left of a branch
            return None
        inner = None if collect(first.condition, Load) else _both(_last(first.then), _first(second.then))
        return (
            None
            if inner is None
            else If(first.condition, seq(*_parts(first.then)[:-1], inner, *_parts(second.then)[1:]))
        )
    if not isinstance(first, Store) or first.mask is None:
        return None
    if isinstance(second, Store):
        value = _updated(first, second)
        return None if value is None else replace(first, value=value)
    if isinstance(second, Allocate) and isinstance(second.body, Seq):  # of ``_kept``
        start, *rest = second.body.stmts
        if isinstance(start, Store) and isinstance(start.value, Load) and _same(first, start.value):
            return Allocate(second.buffer, seq(replace(start, value=first.value), *rest))
    return None


def _parts(s: Stmt) -> tuple[Stmt, ...]:
    return s.stmts if isinstance(s, Seq) else (s,)


def _first(s: Stmt) -> Stmt:
    return _parts(s)[0]


def _last(s: Stmt) -> Stmt:
    return _parts(s)[-1]


def _updated(first: Store, second: Store) -> Expr | None:
    """What ``second`` stores in place of what ``first`` stored; None if it does not update that."""
    if not _same(first, second) or not _updates(second):
        return None
    made = map_expr(second.value, lambda e: first.value if _reads(e, second.buffer) else None)
    return made if sum(1 for _ in post_order(made)) <= MAX_JOINED_NODES else None


def _kept(s: For, name: str) -> Stmt | None:
    """A loop whose body updates one masked vector, with the vector in a buffer of its own."""
    body = s.body
    if s.kind != "serial" or not isinstance(body, Store) or body.mask is None or not _updates(body):
        return None
    at = body.indices[-1]
    if not isinstance(at, Ramp) or any(occurs(s.var, e) for e in (*body.indices, body.mask)):
        return None
    own = Buffer(name, (Const(at.lanes, INDEX),), body.buffer.dtype, "register")
    everything = (Ramp(ZERO, ONE, at.lanes),)
    value = map_expr(body.value, lambda e: Load(own, everything) if _reads(e, body.buffer) else None)
    begin = Store(own, everything, Load(body.buffer, body.indices, body.mask))
    end = Store(body.buffer, body.indices, Load(own, everything), body.mask)
    return Allocate(own, seq(begin, replace(s, body=Store(own, everything, value)), end))


def _passed_on(s: Allocate) -> Stmt | None:
    """The body without the buffer, if one statement writes a masked vector of it and only the next one reads it."""
    parts = list(_parts(s.body))
    writers = [x for x in stores(s.body) if x.buffer is s.buffer]
    readers = [n for n, part in enumerate(parts) if _occurs_in(part, s.buffer)]
    if len(writers) != 1 or writers[0].mask is None or len(readers) != 1 or readers[0] == 0:
        return None
    at = readers[0]
    made = _in_place_of(parts[at - 1], writers[0], parts[at])
    return None if made is None else seq(*parts[: at - 1], made, *parts[at + 1 :])


def _in_place_of(before: Stmt, writer: Store, reader: Stmt) -> Stmt | None:
    """``before`` with ``reader`` in place of ``writer``, its last statement, and with what that stores where it reads
    the same vector; None if that is not possible."""
    if isinstance(before, Allocate):
        last = _in_place_of(_last(before.body), writer, reader)
        return None if last is None else Allocate(before.buffer, seq(*_parts(before.body)[:-1], last))
    if before is not writer or not isinstance(reader, Store) or reader.mask is not writer.mask:
        return None
    made = map_expr(reader.value, lambda e: writer.value if isinstance(e, Load) and _same(writer, e) else None)
    joined = replace(reader, value=made)
    few = sum(1 for _ in post_order(made)) <= MAX_JOINED_NODES
    return joined if few and not _occurs_in(joined, writer.buffer) else None


def _occurs_in(s: Stmt, buffer: Buffer) -> bool:
    return any(_reads(e, buffer) for x in walk(s) for part in expressions(x) for e in post_order(part))


def _updates(s: Store) -> bool:
    """Whether a store reads the vector that it writes, and nothing else of the buffer."""
    own = [e for e in collect(s.value, Load) if e.source is s.buffer]
    return bool(own) and all(_same(s, e) for e in own) and s.value.dtype == s.buffer.dtype


def _reads(e: Expr, buffer: Buffer) -> bool:
    return isinstance(e, Load) and e.source is buffer


def _same(a: _Place, b: _Place) -> bool:
    """Whether two masked accesses are of the same elements."""
    first, second = (x.buffer if isinstance(x, Store) else x.source for x in (a, b))
    if first is not second or a.mask is not b.mask or len(a.indices) != len(b.indices):
        return False
    return all(_equal(i, j) for i, j in zip(a.indices, b.indices, strict=True))


def _equal(a: Expr, b: Expr) -> bool:
    if isinstance(a, Ramp) and isinstance(b, Ramp):
        return a.lanes == b.lanes and _equal(a.base, b.base) and _equal(a.stride, b.stride)
    return a is b or (a.lanes == b.lanes == 1 and Facts().equal(a, b))
