"""The time of a convolution in its direct form and by Winograd's algorithm. Times are seconds on one core."""

from __future__ import annotations

from weft.cost.caches import stays_in_l2
from weft.cost.rates import Rates

MAX_TIME_SHARE = 0.95
"""Winograd's algorithm is used if its estimate is below this share of the direct form's: the direct form has only one
stage and needs no additional memory."""
_ELEMENT_BYTES = 4
BAND_L2_PART = 2
"""A band and its transforms fill at most this part (one half) of the second-level cache."""
STAGE_PASSES = 3
"""Passes over the transformed data through memory if it does not stay in the cache: lines are read before they are
written, written, and read."""
MIN_L2_SIZES = 2
"""Bands are used if the transformed data is more than this many times as large as the second-level cache."""
MAX_WASTED_SHARE = 0.125
"""The most rows that bands may compute in addition, because the last band is as high as the others."""
BANDS_OF_A_CORE = 2
"""Wanted number of bands for each core."""
MIN_BUSY_SHARE = 0.75
"""The least share of the time in which the cores must have a band to compute."""


def direct_seconds(rates: Rates, pixels: int, weights: int) -> float:
    """The time of ``weights`` products for each of ``pixels`` results; the weights are read once."""
    return pixels * weights * (1 / rates.winograd_products) + _weight_seconds(rates, weights)


def transformed_seconds(rates: Rates, tiles: int, weights: int, operations: int) -> float:
    """The time of ``weights`` products for each of ``tiles`` and of transforms with ``operations`` additions and
    multiplications in all; the weights are read once."""
    products = tiles * weights * (1 / rates.winograd_products) + _weight_seconds(rates, weights)
    return products + operations * (1 / rates.winograd_operations) + rates.winograd_seconds


def _weight_seconds(rates: Rates, weights: int) -> float:
    return _ELEMENT_BYTES * weights * (1 / rates.far_bytes)


def band_rows(rows: int, images: int, row_bytes: int, weight_bytes: int, l2: int, cores: int) -> int | None:
    """The rows of patches in a band, of ``rows`` in each of ``images`` pictures, if one band after the other is
    transformed, multiplied and transformed back. None if it is faster to do each step for everything.

    ``row_bytes``: one row before and after the products. Each band reads ``weight_bytes`` again; if these do not stay
    in the second-level cache (``l2`` bytes), that must take less time than moving a band through memory. ``cores``
    share the bands.
    """
    most = l2 // BAND_L2_PART // row_bytes
    if rows * images * row_bytes <= MIN_L2_SIZES * l2 or row_bytes > l2:
        return None
    most = max(1, min(most, rows * images // (BANDS_OF_A_CORE * cores)))
    even = (n for n in range(min(most, rows), 0, -1) if -(-rows // n) * n <= (1 + MAX_WASTED_SHARE) * rows)
    high = next(even)
    bands = images * -(-rows // high)
    if bands < MIN_BUSY_SHARE * cores * -(-bands // cores):
        return None
    near = stays_in_l2(weight_bytes + high * row_bytes, l2)
    return high if near or weight_bytes < STAGE_PASSES * high * row_bytes else None
