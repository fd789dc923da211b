"""Which operands fit into which cache, and how much of a cache one operand may take. Sizes are bytes.

``l1`` and ``l2`` are the caches of one core.
"""

from __future__ import annotations

from math import gcd
from typing import Final

CACHE_LINE_BYTES: Final = 64
"""The unit in which data moves between caches and memory."""
PAGE_BYTES: Final = 4096
"""Lines whose addresses agree modulo a page compete for the ways of one set of the first-level cache."""
L1_TLB_PAGES: Final = 64
"""Pages whose addresses a core translates at once; others cost some cycles more."""
L1_WAYS: Final = 8
"""Lines that one set of the first-level cache holds."""
L2_WAYS: Final = 8
"""Lines that one set of the second-level cache holds, at least: some processors have twice as many."""
MAX_LAST_BYTES: Final = 32 << 20
"""Most bytes of the last cache for each core that processors have. Where a larger one is reported, it belongs to a
whole machine, of which a process or a virtual machine has some cores, and others fill the rest of it."""


def last_cache(l2: int, l3: int, cores: int) -> int:
    """The bytes that ``cores`` cores expect to find in the last cache: at most their share of ``l3``, which is 0 if
    there is no third-level cache."""
    return min(l3, cores * MAX_LAST_BYTES) or l2


def exceeds_last_cache(nbytes: float, l2: int, l3: int, cores: int) -> bool:
    """Whether a kernel that moves ``nbytes`` evicts the beginning of its result before it writes the end: they take
    more than three quarters of the cache, as others use it too. Not without caches."""
    last = last_cache(l2, l3, cores)
    return last > 0 and 4 * nbytes > 3 * last


def stays_in_l2(nbytes: int, l2: int) -> bool:
    """Whether an operand stays in the cache while others are read once: it takes at most three quarters of it."""
    return 4 * nbytes <= 3 * l2


def widest_panel(vector_panel: int, l2: int) -> int:
    """The most adjacent vectors of a panel that stays in the cache while other operands are read once; ``vector_panel``
    bytes each."""
    return 3 * l2 // (4 * vector_panel)


def is_scattered(rows: int, stride: int) -> bool:
    """Whether ``rows`` short rows, ``stride`` bytes apart, are in more pages than the core translates at once."""
    return min(rows, rows * stride // PAGE_BYTES) > L1_TLB_PAGES


def rows_stay_in_l2(rows: int, stride: int, nbytes: int, l2: int) -> bool:
    """Whether ``rows`` rows of ``nbytes``, ``stride`` bytes apart, stay in the cache together: they compete for
    the ways of the sets to which they map. A stride that is a power of two leaves few sets."""
    sets = l2 // (L2_WAYS * CACHE_LINE_BYTES)
    if not sets or not stays_in_l2(rows * nbytes, l2):
        return False
    lines = -(-nbytes // CACHE_LINE_BYTES)
    step = gcd(stride, sets * CACHE_LINE_BYTES)
    reached = min(sets, sets * CACHE_LINE_BYTES // step * lines)
    return rows * lines <= reached * L2_WAYS


def rows_of_stage(row: int, l2: int) -> int:
    """The number of rows of a strip's operand, ``row`` bytes each, that fill a quarter of the second-level cache."""
    return l2 // 4 // max(1, row)


def rows_of_strip(row: int, l2: int) -> int:
    """The number of rows, ``row`` bytes each, of which two copies fill half of the second-level cache."""
    return l2 // 2 // (2 * row)


def columns_of_sums(column: int, l1: int) -> int:
    """The number of columns of sums, ``column`` bytes each, that fill half of the first-level cache."""
    return l1 // 2 // column
