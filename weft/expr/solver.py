"""Facts about the atoms of a ring, and proofs that a polynomial is never negative.

The method eliminates one atom after another. In ``p = c * x + r`` an ``x`` whose factor ``c`` has a known sign is
replaced by a bound that makes ``p`` smallest: a constant, a bound of a loop variable (``n - 1``), or what the form of
the atom implies (``d * (y // d) <= y``; the operands of a minimum or of a select). Loop variables are eliminated in the
opposite order of their binding, because their bounds mention those bound before. Assumed conditions are subtracted if
they cancel a term. A step limit bounds the time of each question; "no" always means "not proved".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
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
    multiply,
    plus,
    scaled,
    split_atom,
)
from weft.expr.bounds import EVERYTHING, Interval, floordiv, floormod, interval, times
from weft.expr.nodes import Binary, Expr, Select, Var
from weft.support.dtypes import INDEX

Key = frozenset[tuple[tuple[int, ...], int]]

_MAX_STEPS: Final = 120
"""Largest number of inequalities that are examined for one proof."""
_TERMS_OF_A_STEP: Final = 64
"""An inequality with as many terms counts as two, and so on: a proof about a sum of hundreds of sizes takes no longer
than one about a few."""
_MAX_DEPTH: Final = 10
"""Largest depth of a proof: inequalities derived from one another."""


def _key(p: Poly) -> Key:
    return frozenset(p.items())


@dataclass(slots=True)
class Assumptions:
    """All assumptions; copied when a scope opens."""

    ranges: dict[int, Interval] = field(default_factory=dict)
    lower: dict[int, list[Poly]] = field(default_factory=dict)
    upper: dict[int, list[Poly]] = field(default_factory=dict)
    order: dict[int, int] = field(default_factory=dict)
    facts: list[Poly] = field(default_factory=list)
    truths: dict[Expr, bool] = field(default_factory=dict)
    keeps_variables: bool = False
    """Whether a variable with only one possible value is kept."""

    def copy(self) -> Assumptions:
        return Assumptions(
            dict(self.ranges),
            {k: list(v) for k, v in self.lower.items()},
            {k: list(v) for k, v in self.upper.items()},
            dict(self.order),
            list(self.facts),
            dict(self.truths),
            self.keeps_variables,
        )


class Solver:
    """Decides inequalities over a ring, given :class:`Assumptions`."""

    def __init__(self, ring: Ring, state: Assumptions | None = None) -> None:
        self.ring = ring
        self.state = state or Assumptions()
        self.forget()
        self._steps = 0

    def forget(self) -> None:
        """Drop remembered answers, because the state has changed."""
        self._answers: dict[Key, bool] = {}
        self._intervals: dict[int, Interval] = {}
        self._products: dict[Mono, Interval] = {}
        self._unfinished = 0
        """Atoms whose intervals are being computed: until then they count as unknown."""
        self._nodes: dict[Expr, Interval] = {}
        self._plain: dict[int, bool] = {}
        self._failed: dict[Key, int] = {}
        self._setting: int | None = None

    # Stating facts

    def state_range(self, atom: int, within: Interval) -> None:
        old = self.state.ranges.get(atom, EVERYTHING)
        self.state.ranges[atom] = old.meet(within)
        self.forget()

    def state_nonnegative(self, p: Poly) -> None:
        """``p >= 0`` holds from now on."""
        g = content(p)
        if g == 0:
            return
        if g > 1:
            p = {m: c // g for m, c in p.items() if c // g}  # the constant may round to zero
        variables = [m for m in p if m]
        if len(variables) == 1 and len(variables[0]) == 1:
            c, k = p[variables[0]], p.get((), 0)
            within = Interval(-(k // c), inf) if c > 0 else Interval(-inf, k // -c)
            self.state_range(variables[0][0], within)
            return
        if p not in self.state.facts:
            self.state.facts.append(p)
        self.forget()

    def state_bounds(self, atom: int, lower: Poly, upper: Poly) -> None:
        """``lower <= atom <= upper``; the bounds mention only atoms bound before."""
        state = self.state
        within = Interval(self.interval(lower).lo, self.interval(upper).hi)
        state.ranges[atom] = within.meet(state.ranges[atom]) if atom in state.ranges else within
        state.order[atom] = len(state.order) + 1
        if as_constant(lower) is None:
            state.lower[atom] = [lower]
        if as_constant(upper) is None:
            state.upper[atom] = [upper]
        self.forget()

    def state_positive(self, p: Poly) -> None:
        """``p >= 1`` holds from now on; so do a term of it, if all others are at most 0, each factor of a product of
        factors that are never negative, and what the form of a factor says (:meth:`_state_factor`)."""
        if sum(bool(m) for m in p) == 1 and (len(p) > 1 or 1 not in p.values()):
            self.state_nonnegative(plus(p, -1))
        for mono, c in p.items():
            if not mono or c < 1 or self.interval({m: k for m, k in p.items() if m != mono}).hi > 0:
                continue
            if all(self.atom_interval(atom).lo >= 0 for atom in mono):
                for atom in dict.fromkeys(mono):
                    self._state_factor(atom)

    def _state_factor(self, atom: int) -> None:
        """``atom >= 1``: a quotient by ``d`` then has a dividend of at least ``d``, and both operands of a minimum are
        at least 1. So in a loop over ``(a * b + 15) // 16`` vectors neither size is 0."""
        e = self.ring.atoms[atom]
        self.state_range(atom, Interval(1, inf))
        if type(e) is not Binary or e.dtype is not INDEX or e.lanes > 1:
            return
        a, b = self.ring.poly(e.a), self.ring.poly(e.b)
        d = as_constant(b)
        if e.op == "floordiv" and d is not None and d > 0:
            self.state_positive(plus(a, 1 - d))
        elif e.op == "min":
            self.state_positive(a)
            self.state_positive(b)

    # Constant intervals

    def interval(self, p: Poly) -> Interval:
        """Constant bounds of ``p``, term by term."""
        lo: int | float = 0
        hi: int | float = 0
        known = self._products
        for mono, c in p.items():
            if not mono:
                lo, hi = lo + c, hi + c
                continue
            least, most = known.get(mono) or self._product_interval(mono)
            if c < 0:
                least, most = most, least
            lo, hi = lo + (c * least if least else 0), hi + (c * most if most else 0)
            if lo == -inf and hi == inf:
                return EVERYTHING
        return Interval(lo, hi)

    def _product_interval(self, mono: Mono) -> Interval:
        each = self.atom_interval(mono[0])
        for atom in mono[1:]:
            each = times(each, self.atom_interval(atom))
        if len(mono) == 2 and mono[0] == mono[1]:
            each = each.meet(Interval(0, inf))
        if not self._unfinished:
            self._products[mono] = each
        return each

    def atom_interval(self, atom: int) -> Interval:
        found = self._intervals.get(atom)
        if found is None:
            self._intervals[atom] = EVERYTHING
            self._unfinished += 1
            found = self._intervals[atom] = self._atom_interval(atom)
            self._unfinished -= 1
        return found

    def _atom_interval(self, atom: int) -> Interval:
        e = self.ring.atoms[atom]
        stated = self.state.ranges.get(atom, EVERYTHING)
        if type(e) is Var:
            return stated
        if type(e) is Binary and e.dtype is INDEX and e.lanes == 1:
            poly = self.ring.poly
            if e.op == "floordiv":
                return stated.meet(floordiv(self.interval(poly(e.a)), self.interval(poly(e.b))))
            if e.op == "floormod":
                return stated.meet(floormod(self.interval(poly(e.a)), self.interval(poly(e.b))))
            if e.op in ("min", "max"):
                a, b = self.interval(poly(e.a)), self.interval(poly(e.b))
                pick = min if e.op == "min" else max
                return stated.meet(Interval(pick(a.lo, b.lo), pick(a.hi, b.hi)))
        if type(e) is Select and e.dtype is INDEX and e.lanes == 1:
            poly = self.ring.poly
            return stated.meet(self.interval(poly(e.then)).union(self.interval(poly(e.otherwise))))
        return stated.meet(self.node_interval(e))

    def node_interval(self, e: Expr) -> Interval:
        """The interval of any integer expression."""
        return interval(e, self._known, self._nodes)

    def _known(self, e: Expr) -> Interval | None:
        atom = self.ring.numbers.get(e)
        if atom is None:
            return None
        stated = self.state.ranges.get(atom)
        return self.atom_interval(atom) if type(e) is not Var and e.dtype is INDEX and e.lanes == 1 else stated

    def least(self, p: Poly) -> int | float:
        """A constant that ``p`` never goes below; loop variables are replaced by their bounds, innermost first."""
        best = self.interval(p).lo
        order = self.state.order
        for atom in sorted({a for m in p for a in m if a in order}, key=order.__getitem__, reverse=True):
            parts = split_atom(p, atom)
            factor = None if parts is None else as_constant(parts[0])
            if parts is None or not factor:
                continue
            ends = self.ends(atom)
            end = None if ends is None else ends[factor < 0]
            if end is not None:
                p = add(parts[1], end, factor)
        return max(best, self.interval(p).lo)

    def ends(self, atom: int) -> tuple[Poly, Poly] | None:
        """The smallest and largest value of a variable, which may mention variables bound before it."""
        within = self.state.ranges.get(atom, EVERYTHING)
        lower, upper = self.state.lower.get(atom), self.state.upper.get(atom)
        if (lower is None and within.lo == -inf) or (upper is None and within.hi == inf):
            return None
        return lower[0] if lower else constant(int(within.lo)), upper[0] if upper else constant(int(within.hi))

    # Proofs

    def nonnegative(self, p: Poly) -> bool:
        """Whether ``p >= 0`` is proved."""
        within = self.interval(p)
        if within.lo >= 0:
            return True
        if within.hi < 0:
            return False
        question = (self._setting_number(), frozenset(p.items()))
        verdict = self.ring.verdicts.get(question)
        if verdict is None:
            self._steps = _MAX_STEPS
            self._failed = {}
            verdict = self.ring.verdicts[question] = self._prove(p, _MAX_DEPTH)
        return verdict

    def _setting_number(self) -> int:
        """A number that is the same for equal assumptions, in the order in which proofs try them."""
        if self._setting is None:
            state, numbers = self.state, self.ring.settings
            bounds = tuple((a, *map(_key, polys)) for table in (state.lower, state.upper) for a, polys in table.items())
            ranges = frozenset((a, within.lo, within.hi) for a, within in state.ranges.items())
            all_of_it = (ranges, len(state.lower), bounds, tuple(state.order.items()), tuple(map(_key, state.facts)))
            self._setting = numbers.setdefault(all_of_it, len(numbers))
        return self._setting

    def positive(self, p: Poly) -> bool:
        return self.nonnegative(plus(p, -1))

    def zero(self, p: Poly) -> bool:
        return not p or (self.nonnegative(p) and self.nonnegative(scaled(p, -1)))

    def _prove(self, p: Poly, depth: int) -> bool:
        within = self.interval(p)
        if within.lo >= 0:
            return True
        if within.hi < 0 or depth == 0 or self._steps <= 0:
            return False
        key = frozenset(p.items())
        found = self._answers.get(key)
        if found is not None:
            return found
        if self._failed.get(key, -1) >= depth:
            return False
        self._steps -= 1 + len(p) // _TERMS_OF_A_STEP
        candidates = self._candidates(p)
        answer = any(self._prove(q, depth - 1) for q in self._smaller(p, candidates))
        answer = answer or any(self._prove(q, depth - 1) for q in self._multiplied(p))
        answer = answer or self._by_cases(p, candidates, depth)
        if not answer and self.state.facts:
            answer = any(self._prove(q, depth - 2 if depth > 2 else 0) for q in self._with_facts(p))
        if answer or depth == _MAX_DEPTH:
            self._answers[key] = answer
        elif self._steps > 0:
            self._failed[key] = depth
        return answer

    def _candidates(self, p: Poly) -> list[int]:
        """Atoms of ``p``, composite ones first, then variables from the innermost out.

        Variables with constant bounds that occur alone are left out: the interval already covers them completely.
        """
        atoms = {a for m in p for a in m if len(m) > 1 or not self._is_plain(a)}
        if len(atoms) < 2:
            return list(atoms)
        order = self.state.order
        every = self.ring.atoms
        return sorted(atoms, key=lambda a: (type(every[a]) is Var, -order.get(a, 0), -a))

    def _is_plain(self, atom: int) -> bool:
        found = self._plain.get(atom)
        if found is None:
            symbolic = atom in self.state.lower or atom in self.state.upper
            found = self._plain[atom] = type(self.ring.atoms[atom]) is Var and not symbolic
        return found

    def _smaller(self, p: Poly, candidates: list[int]) -> Iterator[Poly]:
        """Polynomials that are at most ``p`` and have one atom fewer."""
        for atom in candidates:
            parts = split_atom(p, atom)
            if parts is None:
                continue
            factor, rest = parts
            sign = self._sign(factor)
            if sign == 0:
                continue
            for bound in self._bounds(atom, sign > 0, factor):
                yield add(rest, bound)
            if type(self.ring.atoms[atom]) is Var and sign and atom in self.state.order:
                return  # eliminating this atom first loses no precision

    def _sign(self, factor: Poly) -> int:
        value = as_constant(factor)
        if value is not None:
            return (value > 0) - (value < 0)
        within = self.interval(factor)
        if within.lo >= 0:
            return 1
        if within.hi <= 0:
            return -1
        if self._prove(factor, 2):
            return 1
        return -1 if self._prove(scaled(factor, -1), 2) else 0

    def _bounds(self, atom: int, from_below: bool, factor: Poly) -> Iterator[Poly]:
        """Bounds of ``factor * atom`` from below, where ``factor`` is >= 0 iff ``from_below``."""
        e = self.ring.atoms[atom]
        table = self.state.lower if from_below else self.state.upper
        for bound in table.get(atom, ()):
            yield multiply(factor, bound)
        if type(e) is Binary and e.dtype is INDEX and e.lanes == 1:
            yield from self._implied(e, from_below, factor)
        within = self.atom_interval(atom)
        end = within.lo if from_below else within.hi
        if abs(end) != inf:
            yield scaled(factor, int(end))

    def _implied(self, e: Binary, from_below: bool, factor: Poly) -> Iterator[Poly]:
        poly = self.ring.poly
        if e.op == "floordiv":
            x, d = poly(e.a), poly(e.b)
            if self.interval(d).lo < 1 and not self._prove(plus(d, -1), 2):
                return
            each = exact_quotient(factor, d)
            if each is not None:  # factor = each * d, and x - d + 1 <= d * (x // d) <= x
                yield multiply(each, plus(add(x, d, -1), 1) if from_below else x)
            else:
                yield from self._quotient_bounds(x, d, from_below, factor)
        elif e.op == "floormod" and not from_below:
            d = poly(e.b)
            if as_constant(d) is None and self._prove(plus(d, -1), 2):
                yield multiply(factor, plus(d, -1))
            x = poly(e.a)
            if self.interval(x).lo >= 0:
                yield multiply(factor, x)
        elif (e.op == "min" and not from_below) or (e.op == "max" and from_below):
            for side in sorted((poly(e.a), poly(e.b)), key=lambda side: as_constant(side) is not None):
                yield multiply(factor, side)

    def _quotient_bounds(self, x: Poly, d: Poly, from_below: bool, factor: Poly) -> Iterator[Poly]:
        """Bounds of ``factor * (x // d)`` for ``d >= 1``: at least 0 where ``x`` is, at most ``n - 1`` where
        ``x < n * d``."""
        if from_below:
            shown = self.interval(x).lo >= 0 and as_constant(d) is not None  # by the interval of the quotient
            if not shown and self._prove(x, 2):
                yield {}
            return
        order = self.state.order
        for atom in sorted({a for m in x for a in m if a in order}, key=order.__getitem__, reverse=True):
            parts, ends = split_atom(x, atom), self.ends(atom)
            step = None if parts is None else as_constant(parts[0])
            if parts is None or ends is None or not step:
                return
            x = add(parts[1], ends[step > 0], step)
        count = exact_quotient(plus(x, 1), d)
        if count is not None:
            yield multiply(factor, plus(count, -1))

    def _multiplied(self, p: Poly) -> Iterator[Poly]:
        """``d * p + d - 1`` with bounds for all quotients by ``d``: a whole number is at least 0 where this is.

        So ``x // 16`` and ``(x + 15) // 16`` differ by at most 1, and ``x - x // 2`` is at least 0 where ``x`` is.
        """
        quotients: dict[int, list[int]] = {}
        for mono in p:
            e = self.ring.atoms[mono[0]] if len(mono) == 1 else None
            if type(e) is Binary and e.op == "floordiv" and e.dtype is INDEX and e.lanes == 1:
                d = as_constant(self.ring.poly(e.b))
                if d is not None and d > 1:
                    quotients.setdefault(d, []).append(mono[0])
        for d, atoms in quotients.items():
            if any(p[(a,)] < 0 and p[(a,)] % d for a in atoms):
                q = plus(scaled(p, d), d - 1)
                for a in atoms:
                    e, c = self.ring.atoms[a], q.pop((a,), 0)
                    assert type(e) is Binary
                    if c % d:
                        break  # the bound of another quotient mentions this one
                    q = add(q, next(self._implied(e, c > 0, constant(c)))) if c else q
                else:
                    yield q

    def _by_cases(self, p: Poly, candidates: list[int], depth: int) -> bool:
        """Prove the inequality for both operands of a minimum, maximum or select."""
        for atom in candidates:
            e = self.ring.atoms[atom]
            if type(e) is Select and e.dtype is INDEX and e.lanes == 1:
                sides = (e.then, e.otherwise)
            elif type(e) is Binary and e.op in ("min", "max") and e.dtype is INDEX and e.lanes == 1:
                sides = (e.a, e.b)
            else:
                continue
            parts = split_atom(p, atom)
            if parts is None:
                continue
            factor, rest = parts
            if all(self._prove(add(rest, multiply(factor, self.ring.poly(s))), depth - 1) for s in sides):
                return True
        return False

    def _with_facts(self, p: Poly) -> Iterator[Poly]:
        """``k * p - j * fact`` if that cancels a term of ``p``; if it is at least zero, so is ``p``."""
        for fact in self.state.facts:
            for mono, c in fact.items():
                own = p.get(mono, 0)
                if not mono or own * c <= 0:
                    continue
                if own % c == 0:
                    yield add(p, fact, -(own // c))
                elif c % own == 0:
                    yield add(scaled(p, c // own), fact, -1)
                else:
                    continue
                break
