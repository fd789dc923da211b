"""Facts about variables and conditions, and proofs from them.

facts = Facts()
facts.bind(i, 0, n)                 # 0 <= i < n, as inside a loop
facts.assume(i * 4 + j < m)         # as inside an if
facts.prove(i < n + 1)              # True
facts.simplify((i * n + j) // n)    # i, if 0 <= j < n
with facts.assuming(i > 0): ...     # for a while
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import gcd, inf

from weft.expr.affine import Poly, Ring, constant, exact_quotient, linear_form, plus, scaled
from weft.expr.bounds import Interval
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Const, Expr, ExprLike, Var, index, wrap
from weft.expr.normalize import Normalizer
from weft.expr.solver import Assumptions
from weft.expr.sweep import Sweep, sweep
from weft.support.dtypes import INDEX


class Facts:
    """The facts that hold at a place of a program. An answer is either proved or "not proved"."""

    def __init__(self, sizes: Iterable[Var] = (), *, keeps_variables: bool = False) -> None:
        """``sizes`` are symbolic dimensions. With ``keeps_variables`` a loop variable is kept even if it has only one
        possible value."""
        self._ring = Ring()
        self._normal = Normalizer(self._ring, Assumptions(keeps_variables=keeps_variables))
        self._dimensions: list[Poly] = []
        for size in sizes:
            self.bind_size(size)

    def copy(self) -> Facts:
        """The same facts, to which others can be added."""
        made = Facts()
        made._ring = self._ring
        made._normal = Normalizer(self._ring, self._normal.solver.state.copy())
        made._dimensions = self._dimensions
        return made

    # Stating

    def bind(self, var: Var | IterVar, start: ExprLike = 0, extent: ExprLike | None = None) -> None:
        """``start <= var < start + extent``, as for a loop that runs at least once (its extent is positive)."""
        if isinstance(var, IterVar):
            start, extent = var.start, var.extent
            var = var.var
        normal = self._normal
        first, count = _literal(start), _literal(extent)
        if first is not None and count is not None:
            normal.solver.state_bounds(self._ring.number(var), constant(first), constant(first + count - 1))
            normal.forget()
            return
        lower = self._ring.poly(normal.simplify(index(start)))
        if extent is None:
            normal.solver.state_nonnegative({**{(self._ring.number(var),): 1}, **scaled(lower, -1)})
        else:
            stop = self._ring.poly(normal.simplify(index(start) + index(extent)))
            positive = self._ring.poly(normal.simplify(index(extent)))
            normal.solver.state_positive(positive)
            self._state_factors(positive)
            normal.solver.state_bounds(self._ring.number(var), lower, plus(stop, -1))
        normal.forget()

    def bind_size(self, var: Var, smallest: int = 1) -> None:
        """``var`` is a symbolic dimension: at least ``smallest``."""
        self._normal.solver.state_range(self._ring.number(var), Interval(smallest, inf))
        self._normal.forget()

    def bind_dimension(self, e: Expr) -> None:
        """``e`` is the dimension of a buffer: at least 0, and at least 1 where a loop over a multiple of it runs."""
        p = self._poly(e)
        if len(p) > 1:
            self._normal.solver.state_nonnegative(p)
            self._normal.forget()
            common = gcd(*p.values())
            self._dimensions = [*self._dimensions, {mono: c // common for mono, c in p.items()}]

    def _state_factors(self, positive: Poly) -> None:
        """Dimensions that divide a positive form are positive, as none is negative."""
        pieces = self._dimensions and _pieces(self._ring, positive)
        for d in self._dimensions:
            if any(exact_quotient(p, d) is not None for p in (positive, pieces) if p):
                self._normal.solver.state_positive(d)

    def assume(self, condition: ExprLike) -> None:
        """``condition`` holds from now on."""
        self._normal.assume(self._normal.simplify(wrap(condition)))

    @contextmanager
    def scope(self) -> Iterator[Facts]:
        """Facts stated inside are forgotten at the end."""
        before = self._normal
        self._normal = Normalizer(self._ring, before.solver.state.copy())
        try:
            yield self
        finally:
            self._normal = before

    @contextmanager
    def binding(self, var: Var | IterVar, start: ExprLike = 0, extent: ExprLike | None = None) -> Iterator[Facts]:
        """A scope in which ``var`` is bound: the body of a loop."""
        with self.scope():
            self.bind(var, start, extent)
            yield self

    @contextmanager
    def assuming(self, *conditions: ExprLike) -> Iterator[Facts]:
        """A scope in which ``conditions`` hold."""
        with self.scope():
            for condition in conditions:
                self.assume(condition)
            yield self

    # Asking

    def simplify(self, e: Expr) -> Expr:
        """An expression of the same value, in normal form."""
        return self._normal.simplify(e)

    def prove(self, condition: ExprLike) -> bool:
        """Whether ``condition`` (all its lanes) is proved to hold."""
        made = self._normal.simplify(wrap(condition))
        value = getattr(made, "value", None)
        if isinstance(value, Const):
            value = value.value
        return value is True

    def bounds(self, e: ExprLike) -> Interval:
        """Constant bounds of ``e``."""
        made = self._normal.simplify(wrap(e))
        if made.dtype is INDEX and made.lanes == 1:
            return self._normal.solver.interval(self._ring.poly(made))
        return self._normal.solver.node_interval(made)

    def minimum(self, e: ExprLike) -> int | None:
        """A constant that an index never goes below."""
        least = self._normal.solver.least(self._poly(index(e)))
        return None if least == -inf else int(least)

    def maximum(self, e: ExprLike) -> int | None:
        """A constant that an index never exceeds."""
        least = self._normal.solver.least(scaled(self._poly(index(e)), -1))
        return None if least == -inf else -int(least)

    def nonnegative(self, e: ExprLike) -> bool:
        """Whether an index is proved to be at least 0."""
        return self._normal.solver.nonnegative(self._poly(index(e)))

    def linear(self, e: Expr, *variables: Var) -> tuple[dict[Var, int], Expr] | None:
        """``(factors, rest)`` with ``e = sum(factor * variable) + rest``; None if ``e`` is not linear in them.

        Factors are constants other than 0; ``rest`` does not mention the variables.
        """
        return linear_form(self._normal.simplify(e), variables, self._ring)

    def terms(self, e: Expr) -> tuple[dict[Expr, int], int]:
        """``(factors, constant)`` with ``e = sum(factor * term) + constant``; no term is a sum."""
        p = self._poly(e)
        return {self._ring.term(mono, 1): c for mono, c in p.items() if mono}, p.get((), 0)

    def sweep(self, e: Expr, moving: Iterable[Var]) -> Sweep | None:
        """An interval that holds all values of ``e`` while the variables in ``moving`` run through their ranges."""
        return sweep(self._normal, self._poly(e), moving)

    def _poly(self, e: Expr) -> Poly:
        return self._ring.poly(self._normal.simplify(e))

    def equal(self, a: ExprLike, b: ExprLike) -> bool:
        """Whether two indices are proved equal."""
        return a is b or self._normal.solver.zero(self._poly(index(a) - index(b)))


def _pieces(ring: Ring, p: Poly) -> Poly | None:
    """If ``p`` is the number ``(x + k - 1) // k`` of pieces of ``k``, the form ``x``, which is positive where it is.
    Some whole pieces may stand outside the quotient."""
    (mono, factor), *others = [term for term in p.items() if term[0]] or [((), 0)]
    e = ring.atoms[mono[0]] if len(mono) == 1 and factor == 1 and not others else None
    if not isinstance(e, Binary) or e.op != "floordiv" or not isinstance(e.b, Const):
        return None
    k = int(e.b.value)
    return plus(ring.poly(e.a), p.get((), 0) * k - (k - 1))


def _literal(e: ExprLike | None) -> int | None:
    return int(e) if type(e) is int or type(e) is Const else None
