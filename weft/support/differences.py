"""How far arrays differ, relative to the largest magnitude among the expected numbers.

Sums in another order and other algorithms round in proportion to the largest terms, so that is the measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def difference(got: Sequence[Array], wanted: Sequence[Array]) -> float:
    """The largest error of all elements; infinite if shapes or dtypes differ."""
    if len(got) != len(wanted):
        return np.inf
    return max((largest_error(errors(g, w)) for g, w in zip(got, wanted, strict=True)), default=0.0)


def largest_error(found: Array) -> float:
    """The largest element; 0 of none."""
    return float(found.max()) if found.size else 0.0


def errors(got: Array, wanted: Array) -> Array:
    """The error of each element of ``wanted`` (float64); all are infinite if shapes or dtypes differ. NaN and
    infinities must be where they are expected; integers and bools must be equal."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return np.full(wanted.shape or (1,), np.inf)
    if wanted.dtype.kind == "b":  # a byte that is neither 0 nor 1 is no bool, though it is true
        got, wanted = got.view(np.uint8), wanted.view(np.uint8)
    if wanted.dtype.kind in "biuOUS":
        return np.where(got == wanted, 0.0, np.inf)
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    size = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    with np.errstate(all="ignore"):
        relative = np.where(finite & (size > 0), np.abs(a - b) / size, np.inf)
    return np.where(same, 0.0, relative)
