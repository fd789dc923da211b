"""Vectors of sums that are only used in part are computed whole, in registers.

A row that ends within a vector is stored under a mask, and so are its sums. If a private buffer holds a vector that is
only ever accessed under one mask, and every reader stores under this mask too, then nobody sees the other lanes::

    T[0:16; m] = 0; for k: T[0:16; m] = T[0:16; m] + a[k; m]; B[i; m] = T[0:16; m]
    T[0:16] = 0;    for k: T[0:16] = T[0:16] + a[k; m];       B[i; m] = T[0:16]

The compiler behind keeps a vector in a register only if it is accessed as a whole; a processor does not forward what a
masked store wrote to a masked load, so each step of the sum would wait for memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

from weft.expr.added import find
from weft.expr.linear import ONE
from weft.expr.nodes import Binary, Call, Cast, Const, Expr, Load, Not, Ramp, Select, Var
from weft.expr.visit import collect, free_vars
from weft.tir.nodes import Allocate, Buffer, For, Let, Program, Stmt, Store
from weft.tir.visit import expressions, map_expr, map_expressions, transform, walk

_Place: TypeAlias = tuple[int, int]
"""The first element and the number of lanes of a vector in a buffer."""


def fill_registers(program: Program) -> Program:
    """The program in which private vectors whose other lanes nobody sees have no masks."""
    return replace(program, body=transform(program.body, lambda s: _filled(s) if isinstance(s, Allocate) else None))


@dataclass(slots=True)
class _Vector:
    """The mask of all accesses so far; ``open`` once some access makes other lanes visible."""

    mask: Expr | None
    open: bool = False


@dataclass(slots=True)
class _Accesses:
    """How the vectors of one buffer are accessed."""

    buffer: Buffer
    vectors: dict[_Place, _Vector] = field(default_factory=dict)
    other: bool = False
    """Whether there are accesses that are no vectors at known places."""

    def note(self, indices: tuple[Expr, ...], mask: Expr | None, seen: bool) -> None:
        """One access; ``seen``: whether its other lanes matter to somebody."""
        place = _place(indices)
        if place is None:
            self.other = True
            return
        known = self.vectors.setdefault(place, _Vector(mask, seen))
        known.open |= seen or known.mask is not mask

    def whole(self, bound: frozenset[Var]) -> set[_Place]:
        """The vectors that may be accessed without their masks, which must not change while the buffer lives. Those in
        registers may end beyond the buffer."""
        size = self.buffer.shape[0]
        if self.other or len(self.buffer.shape) != 1 or not isinstance(size, Const):
            return set()
        ordered = sorted(self.vectors)
        apart = all(a + n <= b for (a, n), (b, _) in pairwise(ordered))
        if not apart or not ordered or (sum(ordered[-1]) > int(size) and self.buffer.scope != "register"):
            return set()
        masked = {p: v.mask for p, v in self.vectors.items() if not v.open and v.mask is not None}
        return {p for p, mask in masked.items() if not bound.intersection(free_vars(mask)) and not collect(mask, Load)}


def _place(indices: tuple[Expr, ...]) -> _Place | None:
    at = indices[0] if len(indices) == 1 else None
    if not isinstance(at, Ramp) or not isinstance(at.base, Const) or at.stride is not ONE:
        return None
    return int(at.base), at.lanes


def _filled(s: Allocate) -> Stmt | None:
    found = _Accesses(s.buffer)
    if not any(x.mask is not None and x.buffer is s.buffer for x in walk(s.body) if isinstance(x, Store)):
        return None
    bound = frozenset(x.var for x in walk(s.body) if isinstance(x, (For, Let)))
    for x in walk(s.body):
        if isinstance(x, Store):
            quiet = _lane_by_lane(x.value, x.mask) if x.mask is not None else frozenset()
            if x.buffer is s.buffer:
                found.note(x.indices, x.mask, seen=False)
            for e in (*x.indices, *(() if x.mask is None else (x.mask,))):
                _note_loads(found, e, frozenset())
            _note_loads(found, x.value, quiet)
        else:
            for e in expressions(x):
                _note_loads(found, e, frozenset())
    places = found.whole(bound)
    if not places:
        return None
    end, size = max(map(sum, places)), s.buffer.shape[0]
    grown = s.buffer.replace(shape=(Const(end),)) if isinstance(size, Const) and int(size) < end else s.buffer
    return replace(s, buffer=grown, body=_without_masks(s.body, s.buffer, grown, places))


def _note_loads(found: _Accesses, e: Expr, quiet: frozenset[Load]) -> None:
    for load in collect(e, Load):
        if load.source is found.buffer:
            found.note(load.indices, load.mask, seen=load not in quiet)


def _lane_by_lane(value: Expr, mask: Expr) -> frozenset[Load]:
    """The loads under ``mask`` whose lanes affect nothing but the same lane of ``value``."""
    alone: set[Load] = set()
    others: set[Load] = set()
    seen: set[tuple[Expr, bool]] = set()
    stack = [(value, True)]
    while stack:
        e, quiet = stack.pop()
        if (e, quiet) in seen:
            continue
        seen.add((e, quiet))
        if isinstance(e, Load):
            (alone if quiet and e.mask is mask else others).add(e)
        lanewise = _computes_lanes(e) and all(c.lanes == e.lanes for c in e.children)
        stack.extend((c, quiet and lanewise) for c in e.children)
    return frozenset(alone - others)


def _computes_lanes(e: Expr) -> bool:
    """Whether each lane of ``e`` is computed from the same lane of its operands, without effects."""
    if isinstance(e, Call):
        row = find(e.name)
        return row is not None and row.pure
    return isinstance(e, (Binary, Not, Cast, Select))


def _without_masks(root: Stmt, buffer: Buffer, made: Buffer, places: set[_Place]) -> Stmt:
    """``root`` with ``made`` in place of ``buffer``, and without the masks of accesses to ``places``."""
    memo: dict[Expr, Expr] = {}

    def load(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.source is not buffer:
            return None
        return Load(made, e.indices, None if _place(e.indices) in places else e.mask)

    def store(s: Stmt) -> Stmt | None:
        s = map_expressions(s, lambda e: map_expr(e, load, memo))
        if not isinstance(s, Store) or s.buffer is not buffer:
            return s
        return replace(s, buffer=made, mask=None if _place(s.indices) in places else s.mask)

    return transform(root, store)
