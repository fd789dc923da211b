"""What two contractions and the work on rows between them take in one kernel, strip by strip, and in kernels of their
own. Times are seconds, sizes bytes.

In one kernel what lies between stays in a cache, but each strip of rows reads the operands that do not move with the
rows again, and only strips run in parallel. Apart, each of the products has all of its results for register tiles and
threads, and what lies between is written and read twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weft.cost import caches, threads
from weft.cost.assumed import STRIP_ROWS
from weft.cost.rates import Rates

MAX_STRIP_ROWS: Final = 64
"""Most rows of a strip; more would reduce memory traffic only a little."""
MIN_STRIP_ROWS: Final = 8
"""Fewest rows of a strip, even if the rows are very long."""
STRIP_ELEMENT_BYTES: Final = 4
"""Assumed bytes of one element of a strip."""
STRIPS_OF_A_CORE: Final = 4
"""There should be so many strips for each core."""
_PASSES_BETWEEN = 4
"""What lies between is written by the first product, read and written by the work on rows, read by the last product."""
_PASSES_IN_MEMORY = 6
"""The same where it does not stay in any cache: lines are read before they are written."""
_KERNELS_SAVED = 2
_VISIBLE_READ = 0.4
"""Part of the time of reading operands from behind the second-level cache that arithmetic does not hide."""
_NEAR_BYTES = 3.5
"""The second-level cache gives so many times the bytes a second that lie behind it (``Rates.far_bytes``)."""


@dataclass(frozen=True, slots=True)
class ChainMachine:
    """A machine of ``cores``: their rates, ``lanes`` of float32 in a vector, a second-level cache each, ``l3`` for all
    of them."""

    rates: Rates
    lanes: int
    l2: int
    l3: int
    cores: int


@dataclass(frozen=True, slots=True)
class ChainSizes:
    """``batch`` times ``rows`` rows (None: not known) of ``width`` elements between two contractions, which multiply
    and add ``products`` times in all. ``between`` are the bytes of these rows, ``still`` those of the operands of one
    of the batch that do not move with the rows, ``others`` those of these operands of all of the batch."""

    batch: int
    rows: int | None
    width: int
    products: float
    between: int
    still: int
    others: int


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
    """In one kernel; ``rows`` stands for a number of rows that is not known."""
    height = strip_rows(chain.rows, chain.width, chain.batch, machine.l2, machine.cores)
    strips = max(1, -(-(rows if chain.rows is None else chain.rows) // height))
    read = strips * chain.batch * chain.still if _is_far(chain, machine) else 0
    pieces = max(1, chain.batch * strips)
    used = min(_threads(chain, machine), pieces)
    return _alone(chain, read, machine) * -(-pieces // used) / pieces


def apart_seconds(chain: ChainSizes, machine: ChainMachine) -> float:
    """In three kernels."""
    used, rates = _threads(chain, machine), machine.rates
    read = chain.others if _is_far(chain, machine) else 0
    passes = _PASSES_BETWEEN if chain.between <= machine.l3 else _PASSES_IN_MEMORY
    moved = passes * chain.between / _rate(chain.between, machine)
    started = _KERNELS_SAVED * rates.kernel_seconds
    return (_alone(chain, read, machine) + moved) / used + started


def _alone(chain: ChainSizes, read: int, machine: ChainMachine) -> float:
    """The products on one core, with what is visible of the time to read operands."""
    at_once = min(chain.batch, machine.cores) * chain.still
    return chain.products / machine.rates.packed_products + _VISIBLE_READ * read / _rate(at_once, machine)


def _is_far(chain: ChainSizes, machine: ChainMachine) -> bool:
    return not caches.stays_in_l2(chain.still, machine.l2)


def _rate(nbytes: int, machine: ChainMachine) -> float:
    """The bytes a second with which a core reads or writes what takes ``nbytes``."""
    rates = machine.rates
    if caches.stays_in_l2(nbytes, machine.l2):
        return _NEAR_BYTES * rates.far_bytes
    return rates.far_bytes if nbytes <= machine.l3 else rates.converted_bytes


def _threads(chain: ChainSizes, machine: ChainMachine) -> int:
    """The threads that are worth it for the products."""
    alone = chain.products / machine.lanes / machine.rates.multiply_adds_per_cycle
    return machine.cores if threads.worth_several(alone, machine.cores, machine.rates) else 1
