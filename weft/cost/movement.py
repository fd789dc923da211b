"""What it takes to move data between kernels, and what joining kernels saves. Times are seconds on one core."""

from __future__ import annotations

from weft.cost.rates import Rates

LATE_CONVERSION = 1.25
"""A conversion before a reader that keeps the shape counts by this factor more to start: of two places that are equally
good, the later lets the reader join the kernel that makes what it reads."""
_MERGED_READ = 0.05
"""Part of the time for reading its constants that a product saves by being read in one stream with others."""


def conversion_seconds(rates: Rates, nbytes: int, keeps_shape: bool = False) -> float:
    """A conversion of layouts that reads and writes ``nbytes`` together; ``keeps_shape`` is said of its reader."""
    start = rates.conversion_seconds * (LATE_CONVERSION if keeps_shape else 1.0)
    return start + nbytes / rates.converted_bytes


def merging_seconds(rates: Rates, products: int, constant_bytes: int) -> float:
    """Saved by computing so many products, which read ``constant_bytes`` together, as one."""
    read = _MERGED_READ * (1 / rates.streamed_bytes) * constant_bytes / products
    return (products - 1) * (rates.kernel_seconds + read)


def copies_seconds(rates: Rates, result_bytes: int) -> float:
    """One more kernel that reads and writes ``result_bytes``."""
    return rates.kernel_seconds + 2 * (1 / rates.streamed_bytes) * result_bytes


def elementwise_seconds(rates: Rates, result_bytes: int) -> float:
    """One more kernel that reads two operands of ``result_bytes`` each and writes a result."""
    return rates.kernel_seconds + 3 * (1 / rates.streamed_bytes) * result_bytes
