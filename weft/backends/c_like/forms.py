"""Special forms of index vectors and conditions, which need no computation per lane."""

from __future__ import annotations

from weft.backends.patterns import known_lanes, stretch
from weft.expr.nodes import Binary, Broadcast, Const, Expr, Load, Ramp, make
from weft.support.dtypes import INDEX

Stretch = tuple[Expr, int, tuple[int, ...]]
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def near_elements(e: Load) -> Stretch | None:
    """The memory range that holds all lanes of a load which is neither contiguous nor of one stride: its first
    index, its length in elements, and the position of each lane in it."""
    at, n = e.indices[0], e.lanes
    if n == 1 or (isinstance(at, Broadcast) and e.mask is None):
        return None
    if isinstance(at, Ramp) and isinstance(at.stride, Const) and (e.mask is None or at.stride.value == 1):
        return None
    lanes = known_lanes(e.mask, n)
    return None if lanes is None else stretch(at, 2 * n, lanes)


def known_condition(e: Expr) -> tuple[bool, ...] | None:
    """The lanes of a comparison of constants."""
    return known_lanes(e, e.lanes) if isinstance(e, Binary) and e.lanes > 1 and e.a.dtype == INDEX else None


def first_lanes(e: Expr) -> tuple[Expr, bool] | None:
    """``i, i + 1, … < n`` as the number of leading lanes that are true (any number; below 1: none). With True: the
    number of leading lanes that are false; all others are true."""
    if not isinstance(e, Binary) or e.lanes == 1 or e.a.dtype != INDEX or e.op not in _MIRRORED:
        return None
    a, b, op = e.a, e.b, e.op
    if isinstance(a, Broadcast) and isinstance(b, Ramp):
        a, b, op = b, a, _MIRRORED[op]
    if not (isinstance(a, Ramp) and isinstance(b, Broadcast) and isinstance(a.stride, Const) and a.stride.value == 1):
        return None
    if b.value.lanes != 1:
        return None
    count = make("sub", b.value, a.base)
    return (count if op in ("lt", "ge") else make("add", count, 1)), op in ("gt", "ge")
