"""Whether several threads are faster than one, and into how many pieces to divide work. Times are cycles.

Work is counted in operations on one element of a vector.
"""

from __future__ import annotations

import math

from weft.cost.rates import Rates

OPERATIONS_PER_BYTE = 0.5
"""Reading or writing one byte counts as so many operations: the second-level caches of the known machines move half a
register in the time of one vector operation."""
MAX_SHARE_OF_ONE_THREAD = 0.9
"""Several threads are used if they take less than this share of the time of one thread; a smaller gain is not worth
their energy."""

MIN_ORDERED_STEPS = 20_000
"""Fewest steps of one piece of work whose steps run one after the other (updates of single elements, sorts): such loops
are made before the machine is known."""


def cycles(operations: float, lanes: int) -> float:
    """The time of one thread for so many operations, in vectors of ``lanes``."""
    return operations / lanes


def pieces(alone: float, rates: Rates) -> int:
    """The largest useful number of pieces for work that takes one thread ``alone`` cycles. With this number the time of
    one piece plus the time of handing out all pieces is smallest."""
    return max(1, int(math.sqrt(alone / rates.claim_cycles)))


def worth_several(alone: float, cores: int, rates: Rates) -> bool:
    """Whether several threads, at most one for each core but at least two, are faster than one thread, which takes
    ``alone`` cycles."""
    threads = min(max(2, cores), pieces(alone, rates))
    together = alone / threads + rates.fork_cycles + rates.claim_cycles * threads
    return threads > 1 and together < MAX_SHARE_OF_ONE_THREAD * alone
