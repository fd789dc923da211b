"""Errors of hybrid functions: accesses outside of a tensor, and iterations of a parallel loop that access elements
which another iteration writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from weft.classic.hybrid_statements import Translation
from weft.expr.folds import any_of
from weft.expr.linear import simplify_index
from weft.expr.nodes import Const, Expr, Var, index, logical_not
from weft.expr.prove import Facts
from weft.expr.visit import free_vars, loads
from weft.support.dtypes import BOOL, INDEX
from weft.support.errors import Location, UserError
from weft.tensor_expr.bounds import DATA, guarded_loads, needed
from weft.tir.nodes import Buffer, For, If, Let, Seq, Stmt, Store
from weft.tir.visit import expressions

_FALSE: Final = Const(False, BOOL)


def check(made: Translation) -> list[tuple[Expr, str]]:
    """Conditions on sizes under which all accesses of the function are in bounds, with messages.

    Raises UserError E209 for an access that is outside for all sizes, E141 for a parallel or vectorized loop whose
    iterations are not known to be independent. Indices that data decides are not checked.
    """
    work = _Check(made)
    work.walk(made.statement)
    return [(c, m) for c, m in work.found if c != Const(True, BOOL)]


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
    guards: int = 0
    """How many conditions are around the statement."""
    found: list[tuple[Expr, str]] = field(default_factory=list)
    accesses: list[_Access] = field(default_factory=list)
    values: set[Var] = field(default_factory=set)
    """Variables that are read from tensors."""

    def walk(self, s: Stmt) -> None:
        if isinstance(s, Seq):
            for part in s.stmts:
                self.walk(part)
        elif isinstance(s, For):
            self._for(s)
        elif isinstance(s, If):
            self._expression(s.condition)
            branches = [(s.then, s.condition), *([(s.otherwise, logical_not(s.condition))] if s.otherwise else [])]
            self.guards += 1
            for branch, holds in branches:
                with self.facts.assuming(holds):
                    self.walk(branch)
            self.guards -= 1
        else:
            for e in expressions(s):
                self._expression(e)
            if isinstance(s, Store):
                self._access(s.buffer, s.indices, (), writes=True)
            if isinstance(s, Let):
                self.values.add(s.var)
                self.walk(s.body)

    def _for(self, s: For) -> None:
        for e in (s.start, s.extent):
            self._expression(e)
            self._bind_sizes(e)
        before = len(self.accesses)
        with self.facts.binding(s.var, s.start, s.extent):
            self.loops.append(s)
            self.walk(s.body)
            if s.kind in ("parallel", "vectorized"):
                self._independent(s, self.accesses[before:])
            self.loops.pop()

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

    def _expression(self, e: Expr) -> None:
        for load, conditions in guarded_loads(e, ()):
            if isinstance(load.source, Buffer):
                self._access(load.source, load.indices, conditions, writes=False)

    def _access(self, buffer: Buffer, indices: Sequence[Expr], conditions: Sequence[Expr], writes: bool) -> None:
        self.accesses.append(_Access(buffer, tuple(indices), writes))
        moving = [loop.var for loop in self.loops]
        self._bind_sizes(*buffer.shape)
        empty = [index(loop.extent) <= 0 for loop in self.loops]
        nothing = any_of(*filter(self._is_known, empty))
        guarded = bool(conditions) or self.guards > 0 or any(self._is_data(loop.extent) for loop in self.loops)
        with self.facts.assuming(*conditions):
            for axis, (at, size) in enumerate(zip(indices, buffer.shape, strict=True)):
                condition = needed(self.facts, at, index(size), moving, guarded)
                if condition is None or condition is DATA or not self._is_known(condition):
                    continue
                what = f"writes '{buffer.name}'" if writes else f"reads '{buffer.name}'"
                message = f"'{self.made.name}' {what} at {simplify_index(at)} in dimension {axis}, whose size is {size}"
                if condition == _FALSE:
                    raise UserError(
                        f"{message}: outside",
                        code="E209",
                        place=Location(node=self.made.name),
                        hint="limit the loop, or put the access under an 'if'",
                    )
                self.found.append((any_of(nothing, condition), message))

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
