"""Ends of tiles: conditions that a loop does not change are decided before the loop.

The last tile of an open number of rows has fewer rows than the others, and after unrolling each of its rows is under a
condition of its own, in every step of the reduction inside::

    if 8 * i < n: a = 0                          if n - 8 * i == 1: a = 0; for k: a += …; store a
    if 8 * i + 1 < n: b = 0                      elif n - 8 * i == 2: …
    for k:                                  →    …
        if 8 * i < n: a += …
        if 8 * i + 1 < n: b += …
    if 8 * i < n: store a …

The conditions compare one value, here ``n - 8 * i``, with different constants. Each range between two constants gets a
version of the statements, in which all of these conditions are decided: the end of the rows is straight-line code like
a whole tile. Only steps of reductions gain by that: values then stay in registers from one step to the next. A loop
that fills or copies, such as the padding of a picture, is no faster for several versions of it. A budget of stores
limits the growth of the code.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from weft.expr.affine import Ring
from weft.expr.folds import conjuncts
from weft.expr.linear import ZERO
from weft.expr.nodes import Binary, Call, Const, Expr, Load, Not, Var, make
from weft.expr.prove import Facts
from weft.expr.visit import post_order, variables_of
from weft.lowering.kernel.common.context import facts_of, forms_of, inside, is_total
from weft.lowering.kernel.common.partition import is_empty, weigh
from weft.tir.nodes import Evaluate, For, If, Let, Program, Seq, Stmt, Store, seq
from weft.tir.visit import children, walk, with_children

MAX_ADDED_STORES = 1200
"""Limit on the stores that versions may add to a program."""
MAX_VERSIONS = 32
"""Limit on the versions of one tile."""
EMPTY = Seq(())

_Terms: TypeAlias = frozenset[tuple[tuple[int, ...], int]]
"""The compared value: the terms of a form without its constant."""


def separate_ends(program: Program) -> Program:
    """The program in which conditions that loops do not change are decided before the loops."""
    found = _Ends(facts_of(program))
    if not found.conditions(program.body):
        return program
    return replace(program, body=found.visit(program.body))


def _updates(s: Stmt) -> bool:
    """Whether a statement is an instruction of its own, or writes results that it reads."""
    if isinstance(s, Store):
        return any(isinstance(e, Load) and e.source is s.buffer for e in post_order(s.value))
    return isinstance(s, Evaluate)


@dataclass(frozen=True, slots=True)
class _Form:
    """A condition as ``form >= 0``; ``constant`` is the constant of the form."""

    form: Expr
    terms: _Terms
    constant: int
    divides: bool
    """Whether it is a number only where a divisor is not 0."""


@dataclass(slots=True)
class _Ends:
    facts: Facts
    budget: int = MAX_ADDED_STORES
    ring: Ring = field(default_factory=Ring)
    forms: dict[Expr, _Form | None] = field(default_factory=dict)
    variables: dict[Expr, frozenset[Var]] = field(default_factory=dict)
    updating: dict[Stmt, bool] = field(default_factory=dict)
    """What :func:`_updates` says of statements: versions of a tile share most of theirs."""

    def form(self, condition: Expr) -> _Form | None:
        """A comparison of indices in order as a form; None for all other conditions."""
        if condition not in self.forms:
            self.forms[condition] = self._form(condition)
        return self.forms[condition]

    def _form(self, condition: Expr) -> _Form | None:
        bare = condition.args[0] if isinstance(condition, Call) and condition.name == "likely" else condition
        bare = bare.a if isinstance(bare, Not) else bare
        if not isinstance(bare, Binary) or bare.op not in ("lt", "le", "gt", "ge"):
            return None
        forms = forms_of(condition)
        if len(forms) != 1 or any(isinstance(e, Load) for e in post_order(forms[0])):
            return None
        poly = self.ring.poly(forms[0])
        terms = frozenset((m, c) for m, c in poly.items() if m)
        divides = not is_total(forms[0], Facts())
        return _Form(forms[0], terms, poly.get((), 0), divides) if terms else None

    def visit(self, s: Stmt) -> Stmt:
        """``s`` with the conditions in it decided where that is possible."""
        while True:
            made = self._decided(s)
            if made is None:
                break
            s = made
        parts = children(s)
        if not parts:
            return s
        with inside(self.facts, s) if isinstance(s, (For, Let)) else nullcontext():
            made_parts = tuple(self.visit(c) for c in parts)
        return s if all(a is b for a, b in zip(made_parts, parts, strict=True)) else with_children(s, made_parts)

    def _decided(self, s: Stmt) -> Stmt | None:
        """``s`` in versions, if a condition in its loops is fixed where ``s`` begins, and no smaller part has it."""
        for terms, inner in self._fixed(s).items():
            parts = list(s.stmts) if isinstance(s, Seq) else [s]
            holding = [n for n, part in enumerate(parts) if any(f.terms == terms for f in self.conditions(part))]
            first, last = holding[0], holding[-1]
            if first == last and (isinstance(s, Seq) or not self._is_top(s, terms)):
                continue  # a smaller statement holds all of them
            made = self._versions(seq(*parts[first : last + 1]), sorted(inner, key=lambda f: -f.constant))
            if made is not None:
                return seq(*parts[:first], made, *parts[last + 1 :])
        return None

    def _is_top(self, s: Stmt, terms: _Terms) -> bool:
        """Whether no single statement in ``s`` holds all conditions on ``terms`` and begins where they are fixed."""
        if isinstance(s, If):
            own = any(f.terms == terms for f in self._own(s))
            return own or sum(any(f.terms == terms for f in self.conditions(c)) for c in children(s)) > 1
        return isinstance(s, For) and terms not in self._fixed(s.body)

    def _own(self, s: If) -> list[_Form]:
        return [f for c in conjuncts(s.condition) if (f := self.form(c)) is not None]

    def conditions(self, s: Stmt) -> list[_Form]:
        """The conditions in ``s`` that compare indices in order, or have such parts."""
        return [f for x in walk(s) if isinstance(x, If) for f in self._own(x)]

    def _is_total(self, f: _Form) -> bool:
        return not f.divides or is_total(f.form, self.facts)

    def _is_step(self, s: If) -> bool:
        """Whether the condition decides about a step of a reduction: results that are read and written, or an
        instruction of its own, in no further loop."""
        inner = list(walk(s))
        return not any(isinstance(x, For) for x in inner) and any(map(self._is_update, inner))

    def _is_update(self, s: Stmt) -> bool:
        if s not in self.updating:
            self.updating[s] = _updates(s)
        return self.updating[s]

    def _fixed(self, s: Stmt) -> dict[_Terms, dict[_Form, None]]:
        """The conditions inside ``s`` whose variables are all bound outside of it, by what they compare, if one of
        them decides about a step of a reduction inside a loop."""
        found: dict[_Terms, dict[_Form, None]] = {}
        in_loops: set[_Terms] = set()
        stack: list[tuple[Stmt, frozenset[Var], bool]] = [(s, frozenset(), False)]
        while stack:
            x, bound, looped = stack.pop()
            if isinstance(x, If):
                for f in self._own(x):
                    if not variables_of(f.form, self.variables) & bound and self._is_total(f):
                        found.setdefault(f.terms, {})[f] = None
                        if looped and f.terms not in in_loops and self._is_step(x):
                            in_loops.add(f.terms)
            if isinstance(x, (For, Let)):
                bound = bound | {x.var}
            looped = looped or (isinstance(x, For) and x.kind == "serial")
            stack.extend((c, bound, looped) for c in children(x))
        return {t: f for t, f in found.items() if t in in_loops}

    def _versions(self, s: Stmt, forms: list[_Form]) -> Stmt | None:
        """``s`` for each range of the compared value between the constants of ``forms``, which are in the order in
        which they cease to hold; None if that takes too much code."""
        lasting = [f for f in forms if self.facts.nonnegative(f.form)]
        failing = [f for f in forms if self.facts.nonnegative(-1 - f.form)]
        open_ = [f for f in forms if f not in lasting and f not in failing]
        constants = sorted({f.constant for f in open_}, reverse=True)
        if len(constants) >= MAX_VERSIONS:
            return None
        terms = forms[0].terms
        versions = []
        for n in range(len(constants) + 1):
            # exactly the first ``n`` constants hold
            least = min([*(f.constant for f in lasting), *constants[:n]], default=None)
            versions.append(self._resolved(s, terms, least))
        added = sum(weigh(v) for v in versions) - weigh(s)
        if added > self.budget:
            return None
        self.budget -= max(added, 0)
        made = versions[-1]
        by_constant = {f.constant: f for f in open_}
        for n in range(len(constants) - 1, -1, -1):
            fails = make("lt", by_constant[constants[n]].form, ZERO)
            if is_empty(versions[n]):
                made = If(make("ge", by_constant[constants[n]].form, ZERO), made) if not is_empty(made) else made
            else:
                made = If(fails, versions[n], None if is_empty(made) else made)
        return made

    def _resolved(self, s: Stmt, terms: _Terms, least: int | None) -> Stmt:
        """``s`` where conditions on ``terms`` hold if their constant is at least ``least`` (None: no condition)."""
        if isinstance(s, (Store, Evaluate)):
            return s
        if isinstance(s, If):
            kept: Expr | None = None
            for c in conjuncts(s.condition):
                f = self.form(c)
                if f is None or f.terms != terms:
                    kept = c if kept is None else make("and", kept, c)
                elif least is None or f.constant < least:
                    return EMPTY if s.otherwise is None else self._resolved(s.otherwise, terms, least)
            then = self._resolved(s.then, terms, least)
            if kept is None or (isinstance(kept, Const) and kept.value):
                return then
            otherwise = None if s.otherwise is None else self._resolved(s.otherwise, terms, least)
            if is_empty(then) and (otherwise is None or is_empty(otherwise)):
                return EMPTY
            return If(kept, then, None if otherwise is None or is_empty(otherwise) else otherwise)
        parts = children(s)
        made = tuple(self._resolved(c, terms, least) for c in parts)
        if isinstance(s, Seq):
            return seq(*(m for m in made if not is_empty(m)))
        if parts and all(map(is_empty, made)):
            return EMPTY
        return s if all(a is b for a, b in zip(made, parts, strict=True)) else with_children(s, made)
