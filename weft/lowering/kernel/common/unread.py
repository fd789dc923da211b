"""Elements that are never read are not stored.

Suppose that an intermediate stores ``select(condition, value, other)``, that the condition compares two of its indices,
and that every read is under a condition that implies this one. Then ``other`` is never read::

    p[y, x] = select(x <= y, exp(s[y, x]), 0)           if x <= y:
    for k:                                        →       p[y, x] = exp(s[y, x])
      if k <= y: o[y] += p[y, k] * v[k]                 for k: as before

In causal attention, the hidden part of each row is therefore neither computed nor written. The pass must run while
indices are still those of the whole intermediate, before it shrinks to the part accessed at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import permutations

from weft.expr.nodes import Binary, Const, Expr, Load, Select
from weft.expr.prove import Facts
from weft.lowering.kernel.common.context import facts_of, forms_of, inside
from weft.tir.nodes import Allocate, Buffer, For, If, Let, Program, Stmt, Store
from weft.tir.visit import children, expressions, transform, walk


def leave_unread(program: Program) -> tuple[Program, frozenset[str]]:
    """The program in which such choices become stores under a condition, and the names of the buffers that these stores
    write."""
    allocated = {s.buffer for s in walk(program.body) if isinstance(s, Allocate)}
    stores: dict[Buffer, list[Store]] = {}
    for s in walk(program.body):
        if isinstance(s, Store) and s.buffer in allocated:
            stores.setdefault(s.buffer, []).append(s)
    chosen = {b for b, found in stores.items() if all(isinstance(s.value, Select) for s in found)}
    if not chosen:
        return program, frozenset()
    search = _Search(facts_of(program), chosen)
    search.statement(program.body, ())
    limits = {b: limit for b, (limit, *others) in search.limits.items() if limit is not None and not others}
    if not limits:
        return program, frozenset()
    reads = _Search(facts_of(program), limited=limits)
    reads.statement(program.body, ())
    wanted = {b for b in limits if reads.within.get(b)}

    def guarded(s: Stmt) -> Stmt | None:
        if not isinstance(s, Store) or s.buffer not in wanted or not isinstance(s.value, Select):
            return None
        return If(s.value.condition, replace(s, value=s.value.then))

    return replace(program, body=transform(program.body, guarded)), frozenset(b.name for b in wanted)


Limit = tuple[int, int, int]
"""(a, b, k): the elements at indices i with i[b] <= i[a] + k."""


@dataclass(slots=True)
class _Search:
    """Walks through a program. It collects the limits of stores in the buffers ``chosen``, and checks whether loads of
    the buffers ``limited`` are within their limits. These are two separate walks: few stores have limits, and the check
    of a load is expensive."""

    facts: Facts
    chosen: set[Buffer] = field(default_factory=set)
    limited: dict[Buffer, Limit] = field(default_factory=dict)
    limits: dict[Buffer, set[Limit | None]] = field(default_factory=dict)
    """The limits that the conditions of stores state; None for a condition of another form."""
    within: dict[Buffer, bool] = field(default_factory=dict)
    """Whether all loads of a buffer are within its limit."""

    def statement(self, s: Stmt, guards: tuple[Expr, ...]) -> None:
        if isinstance(s, Store) and s.buffer in self.chosen and isinstance(s.value, Select):
            self.limits.setdefault(s.buffer, set()).add(self._limit(s.indices, s.value.condition))
        for e in expressions(s) if self.limited else ():
            self._expression(e, guards)
        with ExitStack() as stack:
            if isinstance(s, (For, Let)):
                stack.enter_context(inside(self.facts, s))
            for i, c in enumerate(children(s)):
                more = tuple(forms_of(s.condition, holds=i == 0)) if isinstance(s, If) else ()
                self.statement(c, (*guards, *more))

    def _expression(self, root: Expr, guards: tuple[Expr, ...]) -> None:
        """Record the loads in ``root``, each with the conditions of the choices around it."""
        pending, seen = [(root, guards)], set()
        while pending:
            e, known = pending.pop()
            if (e, known) in seen:
                continue
            seen.add((e, known))
            if isinstance(e, Load) and e.source in self.limited:
                fits = self.within.get(e.source, True) and self._is_within(e.indices, known, self.limited[e.source])
                self.within[e.source] = fits
            if isinstance(e, Select):
                pending.append((e.condition, known))
                pending.append((e.then, (*known, *forms_of(e.condition))))
                pending.append((e.otherwise, (*known, *forms_of(e.condition, holds=False))))
            else:
                pending += [(c, known) for c in e.children]

    def _limit(self, indices: tuple[Expr, ...], condition: Expr) -> Limit | None:
        """The limit to which ``condition`` is equivalent; None if there is none."""
        if not isinstance(condition, Binary) or condition.op not in ("lt", "le", "gt", "ge"):
            return None
        return next((found for form in forms_of(condition) for found in self._limits(indices, form)), None)

    def _is_within(self, indices: tuple[Expr, ...], forms: tuple[Expr, ...], limit: Limit) -> bool:
        """Whether the facts that ``forms`` are at least 0 keep the indices within the limit."""
        a, b, most = limit
        found = (self._distance(indices, form, a, b) for form in forms)
        return any(k is not None and k <= most for k in found)

    def _limits(self, indices: tuple[Expr, ...], form: Expr) -> Iterator[Limit]:
        for a, b in permutations(range(len(indices)), 2):
            if (k := self._distance(indices, form, a, b)) is not None:
                yield a, b, k

    def _distance(self, indices: tuple[Expr, ...], form: Expr, a: int, b: int) -> int | None:
        """The number k if ``form`` equals ``indices[a] + k - indices[b]``, else None."""
        if isinstance(indices[a], Const) and isinstance(indices[b], Const):
            return None
        rest = self.facts.simplify(form - (indices[a] - indices[b]))
        return int(rest) if isinstance(rest, Const) else None
