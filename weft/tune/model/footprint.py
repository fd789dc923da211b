"""How many different bytes and cache lines an access touches, from the strides with which its address moves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from weft.cost.caches import CACHE_LINE_BYTES


class Stride(NamedTuple):
    """An address that has ``places`` different values, ``step`` bytes from one to the next."""

    step: int
    places: int


class Footprint(NamedTuple):
    """Different bytes that are touched, and the cache lines that they lie in."""

    nbytes: float
    lines: float


NOTHING: Final = Footprint(0.0, 0.0)


def footprint(width: int, strides: Iterable[Stride], scattered: float = 1.0, limit: float = math.inf) -> Footprint:
    """What an access of ``width`` bytes touches whose address moves by all of ``strides``.

    ``scattered`` is the number of places that come from data: nothing is known of their distances. ``limit`` is the
    size of the buffer in bytes. Overlapping and adjacent ranges are joined; ranges with gaps are counted one by one.
    """
    moving = sorted(Stride(abs(s.step), s.places) for s in strides if s.step and s.places > 1)
    first, gaps = _joined(width, moving, 1)
    nbytes = first * gaps * scattered
    first, gaps = _joined(width, moving, CACHE_LINE_BYTES)
    lines = -(-first // CACHE_LINE_BYTES) * gaps * scattered
    return Footprint(min(nbytes, limit), min(lines, max(1.0, limit / CACHE_LINE_BYTES)))


def _joined(width: int, moving: Sequence[Stride], granule: int) -> tuple[int, float]:
    """The length of a contiguous range, and how many such ranges there are. Gaps below ``granule`` bytes are closed."""
    length, runs = width, list[Stride]()
    for step, count in moving:
        if not runs and step <= max(length, granule):
            length += (count - 1) * step
        elif runs and step <= runs[-1].step * runs[-1].places:  # falls onto ranges that are touched already
            last = runs[-1]
            runs[-1] = Stride(last.step, last.places + (count - 1) * step // last.step)
        else:
            runs.append(Stride(step, count))
    return length, math.prod(float(r.places) for r in runs)


def strides_between(offsets: Sequence[int]) -> list[Stride]:
    """Strides that reach the sorted, different ``offsets`` (bytes), as the loops did whose copies have them.

    Offsets that are no regular grid count as equally far apart.
    """
    found: list[Stride] = []
    while len(offsets) > 1:
        step, count = offsets[1] - offsets[0], 2
        while count < len(offsets) and offsets[count] - offsets[count - 1] == step:
            count += 1
        if len(offsets) % count:
            return [*found, Stride((offsets[-1] - offsets[0]) // (len(offsets) - 1), len(offsets))]
        found.append(Stride(step, count))
        offsets = offsets[::count]
    return found
