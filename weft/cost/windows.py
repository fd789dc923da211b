"""Whether windows are reduced faster in two passes. Times are vector operations for each element of the result."""

from __future__ import annotations

MIN_COLUMNS = 8
"""Fewest columns of a result for which two passes are faster, if vectors run along the columns."""
_MAX_LOAD_OPERATIONS = 4
"""Limit on the operations that form a vector of elements that are several columns apart."""
_PASS_OPERATIONS = 2
"""Operations that a further pass costs: a row is stored and loaded."""
_MAX_TWO_PASSES_SHARE = 0.75
"""Two passes must be estimated to take less than this share of the operations of one."""


def two_passes_are_faster(lines: int, columns: int, stride: int, blocked: bool) -> bool:
    """Whether it is faster to reduce windows of ``lines`` x ``columns`` elements, ``stride`` columns apart, along the
    lines first, for whole rows, and then along the columns.

    The first pass computes as many columns as windows are apart. Vectors along columns load elements that windows skip,
    and are then shuffled; with ``blocked`` channels vectors run along these.
    """
    loads = 1 if blocked else min(stride, _MAX_LOAD_OPERATIONS)
    two = lines * stride + columns * loads + _PASS_OPERATIONS
    return two < _MAX_TWO_PASSES_SHARE * lines * columns * loads
