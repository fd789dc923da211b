"""The normal form of expressions: how the simplifier rewrites one node whose children are already simplified.

Scalar index arithmetic becomes a polynomial (:mod:`weft.expr.affine`). Quotients and remainders are split by the
rules of :mod:`weft.expr.rules.division`. Comparisons are decided, or brought into the form ``a < b``, ``a <= b``
without common terms. The rule tables rewrite everything else.
"""

from __future__ import annotations

from math import gcd, inf
from typing import Final

from weft.expr.affine import (
    Mono,
    Poly,
    Ring,
    add,
    as_constant,
    constant,
    content,
    exact_quotient,
    is_arithmetic,
    multiply,
    plus,
    scaled,
)
from weft.expr.folds import members
from weft.expr.match import RuleTable
from weft.expr.nodes import Binary, Call, Const, Expr, Load, Not, Select, Var, fold
from weft.expr.operators import COMPARISONS
from weft.expr.rules.division import DIVISION_RULES
from weft.expr.rules.logic import LOGIC_RULES, NEGATED
from weft.expr.rules.values import VALUE_RULES
from weft.expr.rules.vectors import simplify_lanes
from weft.expr.solver import Assumptions, Key, Solver
from weft.expr.visit import conditions_of, outer_unknowns, unknowns_of
from weft.support.dtypes import BOOL, INDEX

TRUE: Final = Const(True, BOOL)
FALSE: Final = Const(False, BOOL)
_RULES: Final = RuleTable((*LOGIC_RULES, *VALUE_RULES))
_MAX_CONJUNCTION_PARTS: Final = 12
"""Largest number of members of a conjunction or disjunction of which each is compared with all others."""
_MAX_CONTEXT_DEPTH: Final = 24
"""Largest depth of nested selects at which an operand is simplified under the condition of its select."""
_MAX_CONTEXT_WORK: Final = 5_000
"""Largest number of nodes of one expression that are simplified under conditions. Each of several conditions may double
the number, because an operand is simplified once for each combination of conditions that reaches it."""


class _Work:
    """What is left of the limit for the expression that is simplified now; None between two expressions."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left: int | None = None


class Normalizer:
    """Brings nodes into normal form under the facts of ``solver``; answers are cached until facts change."""

    def __init__(self, ring: Ring, state: Assumptions, parent: Normalizer | None = None) -> None:
        self.ring = ring
        self._parent = parent
        self._about: frozenset[Expr] = frozenset()
        self._mentioned: dict[Expr, frozenset[Expr]] = {} if parent is None else parent._mentioned
        self.solver = Solver(ring, state)
        self.memo: dict[Expr, Expr] = {}
        self._divisions: dict[tuple[Key, Key, bool], Poly] = {}
        self._contexts: dict[Expr, Normalizer] = {}
        self._told: dict[Expr, frozenset[Expr] | None] = {}
        self._loads: dict[Expr, bool] = {} if parent is None else parent._loads
        self._asked: dict[Expr, frozenset[Expr]] = {} if parent is None else parent._asked
        self._depth: int = 0 if parent is None else parent._depth + 1
        self._work: _Work = _Work() if parent is None else parent._work

    def forget(self) -> None:
        """Drop cached answers, because the facts have changed."""
        self.solver.forget()
        self.memo = {}
        self._divisions = {}
        self._contexts = {}
        self._told = {}

    def assume(self, condition: Expr) -> None:
        """A condition in normal form holds from now on."""
        solver, poly = self.solver, self.ring.poly
        for part in members(condition, "and"):
            while isinstance(part, Call) and part.name == "likely":
                part = part.args[0]
            solver.state.truths[part] = True
            if isinstance(part, Not):
                solver.state.truths[part.a] = False
            p = self.inequality(part)
            if p is not None:
                solver.state_nonnegative(p)
            elif isinstance(part, Binary) and part.op == "eq" and part.a.dtype is INDEX and part.lanes == 1:
                difference = add(poly(part.a), poly(part.b), -1)
                solver.state_nonnegative(difference)
                solver.state_nonnegative(scaled(difference, -1))
        self.forget()

    def under(self, condition: Expr) -> Normalizer:
        """A normalizer under the additional fact ``condition`` (in normal form)."""
        found = self._contexts.get(condition)
        if found is None:
            found = Normalizer(self.ring, self.solver.state.copy(), self)
            found.assume(condition)
            found._about = outer_unknowns(condition)
            self._contexts[condition] = found
        return found

    # The traversal

    def simplify(self, e: Expr) -> Expr:
        memo = self.memo
        found = memo.get(e)
        if found is not None:
            return found
        if self._work.left is None:
            self._work.left = _MAX_CONTEXT_WORK
            try:
                return self._simplify(e)
            finally:
                self._work.left = None
        return self._simplify(e)

    def _simplify(self, e: Expr) -> Expr:
        memo, depth, work, parent, about = self.memo, self._depth, self._work, self._parent, self._about
        stack = [e]
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
                continue
            if parent is not None and about and about.isdisjoint(unknowns_of(node, self._mentioned)):
                memo[node] = parent.simplify(node)  # independent of the condition: shared with the parent
                continue
            waiting = [c for c in self._parts(node) if c not in memo]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            if depth:
                assert work.left is not None
                work.left -= 1
            made = self._finish(node)
            memo[node] = made
            memo.setdefault(made, made)
        return memo[e]

    def _parts(self, node: Expr) -> list[Expr] | tuple[Expr, ...]:
        """The nodes to simplify before ``node``: the leaves of index arithmetic, else the children."""
        if type(node) is Select and node.condition.lanes == 1 and self._depth < _MAX_CONTEXT_DEPTH:
            condition = self.memo.get(node.condition)
            if condition is None:
                return (node.condition,)
            if isinstance(condition, Const):
                return (node.then if condition.value else node.otherwise,)
            if self._tells(condition) is None and not self._is_about_loads(condition):
                return ()
            return node.then, node.otherwise
        if not is_arithmetic(node):
            return node.children
        leaves: list[Expr] = []
        stack: list[Expr] = [node]
        while stack:
            top = stack.pop()
            if is_arithmetic(top) and top not in self.memo:
                assert isinstance(top, Binary)
                stack += (top.b, top.a)
            else:
                leaves.append(top)
        return leaves

    def _finish(self, node: Expr) -> Expr:
        if is_arithmetic(node):
            return self.expr(self.ring.poly(node, self.memo))
        if type(node) is Select and node.condition.lanes == 1 and self._depth < _MAX_CONTEXT_DEPTH:
            return self._select(node)
        children = node.children
        if children:
            made = tuple(self.memo[c] for c in children)
            if any(a is not b for a, b in zip(made, children, strict=True)):
                node = node.rebuild(made)
        elif type(node) is Const:
            return node
        return self.local(node)

    def _select(self, node: Select) -> Expr:
        """Simplify each operand under the condition that selects it."""
        condition = self.memo[node.condition]
        if isinstance(condition, Const):
            return self.memo[node.then if condition.value else node.otherwise]
        told, then, otherwise = self._tells(condition), node.then, node.otherwise
        if self._is_about_loads(condition):  # a condition in normal form mentions loads in normal form
            then, otherwise = self.memo[then], self.memo[otherwise]
        then = (self.under(condition) if self._matters(told, then) else self).simplify(then)
        fails = self._matters(told, otherwise)
        otherwise = (self.under(self.simplify(Not(condition))) if fails else self).simplify(otherwise)
        return self.local(Select(condition, then, otherwise))

    def _is_about_loads(self, condition: Expr) -> bool:
        found = self._loads.get(condition)
        if found is None:
            found = self._loads[condition] = any(type(u) is Load for u in outer_unknowns(condition))
        return found

    def _tells(self, condition: Expr) -> frozenset[Expr] | None:
        """The conditions that are known where ``condition`` (in normal form) holds or fails: none if the limit of work
        is reached. None if it compares indices, which may decide anything about other indices."""
        assert self._work.left is not None
        if self._work.left <= 0:
            return frozenset()
        if condition in self._told:
            return self._told[condition]
        parts = [*members(condition, "and"), *members(self.simplify(Not(condition)), "and")]
        for i, part in enumerate(parts):
            while isinstance(part, Call) and part.name == "likely":
                part = parts[i] = part.args[0]
        about_indices = any(type(p) is Binary and p.a.dtype is INDEX for p in parts)
        told = None if about_indices else frozenset((*parts, *(p.a for p in parts if type(p) is Not)))
        self._told[condition] = told
        return told

    def _matters(self, told: frozenset[Expr] | None, operand: Expr) -> bool:
        """Whether ``operand`` of a select may be simpler under its condition. A comparison of data is only known where
        the same comparison is asked for again, so chains of such selects are not simplified once for each path.

        The operand is not simple yet if the limit of work was reached after :meth:`_parts` had looked at the select."""
        if isinstance(operand, (Const, Var)):
            return False
        return told is None or not told.isdisjoint(conditions_of(self.simplify(operand), self._asked))

    # One node

    def local(self, e: Expr) -> Expr:
        """``e``, whose children are simple, in normal form."""
        for _ in range(8):
            made = self._step(e)
            if made is None or made is e:
                break
            e = made
        return e

    def _step(self, e: Expr) -> Expr | None:
        if e.dtype is BOOL and e in self.solver.state.truths:
            return Const(self.solver.state.truths[e], BOOL)
        if type(e) is Binary:
            a, b = e.a, e.b
            if type(a) is Const and type(b) is Const:
                return fold(e.op, a, b)
            if e.lanes == 1:
                if a.dtype is INDEX:
                    return self._index(e)
                if e.op in ("and", "or"):
                    return self._connective(e)
        elif e.dtype is INDEX and e.lanes == 1 and not isinstance(e, Const):
            known = self._pinned(e)
            if known is not None:
                return known
        if type(e) is Call and e.name == "likely" and isinstance(e.args[0], Const):
            return e.args[0]
        if type(e) is Not and type(e.a) is Const:
            return FALSE if e.a.value else TRUE
        if e.lanes > 1:
            made = simplify_lanes(e, self.simplify, self.holds)
            if made is not None:
                return made
        made = _RULES.apply(e, self.holds)
        return None if made is None else self.simplify(made)

    def _pinned(self, e: Expr) -> Expr | None:
        """The only value that the facts allow."""
        atom = self.ring.numbers.get(e)
        if atom is not None and not (type(e) is Var and self.solver.state.keeps_variables):
            within = self.solver.atom_interval(atom)
            if within.lo == within.hi and abs(within.lo) != inf:
                return Const(int(within.lo), INDEX)
            state = self.solver.state
            if type(e) is Var and atom in state.lower and state.lower[atom] == state.upper.get(atom):
                return self.expr(state.lower[atom][0])
        return None

    def _index(self, e: Binary) -> Expr | None:
        op = e.op
        poly = self.ring.poly
        if op == "floordiv":
            return self.expr(self.quotient(poly(e.a), poly(e.b)))
        if op == "floormod":
            return self.expr(self.remainder(poly(e.a), poly(e.b)))
        if op in ("min", "max"):
            return self._extreme(e)
        if op in COMPARISONS:
            return self._comparison(op, add(poly(e.b), poly(e.a), -1))
        if op in ("truncdiv", "truncmod"):
            if self.solver.nonnegative(poly(e.a)) and self.solver.positive(poly(e.b)):
                return self._index(Binary("floor" + op[5:], e.a, e.b))
            return None
        return self.expr(poly(e))

    def expr(self, p: Poly) -> Expr:
        """The expression of ``p`` with matching quotients and remainders recombined."""
        return self.ring.expr(self._recombined(p))

    # Quotients and remainders

    def quotient(self, p: Poly, d: Poly) -> Poly:
        """``p // d`` as a polynomial."""
        return self._divide(p, d, False)

    def remainder(self, p: Poly, d: Poly) -> Poly:
        """``p % d`` as a polynomial."""
        return self._divide(p, d, True)

    def _divide(self, p: Poly, d: Poly, want_remainder: bool) -> Poly:
        k = as_constant(d)
        value = as_constant(p)
        if k and value is not None:
            return constant(value % k if want_remainder else value // k)
        if k is not None and k < 0:
            flipped = self._divide(scaled(p, -1), scaled(d, -1), want_remainder)
            return scaled(flipped, -1) if want_remainder else flipped
        key = (frozenset(p.items()), frozenset(d.items()), want_remainder)
        found = self._divisions.get(key)
        if found is None:
            found = self._divisions[key] = self._divide_by_rules(p, d, want_remainder)
        return found

    def _divide_by_rules(self, p: Poly, d: Poly, want_remainder: bool) -> Poly:
        if not d:
            return self._opaque(p, d, want_remainder)
        if self.solver.positive(d):
            for rule in DIVISION_RULES:
                parts = rule.apply(self, p, d)
                if parts is not None:
                    answer = parts.remainder if want_remainder else parts.quotient
                    if answer is not None:
                        return answer
        else:
            exact = exact_quotient(p, d)
            if exact is not None:
                return {} if want_remainder else exact
        return self._opaque(p, d, want_remainder)

    def _opaque(self, p: Poly, d: Poly, want_remainder: bool) -> Poly:
        op = "floormod" if want_remainder else "floordiv"
        atom = Binary(op, self.expr(p), self.expr(d))
        known = self._pinned(atom)
        return self.ring.poly(known if known is not None else atom)

    def _recombined(self, p: Poly) -> Poly:
        """``(x // a) * a + x % a`` becomes ``x``; ``(x // a) % b * a + x % a`` becomes ``x % (a * b)``; and so on."""
        for _ in range(len(p) - 1):
            step = self._recombine_once(p)
            if step is None:
                return p
            p = step
        return p

    def _recombine_once(self, p: Poly) -> Poly | None:
        atoms = self.ring.atoms
        for mono, c in p.items():
            for at, atom in enumerate(mono):
                e = atoms[atom]
                if type(e) is not Binary or e.op not in ("floormod", "floordiv") or e.dtype is not INDEX:
                    continue
                join = self._join if e.op == "floormod" else self._rest
                made = join(p, e, mono[:at] + mono[at + 1 :], c)
                if made is not None:
                    return made
        return None

    def _rest(self, p: Poly, e: Binary, rest: Mono, c: int) -> Poly | None:
        """``x - (x // a) * a`` becomes ``x % a``."""
        x, a = self.ring.poly(e.a), self.ring.poly(e.b)
        factor = exact_quotient({rest: -c}, a)
        if not factor or any(p.get(m) != k for m, k in multiply(x, factor).items()):
            return None
        whole = add(x, multiply({(self.ring.number(e),): 1}, a), -1)
        return add(add(p, multiply(whole, factor), -1), multiply(self.remainder(x, a), factor))

    def _join(self, p: Poly, e: Binary, rest: Mono, c: int) -> Poly | None:
        """Combine ``c * rest * (x % a)`` with a multiple of ``x // a`` in ``p``."""
        poly = self.ring.poly
        x, a = poly(e.a), poly(e.b)
        quotient = self.quotient(x, a)
        factor = {rest: c}
        whole = multiply(multiply(quotient, a), factor)
        if whole and all(p.get(m) == k for m, k in whole.items()):
            return add(add(add(p, whole, -1), multiply({(self.ring.number(e),): 1}, factor), -1), multiply(x, factor))
        for mono, k in p.items():
            for at, atom in enumerate(mono):
                other = self.ring.atoms[atom]
                if type(other) is not Binary or other.op != "floormod" or other.dtype is not INDEX:
                    continue
                more = self._next_digit(other, quotient)
                if more is not None and {mono[:at] + mono[at + 1 :]: k} == multiply(factor, a):
                    joined = self.remainder(add(x, multiply(more, a)), multiply(a, poly(other.b)))
                    out = add(add(p, {mono: k}, -1), multiply({(self.ring.number(e),): 1}, factor), -1)
                    return add(out, multiply(joined, factor))
        return None

    def _next_digit(self, other: Binary, quotient: Poly) -> Poly | None:
        """``y`` if ``other`` is ``(x // a + y) % b``, which is the digit above ``x % a`` of ``x + y * a``."""
        whole = self.ring.poly(other.a)
        if not quotient or any(whole.get(m) != k for m, k in quotient.items()):
            return None
        return add(whole, quotient, -1) if self.solver.positive(self.ring.poly(other.b)) else None

    # Minimum, maximum, comparisons

    def _extreme(self, e: Binary) -> Expr | None:
        a, b = self.ring.poly(e.a), self.ring.poly(e.b)
        difference = add(b, a, -1)
        if self.solver.nonnegative(difference):
            return e.a if e.op == "min" else e.b
        if self.solver.nonnegative(scaled(difference, -1)):
            return e.b if e.op == "min" else e.a
        common = {m: c for m, c in a.items() if b.get(m) == c}
        a, b = add(a, common, -1), add(b, common, -1)
        g = gcd(*a.values(), *b.values())
        if not common and g == 1:
            return self._pinned(e)
        sides = [self.expr({m: c // g for m, c in side.items()}) for side in (a, b)]
        return self.expr(add(scaled(self.ring.poly(Binary(e.op, *sides)), g), common))

    def _comparison(self, op: str, p: Poly) -> Expr:
        """``a op b`` given ``p = b - a``."""
        if op in ("eq", "ne"):
            return self._equality(op, p)
        if op == "lt":
            p = plus(p, -1)
        elif op == "ge":
            p = scaled(p, -1)
        elif op == "gt":
            p = plus(scaled(p, -1), -1)
        if self.solver.nonnegative(p):
            return TRUE
        if self.solver.nonnegative(plus(scaled(p, -1), -1)):
            return FALSE
        return self._at_least_zero(p)

    def _at_least_zero(self, p: Poly) -> Expr:
        """``p >= 0`` in normal form."""
        g = content(p)
        p = {m: c // g for m, c in p.items()}
        right = {m: c for m, c in p.items() if m and c > 0}
        left = {m: -c for m, c in p.items() if m and c < 0}
        k = p.get((), 0)
        low, high = INDEX.limits()
        always = TRUE if k > 0 else FALSE  # for bounds that do not fit into 64 bits: no index reaches them
        if not right:
            return Binary("lt", self.expr(left), Const(k + 1, INDEX)) if low <= k + 1 <= high else always
        if not left:
            return Binary("le", Const(-k, INDEX), self.expr(right)) if low <= -k <= high else always
        if not low < k < high:  # each side gets a half that fits
            return Binary("le", self.expr(plus(left, k // 2 - k)), self.expr(plus(right, k // 2)))
        if k < 0:
            return Binary("lt", self.expr(plus(left, -k - 1)), self.expr(right))
        return Binary("le", self.expr(left), self.expr(plus(right, k)))

    def _equality(self, op: str, p: Poly) -> Expr:
        yes, no = (TRUE, FALSE) if op == "eq" else (FALSE, TRUE)
        below, above = self.solver.nonnegative(p), self.solver.nonnegative(scaled(p, -1))
        if below and above:
            return yes
        g = content(p)
        k = p.get((), 0)
        if g and k % g:
            return no
        if self.solver.positive(p) or self.solver.positive(scaled(p, -1)):
            return no
        p = {m: c // g for m, c in p.items()}
        parts = self._all_at_their_ends(p)
        if parts is not None:
            made = self._connective(parts)
            return made if op == "eq" else self.simplify(Not(made))
        if p[min(m for m in p if m)] < 0:
            p = scaled(p, -1)  # both sides exchanged: the same form for a == b and b == a
        left = {m: c for m, c in p.items() if m and c > 0}
        right = {m: -c for m, c in p.items() if m and c < 0}
        k = p.get((), 0)
        if k < 0:
            right = plus(right, -k)
        else:
            left, right = (left, constant(-k)) if not right else (plus(left, k), right)
        return Binary(op, self.expr(left), self.expr(right))

    def _all_at_their_ends(self, p: Poly) -> Binary | None:
        """``a*8 + b == 0`` as ``a == 0 and b == 0`` if neither can be negative."""
        terms = [(m[0], c) for m, c in sorted(p.items()) if m]
        if len(terms) < 2 or any(len(m) > 1 for m in p):
            return None
        within = self.solver.interval(p)
        if within.lo != 0 and within.hi != 0:
            return None
        made: Expr | None = None
        for atom, c in terms:
            ends = self.solver.atom_interval(atom)
            value = ends.lo if (c > 0) == (within.lo == 0) else ends.hi
            each = Binary("eq", self.ring.atoms[atom], Const(int(value), INDEX))
            made = each if made is None else Binary("and", made, each)
        assert isinstance(made, Binary)
        return made

    def holds(self, condition: Expr) -> bool:
        """Whether ``condition`` is proved."""
        made = self.simplify(condition)
        return type(made) is Const and bool(made.value)

    # Connectives

    def _connective(self, e: Binary) -> Expr:
        """Drop members that the other members of a conjunction (disjunction) imply."""
        unit, zero = (TRUE, FALSE) if e.op == "and" else (FALSE, TRUE)
        parts: list[Expr] = []
        for part in members(e, e.op):
            if part is zero:
                return zero
            if part is not unit and part not in parts:
                parts.append(part)
        if len(parts) <= _MAX_CONJUNCTION_PARTS:
            kept = self._without_implied(parts, e.op == "and")
            if kept is None:
                return zero
            parts = kept
        if not parts:
            return unit
        out = parts[0]
        for part in parts[1:]:
            out = Binary(e.op, out, part)
        return out

    def _without_implied(self, parts: list[Expr], conjunction: bool) -> list[Expr] | None:
        """Members not implied by the others; None if they contradict each other."""
        polys = [self.inequality(part, negated=not conjunction) for part in parts]
        dropped: set[int] = set()
        for i, p in enumerate(polys):
            if p is None:
                continue
            for j, q in enumerate(polys):
                if i == j or q is None or j in dropped:
                    continue
                shared = [c * q[m] for m, c in p.items() if m and m in q]
                if any(c > 0 for c in shared) and self.solver.nonnegative(add(p, q, -1)):
                    dropped.add(i)
                    break
                opposed = i < j and any(c < 0 for c in shared)
                if opposed and self.solver.nonnegative(plus(scaled(add(p, q), -1), -1)):
                    return None
        return [part for i, part in enumerate(parts) if i not in dropped]

    def inequality(self, condition: Expr, negated: bool = False) -> Poly | None:
        """``p`` such that ``condition`` (or its negation) means ``p >= 0``; None if it is not an index inequality."""
        if type(condition) is not Binary or condition.a.dtype is not INDEX or condition.lanes > 1:
            return None
        op = NEGATED.get(condition.op) if negated else condition.op
        p = add(self.ring.poly(condition.b), self.ring.poly(condition.a), -1)
        if op == "le":
            return p
        if op == "lt":
            return plus(p, -1)
        if op == "ge":
            return scaled(p, -1)
        if op == "gt":
            return plus(scaled(p, -1), -1)
        return None
