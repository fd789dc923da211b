"""Quotients and remainders of index polynomials, rounded down, for a positive divisor ``d``.

Each rule takes ``p`` and ``d`` and returns polynomials equal to ``p // d`` and ``p % d``, or None for one that it does
not find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import gcd
from typing import Final, NamedTuple, Protocol

from weft.expr.affine import (
    Mono,
    Poly,
    Ring,
    add,
    as_constant,
    constant,
    divide,
    exact_quotient,
    multiply,
    plus,
    scaled,
)
from weft.expr.nodes import Binary
from weft.expr.solver import Solver

MAX_MADE_CONSTANT: Final = 1 << 31
"""Largest constant factor of a divisor that a rule makes of smaller ones. Times a number of elements it stays an index
of 64 bits; a divisor that wraps around could even be 0."""


class RingAndSolver(Protocol):
    """The interface that rules use."""

    ring: Ring
    solver: Solver

    def quotient(self, p: Poly, d: Poly) -> Poly: ...

    def remainder(self, p: Poly, d: Poly) -> Poly: ...


class Parts(NamedTuple):
    """The result of a rule; None for a part that the rule does not find."""

    quotient: Poly | None = None
    remainder: Poly | None = None


@dataclass(frozen=True, slots=True)
class DivisionRule:
    name: str
    says: str
    apply: Callable[[RingAndSolver, Poly, Poly], Parts | None]


def _multiple(on: RingAndSolver, p: Poly, d: Poly) -> Parts | None:
    q, r = divide(p, d)
    k = as_constant(d)
    if k is not None and () in r:  # the constant may be larger than the divisor
        q, r = plus(q, r[()] // k), plus(r, r[()] % k - r[()])
    if not q:
        return None
    return Parts(add(q, on.quotient(r, d)), on.remainder(r, d))


def _within(on: RingAndSolver, p: Poly, d: Poly) -> Parts | None:
    k = as_constant(d)
    if k is not None:
        lo, hi = on.solver.interval(p)
        if lo // k == hi // k:  # NaN, if an end is not known
            times = int(lo // k)
            return Parts(constant(times), plus(p, -times * k))
    if on.solver.nonnegative(p) and on.solver.positive(add(d, p, -1)):
        return Parts({}, p)
    if on.solver.positive(scaled(p, -1)) and on.solver.nonnegative(add(p, d)):
        return Parts(constant(-1), add(p, d))
    return None


def _factors(p: Poly, d: Poly) -> Iterator[tuple[Poly, Poly]]:
    """``(g, m)`` with ``d = g * m``, ``g`` a plausible common factor of the large terms of ``p``, largest first."""
    if len(d) != 1:
        return
    ((mono, c),) = d.items()
    candidates: dict[tuple[Mono, int], None] = {}
    for other, k in p.items():
        if not other:
            continue
        shared: list[int] = []
        rest = list(other)
        for atom in mono:
            if atom in rest:
                rest.remove(atom)
                shared.append(atom)
        g = (tuple(shared), gcd(k, c))
        if g != ((), 1):
            candidates[g] = None
    for shared_mono, k in sorted(candidates, key=lambda g: (-len(g[0]), -g[1])):
        left = list(mono)
        for atom in shared_mono:
            left.remove(atom)
        yield {shared_mono: k}, {tuple(left): c // k}


def _common_factor(on: RingAndSolver, p: Poly, d: Poly) -> Parts | None:
    for g, m in _factors(p, d):
        x, s = divide(p, g)
        k = as_constant(g)
        if k is not None and () in s:
            x, s = plus(x, s[()] // k), plus(s, s[()] % k - s[()])
        if not s or (on.solver.nonnegative(s) and on.solver.positive(add(g, s, -1))):
            return Parts(on.quotient(x, m), add(multiply(g, on.remainder(x, m)), s))
    return None


def _largest_factor(p: Poly) -> int:
    return max(map(abs, p.values()), default=0)


def _single(on: RingAndSolver, p: Poly, op: str) -> tuple[Binary, Poly] | None:
    """``(e, rest)`` if ``p`` is ``e + rest`` with ``e`` an atom of operator ``op`` and ``rest`` a constant."""
    monos = [m for m in p if m]
    if len(monos) != 1 or len(monos[0]) != 1 or p[monos[0]] != 1:
        return None
    e = on.ring.atoms[monos[0][0]]
    if type(e) is not Binary or e.op != op:
        return None
    return e, constant(p.get((), 0))


def _nested_quotient(on: RingAndSolver, p: Poly, d: Poly) -> Parts | None:
    found = _single(on, p, "floordiv")
    if found is None:
        return None
    e, rest = found
    x, a = on.ring.poly(e.a), on.ring.poly(e.b)
    divisor, moved = multiply(a, d), multiply(rest, a)
    if not on.solver.positive(a) or max(_largest_factor(divisor), _largest_factor(moved)) > MAX_MADE_CONSTANT:
        return None
    return Parts(quotient=on.quotient(add(x, moved), divisor))


def _quotient_of_remainder(on: RingAndSolver, p: Poly, d: Poly) -> Parts | None:
    found = _single(on, p, "floormod")
    if found is None or found[1]:
        return None
    x, a = on.ring.poly(found[0].a), on.ring.poly(found[0].b)
    k = exact_quotient(a, d)
    if k is None or not on.solver.positive(a):
        return None
    return Parts(quotient=on.remainder(on.quotient(x, d), k))


def _nested_remainder(on: RingAndSolver, p: Poly, d: Poly) -> Parts | None:
    out = p
    for mono, c in p.items():
        for at, atom in enumerate(mono):
            e = on.ring.atoms[atom]
            if type(e) is not Binary or e.op != "floormod":
                continue
            rest: Poly = {mono[:at] + mono[at + 1 :]: c}
            if exact_quotient(multiply(rest, on.ring.poly(e.b)), d) is not None:
                out = add(add(out, {mono: c}, -1), multiply(rest, on.ring.poly(e.a)))
                break
    return Parts(remainder=on.remainder(out, d)) if out is not p else None


DIVISION_RULES: Final = (
    DivisionRule("multiple", "(q*d + r) // d = q + r // d;  (q*d + r) % d = r % d", _multiple),
    DivisionRule("within", "p // d = k and p % d = p - k*d where k*d <= p < (k+1)*d", _within),
    DivisionRule(
        "common-factor",
        "(g*x + s) // (g*m) = x // m;  (g*x + s) % (g*m) = g*(x % m) + s  where 0 <= s < g",
        _common_factor,
    ),
    DivisionRule("nested-quotient", "(x // a + c) // d = (x + c*a) // (a*d)", _nested_quotient),
    DivisionRule("quotient-of-remainder", "(x % (k*d)) // d = (x // d) % k", _quotient_of_remainder),
    DivisionRule("nested-remainder", "(c*(x % (k*d)) + y) % d = (c*x + y) % d", _nested_remainder),
)
