"""Conditions of vectors that the mask of their store implies.

A store under a mask needs no value in the other lanes, so conditions in its value lose what the mask already says::

    B[i; i < n] = max(B[i; i < n], select(i <= n, A[i; i < n and i <= n], v))   →   … A[i; i < n] …

Rows of windows over padded axes of open sizes have several such conditions for every element. What is left of one is
the mask of its load where that is possible: ``select(m, A[i; m], v)`` is one instruction on machines whose masked
loads keep the lanes that they do not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial, reduce

from weft.expr.affine import Ring, add, plus
from weft.expr.folds import conjuncts
from weft.expr.nodes import Binary, Broadcast, Cast, Const, Expr, Load, Not, Ramp, Select, make
from weft.expr.visit import post_order
from weft.support.dtypes import INDEX
from weft.tir.nodes import Program, Stmt, Store
from weft.tir.visit import loads, stores, transform

_Key = tuple[int, frozenset[tuple[tuple[int, ...], int]]]
"""The step from lane to lane and the terms of a comparison without its constant."""


def drop_implied(program: Program) -> Program:
    """The program without conditions that masks imply."""
    if all(s.mask is None for s in stores(program.body)) and all(e.mask is None for e in loads(program.body)):
        return program
    bounds = Bounds()

    def visit(s: Stmt) -> Stmt | None:
        if not isinstance(s, Store) or s.indices[0].lanes == 1:
            return None
        value = _with_short_masks(s.value, bounds)
        mask = None if s.mask is None else bounds.shortest(s.mask)
        if mask is not None:
            value = _Under(bounds, mask).value(value)
        return None if value is s.value and mask is s.mask else replace(s, value=value, mask=mask)

    return replace(program, body=transform(program.body, visit))


@dataclass(slots=True)
class Bounds:
    """Comparisons of indices as ``step * lane + terms + constant >= 0``: of two with the same step and the same terms
    the one with the smaller constant implies the other."""

    ring: Ring = field(default_factory=Ring)
    found: dict[Expr, tuple[_Key, int] | None] = field(default_factory=dict)
    short: dict[Expr, Expr] = field(default_factory=dict)

    def of(self, condition: Expr) -> tuple[_Key, int] | None:
        """The step and terms, and the constant; None for what is no comparison of indices in order."""
        if condition not in self.found:
            self.found[condition] = self._of(condition)
        return self.found[condition]

    def _of(self, condition: Expr) -> tuple[_Key, int] | None:
        e = condition.value if isinstance(condition, Broadcast) else condition
        if not isinstance(e, Binary) or e.op not in ("lt", "le", "gt", "ge"):
            return None
        a, b = _lane_form(e.a), _lane_form(e.b)
        if a is None or b is None:
            return None
        if e.op in ("lt", "le"):
            a, b = b, a
        form = plus(add(self.ring.poly(a[0]), self.ring.poly(b[0]), -1), -1 if e.op in ("lt", "gt") else 0)
        return (a[1] - b[1], frozenset((m, c) for m, c in form.items() if m)), form.get((), 0)

    def implies(self, known: Iterable[Expr], condition: Expr) -> bool:
        """Whether ``condition`` holds in every lane in which all of ``known`` hold."""
        asked = self.of(condition)
        for one in known:
            if one is condition:
                return True
            have = self.of(one) if asked is not None else None
            if have is not None and asked is not None and have[0] == asked[0] and have[1] <= asked[1]:
                return True
        return False

    def shortest(self, mask: Expr) -> Expr:
        """The same mask without parts that others of its parts imply."""
        found = self.short.get(mask)
        if found is None:
            parts = list(dict.fromkeys(conjuncts(mask)))
            for part in reversed(parts.copy()):
                others = [p for p in parts if p is not part]
                if self.implies(others, part):
                    parts = others
            found = self.short[mask] = mask if len(parts) == len(conjuncts(mask)) else _all(parts)
        return found


def _all(parts: list[Expr]) -> Expr:
    return reduce(partial(make, "and"), parts)


def _lane_form(e: Expr) -> tuple[Expr, int] | None:
    """An index as its value in the first lane and the step to the next lane."""
    if e.dtype is not INDEX:
        return None
    if e.lanes == 1:
        return e, 0
    if isinstance(e, Broadcast) and e.value.lanes == 1:
        return e.value, 0
    if isinstance(e, Ramp) and isinstance(e.stride, Const) and e.base.lanes == 1:
        return e.base, int(e.stride.value)
    return None


def _with_short_masks(root: Expr, bounds: Bounds) -> Expr:
    memo: dict[Expr, Expr] = {}
    for e in post_order(root):
        made = [memo[c] for c in e.children]
        same = e if all(a is b for a, b in zip(made, e.children, strict=True)) else e.rebuild(made)
        if isinstance(same, Load) and same.mask is not None and (mask := bounds.shortest(same.mask)) is not same.mask:
            same = Load(same.source, same.indices, mask)
        memo[e] = same
    return memo[root]


class _Under:
    """Values of which only the lanes of a mask count. The places from which they are loaded stay as they are: what is
    loaded in other lanes must be there."""

    def __init__(self, bounds: Bounds, mask: Expr) -> None:
        self.bounds, self.known = bounds, conjuncts(mask)
        self.memo: dict[Expr, Expr] = {}

    def value(self, root: Expr) -> Expr:
        """``root`` with the same values in the lanes of the mask."""
        memo, stack = self.memo, [root]
        while stack:
            e = stack[-1]
            parts = e.children if e.lanes > 1 and isinstance(e, (Binary, Not, Cast, Select)) else ()
            missing = [c for c in parts if c not in memo]
            if missing:
                stack += missing
                continue
            stack.pop()
            made = [memo[c] for c in parts]
            same = e if all(a is b for a, b in zip(made, parts, strict=True)) else e.rebuild(made)
            memo[e] = self._select(same) if isinstance(same, Select) and same.condition.lanes > 1 else same
        return memo[root]

    def _select(self, e: Select) -> Expr:
        have = conjuncts(e.condition)
        parts = [c for c in have if not self.bounds.implies(self.known, c)]
        if not parts:
            return e.then
        condition = _all(parts) if len(parts) < len(have) else e.condition
        if isinstance(e.then, Load) and e.then.mask is not None and self._is_same(conjuncts(e.then.mask), parts):
            condition = e.then.mask
        return e if condition is e.condition else Select(condition, e.then, e.otherwise)

    def _is_same(self, one: list[Expr], other: list[Expr]) -> bool:
        """Whether two conjunctions are the same condition in the lanes that count."""
        return all(self.bounds.implies((*self.known, *other), c) for c in one) and all(
            self.bounds.implies((*self.known, *one), c) for c in other
        )
