"""The time of products of matrix tiles: cycles for one row of a tile of sums and a number of depth steps."""

from __future__ import annotations

from typing import Final

from weft.cost.rates import Rates

_GROUPS: Final = 16
"""Groups of elements in one step of depth."""


def tile_row_cycles(rates: Rates, steps: int, loads: float, height: int) -> float:
    """With a matrix unit: bound by arithmetic or by loads. ``loads`` rows of tiles are loaded for each row of a
    product. Moving the sums of a tile into a register and out again is shared by its ``height`` rows."""
    return steps * max(1.0, loads / rates.tile_rows_per_cycle) + rates.tile_turn_cycles / height


def vector_row_cycles(rates: Rates, steps: int, dtype: str = "bfloat16") -> float:
    """With vector instructions that multiply groups: pairs of bfloat16, or four bytes (``uint8``), of which an
    instruction sums a vector in the time of a multiply-add."""
    return steps * (rates.pair_row_cycles if dtype == "bfloat16" else _GROUPS / rates.multiply_adds_per_cycle)
