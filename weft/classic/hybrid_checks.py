"""Accesses of hybrid functions inside of their tensors, and errors: accesses that are always outside, and iterations of
a parallel loop that access elements which another iteration writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from weft.classic.hybrid_statements import Translation
from weft.expr.folds import all_of, any_of, conjuncts
from weft.expr.linear import simplify_index
from weft.expr.nodes import Const, Expr, Load, Var, index, logical_not
from weft.expr.prove import Facts
from weft.expr.visit import free_vars, loads, substitute
from weft.support.dtypes import BOOL, INDEX
from weft.support.errors import Location, UserError
from weft.tensor_expr.bounds import DATA, Ends, guarded_loads, guarded_values, holds_ever, needed, open_ends
from weft.tir.nodes import Buffer, For, If, Let, Seq, Stmt, Store
from weft.tir.visit import stores

_TRUE: Final = Const(True, BOOL)
_FALSE: Final = Const(False, BOOL)


def check(made: Translation) -> tuple[list[tuple[Expr, str]], Stmt]:
    """Conditions on sizes under which accesses of the function are in bounds, with messages, and its statement, in
    which all others are guarded: elements outside read as 0, and are not written.

    Raises UserError E209 for an access that is outside for all sizes, E141 for a parallel or vectorized loop whose
    iterations are not known to be independent.
    """
    work = _Check(made)
    statement = work.walk(made.statement)
    return [(c, m) for c, m in work.found if c is not _TRUE], statement


@dataclass(frozen=True)
class _Access:
    buffer: Buffer
    indices: tuple[Expr, ...]
    writes: bool


@dataclass
class _Check:
    made: Translation
    facts: Facts = field(default_factory=Facts)
    loops: list[For] = field(default_factory=list)
    guards: list[Expr] = field(default_factory=list)
    """The conditions around the statement."""
    found: list[tuple[Expr, str]] = field(default_factory=list)
    accesses: list[_Access] = field(default_factory=list)
    values: set[Var] = field(default_factory=set)
    """Variables that are read from tensors."""
    written: set[Buffer] = field(init=False)
    """Memory that changes while the function runs: what was read of it once is not what it holds later."""

    def __post_init__(self) -> None:
        self.written = {s.buffer for s in stores(self.made.statement)}

    def walk(self, s: Stmt) -> Stmt:
        if isinstance(s, Seq):
            return Seq(tuple(map(self.walk, s.stmts)))
        if isinstance(s, For):
            return self._for(s)
        if isinstance(s, If):
            condition = self._value(s.condition)
            then = self._branch(s.then, s.condition)
            otherwise = None if s.otherwise is None else self._branch(s.otherwise, logical_not(s.condition))
            return If(condition, then, otherwise)
        if isinstance(s, Store):
            return self._store(s)
        assert isinstance(s, Let), type(s).__name__
        value = self._value(s.value)
        self.values.add(s.var)
        return Let(s.var, value, self.walk(s.body))

    def _branch(self, s: Stmt, condition: Expr) -> Stmt:
        lasting = [c for c in conjuncts(condition) if not self._changes(c)]
        with self.facts.scope(), self._guarded(condition):
            return self.walk(s) if holds_ever(self.facts, lasting) else s

    @contextmanager
    def _guarded(self, condition: Expr) -> Iterator[None]:
        self.guards.append(condition)
        yield
        self.guards.pop()

    def _changes(self, e: Expr) -> bool:
        """Whether the value of ``e`` may be another one later."""
        return any(load.source in self.written for load in loads(e))

    def _lasting(self, e: Expr) -> Expr:
        """``e`` in which what may change later is a value of its own."""
        changing = {load: Var("before", load.dtype) for load in loads(e) if load.source in self.written}
        self.values.update(changing.values())
        return substitute(e, changing)

    def _for(self, s: For) -> Stmt:
        start, extent = self._value(s.start), self._value(s.extent)
        for e in (s.start, s.extent):
            self._bind_sizes(e)
        before = len(self.accesses)
        with self.facts.binding(s.var, self._lasting(s.start), self._lasting(s.extent)):
            self.loops.append(s)
            body = self.walk(s.body)
            if s.kind in ("parallel", "vectorized"):
                self._independent(s, self.accesses[before:])
            self.loops.pop()
        return replace(s, start=start, extent=extent, body=body)

    def _store(self, s: Store) -> Stmt:
        indices = tuple(map(self._value, s.indices))
        ends = self._access(s.buffer, s.indices, (), writes=True)
        with self.facts.assuming(*(c for e in ends for c in e.facts(s.indices, s.buffer.shape))):
            made = Store(s.buffer, indices, self._value(s.value), s.mask)
        return If(all_of(*(c for e in ends for c in e.conditions(indices, s.buffer.shape))), made) if ends else made

    def _value(self, e: Expr) -> Expr:
        """``e`` in which loads that may be outside are guarded."""
        found: dict[Load, list[Ends]] = {}
        for load, conditions in guarded_loads(e, ()):
            if isinstance(load.source, Buffer):
                found.setdefault(load, []).extend(self._access(load.source, load.indices, conditions, writes=False))
        return guarded_values((e,), found)[0]

    def _bind_sizes(self, *parts: Expr) -> None:
        for v in free_vars(*parts):
            if self._is_size(v):
                self.facts.bind_size(v, 0)

    def _is_size(self, v: Var) -> bool:
        return v.dtype == INDEX and v not in self.values and all(v is not loop.var for loop in self.loops)

    def _is_data(self, e: Expr) -> bool:
        return bool(loads(e)) or not self.values.isdisjoint(free_vars(e))

    def _is_known(self, condition: Expr) -> bool:
        """Whether sizes alone decide a condition."""
        return not self._is_data(condition) and all(map(self._is_size, free_vars(condition)))

    def _access(self, buffer: Buffer, indices: Sequence[Expr], conditions: Sequence[Expr], writes: bool) -> list[Ends]:
        """The ends of dimensions at which an access may be outside for some data."""
        self.accesses.append(_Access(buffer, tuple(indices), writes))
        moving = [loop.var for loop in self.loops]
        self._bind_sizes(*buffer.shape)
        empty = any_of(*filter(self._is_known, (index(loop.extent) <= 0 for loop in self.loops)))
        never = any_of(*(logical_not(c) for c in (*self.guards, *conditions) if self._is_known(c)))
        ranges = (e for loop in self.loops for e in (loop.start, loop.extent))
        guarded = bool(conditions) or bool(self.guards) or any(map(self._is_data, ranges))
        found = []
        with self.facts.scope():
            if not holds_ever(self.facts, conditions):
                return []
            for axis, (at, size) in enumerate(zip(indices, buffer.shape, strict=True)):
                condition = needed(self.facts, at, index(size), moving, guarded)
                if condition is None:
                    continue
                if condition is DATA or not self._is_known(condition):
                    found.append(open_ends(self.facts, axis, at, size))
                    continue
                what = f"writes '{buffer.name}'" if writes else f"reads '{buffer.name}'"
                message = f"'{self.made.name}' {what} at {simplify_index(at)} in dimension {axis}, whose size is {size}"
                condition = any_of(never, condition)
                if condition is _FALSE and empty is not _TRUE:
                    raise UserError(
                        f"{message}: outside",
                        code="E209",
                        place=Location(node=self.made.name),
                        hint="limit the loop, or put the access under an 'if'",
                    )
                self.found.append((any_of(empty, condition), message))
        return found

    def _independent(self, loop: For, accesses: Sequence[_Access]) -> None:
        if self.facts.prove(index(loop.extent) <= 1):
            return
        depth = len(self.loops) - 1
        written = {a.buffer for a in accesses if a.writes}
        shared = {b for b in written if self.made.depths.get(b, 0) <= depth}
        inside = list(self._inside(loop))
        named = {s.var for s in inside if isinstance(s, Let)}
        inner = {s.var: s for s in inside if isinstance(s, For)}

        def changes(e: Expr) -> bool:
            """Whether more than the variables of loops makes ``e`` differ between iterations."""
            return any(x.source in written for x in loads(e)) or not named.isdisjoint(free_vars(e))

        for buffer in sorted(shared, key=lambda b: b.name):
            touched = [a.indices for a in accesses if a.buffer is buffer]
            columns = [c for c in zip(*touched, strict=True) if not any(map(changes, c))]
            if not any(self._apart(loop.var, column, inner) for column in columns):
                raise UserError(
                    f"iterations of the {loop.kind} loop '{loop.var.name}' of '{self.made.name}' are not known to "
                    f"write different elements of '{buffer.name}'",
                    code="E141",
                    place=Location(node=self.made.name),
                    hint=f"give '{buffer.name}' a dimension whose index is '{loop.var.name}', or use range",
                )

    def _apart(self, var: Var, indices: Sequence[Expr], inner: dict[Var, For]) -> bool:
        """Whether an index in one dimension differs between any two iterations, for all accesses together."""
        ends = []
        factors = set()
        for e in indices:
            form = self.facts.linear(e, var)
            swept = None if form is None or var not in form[0] else self.facts.sweep(form[1], inner)
            if form is None or swept is None or free_vars(swept.low, swept.width) & inner.keys():
                return False
            factors.add(form[0][var])
            ends.append((swept.low, swept.low + swept.width))
        if len(factors) != 1:
            return False
        distance = abs(factors.pop())
        return all(self.facts.prove(high - low < distance) for low, _ in ends for _, high in ends)

    def _inside(self, loop: For) -> Iterator[For | Let]:
        """The loops and the named values in the body of a loop."""
        pending = [loop.body]
        while pending:
            s = pending.pop()
            if isinstance(s, (For, Let)):
                yield s
                pending.append(s.body)
            elif isinstance(s, Seq):
                pending += s.stmts
            elif isinstance(s, If):
                pending += [s.then, *([s.otherwise] if s.otherwise else [])]
