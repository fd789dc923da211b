"""Vectors of indices that are a known pattern above one scalar: ``base + (0, 0, 1, 1, 2, 2, …)``.

Upsampled images are read with such indices, and so are windows at the edges of images, where a mask excludes known
lanes. The range from the first to the last element is loaded contiguously and shuffled, which costs a fraction of a
gather.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import pairwise

from weft.expr.nodes import Binary, Broadcast, Const, Expr, Ramp, Select, make
from weft.expr.operators import COMPARISONS, fold_values
from weft.support.dtypes import INDEX

Pattern = tuple[Expr, tuple[int, ...]]
"""A scalar index, and the offset that each lane adds to it."""

_CONSTANT: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "mul": lambda a, b: a * b,
    "min": min,
    "max": max,
}
_BOTH: dict[str, Callable[[bool, bool], bool]] = {"and": operator.and_, "or": operator.or_}
_ZERO = Const(0)


def pattern(e: Expr) -> Pattern | None:
    """``e`` (a vector of indices) as a scalar and known offsets from it; None if it has another form."""
    if isinstance(e, Broadcast):
        if isinstance(e.value, Const):
            return _ZERO, (int(e.value.value),) * e.lanes
        return e.value, (0,) * e.lanes
    if isinstance(e, Ramp) and isinstance(e.stride, Const):
        steps = tuple(int(e.stride.value) * i for i in range(e.lanes))
        if isinstance(e.base, Const):
            return _ZERO, tuple(int(e.base.value) + s for s in steps)
        return e.base, steps
    if isinstance(e, Select):
        return _chosen(e)
    if not isinstance(e, Binary):
        return None
    a, b = pattern(e.a), pattern(e.b)
    if a is None or b is None:
        return None
    pairs = tuple(zip(a[1], b[1], strict=True))
    if e.op == "add":
        return _sum(a[0], b[0]), tuple(x + y for x, y in pairs)
    if e.op == "sub" and b[0] is _ZERO:
        return a[0], tuple(x - y for x, y in pairs)
    compute = _CONSTANT.get(e.op)
    divides = e.op in ("floordiv", "floormod")
    if compute is None or a[0] is not _ZERO or b[0] is not _ZERO or (divides and 0 in b[1]):
        return None
    return _ZERO, tuple(compute(x, y) for x, y in pairs)


def _chosen(e: Select) -> Pattern | None:
    """A choice by known lanes, as at the ends of padded rows."""
    takes = known_lanes(e.condition, e.lanes) if e.condition.lanes == e.lanes else None
    a, b = (pattern(e.then), pattern(e.otherwise)) if takes is not None else (None, None)
    if takes is None or a is None or b is None or a[0] is not b[0]:
        return None
    return a[0], tuple(x if first else y for first, x, y in zip(takes, a[1], b[1], strict=True))


def _sum(a: Expr, b: Expr) -> Expr:
    if a is _ZERO:
        return b
    return a if b is _ZERO else make("add", a, b)


def known_lanes(mask: Expr | None, lanes: int) -> tuple[bool, ...] | None:
    """The lanes that a mask allows (all without a mask) if it compares known numbers; else None."""
    if mask is None:
        return (True,) * lanes
    if not isinstance(mask, Binary):
        return None
    if mask.op in _BOTH:
        a, b = known_lanes(mask.a, lanes), known_lanes(mask.b, lanes)
        return None if a is None or b is None else tuple(_BOTH[mask.op](x, y) for x, y in zip(a, b, strict=True))
    left, right = (pattern(e) if e.dtype == INDEX else None for e in (mask.a, mask.b))
    if mask.op not in COMPARISONS or left is None or right is None or left[0] is not right[0]:
        return None
    return tuple(bool(fold_values(mask.op, INDEX, x, y)) for x, y in zip(left[1], right[1], strict=True))


def stretch(e: Expr, longest: int, lanes: tuple[bool, ...]) -> tuple[Expr, int, tuple[int, ...]] | None:
    """The first element that one of ``lanes`` reads, the length of the range up to the last one, and the position of
    each lane in this range (0 for other lanes). None if there is no pattern, no lane reads, or the range is longer than
    ``longest`` elements."""
    found = pattern(e) if e.dtype == INDEX and any(lanes) else None
    if found is None:
        return None
    base, offsets = found
    read = [o for o, reads in zip(offsets, lanes, strict=True) if reads]
    low, high = min(read), max(read)
    if high - low >= longest:
        return None
    places = tuple(o - low if reads else 0 for o, reads in zip(offsets, lanes, strict=True))
    return _sum(base, Const(low)) if low else base, high - low + 1, places


FEWEST_LANES_OF_TWO = 8
"""Fewest lanes for which two ranges, with a shuffle each, cost less than loading lane by lane."""

Part = tuple[tuple[Expr, int, tuple[int, ...]], tuple[bool, ...]]
"""A range as :func:`stretch` gives it, and the lanes that read there."""


def stretches(e: Expr, longest: int, lanes: tuple[bool, ...]) -> tuple[Part, ...]:
    """The range of :func:`stretch`, or two of them: rows that wrap around are read at both ends. Empty if more would be
    needed."""
    one = stretch(e, longest, lanes)
    if one is not None:
        return ((one, lanes),)
    found = pattern(e) if e.dtype == INDEX and len(lanes) >= FEWEST_LANES_OF_TWO and any(lanes) else None
    if found is None:
        return ()
    read = sorted({o for o, reads in zip(found[1], lanes, strict=True) if reads})
    _, last = max((after - before, before) for before, after in pairwise(read))
    parts: list[Part] = []
    for low in (True, False):
        some = tuple(reads and (o <= last) is low for o, reads in zip(found[1], lanes, strict=True))
        near = stretch(e, longest, some)
        if near is None:
            return ()
        parts.append((near, some))
    return tuple(parts)
