"""What a step of a reduction takes with a tile of sums in registers. Times are cycles.

In each step ``columns`` vectors of one operand and ``rows`` scalars of the other are loaded, and ``rows * columns``
multiply-adds done.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.cost.rates import Rates


@dataclass(frozen=True, slots=True)
class Traffic:
    """Cycles that a step takes for each scalar and each vector beside the arithmetic: a little even where loading
    overlaps with it. ``far_vector`` is for tiles of more than ``widest`` vectors, whose panel does not stay in the
    second-level cache."""

    scalar: float
    vector: float
    far_vector: float
    widest: int


def near(rates: Rates, widest: int) -> Traffic:
    """Scalars come from the first-level cache, vectors from the second."""
    return Traffic(rates.near_scalar_cycles, rates.near_vector_cycles, rates.far_vector_cycles, widest)


def far(rates: Rates, widest: int) -> Traffic:
    """All rows together do not stay in the second-level cache, and come from behind it for each panel of vectors."""
    return Traffic(rates.far_scalar_cycles, rates.near_vector_cycles, rates.far_vector_cycles, widest)


def step_cycles(rates: Rates, rows: int, columns: int, broadcasts: bool, traffic: Traffic) -> float:
    """One step of a tile: bound by arithmetic, by loads or by the latency of the multiply-add. Without ``broadcasts``
    both operands are vectors."""
    arithmetic = rows * columns / rates.multiply_adds_per_cycle
    loads = (rows + columns if broadcasts else rows * columns + columns) / rates.loads_per_cycle
    vector = traffic.vector if columns <= traffic.widest else traffic.far_vector
    bound = max(arithmetic, loads, rates.multiply_add_latency_cycles)
    return bound + vector * columns + traffic.scalar * rows


def fill_cycles(rows: int, columns: int, depth: int) -> float:
    """Filling and emptying the tile once, for each of ``depth`` steps."""
    return (rows * columns * 2 + 8) / max(1, depth)
