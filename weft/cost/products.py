"""The time of one multiply-add, by the form of its product. Times are seconds on one core."""

from __future__ import annotations

from weft.cost.rates import Rates

TILE_ROWS = 16
"""Rows of a full matrix tile."""
_WEIGHT_LOAD_ROWS = 8
"""The number of rows that a matrix unit multiplies in the time of loading one tile of weights."""
_LOAD_SHARE = 0.25
"""The time of other loads, as a share of the time of a full tile."""


def packed_seconds(rates: Rates, grouped: bool) -> float:
    """With packed operands. ``grouped``: pairs of bfloat16 or groups of four bytes, which an instruction adds."""
    return 1 / (rates.paired_products if grouped else rates.packed_products)


def panel_seconds(rates: Rates) -> float:
    """With a second operand that is not packed and has adjacent columns."""
    return 1 / rates.panel_products


def unpacked_seconds(rates: Rates) -> float:
    """With operands that are not packed and have no contiguous vectors."""
    return 1 / rates.unpacked_products


def row_seconds(rates: Rates) -> float:
    """With vectors along rows of pixels."""
    return 1 / rates.row_products


def pixel_seconds(rates: Rates, pixels: int, lanes: int) -> float:
    """With vectors of ``lanes`` over all ``pixels`` of an image, the last vector filled up."""
    return 1 / rates.pixel_products * (-(-pixels // lanes) * lanes) / pixels


def tiled_seconds(rates: Rates, rows: int | None) -> float:
    """With a matrix unit, for lines of ``rows`` rows (None: not known). All tiles have one height that divides
    ``rows``; if no height of at least two does, vectors are used. A tile of weights is used for one or two tiles of
    rows."""
    heights = [h for h in range(2, TILE_ROWS + 1) if rows % h == 0] if rows is not None else []
    if not heights:
        return 1 / rates.packed_products
    return 1 / rates.tiled_products * max(1.0, _LOAD_SHARE + _WEIGHT_LOAD_ROWS / max(heights))
