"""Index expressions as sums of terms with constant factors, and the ranges that they sweep.

Schedule primitives use a :class:`Linear` to see which loops change an index, and by how much.
:class:`weft.expr.prove.Facts` finds exact quotients, bounds and sweeps from the ranges of the variables; the answer is
None if nothing is known.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from weft.expr.nodes import Binary, Const, Expr, Var
from weft.expr.prove import Facts
from weft.expr.visit import post_order
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

    @property
    def key(self) -> object:
        """The same for equal forms."""
        return (frozenset(self.terms.items()), self.constant) if self.terms else self.constant

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
"""Smallest and largest value of variables. An outer variable comes before those whose range mentions it."""

NO_RANGES: Ranges = {}


class _Known:
    """Facts about ranges. Variables without a range are sizes, which are at least 0."""

    def __init__(self, ranges: Ranges) -> None:
        self.facts = Facts(keeps_variables=True)  # terms must show which loop changes them
        self.seen: set[Expr] = set(ranges)
        for var, (least, greatest) in ranges.items():
            self.facts.bind(var, self.sized(least.expr()), self.sized((greatest - least).plus(1).expr()))

    def sized(self, e: Expr) -> Expr:
        """``e``, its free variables stated to be sizes."""
        if e not in self.seen:
            self.seen.add(e)
            for node in post_order(e):
                if type(node) is Var and node.dtype == INDEX and (node is e or node not in self.seen):
                    self.seen.add(node)
                    self.facts.bind_size(node, 0)
        return e

    def form(self, e: Expr) -> Linear:
        terms, constant = self.facts.terms(self.sized(e))
        return Linear(terms, constant)


_MAX_CACHED_RANGES: Final = 64
"""Largest number of sets of ranges whose answers are cached."""
_MAX_CACHED_TERMS: Final = 2000
"""Largest number of expressions that stay cached for one set of ranges when something new begins."""
_known: dict[tuple[object, ...], _Known] = {}


def _facts(ranges: Ranges) -> _Known:
    """The facts about ``ranges``; the latest are cached, because callers ask several questions about one place.

    Those about no ranges always are: the order of the factors of a term is that in which they first occurred, so two
    forms can only be compared if the same facts have made both."""
    key = tuple((var, least.key, greatest.key) for var, (least, greatest) in ranges.items())
    found = _known.pop(key, None) or _Known(ranges)
    if len(_known) >= _MAX_CACHED_RANGES:
        del _known[next(k for k in _known if k)]
    _known[key] = found
    return found


def forget_many() -> None:
    """Forget what is cached where it is much. Called where something new begins: forms from before and after are not to
    be compared, since equal terms may be written in another order."""
    for key in [key for key, found in _known.items() if len(found.seen) > _MAX_CACHED_TERMS]:
        del _known[key]


def linear(e: Expr, ranges: Ranges = NO_RANGES) -> Linear:
    """The linear form of ``e``; quotients and remainders are resolved where ``ranges`` allow."""
    if isinstance(e, Const):
        return Linear({}, int(e.value))
    if isinstance(e, Var) and not ranges:
        return Linear({e: 1})
    return _facts(ranges).form(e)


def simplify_index(e: Expr, ranges: Ranges = NO_RANGES) -> Expr:
    """``e`` in normal form."""
    if isinstance(e, (Const, Var)):
        return e
    return linear(e, ranges).expr()


def minimum_of(form: Linear, ranges: Ranges) -> int | None:
    """A constant that ``form`` never goes below; symbolic sizes count as at least 0."""
    if form.is_constant:
        return form.constant
    known = _facts(ranges)
    return known.facts.minimum(known.sized(form.expr()))


def maximum_of(form: Linear, ranges: Ranges) -> int | None:
    """A constant that ``form`` never exceeds."""
    least = minimum_of(form.scaled(-1), ranges)
    return None if least is None else -least


def is_nonnegative(form: Linear, ranges: Ranges) -> bool:
    """Whether ``form >= 0`` is certain."""
    if form.is_constant:
        return form.constant >= 0
    known = _facts(ranges)
    return known.facts.nonnegative(known.sized(form.expr()))


@dataclass(frozen=True, slots=True, eq=False)
class LinearSweep:
    """The interval ``low <= value <= low + width`` (``width`` is one less than the extent)."""

    low: Linear
    width: Linear


def relax(e: Expr, moving: Ranges, ranges: Ranges) -> LinearSweep | None:
    """An interval that holds all values of ``e`` while the variables in ``moving`` run through their ranges.

    The bounds mention only variables that are not moving. ``ranges`` are those of all variables (moving ones too).
    """
    known = _facts({**ranges, **moving})
    swept = known.facts.sweep(known.sized(e), moving)
    return None if swept is None else LinearSweep(known.form(swept.low), known.form(swept.width))


def mentions(e: Expr, variables: Container[Expr]) -> bool:
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
