"""Interval analysis: constant bounds of the value of an expression."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final, NamedTuple

from weft.expr.nodes import Binary, Broadcast, Call, Cast, Const, Expr, Ramp, Select, Shuffle
from weft.support.dtypes import DType


class Interval(NamedTuple):
    """``lo <= value <= hi``; an end is an int, or infinite if nothing is known."""

    lo: int | float
    hi: int | float

    @property
    def is_point(self) -> bool:
        return self.lo == self.hi

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (int, float)) and self.lo <= value <= self.hi

    def union(self, other: Interval) -> Interval:
        return Interval(min(self.lo, other.lo), max(self.hi, other.hi))

    def meet(self, other: Interval) -> Interval:
        return Interval(max(self.lo, other.lo), min(self.hi, other.hi))


EVERYTHING: Final = Interval(-inf, inf)
_TRUTH: Final = Interval(0, 1)


def point(value: int | float) -> Interval:
    return Interval(value, value)


def _times(a: int | float, b: int | float) -> int | float:
    return 0 if a == 0 or b == 0 else a * b


def _divided(a: int | float, b: int | float) -> int | float:
    """``a // b`` for a positive ``b``. By an infinite one it is 0 or -1, as Python has it."""
    return a // b if abs(a) != inf else a


def plus(a: Interval, b: Interval) -> Interval:
    return Interval(a.lo + b.lo, a.hi + b.hi)


def minus(a: Interval, b: Interval) -> Interval:
    return Interval(a.lo - b.hi, a.hi - b.lo)


def times(a: Interval, b: Interval) -> Interval:
    ends = (_times(a.lo, b.lo), _times(a.lo, b.hi), _times(a.hi, b.lo), _times(a.hi, b.hi))
    return Interval(min(ends), max(ends))


def scaled(a: Interval, factor: int) -> Interval:
    if factor >= 0:
        return Interval(_times(a.lo, factor), _times(a.hi, factor))
    return Interval(_times(a.hi, factor), _times(a.lo, factor))


def floordiv(a: Interval, b: Interval) -> Interval:
    """Quotient rounded down; nothing is known if the divisor may be zero or negative."""
    if b.lo < 1:
        return EVERYTHING
    ends = (_divided(a.lo, b.lo), _divided(a.lo, b.hi), _divided(a.hi, b.lo), _divided(a.hi, b.hi))
    return Interval(min(ends), max(ends))


def floormod(a: Interval, b: Interval) -> Interval:
    """Remainder with the sign of the divisor."""
    if b.lo < 1:
        return EVERYTHING
    if b.is_point and _divided(a.lo, b.lo) == _divided(a.hi, b.lo):  # never of two infinities: these have two signs
        return Interval(a.lo % b.lo, a.hi % b.lo)
    high = min(b.hi - 1, a.hi) if a.lo >= 0 else b.hi - 1
    return Interval(0, high)


def truncdiv(a: Interval, b: Interval) -> Interval:
    return floordiv(a, b) if a.lo >= 0 else EVERYTHING


def truncmod(a: Interval, b: Interval) -> Interval:
    return floormod(a, b) if a.lo >= 0 else EVERYTHING


BINARY_BOUNDS: Final[dict[str, Callable[[Interval, Interval], Interval]]] = {
    "add": plus,
    "sub": minus,
    "mul": times,
    "floordiv": floordiv,
    "floormod": floormod,
    "truncdiv": truncdiv,
    "truncmod": truncmod,
    "min": lambda a, b: Interval(min(a.lo, b.lo), min(a.hi, b.hi)),
    "max": lambda a, b: Interval(max(a.lo, b.lo), max(a.hi, b.hi)),
}


def dtype_range(dtype: DType) -> Interval:
    """All values of an integer dtype; INDEX counts as unlimited, since it is assumed not to overflow."""
    if dtype.kind == "bool":
        return _TRUTH
    if dtype.kind == "float" or dtype.bits >= 64:
        return Interval(0, inf) if dtype.kind == "uint" else EVERYTHING
    lo, hi = dtype.limits()
    return Interval(int(lo), int(hi))


def interval(e: Expr, known: Callable[[Expr], Interval | None], memo: dict[Expr, Interval]) -> Interval:
    """The interval of an integer or bool expression (all lanes of a vector together).

    ``known`` may give the interval of a node (usually a variable). Floats have no bounds. What the interval does not
    depend on is not looked at: the indices of a load may hold other loads, and so on.
    """
    stack = [e]
    while stack:
        node = stack[-1]
        missing = [] if node in memo else [p for p in _parts(node) if p not in memo]
        if missing:
            stack += missing
            continue
        stack.pop()
        if node not in memo:
            made = _of(node, memo)
            outside = known(node)
            memo[node] = made if outside is None else made.meet(outside)
    return memo[e]


def _parts(e: Expr) -> tuple[Expr, ...]:
    """The children of which :func:`_composite` takes the intervals."""
    if e.dtype.kind == "float":
        return ()
    if isinstance(e, Binary):
        return (e.a, e.b) if e.op in BINARY_BOUNDS else ()
    if isinstance(e, Select):
        return e.then, e.otherwise
    if isinstance(e, Cast):
        return (e.a,) if e.a.dtype.kind != "float" else ()
    if isinstance(e, (Broadcast, Ramp, Shuffle)):
        return e.children
    return e.args if isinstance(e, Call) and e.name == "likely" else ()


def _of(e: Expr, memo: dict[Expr, Interval]) -> Interval:
    dtype = e.dtype
    whole = dtype_range(dtype)
    if dtype.kind == "float":
        return EVERYTHING
    if isinstance(e, Const):
        return point(int(e.value))
    made = _composite(e, memo)
    if made is None:
        return whole
    # An operation that may leave the range of its dtype wraps around.
    return made if made.lo >= whole.lo and made.hi <= whole.hi else whole


def _composite(e: Expr, memo: dict[Expr, Interval]) -> Interval | None:
    if isinstance(e, Binary):
        rule: Any = BINARY_BOUNDS.get(e.op)
        if rule is None:  # of comparisons, whatever they compare
            return None
        made: Interval = rule(memo[e.a], memo[e.b])
        return made
    if isinstance(e, Select):
        return memo[e.then].union(memo[e.otherwise])
    if isinstance(e, Cast):
        return memo[e.a] if e.a.dtype.kind != "float" else None
    if isinstance(e, Broadcast):
        return memo[e.value]
    if isinstance(e, Ramp):
        return plus(memo[e.base], times(memo[e.stride], Interval(0, e.count - 1)))
    if isinstance(e, Shuffle):
        made = memo[e.vectors[0]]
        for v in e.vectors[1:]:
            made = made.union(memo[v])
        return made
    if isinstance(e, Call) and e.name == "likely":
        return memo[e.args[0]]
    return None
