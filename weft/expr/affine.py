"""Index expressions as polynomials: sums of products of atoms with integer coefficients.

Every node that is not a constant, a sum, a difference or a product is an *atom* (a variable, a quotient, a load …). A
polynomial maps monomials (sorted tuples of atom numbers; the empty one is the constant) to coefficients. A
:class:`Ring` numbers the atoms and converts both ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd
from typing import Final, TypeAlias

from weft.expr.nodes import Binary, Const, Expr, Var
from weft.expr.visit import uses_var
from weft.support.dtypes import INDEX

Mono: TypeAlias = tuple[int, ...]
Poly: TypeAlias = dict[Mono, int]

ARITHMETIC: Final = frozenset(("add", "sub", "mul"))
_MAX_PRODUCT_TERMS: Final = 64
"""Largest number of terms of a product of sums that is expanded."""


def is_arithmetic(e: Expr) -> bool:
    """Whether ``e`` is a sum, difference or product of scalar indices."""
    return type(e) is Binary and e.dtype is INDEX and e.op in ARITHMETIC and e.lanes == 1


def constant(value: int) -> Poly:
    return {(): value} if value else {}


def add(a: Poly, b: Poly, scale: int = 1) -> Poly:
    """``a + scale * b``."""
    out = dict(a)
    for mono, c in b.items():
        total = out.get(mono, 0) + scale * c
        if total:
            out[mono] = total
        else:
            del out[mono]
    return out


def plus(a: Poly, value: int) -> Poly:
    """``a + value``."""
    out = dict(a)
    total = out.pop((), 0) + value
    if total:
        out[()] = total
    return out


def scaled(a: Poly, factor: int) -> Poly:
    return {m: c * factor for m, c in a.items()} if factor else {}


def multiply(a: Poly, b: Poly) -> Poly:
    out: Poly = {}
    for m1, c1 in a.items():
        for m2, c2 in b.items():
            mono = tuple(sorted(m1 + m2)) if m1 and m2 else m1 or m2
            total = out.get(mono, 0) + c1 * c2
            if total:
                out[mono] = total
            else:
                del out[mono]
    return out


def as_constant(p: Poly) -> int | None:
    """The value of a constant polynomial."""
    if not p:
        return 0
    return p.get(()) if len(p) == 1 else None


def content(p: Poly) -> int:
    """The greatest common divisor of all coefficients but the constant's (0 if there are none)."""
    return gcd(*(c for m, c in p.items() if m))


def split_atom(p: Poly, atom: int) -> tuple[Poly, Poly] | None:
    """``(c, r)`` with ``p = c * atom + r`` and ``c``, ``r`` free of the atom; None if it occurs in a power."""
    factor: Poly = {}
    rest: Poly = {}
    for mono, c in p.items():
        count = mono.count(atom)
        if count == 0:
            rest[mono] = c
        elif count == 1:
            at = mono.index(atom)
            factor[mono[:at] + mono[at + 1 :]] = c
        else:
            return None
    return factor, rest


def mono_quotient(m: Mono, by: Mono) -> Mono | None:
    """The monomial ``m / by``, if ``by`` divides ``m``."""
    if not by:
        return m
    out = list(m)
    for atom in by:
        if atom not in out:
            return None
        out.remove(atom)
    return tuple(out)


def leading(p: Poly) -> Mono:
    """The monomial of highest degree."""
    return max(p, key=lambda m: (len(m), m))


def divide(p: Poly, d: Poly) -> tuple[Poly, Poly]:
    """``(q, r)`` with ``p = q * d + r``, where ``q`` is the result of term-by-term division.

    ``q`` is 0 if ``d`` is 0: such indices into axes without elements are never computed."""
    if not d:
        return {}, p
    lead = leading(d)
    unit = d[lead]
    quotient: Poly = {}
    rest = p
    for _ in range(2 * len(p) + 2):
        for mono, c in rest.items():
            partner = mono_quotient(mono, lead)
            if partner is not None and c % unit == 0:
                step = {partner: c // unit}
                break
        else:
            break
        quotient = add(quotient, step)
        rest = add(rest, multiply(step, d), -1)
    return quotient, rest


def exact_quotient(p: Poly, d: Poly) -> Poly | None:
    """``p / d`` if ``d`` divides ``p`` term by term."""
    quotient, rest = divide(p, d)
    return None if rest else quotient


class Ring:
    """Numbers atoms and converts between expressions and polynomials.

    Within one ring equal polynomials convert to the same expression, in the order in which terms first occurred.
    """

    __slots__ = ("_exprs", "_polys", "_terms", "atoms", "numbers", "settings", "verdicts")

    def __init__(self) -> None:
        self.atoms: list[Expr] = []
        self.numbers: dict[Expr, int] = {}
        self.settings: dict[object, int] = {}
        """The numbers of the sets of assumptions under which something was asked."""
        self.verdicts: dict[tuple[int, frozenset[tuple[Mono, int]]], bool] = {}
        """Whether a polynomial is never negative, by the number of the assumptions: the same questions return whenever
        a pass comes to the same place of a program again."""
        self._polys: dict[Expr, Poly] = {}
        self._exprs: dict[frozenset[tuple[Mono, int]], Expr] = {}
        self._terms: dict[tuple[Mono, int], Expr] = {}

    def number(self, atom: Expr) -> int:
        found = self.numbers.get(atom)
        if found is None:
            found = self.numbers[atom] = len(self.atoms)
            self.atoms.append(atom)
        return found

    def poly(self, e: Expr, known: Mapping[Expr, Expr] | None = None) -> Poly:
        """The polynomial of a scalar INDEX expression; leaves are first looked up in ``known``."""
        polys = self._polys
        if known is None:
            found = polys.get(e)
            if found is not None:
                return found
            done = polys
        else:
            done = {}
        stack = [e]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            if is_arithmetic(node):
                assert isinstance(node, Binary)
                a, b = done.get(node.a), done.get(node.b)
                if a is None or b is None:
                    if b is None:
                        stack.append(node.b)
                    if a is None:
                        stack.append(node.a)
                    continue
                done[node] = self._combine(node, a, b)
            elif known is not None and known.get(node, node) is not node:
                done[node] = self.poly(known[node])
            else:
                done[node] = self._leaf(node)
            stack.pop()
        return done[e]

    def _leaf(self, e: Expr) -> Poly:
        return constant(int(e.value)) if type(e) is Const else {(self.number(e),): 1}

    def _combine(self, node: Binary, a: Poly, b: Poly) -> Poly:
        if node.op == "add":
            return add(a, b)
        if node.op == "sub":
            return add(a, b, -1)
        if len(a) * len(b) > _MAX_PRODUCT_TERMS:
            return {(self.number(node),): 1}
        return multiply(a, b)

    def expr(self, p: Poly) -> Expr:
        """The expression of a polynomial: positive terms first, the constant last."""
        key = frozenset(p.items())
        found = self._exprs.get(key)
        if found is None:
            found = self._exprs[key] = self._sum(p)
            if found not in self._polys:
                self._polys[found] = p
        return found

    def _sum(self, p: Poly) -> Expr:
        out: Expr | None = None
        for mono, c in p.items():
            if c > 0 and mono:
                term = self.term(mono, c)
                out = term if out is None else Binary("add", out, term)
        last = p.get((), 0)
        if out is None:
            out, last = Const(last, INDEX), 0
        for mono, c in p.items():
            if c < 0 and mono:
                out = Binary("sub", out, self.term(mono, -c))
        if last:
            out = Binary("add" if last > 0 else "sub", out, Const(abs(last), INDEX))
        return out

    def term(self, mono: Mono, coefficient: int) -> Expr:
        """The expression ``coefficient * mono``."""
        if coefficient == 1 and len(mono) == 1:
            return self.atoms[mono[0]]
        key = (mono, coefficient)
        found = self._terms.get(key)
        if found is None:
            out: Expr = self.atoms[mono[0]]
            for atom in mono[1:]:
                out = Binary("mul", out, self.atoms[atom])
            found = out if coefficient == 1 else Binary("mul", out, Const(coefficient, INDEX))
            self._terms[key] = found
        return found


def linear_form(e: Expr, variables: Iterable[Var], ring: Ring | None = None) -> tuple[dict[Var, int], Expr] | None:
    """``(coefficients, rest)`` with ``e = sum(c * v) + rest``, ``rest`` free of ``variables``.

    Coefficients are constants other than 0; None if ``e`` is not of that form.
    """
    ring = ring or Ring()
    wanted = {ring.number(v): v for v in variables}
    coefficients: dict[Var, int] = {}
    rest: Poly = {}
    for mono, c in ring.poly(e).items():
        if not any(a in wanted for a in mono):
            rest[mono] = c
        elif len(mono) == 1:
            coefficients[wanted[mono[0]]] = c
        else:
            return None
    inside = {a for mono in rest for a in mono if type(ring.atoms[a]) is not Var}
    if any(uses_var(ring.atoms[a], wanted.values()) for a in inside):
        return None
    return coefficients, ring.expr(rest)


def split_constant(e: Expr) -> tuple[Expr | None, int]:
    """``e`` as a variable part and a constant: ``i * 4 + 3`` → ``(i * 4, 3)``."""
    total = 0
    while True:
        if isinstance(e, Const):
            return None, total + int(e.value)
        if isinstance(e, Binary) and isinstance(e.b, Const) and e.op in ("add", "sub"):
            total += int(e.b.value) if e.op == "add" else -int(e.b.value)
            e = e.a
        elif isinstance(e, Binary) and isinstance(e.a, Const) and e.op == "add":
            total += int(e.a.value)
            e = e.b
        else:
            return e, total


def divisor(e: Expr) -> int:
    """The largest integer known to divide ``e`` from its form alone (0 if ``e`` is zero)."""
    return gcd(*Ring().poly(e).values())
