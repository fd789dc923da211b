"""The time of a convolution in its direct form and by Winograd's algorithm. Times are seconds on one core."""

from __future__ import annotations

from weft.cost.rates import Rates

MAX_TIME_SHARE = 0.95
"""Winograd's algorithm is used if its estimate is below this share of the direct form's: the direct form has only one
stage and needs no additional memory."""
_ELEMENT_BYTES = 4


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
