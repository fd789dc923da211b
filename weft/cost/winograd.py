"""What a convolution takes in its direct form and by Winograd's algorithm. Times are seconds on one core."""

from __future__ import annotations

from weft.cost.rates import Rates

WORTHWHILE = 0.95
"""The estimate of Winograd's form must be below this part of the direct form's, which is one stage and needs no memory
of its own."""
_ELEMENT_BYTES = 4


def direct_seconds(rates: Rates, pixels: int, weights: int) -> float:
    """``weights`` products for each of ``pixels`` results, the weights read once."""
    return pixels * weights * (1 / rates.winograd_products) + _weight_seconds(rates, weights)


def transformed_seconds(rates: Rates, tiles: int, weights: int, operations: int) -> float:
    """``weights`` products for each of ``tiles``, the weights read once, and transforms of ``operations`` additions
    and multiplications in all."""
    products = tiles * weights * (1 / rates.winograd_products) + _weight_seconds(rates, weights)
    return products + operations * (1 / rates.winograd_operations) + rates.winograd_seconds


def _weight_seconds(rates: Rates, weights: int) -> float:
    return _ELEMENT_BYTES * weights * (1 / rates.far_bytes)
