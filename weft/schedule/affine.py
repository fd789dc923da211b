"""Linear forms of index expressions, their least and greatest values, and boxes that cover them.

Index expressions under loops are sums of loop variables with constant factors, plus the odd quotient or remainder.
:func:`linear` brings one into that form (dividing exactly where the ranges of the variables allow it),
:func:`minimum_of` and :func:`maximum_of` bound it, and :func:`relax` says which interval it sweeps while some of its
variables run and the others stand still. Everything here is sound for floor division and negative numbers; where
nothing is known the answer is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from weft.expr.nodes import Binary, Const, Expr, Var
from weft.support.dtypes import INDEX

ZERO = Const(0, INDEX)
ONE = Const(1, INDEX)


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """``sum(factor * term) + constant``; a term is a variable or an expression that is not linear."""

    terms: Mapping[Expr, int]
    constant: int = 0

    def __add__(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for term, factor in other.terms.items():
            total = terms.get(term, 0) + factor
            if total:
                terms[term] = total
            else:
                del terms[term]
        return Linear(terms, self.constant + other.constant)

    def __sub__(self, other: Linear) -> Linear:
        return self + other.scaled(-1)

    def scaled(self, factor: int) -> Linear:
        if factor == 0:
            return Linear({})
        return Linear({t: f * factor for t, f in self.terms.items()}, self.constant * factor)

    def plus(self, constant: int) -> Linear:
        return Linear(self.terms, self.constant + constant)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def expr(self) -> Expr:
        """The expression, positive terms first."""
        out: Expr | None = None
        for term, factor in sorted(self.terms.items(), key=lambda entry: entry[1] < 0):
            part = term if abs(factor) == 1 else term * abs(factor)
            before = ZERO if out is None else out
            out = before + part if factor > 0 else before - part
        if out is None:
            return Const(self.constant, INDEX)
        return out + self.constant if self.constant >= 0 else out - (-self.constant)


Ranges: TypeAlias = "dict[Var, tuple[Linear, Linear]]"
"""Least and greatest value of variables. An outer variable stands before those whose range mentions it."""

NO_RANGES: Ranges = {}


def linear(e: Expr, ranges: Ranges = NO_RANGES) -> Linear:
    """The linear form of ``e``; quotients and remainders are resolved where ``ranges`` allow."""
    if isinstance(e, Const):
        return Linear({}, int(e.value))
    if not isinstance(e, Binary):
        return Linear({e: 1})
    if e.op in ("add", "sub"):
        a, b = linear(e.a, ranges), linear(e.b, ranges)
        return a + b if e.op == "add" else a - b
    if e.op == "mul":
        a, b = linear(e.a, ranges), linear(e.b, ranges)
        if b.is_constant:
            return a.scaled(b.constant)
        if a.is_constant:
            return b.scaled(a.constant)
        return Linear({a.expr() * b.expr(): 1})
    if e.op in ("floordiv", "floormod"):
        by = linear(e.b, ranges)
        if by.is_constant and by.constant > 0:
            return _divided(linear(e.a, ranges), by.constant, e.op == "floormod", ranges)
    if e.op in ("min", "max"):
        return _chosen(e, ranges)
    return Linear({e: 1})


def _divided(a: Linear, by: int, remainder: bool, ranges: Ranges) -> Linear:
    """``a // by`` or ``a % by``: multiples of ``by`` come out of the quotient and fall out of the remainder."""
    whole = Linear({t: f // by for t, f in a.terms.items() if f % by == 0}, a.constant // by)
    rest = Linear({t: f for t, f in a.terms.items() if f % by}, a.constant % by)
    if rest.is_constant:
        return Linear({}, rest.constant) if remainder else whole
    least, greatest = minimum_of(rest, ranges), maximum_of(rest, ranges)
    if least is not None and greatest is not None and least // by == greatest // by:
        quotient = least // by
        return rest.plus(-quotient * by) if remainder else whole.plus(quotient)
    if remainder:
        return Linear({rest.expr() % by: 1})
    return whole + Linear({rest.expr() // by: 1})


def _chosen(e: Binary, ranges: Ranges) -> Linear:
    """``min`` or ``max`` where one side is known to win."""
    a, b = linear(e.a, ranges), linear(e.b, ranges)
    low, high = (a, b) if e.op == "min" else (b, a)
    if is_nonnegative(high - low, ranges):
        return a
    if is_nonnegative(low - high, ranges):
        return b
    return Linear({e: 1})


def simplify_index(e: Expr, ranges: Ranges = NO_RANGES) -> Expr:
    """``e`` through its linear form."""
    if isinstance(e, (Const, Var)):
        return e
    return linear(e, ranges).expr()


# -- bounds ---------------------------------------------------------------------------------------------------


def minimum_of(form: Linear, ranges: Ranges) -> int | None:
    """A constant that ``form`` never goes below; symbolic sizes count as at least 0."""
    for var in reversed(ranges):
        factor = form.terms.get(var)
        if factor is not None:
            least, greatest = ranges[var]
            form = form + Linear({var: -factor}) + (least if factor > 0 else greatest).scaled(factor)
    total = form.constant
    for term, factor in form.terms.items():
        bound = _term_minimum(term, ranges) if factor > 0 else _term_maximum(term, ranges)
        if bound is None:
            return None
        total += factor * bound
    return total


def maximum_of(form: Linear, ranges: Ranges) -> int | None:
    """A constant that ``form`` never exceeds."""
    least = minimum_of(form.scaled(-1), ranges)
    return None if least is None else -least


def is_nonnegative(form: Linear, ranges: Ranges) -> bool:
    """Whether ``form >= 0`` is certain."""
    least = minimum_of(form, ranges)
    return least is not None and least >= 0


def _term_minimum(term: Expr, ranges: Ranges) -> int | None:
    if isinstance(term, Var):
        return 0 if term.dtype == INDEX and term not in ranges else None
    if isinstance(term, Binary):
        if term.op == "floormod" and isinstance(term.b, Const):
            return 0
        if term.op == "floordiv" and isinstance(term.b, Const) and int(term.b) > 0:
            least = minimum_of(linear(term.a, ranges), ranges)
            return None if least is None else least // int(term.b)
        if term.op in ("min", "max"):
            sides = [minimum_of(linear(s, ranges), ranges) for s in (term.a, term.b)]
            known = [s for s in sides if s is not None]
            if term.op == "max":
                return max(known, default=None)
            return min(known) if len(known) == 2 else None
        if term.op == "mul":
            sides = [minimum_of(linear(s, ranges), ranges) for s in (term.a, term.b)]
            return 0 if all(s is not None and s >= 0 for s in sides) else None
    return None


def _term_maximum(term: Expr, ranges: Ranges) -> int | None:
    if isinstance(term, Binary):
        if term.op == "floormod" and isinstance(term.b, Const):
            return int(term.b) - 1
        if term.op == "floordiv" and isinstance(term.b, Const) and int(term.b) > 0:
            greatest = maximum_of(linear(term.a, ranges), ranges)
            return None if greatest is None else greatest // int(term.b)
        if term.op in ("min", "max"):
            sides = [maximum_of(linear(s, ranges), ranges) for s in (term.a, term.b)]
            known = [s for s in sides if s is not None]
            if term.op == "min":
                return min(known, default=None)
            return max(known) if len(known) == 2 else None
    return None


# -- sweeping -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """The interval ``low <= value <= low + width`` (``width`` is one less than the extent)."""

    low: Linear
    width: Linear


def relax(e: Expr, moving: Ranges, ranges: Ranges) -> Sweep | None:
    """An interval that holds all values of ``e`` while the variables in ``moving`` run through their ranges.

    The bounds mention only variables that are not moving. ``ranges`` are those of all variables (moving ones too).
    """
    return _sweep(linear(e, ranges), moving, ranges)


def _sweep(form: Linear, moving: Ranges, ranges: Ranges) -> Sweep | None:
    low, width = Linear({}, form.constant), Linear({})
    pending = dict(form.terms)
    for var in reversed(moving):
        factor = pending.pop(var, 0)
        if factor:
            least, greatest = moving[var]
            if any(t in moving for t in (*least.terms, *greatest.terms)):
                return None
            low = low + (least if factor > 0 else greatest).scaled(factor)
            width = width + (greatest - least).scaled(abs(factor))
    for term, factor in pending.items():
        swept = _sweep_term(term, moving, ranges)
        if swept is None:
            return None
        start = swept.low if factor > 0 else swept.low + swept.width
        low = low + start.scaled(factor)
        width = width + swept.width.scaled(abs(factor))
    return Sweep(low, width)


def _sweep_term(term: Expr, moving: Ranges, ranges: Ranges) -> Sweep | None:
    if not mentions(term, moving):
        return Sweep(Linear({term: 1}), Linear({}))
    if not isinstance(term, Binary):
        return None
    if term.op in ("floordiv", "floormod") and isinstance(term.b, Const) and int(term.b) > 0:
        by = int(term.b)
        inner = _sweep(linear(term.a, ranges), moving, ranges)
        if term.op == "floormod":
            return _sweep_remainder(inner, by, ranges)
        return None if inner is None else _sweep_quotient(inner, by, ranges)
    if term.op in ("min", "max"):
        sides = [_sweep(linear(s, ranges), moving, ranges) for s in (term.a, term.b)]
        fixed = [s for s in sides if s is not None]
        if len(fixed) == 2:
            return _sweep_choice(term.op, fixed[0], fixed[1], ranges)
    return None


def _sweep_quotient(inner: Sweep, by: int, ranges: Ranges) -> Sweep | None:
    low = linear(inner.low.expr() // by, ranges)
    offset = linear(inner.low.expr() % by, ranges)
    greatest = maximum_of(offset, ranges)
    reach = maximum_of(inner.width, ranges)
    if reach is None:
        return None
    return Sweep(low, Linear({}, ((by - 1 if greatest is None else greatest) + reach) // by))


def _sweep_remainder(inner: Sweep | None, by: int, ranges: Ranges) -> Sweep:
    if inner is not None:
        offset = linear(inner.low.expr() % by, ranges)
        greatest = maximum_of(offset + inner.width, ranges)
        if greatest is not None and greatest < by:
            return Sweep(offset, inner.width)
    return Sweep(Linear({}), Linear({}, by - 1))


def _sweep_choice(op: str, a: Sweep, b: Sweep, ranges: Ranges) -> Sweep | None:
    """Both sides sweep; the chosen one moves at most as far as the wider."""
    if is_nonnegative(a.width - b.width, ranges):
        wide = a.width
    elif is_nonnegative(b.width - a.width, ranges):
        wide = b.width
    else:
        return None
    chosen = Binary(op, a.low.expr(), b.low.expr())
    return Sweep(linear(chosen, ranges), wide)


def mentions(e: Expr, variables: Mapping[Var, object]) -> bool:
    """Whether any of ``variables`` occurs in ``e``."""
    stack, seen = [e], {e}
    while stack:
        top = stack.pop()
        if isinstance(top, Var) and top in variables:
            return True
        for child in top.children:
            if child not in seen:
                seen.add(child)
                stack.append(child)
    return False


# -- pieces ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """``(var // divisor) % modulus``; no modulus means that the quotient is taken whole."""

    var: Var
    divisor: int = 1
    modulus: int | None = None


def pieces_of(e: Expr) -> Piece | None:
    """``e`` as a piece of one variable, if it is one."""
    if isinstance(e, Var):
        return Piece(e)
    if not (isinstance(e, Binary) and e.op in ("floordiv", "floormod") and isinstance(e.b, Const)):
        return None
    inner, by = pieces_of(e.a), int(e.b)
    if inner is None or by <= 0:
        return None
    if e.op == "floordiv":
        if inner.modulus is None:
            return Piece(inner.var, inner.divisor * by)
        return Piece(inner.var, inner.divisor * by, inner.modulus // by) if inner.modulus % by == 0 else None
    if inner.modulus is None:
        return Piece(inner.var, inner.divisor, by)
    return Piece(inner.var, inner.divisor, by) if inner.modulus % by == 0 else None
