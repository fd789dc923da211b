"""Measurements that a cost model learns from, task by task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.support.errors import UserError

Numbers: TypeAlias = "NDArray[np.float64]"

FAILED_RATIO: Final = 10.0
"""A failed trial counts as so many times as slow as the slowest one of its task, where times are what is learned."""


@dataclass(slots=True)
class TaskSamples:
    """Trials of one task: rows of features, seconds (infinite for failed trials), and analytic seconds."""

    rows: list[NDArray[np.float32]] = field(default_factory=list)
    seconds: list[Numbers] = field(default_factory=list)
    analytic: list[Numbers] = field(default_factory=list)

    def add(self, rows: NDArray[np.float32], seconds: Numbers, analytic: Numbers) -> None:
        """Add trials."""
        self.rows.append(rows)
        self.seconds.append(seconds)
        self.analytic.append(analytic)

    def throughput(self) -> Numbers:
        """The throughput of each trial relative to the best one: from 0 (failed) to 1."""
        seconds = np.concatenate(self.seconds)
        best = seconds.min()
        return best / seconds if np.isfinite(best) else np.zeros_like(seconds)

    def residuals(self) -> Numbers:
        """``log(seconds / analytic)`` of each trial. That of a failed one is at least the largest of the others: even
        where the prediction was bad, it is not to look better than they do."""
        seconds, analytic = np.concatenate(self.seconds), np.concatenate(self.analytic)
        measured = seconds[np.isfinite(seconds)]
        slowest = measured.max() if len(measured) else analytic.max()
        failed = ~np.isfinite(seconds)
        residuals: Numbers = np.log(np.where(failed, FAILED_RATIO * slowest, seconds) / analytic)
        residuals[failed] = np.maximum(residuals[failed], residuals[~failed].max(initial=0.0))
        return residuals


def checked_rows(features: ArrayLike, columns: Sequence[str]) -> NDArray[np.float32]:
    """``features`` as rows of float32. Raises UserError U051 unless each of ``columns`` has a finite number."""
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite and is refused below
            rows = np.asarray(features, np.float32)
    except (TypeError, ValueError) as problem:
        raise UserError(f"features are rows of numbers: {problem}", code="U051") from problem
    if rows.ndim != 2 or rows.shape[1] != len(columns):
        raise UserError(
            f"features have the shape {rows.shape}, but the model has {len(columns)} columns",
            code="U051",
            hint="a model takes rows of the set of features that it was made for: weft.tune.model.sets",
        )
    wrong = np.argwhere(~np.isfinite(rows))
    if len(wrong):
        row, column = wrong[0]
        raise UserError(f"feature '{columns[column]}' of row {row} is {rows[row, column]}", code="U051")
    return rows


def checked_seconds(seconds: Sequence[float | None], count: int) -> Numbers:
    """Seconds of ``count`` trials; those of failed ones (None, infinite) are infinite. Raises UserError U052."""
    made = np.array([np.inf if s is None else s for s in _numbers(seconds, "seconds", count)], np.float64)
    if (wrong := made[np.isnan(made) | (made <= 0)]).size:
        raise UserError(f"a trial took {wrong[0]} seconds", code="U052", hint="a failed trial has None")
    return made


def checked_analytic(analytic: ArrayLike | None, count: int, needed: bool) -> Numbers:
    """Analytic seconds of ``count`` candidates, 1 where there are none. Raises UserError U052, also if they are
    ``needed`` and not given."""
    if analytic is None and not needed:
        return np.ones(count)
    if analytic is None:
        raise UserError(
            "the model corrects an analytic prediction, which is not given",
            code="U052",
            hint="analytic=[seconds of each candidate]",
        )
    made = np.array(_numbers(analytic, "analytic seconds", count), np.float64)
    if (wrong := made[~(np.isfinite(made) & (made > 0))]).size:
        raise UserError(f"analytic seconds must be positive and finite, not {wrong[0]}", code="U052")
    return made


def _numbers(values: Any, what: str, count: int) -> list[Any]:
    try:
        made = list(values)
    except TypeError:
        raise UserError(f"{what} are one number for each row, not {type(values).__name__}", code="U052") from None
    if len(made) != count:
        raise UserError(f"there are {len(made)} {what} for {count} rows of features", code="U052")
    for v in made:
        if v is not None and not isinstance(v, (int, float, np.floating, np.integer)):
            raise UserError(f"{what} are numbers, not {type(v).__name__}", code="U052")
    return made
