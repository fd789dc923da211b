"""Whether several threads are worth it, and into how many pieces to divide work. Times are cycles.

Work is counted in operations on one element of a vector.
"""

from __future__ import annotations

import math

from weft.cost.rates import Rates

OPERATIONS_PER_BYTE = 0.5
"""What reading or writing one byte counts: a vector unit moves half a register in the time of one vector operation, as
the second-level caches of the known machines do."""
MAX_SHARE_OF_ONE_THREAD = 0.9
"""Part of the time of one thread that several may take: less gain is not worth their energy."""


def cycles(operations: float, lanes: int) -> float:
    """What one thread takes for so many operations, in vectors of ``lanes``."""
    return operations / lanes


def pieces(alone: float, rates: Rates) -> int:
    """Into how many pieces to divide, at most, what takes one thread ``alone`` cycles: to compute one piece and to hand
    out all of them takes the least together."""
    return max(1, int(math.sqrt(alone / rates.claim_cycles)))


def worth_several(alone: float, cores: int, rates: Rates) -> bool:
    """Whether as many of ``cores`` threads as are of use (at least two) take less time than ``alone`` cycles."""
    threads = min(max(2, cores), pieces(alone, rates))
    together = alone / threads + rates.fork_cycles + rates.claim_cycles * threads
    return threads > 1 and together < MAX_SHARE_OF_ONE_THREAD * alone
