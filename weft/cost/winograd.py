"""The time of a convolution in its direct form and by Winograd's algorithm. Times are seconds on one core."""

from __future__ import annotations

from weft.cost.assumed import PICTURES
from weft.cost.caches import stays_in_l2
from weft.cost.rates import Rates

MAX_TIME_SHARE = 0.95
"""Winograd's algorithm is used if its estimate is below this share of the direct form's: the direct form has only one
stage and needs no additional memory."""
_ELEMENT_BYTES = 4
BAND_L2_PART = 2
"""A band and its transforms fill at most this part (one half) of the second-level cache."""
FAR_WEIGHTS, NEAR_WEIGHTS = 3, 7
"""Weights are at most so many times as large as a band, where they come from memory and where they stay in the cache:
each band reads them again. Without bands the lines of the transformed data are read before they are written, written,
and read."""
MIN_FAR_SIZES, MIN_NEAR_SIZES = 2, 0.5
"""Bands are used if the transformed data is more than this many times as large as the second-level cache, where the
weights come from memory and where they stay in the cache. It also holds the picture and the padded one."""
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


def band_rows(rows: int, images: int | None, row_bytes: int, weight_bytes: int, l2: int, cores: int) -> int | None:
    """The rows of patches in a band, of ``rows`` in each of ``images`` pictures, if one band after the other is
    transformed, multiplied and transformed back. None if it is faster to do each step for everything.

    ``row_bytes``: one row before and after the products. Each band reads ``weight_bytes`` again, from the
    second-level cache (``l2`` bytes) or from memory, which must take less time than moving a band between the steps.
    ``cores`` share the bands. If the number of pictures is not known (None), :data:`PICTURES` decide whether the cache
    holds everything, and a single one must keep the cores busy.
    """
    assumed, fewest = (PICTURES, 1) if images is None else (images, images)
    most = max(1, min(l2 // BAND_L2_PART // row_bytes, rows * assumed // (BANDS_OF_A_CORE * cores)))
    # The last patches of a band that reached beyond the last row would be those of the next picture: each band would
    # then pad whole pictures.
    heights = (n for n in range(min(most, rows), 0, -1) if rows % n == 0 and _busy(fewest * (rows // n), cores))
    high = next(heights, None)
    if high is None or row_bytes > l2:
        return None
    near = stays_in_l2(weight_bytes + high * row_bytes, l2)
    weights, sizes = (NEAR_WEIGHTS, MIN_NEAR_SIZES) if near else (FAR_WEIGHTS, MIN_FAR_SIZES)
    return high if rows * assumed * row_bytes > sizes * l2 and weight_bytes < weights * high * row_bytes else None


def _busy(bands: int, cores: int) -> bool:
    """Whether so many bands keep the cores busy for most of the time."""
    return bands >= MIN_BUSY_SHARE * cores * -(-bands // cores)
