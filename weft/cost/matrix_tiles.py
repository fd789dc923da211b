"""What products of matrix tiles take: cycles, for one row of a tile of sums and a number of steps of depth."""

from __future__ import annotations

from weft.cost.rates import Rates


def tile_row_cycles(rates: Rates, steps: int, loads: float, height: int) -> float:
    """By a matrix unit, bound by arithmetic or by loads: ``loads`` rows of tiles are loaded for one row of a product.
    Tiles have ``height`` rows, which share what it takes to bring their sums into a register and out again."""
    return steps * max(1.0, loads / rates.tile_rows_per_cycle) + rates.tile_turn_cycles / height


def vector_row_cycles(rates: Rates, steps: int) -> float:
    """By vectors, which multiply pairs."""
    return rates.pair_row_cycles * steps
