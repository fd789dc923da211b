"""The time of moving data between kernels, and the time that joining kernels saves. Times are seconds on one core."""

from __future__ import annotations

from weft.cost.rates import Rates

LATE_CONVERSION_FACTOR = 1.25
"""Factor on the start-up time of a conversion before a reader that keeps the shape. Of two equally good places the
later one is then chosen, so that the reader can join the kernel of its producer."""
_MERGED_READ_SHARE = 0.05
"""The share of the time for reading its constants that a product saves if they are read in one stream with others."""


def conversion_seconds(rates: Rates, nbytes: int, keeps_shape: bool = False) -> float:
    """The time of a layout conversion; ``nbytes`` are read and written in all. ``keeps_shape``: whether its reader
    does."""
    start = rates.conversion_seconds * (LATE_CONVERSION_FACTOR if keeps_shape else 1.0)
    return start + nbytes / rates.converted_bytes


def merging_seconds(rates: Rates, products: int, constant_bytes: int) -> float:
    """The time saved by computing several products as one; they read ``constant_bytes`` in all."""
    read = _MERGED_READ_SHARE * (1 / rates.streamed_bytes) * constant_bytes / products
    return (products - 1) * (rates.kernel_seconds + read)


def copies_seconds(rates: Rates, result_bytes: int) -> float:
    """The time of one more kernel that reads and writes ``result_bytes``."""
    return rates.kernel_seconds + 2 * (1 / rates.streamed_bytes) * result_bytes


def elementwise_seconds(rates: Rates, result_bytes: int) -> float:
    """The time of one more kernel that reads two operands of ``result_bytes`` each and writes one result."""
    return rates.kernel_seconds + 3 * (1 / rates.streamed_bytes) * result_bytes
