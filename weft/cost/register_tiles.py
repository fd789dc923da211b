"""The time of one step of a reduction with a tile of sums in registers. Times are cycles.

Each step loads ``columns`` vectors of one operand and ``rows`` scalars of the other, and computes ``rows * columns``
multiply-adds.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.cost.rates import Rates


@dataclass(frozen=True, slots=True)
class Traffic:
    """Additional cycles of a step for each scalar and each vector. They are small if loads overlap with the arithmetic.
    ``far_vector`` is for tiles of more than ``widest`` vectors, whose panel does not stay in the second-level cache."""

    scalar: float
    vector: float
    far_vector: float
    widest: int


def near(rates: Rates, widest: int) -> Traffic:
    """The traffic if scalars come from the first-level cache, and vectors from the second."""
    return Traffic(rates.near_scalar_cycles, rates.near_vector_cycles, rates.far_vector_cycles, widest)


def far(rates: Rates, widest: int) -> Traffic:
    """The traffic if the rows do not stay in the second-level cache, so that each panel of vectors reads them again."""
    return Traffic(rates.far_scalar_cycles, rates.near_vector_cycles, rates.far_vector_cycles, widest)


def step_cycles(rates: Rates, rows: int, columns: int, broadcasts: bool, traffic: Traffic) -> float:
    """The time of one step of a tile, limited by arithmetic, loads or the latency of the multiply-add. Without
    ``broadcasts`` both operands are vectors."""
    arithmetic = rows * columns / rates.multiply_adds_per_cycle
    loads = (rows + columns if broadcasts else rows * columns + columns) / rates.loads_per_cycle
    vector = traffic.vector if columns <= traffic.widest else traffic.far_vector
    bound = max(arithmetic, loads, rates.multiply_add_latency_cycles)
    return bound + vector * columns + traffic.scalar * rows


def fill_cycles(rows: int, columns: int, depth: int) -> float:
    """The time of filling and emptying the tile once, divided by the ``depth`` steps."""
    return (rows * columns * 2 + 8) / max(1, depth)


def iterations_ahead(rates: Rates, cycles: float) -> int:
    """How many iterations ahead of its use data is prefetched from memory, in a loop of ``cycles`` an iteration."""
    return max(1, round(rates.far_latency_cycles / cycles))
