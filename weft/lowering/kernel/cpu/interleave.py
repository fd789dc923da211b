"""Stores of every n-th element, one for each remainder → one contiguous store of interleaved vectors::

    A[ramp(i, 4, 16)] = a                      A[ramp(i, 1, 64)] = shuffle(a, b, c, d)
    A[ramp(i + 1, 4, 16)] = b            →
    A[ramp(i + 2, 4, 16)] = c
    A[ramp(i + 3, 4, 16)] = d

Rows of bytes or halves become groups of one element of each row, which dot-product instructions read. Machines have no
strided stores: each lane would be stored by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from weft.expr.affine import split_constant
from weft.expr.linear import ONE
from weft.expr.nodes import Broadcast, Const, Expr, Load, Ramp, Shuffle
from weft.expr.visit import collect
from weft.support.dtypes import BOOL
from weft.tir.nodes import Program, Seq, Stmt, Store, seq
from weft.tir.visit import transform

GROUPS: Final = (2, 4)
"""Numbers of vectors that are interleaved: more would need as many shuffles as single stores, and of 3 the result would
be a vector that C compilers do not have."""


def interleave(program: Program) -> Program:
    """The program with groups of strided stores that fill a stretch of memory replaced by one store."""
    return replace(program, body=transform(program.body, _sequence))


def _sequence(s: Stmt) -> Stmt | None:
    if not isinstance(s, Seq):
        return None
    made: list[Stmt] = []
    at = 0
    while at < len(s.stmts):
        one = _joined(s.stmts[at:])
        made.append(s.stmts[at] if one is None else one[0])
        at += 1 if one is None else one[1]
    return seq(*made) if len(made) < len(s.stmts) else None


def _joined(stmts: Sequence[Stmt]) -> tuple[Store, int] | None:
    """One store for the first of ``stmts``, and how many it replaces; None if they are no whole group."""
    first = stmts[0]
    at = _strided(first)
    if at is None or not isinstance(first, Store):
        return None
    count, lanes = int(at.stride), at.count  # type: ignore[call-overload]  # Const
    group = [s for s in stmts[:count] if isinstance(s, Store) and s.buffer is first.buffer]
    places = [_strided(s) for s in group]
    if len(group) < count or any(p is None or p.stride is not at.stride or p.count != lanes for p in places):
        return None
    starts = [split_constant(p.base) for p in places if p is not None]
    least = min(constant for _, constant in starts)
    if any(variable is not starts[0][0] for variable, _ in starts):
        return None
    if sorted(constant - least for _, constant in starts) != list(range(count)):
        return None
    if any(load.source is first.buffer for load in collect([s.value for s in group], Load)):
        return None
    values: list[Expr] = [first.value] * count
    for s, (_, constant) in zip(group, starts, strict=True):
        values[constant - least] = s.value if s.value.lanes == lanes else Broadcast(s.value, lanes)
    base = next(p.base for p, (_, constant) in zip(places, starts, strict=True) if p is not None and constant == least)
    picks = tuple(vector * lanes + lane for lane in range(lanes) for vector in range(count))
    return Store(first.buffer, (Ramp(base, ONE, count * lanes),), Shuffle(tuple(values), picks)), count


def _strided(s: Stmt) -> Ramp | None:
    """The places that a store without a mask writes, if they are a few elements apart."""
    at = s.indices[0] if isinstance(s, Store) and len(s.indices) == 1 else None
    if not isinstance(s, Store) or not isinstance(at, Ramp) or s.mask is not None or s.buffer.dtype == BOOL:
        return None
    few = isinstance(at.stride, Const) and int(at.stride) in GROUPS
    return at if few and at.count & (at.count - 1) == 0 else None
