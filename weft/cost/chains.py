"""The time of two contractions and the row-wise work between them: in one kernel, strip by strip, or in three kernels.
Times are seconds, sizes are bytes.

In one kernel the rows between the contractions stay in a cache. But each strip of rows reads again the operands that
are the same for all rows (the *fixed* operands), and only strips run in parallel. In three kernels each contraction can
use all of its results for register tiles and threads, but the rows between are written and read twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weft.cost import caches, threads
from weft.cost.assumed import STRIP_ROWS
from weft.cost.rates import Rates

MAX_STRIP_ROWS: Final = 64
"""The most rows of a strip; more would reduce memory traffic only a little."""
MIN_STRIP_ROWS: Final = 8
"""The fewest rows of a strip, even if the rows are very long."""
STRIP_ELEMENT_BYTES: Final = 4
"""Assumed bytes of one element of a strip."""
STRIPS_OF_A_CORE: Final = 4
"""Wanted number of strips for each core."""
_PASSES_BETWEEN = 4
"""Passes over the rows between: written by the first contraction, read and written by the row-wise work, read by the
last."""
_PASSES_IN_MEMORY = 6
"""The same if they fit in no cache: lines are then read before they are written."""
_KERNELS_SAVED = 2
_VISIBLE_READ_SHARE = 0.4
"""The share of the time of reading operands from beyond the second-level cache that arithmetic does not hide."""
_L2_RATE_FACTOR = 3.5
"""The bandwidth of the second-level cache, relative to that of the memory beyond it (``Rates.far_bytes``)."""


@dataclass(frozen=True, slots=True)
class ChainMachine:
    """A machine: the rates of one core, float32 ``lanes`` of a vector, bytes of each second-level cache and of the
    shared last one, number of cores."""

    rates: Rates
    lanes: int
    l2: int
    l3: int
    cores: int


@dataclass(frozen=True, slots=True)
class ChainSizes:
    """The sizes of a chain.

    ``batch``: the number of independent chains. ``rows``: rows of each chain, None if not known. ``width``: elements of
    a row between the contractions. ``products``: multiply-adds of both contractions, for the whole batch.
    ``row_bytes``: all rows between the contractions. ``fixed_bytes``: the fixed operands of one chain.
    ``all_fixed_bytes``: those of the whole batch.
    """

    batch: int
    rows: int | None
    width: int
    products: float
    row_bytes: int
    fixed_bytes: int
    all_fixed_bytes: int


def strip_rows(rows: int | None, width: int, batch: int, l2: int, cores: int) -> int:
    """The number of rows of a strip. Two copies of a strip fill at most half of the second-level cache, and there
    should be strips for all cores. A divisor of the total is used if it is not much smaller than this limit."""
    if rows is None:
        return STRIP_ROWS
    most = max(MIN_STRIP_ROWS, min(MAX_STRIP_ROWS, rows, caches.rows_of_strip(max(1, width) * STRIP_ELEMENT_BYTES, l2)))
    most = min(most, max(MIN_STRIP_ROWS, rows * batch // (STRIPS_OF_A_CORE * cores)))
    divisors = [r for r in range(1, most + 1) if rows % r == 0]
    if not divisors:
        return 1
    return divisors[-1] if 2 * divisors[-1] >= most else -(-rows // -(-rows // most))


def joined_seconds(chain: ChainSizes, rows: int, machine: ChainMachine) -> float:
    """The time in one kernel; ``rows`` is assumed if the number of rows is not known."""
    height = strip_rows(chain.rows, chain.width, chain.batch, machine.l2, machine.cores)
    strips = max(1, -(-(rows if chain.rows is None else chain.rows) // height))
    read = strips * chain.batch * chain.fixed_bytes if _is_far(chain, machine) else 0
    pieces = max(1, chain.batch * strips)
    used = min(_threads(chain, machine), pieces)
    return _alone(chain, read, machine) * -(-pieces // used) / pieces


def apart_seconds(chain: ChainSizes, machine: ChainMachine) -> float:
    """The time in three kernels."""
    used, rates = _threads(chain, machine), machine.rates
    read = chain.all_fixed_bytes if _is_far(chain, machine) else 0
    passes = _PASSES_BETWEEN if chain.row_bytes <= machine.l3 else _PASSES_IN_MEMORY
    moved = passes * chain.row_bytes / _rate(chain.row_bytes, machine)
    started = _KERNELS_SAVED * rates.kernel_seconds
    return (_alone(chain, read, machine) + moved) / used + started


def _alone(chain: ChainSizes, read: int, machine: ChainMachine) -> float:
    """The time of the products on one core, with the visible share of the time of reading ``read`` bytes."""
    at_once = min(chain.batch, machine.cores) * chain.fixed_bytes
    return chain.products / machine.rates.packed_products + _VISIBLE_READ_SHARE * read / _rate(at_once, machine)


def _is_far(chain: ChainSizes, machine: ChainMachine) -> bool:
    return not caches.stays_in_l2(chain.fixed_bytes, machine.l2)


def _rate(nbytes: int, machine: ChainMachine) -> float:
    """The bandwidth of one core for data of ``nbytes``, in bytes per second."""
    rates = machine.rates
    if caches.stays_in_l2(nbytes, machine.l2):
        return _L2_RATE_FACTOR * rates.far_bytes
    return rates.far_bytes if nbytes <= machine.l3 else rates.converted_bytes


def _threads(chain: ChainSizes, machine: ChainMachine) -> int:
    """The number of threads for the products: all cores if that is faster, else 1."""
    alone = chain.products / machine.lanes / machine.rates.multiply_adds_per_cycle
    return machine.cores if threads.worth_several(alone, machine.cores, machine.rates) else 1
