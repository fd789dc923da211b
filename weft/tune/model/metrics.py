"""How good scores of candidates are, given the seconds that were measured. A failed candidate has infinite seconds.

All take ``scores[n]`` (the higher, the faster) and ``seconds[n]`` of the candidates of one task.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.support.errors import UserError


def top_k_recall(scores: ArrayLike, seconds: ArrayLike, k: int) -> float:
    """The share of the ``k`` fastest candidates that are among the ``k`` of highest score; 1 for fewer than ``k``.

    Candidates as fast as the ``k``-th one count as among the fastest. Of equal scores the first ones come first.
    """
    s, t = _checked(scores, seconds, k)
    k = min(k, len(s))
    chosen = t[_order(s)[:k]]
    return float(np.mean(chosen <= np.sort(t)[k - 1]))


def top_k_speed(scores: ArrayLike, seconds: ArrayLike, k: int) -> float:
    """The speed of the fastest of the ``k`` candidates of highest score, relative to the fastest of all: what a search
    reaches that measures ``k`` candidates. 0 if all ``k`` fail."""
    s, t = _checked(scores, seconds, k)
    reached = t[_order(s)[:k]].min()
    return float(t.min() / reached) if np.isfinite(reached) else 0.0


def pairwise_accuracy(scores: ArrayLike, seconds: ArrayLike) -> float:
    """The share of pairs of candidates with different times that the scores order as the times do; a pair of equal
    scores counts half. 1 if no two candidates differ."""
    s, t = _checked(scores, seconds, 1)
    first, second = np.triu_indices(len(s), 1)
    differ = t[first] != t[second]
    first, second = first[differ], second[differ]
    if not len(first):
        return 1.0
    faster = np.where(t[first] < t[second], 1, -1)
    return float(np.mean((1 + faster * np.sign(s[first] - s[second])) / 2))


def _order(scores: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.argsort(-scores, kind="stable")


def _checked(scores: ArrayLike, seconds: ArrayLike, k: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both as arrays. Raises UserError U055."""
    s, t = np.asarray(scores, np.float64), np.asarray(seconds, np.float64)
    if s.ndim != 1 or s.shape != t.shape or not len(s) or k < 1:
        raise UserError(
            f"scores of the shape {s.shape} and seconds of {t.shape} cannot be compared for the {k} fastest",
            code="U055",
            hint="give one score and one time for each candidate, and k from 1 on",
        )
    return s, t
