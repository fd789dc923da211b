"""Index vectors whose lanes form an arithmetic sequence: base, base + stride, …"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from weft.expr.nodes import Binary, Broadcast, Const, Expr, Not, Ramp, Select
from weft.expr.operators import COMPARISONS
from weft.support.dtypes import BOOL, INDEX


class Lanes(NamedTuple):
    """The vector ``base + lane * stride``."""

    base: Expr
    stride: Expr
    size: int

    def at(self, lane: int) -> Expr:
        return self.base + self.stride * lane

    @property
    def last(self) -> Expr:
        return self.at(self.size - 1)

    def expr(self, simplify: Callable[[Expr], Expr]) -> Expr:
        stride, base = simplify(self.stride), simplify(self.base)
        if isinstance(stride, Const) and stride.value == 0:
            return Broadcast(base, self.size)
        return Ramp(base, stride, self.size)


_ZERO: Final = Const(0, INDEX)


def sequence(e: Expr) -> Lanes | None:
    """``e`` as a sequence, if it is one."""
    if type(e) is Ramp and e.base.lanes == 1:
        return Lanes(e.base, e.stride, e.count)
    if type(e) is Broadcast and e.value.lanes == 1:
        return Lanes(e.value, _ZERO, e.count)
    return None


def simplify_lanes(e: Expr, simplify: Callable[[Expr], Expr], holds: Callable[[Expr], bool]) -> Expr | None:
    """A vector operation over sequences as a sequence, or over equal lanes as one scalar operation."""
    lifted = _all_lanes_equal(e, simplify)
    if lifted is not None:
        return lifted
    if type(e) is not Binary or e.a.dtype is not INDEX:
        return None
    a, b = sequence(e.a), sequence(e.b)
    if a is None or b is None:
        return None
    if e.op in COMPARISONS:
        return _compared(e.op, a, b, holds)
    made = _combined(e.op, a, b, holds)
    return None if made is None else made.expr(simplify)


def _all_lanes_equal(e: Expr, simplify: Callable[[Expr], Expr]) -> Expr | None:
    """``broadcast(a) op broadcast(b)`` is ``broadcast(a op b)``."""
    if isinstance(e, (Binary, Not, Select)) and all(type(c) is Broadcast for c in e.children):
        inner = [c.value for c in e.children if isinstance(c, Broadcast)]
        if all(c.lanes == 1 for c in inner):
            return Broadcast(simplify(e.rebuild(inner)), e.lanes)
    if isinstance(e, Ramp) and isinstance(e.stride, Const) and e.stride.value == 0:
        return Broadcast(e.base, e.count)
    return None


def _compared(op: str, a: Lanes, b: Lanes, holds: Callable[[Expr], bool]) -> Expr | None:
    """The constant result if the first and the last lane have the same: the difference is monotone between them."""
    if op in ("eq", "ne"):
        return None
    opposite = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}[op]
    ends = ((a.base, b.base), (a.last, b.last))
    for this, truth in ((op, True), (opposite, False)):
        if all(holds(Binary(this, x, y)) for x, y in ends):
            return Broadcast(Const(truth, BOOL), a.size)
    return None


def _combined(op: str, a: Lanes, b: Lanes, holds: Callable[[Expr], bool]) -> Lanes | None:
    n = a.size
    if op == "add":
        return Lanes(a.base + b.base, a.stride + b.stride, n)
    if op == "sub":
        return Lanes(a.base - b.base, a.stride - b.stride, n)
    if op == "mul":
        if _constant_lanes(b):
            return Lanes(a.base * b.base, a.stride * b.base, n)
        return Lanes(a.base * b.base, a.base * b.stride, n) if _constant_lanes(a) else None
    if op in ("floordiv", "floormod") and _constant_lanes(b):
        return _divided(op, a, b.base, holds)
    if op in ("min", "max"):
        for x, y in ((a, b), (b, a)):
            if holds(x.base <= y.base) and holds(x.last <= y.last):
                return x if op == "min" else y
    return None


def _divided(op: str, a: Lanes, d: Expr, holds: Callable[[Expr], bool]) -> Lanes | None:
    if not holds(d > 0):
        return None
    if holds(a.stride % d == 0):  # floor((b + i*k*d) / d) = floor(b / d) + i*k
        if op == "floordiv":
            return Lanes(a.base // d, a.stride // d, a.size)
        return Lanes(a.base % d, _ZERO, a.size)
    if holds(a.stride >= 0) and holds((a.base % d) + a.stride * (a.size - 1) < d):
        if op == "floordiv":
            return Lanes(a.base // d, _ZERO, a.size)
        return Lanes(a.base % d, a.stride, a.size)
    return None


def _constant_lanes(a: Lanes) -> bool:
    return isinstance(a.stride, Const) and a.stride.value == 0
