"""Unrolled loops → copies of their bodies.

All unrolled loops around a statement are expanded together. The variable part of an index is built once, and each copy
only adds its constant. A register tile of many statements is therefore cheap to expand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from weft.expr.affine import is_arithmetic, split_constant
from weft.expr.nodes import Binary, Const, Expr, Select, Var, integer, make
from weft.expr.prove import Facts
from weft.expr.visit import variables_of
from weft.lowering.kernel.common.masks import folded as without_masks
from weft.lowering.kernel.common.masks import uniform
from weft.lowering.kernel.common.partition import is_empty, weigh
from weft.support.dtypes import INDEX
from weft.tir.nodes import For, If, Program, Seq, Stmt, Store, seq
from weft.tir.visit import children, map_expressions, with_children

MAX_UNROLLED_STORES = 1024
"""Limit on the stores of a loop that is unrolled; a loop with more stays a loop, which LLVM may unroll in part."""


def unroll(program: Program) -> Program:
    """The program without unrolled loops."""
    return replace(program, body=_Unroller().visit(program.body, {}))


_Parts: TypeAlias = "tuple[Expr | None, int, tuple[tuple[Var, int], ...]] | None"


@dataclass(slots=True)
class _Copies:
    """What the copies of statements inside the same unrolled loops share. ``parts`` has the variable part of each index
    and the factors of the loop variables; ``made`` the copy of each expression for the values of those loop variables
    that occur in it, since many parts of a statement move along few of the loops."""

    loops: tuple[Var, ...]
    parts: dict[Expr, _Parts] = field(default_factory=dict)
    made: dict[tuple[Expr, tuple[int, ...]], Expr] = field(default_factory=dict)
    variables: dict[Expr, frozenset[Var]] = field(default_factory=dict)
    occurring: dict[Expr, tuple[Var, ...]] = field(default_factory=dict)

    def key(self, e: Expr, at: Mapping[Var, int]) -> tuple[Expr, tuple[int, ...]]:
        """What the copy of ``e`` depends on."""
        found = self.occurring.get(e)
        if found is None:
            inside = variables_of(e, self.variables)
            found = self.occurring[e] = tuple(v for v in self.loops if v in inside)
        return e, tuple([at[v] for v in found])


class _Unroller:
    def __init__(self) -> None:
        self.copies: dict[tuple[Var, ...], _Copies] = {}
        self.facts = Facts()

    def visit(self, s: Stmt, at: Mapping[Var, int]) -> Stmt:
        if isinstance(s, For) and s.kind == "unrolled":
            return self._expand(s, at)
        if at:
            s = map_expressions(s, lambda e: self.expression(e, at))
            if isinstance(s, If) and isinstance(s.condition, Const):
                chosen = s.then if s.condition.value else s.otherwise
                return Seq(()) if chosen is None else self.visit(chosen, at)
            if isinstance(s, Store) and s.mask is not None and (known := uniform(s.mask)) is not None:
                return replace(s, mask=None) if known else Seq(())
        parts = children(s)
        if not parts:
            return s
        made = tuple(self.visit(c, at) for c in parts)
        if all(a is b for a, b in zip(made, parts, strict=True)):
            return s
        return seq(*(m for m in made if not is_empty(m))) if isinstance(s, Seq) else with_children(s, made)

    def _expand(self, s: For, at: Mapping[Var, int]) -> Stmt:
        start, extent = (self.expression(e, at) for e in (s.start, s.extent))
        if (
            not (isinstance(start, Const) and isinstance(extent, Const))
            or int(extent) * weigh(s.body) > MAX_UNROLLED_STORES
        ):
            return For(s.var, start, extent, self.visit(s.body, at), "serial", s.thread, s.annotations)
        first = int(start)
        copies = []
        for i in range(first, first + int(extent)):
            copies.append(self.visit(s.body, {**at, s.var: i}))
        return seq(*(c for c in copies if not is_empty(c)))

    def expression(self, root: Expr, at: Mapping[Var, int]) -> Expr:
        """``root`` with the variables replaced."""
        loops = tuple(at)
        copies = self.copies.get(loops)
        if copies is None:
            copies = self.copies[loops] = _Copies(loops)
        made = copies.made
        done: dict[Expr, Expr] = {}
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            e, ready = stack.pop()
            if e in done:
                continue
            if ready:
                done[e] = made[copies.key(e, at)] = self._rebuild(e, [done[c] for c in e.children])
                continue
            key = copies.key(e, at)
            known = made.get(key)
            if known is None:
                known = self._quick(e, at, copies.parts)
                if known is None:
                    stack.append((e, True))
                    stack.extend([(c, False) for c in e.children])
                    continue
                made[key] = known
            done[e] = known
        return done[root]

    def _quick(self, e: Expr, at: Mapping[Var, int], parts: dict[Expr, _Parts]) -> Expr | None:
        if type(e) is Const:
            return e
        if type(e) is Var:
            return Const(at[e], e.dtype) if e in at else e
        if not is_arithmetic(e):
            return None
        if e not in parts:
            parts[e] = self._split(e, at)
        found = parts[e]
        if found is None:
            return None
        base, constant, factors = found
        for var, factor in factors:
            constant += factor * at[var]
        if base is None:
            return integer(constant)
        return base + constant if constant >= 0 else base - -constant

    def _split(self, e: Expr, at: Mapping[Var, int]) -> _Parts:
        """The part of ``e`` that does not depend on ``at``, its constant, and the factors of the variables in ``at``;
        None if they occur in any other way."""
        found = self.facts.linear(e, *at)
        if found is None:
            return None
        factors, rest = found
        return *split_constant(rest), tuple(factors.items())

    def _rebuild(self, e: Expr, made: list[Expr]) -> Expr:
        if all(a is b for a, b in zip(made, e.children, strict=True)):
            return e
        if isinstance(e, Binary) and e.a.dtype == INDEX and e.lanes == 1:
            folded = make(e.op, made[0], made[1])
            return self.facts.simplify(folded) if folded.dtype == INDEX else folded
        if isinstance(e, Binary) and e.op in ("and", "or") and e.lanes == 1:
            return make(e.op, made[0], made[1])
        if isinstance(e, Select) and isinstance(made[0], Const):
            return made[1] if made[0].value else made[2]
        return without_masks(e.rebuild(made))
