"""The interval that an index sweeps while some of its variables vary and the others are fixed."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from weft.expr.affine import Mono, Poly, add, as_constant, constant, scaled
from weft.expr.nodes import Binary, Expr, Var
from weft.expr.normalize import Normalizer
from weft.expr.visit import uses_var
from weft.support.dtypes import INDEX


class Sweep(NamedTuple):
    """The interval ``low <= value <= low + width`` (``width`` is one less than the extent)."""

    low: Expr
    width: Expr


class _Span(NamedTuple):
    low: Poly
    width: Poly


def sweep(normal: Normalizer, p: Poly, moving: Iterable[Var]) -> Sweep | None:
    """The interval of ``p`` under the bounds that ``normal`` knows; its ends mention no moving variable.

    None if a bound is missing, or if ``p`` is not a sum of terms with bounds.
    """
    made = _Sweeper(normal, moving).poly(p)
    return None if made is None else Sweep(normal.expr(made.low), normal.expr(made.width))


class _Sweeper:
    def __init__(self, normal: Normalizer, moving: Iterable[Var]) -> None:
        self.normal = normal
        self.ring, self.solver = normal.ring, normal.solver
        self.variables = frozenset(moving)
        self.moving = {self.ring.number(v) for v in self.variables}
        self.moves: dict[int, bool] = {}

    def mentions(self, p: Poly) -> bool:
        """Whether a moving variable occurs anywhere in ``p``."""
        return any(self.varies(atom) for mono in p for atom in mono)

    def varies(self, atom: int) -> bool:
        found = self.moves.get(atom)
        if found is None:
            e = self.ring.atoms[atom]
            inside = atom in self.moving if type(e) is Var else uses_var(e, self.variables)
            found = self.moves[atom] = inside
        return found

    def poly(self, p: Poly) -> _Span | None:
        low: Poly = {}
        width: Poly = {}
        for mono, c in p.items():
            each = self.mono(mono)
            if each is None:
                return None
            low = add(low, each.low if c > 0 else add(each.low, each.width), c)
            width = add(width, each.width, abs(c))
        return _Span(low, width)

    def mono(self, mono: Mono) -> _Span | None:
        varying = [a for a in mono if self.varies(a)]
        if not varying:
            return _Span({mono: 1}, {})
        if len(mono) == 1:
            return self.atom(mono[0])
        rest = list(mono)
        rest.remove(varying[0])
        factor = {tuple(rest): 1}
        if len(varying) > 1 or self.solver.interval(factor).lo < 0:
            return None
        each = self.atom(varying[0])
        return None if each is None else _Span(self.times(each.low, rest), self.times(each.width, rest))

    @staticmethod
    def times(p: Poly, atoms: list[int]) -> Poly:
        return {tuple(sorted((*mono, *atoms))): c for mono, c in p.items()}

    def atom(self, atom: int) -> _Span | None:
        e = self.ring.atoms[atom]
        if atom in self.moving:
            ends = self.solver.ends(atom)
            if ends is None or self.mentions(ends[0]) or self.mentions(ends[1]):
                return None
            return _Span(ends[0], add(ends[1], ends[0], -1))
        if type(e) is not Binary or e.dtype is not INDEX:
            return None
        if e.op in ("floordiv", "floormod"):
            by = as_constant(self.ring.poly(e.b))
            if by is None or by <= 0:
                return None
            inner = self.poly(self.ring.poly(e.a))
            if e.op == "floormod":
                return self.remainder(inner, by)
            return None if inner is None else self.quotient(inner, by)
        if e.op in ("min", "max"):
            return self.choice(e)
        return None

    def quotient(self, inner: _Span, by: int) -> _Span | None:
        reach = self.most(inner.width)
        if reach is None:
            return None
        ahead = self.most(self.normal.remainder(inner.low, constant(by)))
        ahead = by - 1 if ahead is None else ahead
        return _Span(self.normal.quotient(inner.low, constant(by)), constant((ahead + reach) // by))

    def remainder(self, inner: _Span | None, by: int) -> _Span:
        if inner is not None:
            offset = self.normal.remainder(inner.low, constant(by))
            most = self.most(add(offset, inner.width))
            if most is not None and most < by:
                return _Span(offset, inner.width)
        return _Span({}, constant(by - 1))

    def choice(self, e: Binary) -> _Span | None:
        """Both operands sweep an interval; the selected one moves at most as far as the wider interval."""
        a, b = self.poly(self.ring.poly(e.a)), self.poly(self.ring.poly(e.b))
        if a is None or b is None:
            return None
        if self.solver.nonnegative(add(a.width, b.width, -1)):
            wide = a.width
        elif self.solver.nonnegative(add(b.width, a.width, -1)):
            wide = b.width
        else:
            return None
        chosen = Binary(e.op, self.normal.expr(a.low), self.normal.expr(b.low))
        return _Span(self.ring.poly(self.normal.simplify(chosen)), wide)

    def most(self, p: Poly) -> int | None:
        least = self.solver.least(scaled(p, -1))
        return None if least == -inf else -int(least)
