"""What is known at a place of a program (ranges of loop variables, conditions that hold), and simplification with it.

Index expressions go through linear forms (``schedule.affine``). A condition ``a < b`` is the fact ``b - a - 1 >= 0``;
it is decided by the least and greatest value of that form, or by comparing it with a fact that is known to hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weft.expr.nodes import Binary, Broadcast, Call, Cast, Const, Expr, Load, Not, Ramp, Select, Var, logical_not, make
from weft.expr.nodes import select as choose
from weft.schedule.affine import Linear, linear, maximum_of, minimum_of
from weft.support.dtypes import BOOL, INDEX
from weft.tir.nodes import For, Let

TRUE, FALSE = Const(True, BOOL), Const(False, BOOL)
_ARITHMETIC = frozenset({"add", "sub", "mul", "floordiv", "floormod", "min", "max"})
_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


class Context:
    """Facts that hold where a statement stands, outermost first."""

    def __init__(self) -> None:
        self.ranges: dict[Var, tuple[Linear, Linear]] = {}
        self.facts: list[Linear] = []
        self._memo: dict[Expr, Expr] = {}

    @contextmanager
    def loop(self, s: For, *facts: Linear) -> Iterator[None]:
        """Inside the body of a loop; ``facts`` are forms known to be at least 0 there."""
        start = linear(s.start, self.ranges)
        span = (start, start + linear(s.extent, self.ranges).plus(-1))
        with self.range(s.var, span, *facts):
            yield

    @contextmanager
    def range(self, var: Var, span: tuple[Linear, Linear], *facts: Linear) -> Iterator[None]:
        """Where ``span[0] <= var <= span[1]``."""
        memo, self._memo = self._memo, {}
        self.ranges[var] = span
        self.facts.extend(facts)
        try:
            yield
        finally:
            del self.ranges[var]
            del self.facts[len(self.facts) - len(facts) :]
            self._memo = memo

    @contextmanager
    def let(self, s: Let) -> Iterator[None]:
        """Inside a let; an index that it binds is what it is bound to (and not a size, which would be at least 0)."""
        if s.var.dtype != INDEX:
            yield
            return
        form = linear(s.value, self.ranges)
        with self.range(s.var, (form, form)):
            yield

    @contextmanager
    def where(self, condition: Expr, holds: bool = True) -> Iterator[None]:
        """Where a condition is known to hold (or not to)."""
        memo, self._memo = self._memo, {}
        count = len(self.facts)
        self.facts.extend(forms_of(condition, holds, self))
        try:
            yield
        finally:
            del self.facts[count:]
            self._memo = memo

    def holds(self, form: Linear) -> bool:
        """Whether ``form >= 0`` is certain."""
        least = minimum_of(form, self.ranges)
        if least is not None and least >= 0:
            return True
        return any(self._follows(form, fact) for fact in self.facts)

    def _follows(self, form: Linear, fact: Linear) -> bool:
        """Whether ``form`` is at least a positive multiple of ``fact``, which is at least 0."""
        times = set()
        for term, factor in fact.terms.items():
            ratio, rest = divmod(form.terms.get(term, 0), factor)
            if ratio > 0 and rest == 0:
                times.add(ratio)
        for ratio in times:
            least = minimum_of(form - fact.scaled(ratio), self.ranges)
            if least is not None and least >= 0:
                return True
        return False

    def minimum(self, e: Expr) -> int | None:
        """A constant that ``e`` never goes below."""
        return minimum_of(linear(e, self.ranges), self.ranges)

    def maximum(self, e: Expr) -> int | None:
        """A constant that ``e`` never exceeds."""
        return maximum_of(linear(e, self.ranges), self.ranges)

    def simplify(self, e: Expr) -> Expr:
        """An equal expression, simpler where the ranges and facts of this place allow."""
        if isinstance(e, (Const, Var)):
            if isinstance(e, Var) and e in self.ranges:
                low, high = self.ranges[e]
                if low.is_constant and high.is_constant and low.constant == high.constant:
                    return Const(low.constant, e.dtype)
            return e
        found = self._memo.get(e)
        if found is None:
            found = self._memo[e] = self._simplify(e)
        return found

    def _simplify(self, e: Expr) -> Expr:
        if e.dtype == INDEX and e.lanes == 1 and isinstance(e, Binary) and e.op in _ARITHMETIC:
            return linear(self._atoms(e), self.ranges).expr()
        if isinstance(e, Binary) and e.op in _OPPOSITE and e.a.dtype == INDEX and e.lanes == 1:
            return self._compare(e)
        if isinstance(e, Binary):
            return make(e.op, self.simplify(e.a), self.simplify(e.b))
        if isinstance(e, Not):
            return self._negate(self.simplify(e.a))
        if isinstance(e, Select):
            return self._select(e)
        if isinstance(e, Load):
            indices = tuple(self.simplify(i) for i in e.indices)
            return Load(e.source, indices, None if e.mask is None else self.simplify(e.mask))
        if isinstance(e, (Cast, Call, Ramp, Broadcast)) or e.children:
            return e.rebuild([self.simplify(c) for c in e.children])
        return e

    def _atoms(self, e: Expr) -> Expr:
        """``e`` with what is not index arithmetic inside it simplified."""
        if isinstance(e, Binary) and e.op in _ARITHMETIC and e.dtype == INDEX:
            return make(e.op, self._atoms(e.a), self._atoms(e.b))
        return self.simplify(e)

    def _select(self, e: Select) -> Expr:
        condition = self.simplify(e.condition)
        if isinstance(condition, Const):
            return self.simplify(e.then if condition.value else e.otherwise)
        if condition.lanes != 1:
            return Select(condition, self.simplify(e.then), self.simplify(e.otherwise))
        with self.where(condition):
            then = self.simplify(e.then)
        with self.where(condition, holds=False):
            otherwise = self.simplify(e.otherwise)
        return then if then is otherwise else choose(condition, then, otherwise)

    def _negate(self, e: Expr) -> Expr:
        if isinstance(e, Binary) and e.op in _OPPOSITE and not e.a.dtype.is_float:
            return make(_OPPOSITE[e.op], e.a, e.b)
        return e.a if isinstance(e, Not) else logical_not(e)

    def _compare(self, e: Binary) -> Expr:
        a, b = linear(self._atoms(e.a), self.ranges), linear(self._atoms(e.b), self.ranges)
        if e.op in ("eq", "ne"):
            return self._equality(e.op, a - b)
        form = comparison_form(e.op, a, b)
        if self.holds(form):
            return TRUE
        if self.holds(form.scaled(-1).plus(-1)):
            return FALSE
        return _as_comparison(form)

    def _equality(self, op: str, difference: Linear) -> Expr:
        yes, no = (TRUE, FALSE) if op == "eq" else (FALSE, TRUE)
        if difference.is_constant:
            return yes if difference.constant == 0 else no
        above, below = difference.plus(-1), difference.scaled(-1).plus(-1)
        if self.holds(above) or self.holds(below):
            return no
        parts = _zero_terms(difference, self)
        if parts is None:
            made = _as_equality(difference)
        else:
            made = TRUE
            for term in parts:
                low = self.minimum(term)
                assert low is not None
                made = make("and", made, make("eq", term, Const(low, INDEX)))
        return made if op == "eq" else self._negate(made)


def _zero_terms(form: Linear, context: Context) -> list[Expr] | None:
    """The terms that must all be at their least value for ``form`` to be 0, where that is so."""
    for one in (form, form.scaled(-1)):
        least = minimum_of(one, context.ranges)
        if least == 0 and all(f > 0 and context.minimum(t) is not None for t, f in one.terms.items()):
            separate = sum(f * (context.minimum(t) or 0) for t, f in one.terms.items()) + one.constant
            if separate == 0:
                return list(one.terms)
    return None


def comparison_form(op: str, a: Linear, b: Linear) -> Linear:
    """The form that is at least 0 exactly if ``a op b``."""
    if op == "lt":
        return (b - a).plus(-1)
    if op == "le":
        return b - a
    if op == "gt":
        return (a - b).plus(-1)
    return a - b


def _sides(form: Linear) -> tuple[Expr, Expr]:
    positive = Linear({t: f for t, f in form.terms.items() if f > 0})
    negative = Linear({t: -f for t, f in form.terms.items() if f < 0})
    if form.constant >= 0:
        return positive.plus(form.constant).expr(), negative.expr()
    return positive.expr(), negative.plus(-form.constant).expr()


def _as_comparison(form: Linear) -> Expr:
    positive, negative = _sides(form)
    return make("le", negative, positive)


def _as_equality(form: Linear) -> Expr:
    positive, negative = _sides(form)
    return make("eq", positive, negative)


def forms_of(condition: Expr, holds: bool, context: Context) -> list[Linear]:
    """Forms that are at least 0 where ``condition`` holds (or, with ``holds`` false, does not)."""
    out: list[Linear] = []
    stack = [(condition, holds)]
    while stack:
        e, truth = stack.pop()
        if isinstance(e, Not):
            stack.append((e.a, not truth))
        elif isinstance(e, Call) and e.name == "likely":
            stack.append((e.args[0], truth))
        elif isinstance(e, Binary) and e.op == ("and" if truth else "or"):
            stack += [(e.a, truth), (e.b, truth)]
        elif isinstance(e, Binary) and e.op in _OPPOSITE and e.a.dtype == INDEX and e.lanes == 1:
            op = e.op if truth else _OPPOSITE[e.op]
            a, b = linear(e.a, context.ranges), linear(e.b, context.ranges)
            if op == "eq":
                out += [a - b, b - a]
            elif op != "ne":
                out.append(comparison_form(op, a, b))
    return out
