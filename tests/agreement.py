"""Whether the results of two implementations agree: one rule for all tests of whole models and for the zoo.

Shapes and dtypes must be equal, and so must integers and truth values. Numbers that are not finite must stand in the
same places. Other numbers may differ by the smaller of two bounds: the usual one (a part of the number, and a
constant), and parts of the *spread*, which is what the inputs change. A large constant part of a result, which any
model with a bias has, hides no error then, and a large spread widens nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Tolerance:
    """A number x may differ by ``relative`` · |x| + ``absolute`` and by ``beside`` · |x| + ``of_spread`` · spread."""

    relative: float
    absolute: float
    beside: float
    of_spread: float


SINGLE = Tolerance(1e-3, 1e-4, 1e-4, 1e-3)
HALF = Tolerance(2e-2, 2e-3, 2e-2, 2e-2)
"""For 16-bit floats: every layer rounds its results, however small their spread is."""


def spread(results: Sequence[Array]) -> float:
    """How much the results of different inputs differ: the root mean square of the distances from their mean. If there
    is one result only, or if their shapes differ: the standard deviation of the first."""
    wide = [r.astype(np.float64) for r in results]
    if len(wide) > 1 and all(w.shape == wide[0].shape for w in wide):
        stacked = np.stack(wide)
        return float(np.sqrt(np.mean((stacked - stacked.mean(0)) ** 2))) if stacked.size else 0.0
    return float(np.std(wide[0])) if wide[0].size else 0.0


def bound(want: Array, of: float) -> Array:
    """The largest difference that is allowed for each number of ``want``; ``of`` is the spread."""
    size = np.abs(want.astype(np.float64))
    t = HALF if want.dtype.name in ("float16", "bfloat16") else SINGLE
    most: Array = np.minimum(t.absolute + t.relative * size, t.of_spread * of + t.beside * size)
    return most


def difference(got: Array, want: Array, of: float, misses: float = 0.0) -> str:
    """How ``got`` differs from ``want``; empty if they agree. ``of`` is the spread. A share ``misses`` of the numbers
    may differ by more, but NaN and infinities must be in the same places."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if want.dtype.kind in "iubOUS":  # integers, truth values, text
        wrong = int(np.sum(got != want))
        return f"{wrong} of {want.size} elements differ" if wrong else ""
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "NaN or infinities in other places"
    far = np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)) > bound(np.where(finite, want, 0), of)
    share = float(np.mean(far)) if far.size else 0.0
    if share <= misses:
        return ""
    most = float(np.abs(a[finite] - b[finite]).max())
    return f"{share:.2%} of the numbers differ too much, at most by {most:.3g} where the spread is {of:.3g}"


def differences(ours: Sequence[Array], theirs: Sequence[Array], misses: float = 0.0) -> str:
    """How the results of one output for several inputs differ; empty if they agree."""
    of = spread(theirs) if all(t.dtype.kind not in "OUS" for t in theirs) else 0.0
    found = (difference(a, b, of, misses) for a, b in zip(ours, theirs, strict=True))
    return next(filter(None, found), "")
