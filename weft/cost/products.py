"""What one multiply-add takes, by the form of the product that it belongs to. Times are seconds on one core."""

from __future__ import annotations

from weft.cost.rates import Rates

TILE_ROWS = 16
"""Rows of a full matrix tile."""
_WEIGHT_LOAD_ROWS = 8
"""A matrix unit loads a tile of weights in the time in which it multiplies so many rows."""
_LOAD_SHARE = 0.25
"""Part of the time of a full tile that loads take besides."""


def packed_seconds(rates: Rates, paired: bool) -> float:
    """Over packed operands; ``paired``: of bfloat16 in pairs, on a core that has fast instructions for them."""
    return 1 / (rates.paired_products if paired else rates.packed_products)


def panel_seconds(rates: Rates) -> float:
    """Over a second operand as it lies, its columns side by side."""
    return 1 / rates.panel_products


def unpacked_seconds(rates: Rates) -> float:
    """Over operands that make no vectors as they lie."""
    return 1 / rates.unpacked_products


def row_seconds(rates: Rates) -> float:
    """With vectors along rows of pixels."""
    return 1 / rates.row_products


def pixel_seconds(rates: Rates, pixels: int, lanes: int) -> float:
    """With vectors of ``lanes`` over all ``pixels`` of an image, the last vector filled up."""
    return 1 / rates.pixel_products * (-(-pixels // lanes) * lanes) / pixels


def tiled_seconds(rates: Rates, rows: int | None) -> float:
    """In a matrix unit, of lines of ``rows`` rows (None: not known): tiles of one height that divides them; by vectors
    where no height of at least two does. A tile of weights serves one or two tiles of rows."""
    heights = [h for h in range(2, TILE_ROWS + 1) if rows % h == 0] if rows is not None else []
    if not heights:
        return 1 / rates.packed_products
    return 1 / rates.tiled_products * max(1.0, _LOAD_SHARE + _WEIGHT_LOAD_ROWS / max(heights))
