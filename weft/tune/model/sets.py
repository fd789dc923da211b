"""Sets of features by name: one vector of numbers for each schedule of a kernel.

The rows of a kernel's statements become one vector, as trees take one row for each label. Sums and weighted means
order unseen operators as well as the largest values, or the rows of the three largest statements beside each other,
with a half or a third of the columns. The row of the largest statement alone is worse: it does not see the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from weft.support.errors import UserError
from weft.support.words import did_you_mean
from weft.tune.draft.rows import NEST_COLUMNS
from weft.tune.model.candidate import Candidate
from weft.tune.model.features import FEATURES_VERSION, GROUPS, NAMES, Matrix, features

Vector: TypeAlias = "NDArray[np.float32]"

SUMMED: Final = frozenset((*GROUPS["arithmetic"], *GROUPS["traffic"], "iterations"))
"""Columns whose counts add up over the statements of a kernel."""


@dataclass(frozen=True, slots=True)
class FeatureSet:
    """A named set: ``columns`` are the names of the numbers of a vector. ``lowers``: it looks at the kernel form, which
    takes a hundred times as long to make as everything else."""

    name: str
    columns: tuple[str, ...]
    make: Callable[[Candidate], Vector]
    lowers: bool = True
    version: int = FEATURES_VERSION

    @property
    def model_columns(self) -> tuple[str, ...]:
        """The columns of :func:`beside_default`, which models learn from."""
        return (*self.columns, *(f"relative_{c}" for c in self.columns))

    def of(self, candidate: Candidate) -> Vector:
        """The vector of one candidate. Raises WeftError for one that cannot be lowered, if the set needs that."""
        return self.make(candidate)


def beside_default(rows: Matrix, default: Vector) -> Matrix:
    """Rows of a set, each followed by its differences to those of the default schedule: what is the same in all
    schedules of a kernel says nothing about which of them is fast, and differs from kernel to kernel."""
    return np.concatenate([rows, rows - default], axis=1)


def feature_set(name: str) -> FeatureSet:
    """The set of that name. Raises UserError U056 for other names."""
    found = FEATURE_SETS.get(name)
    if found is None:
        known = ", ".join(FEATURE_SETS)
        raise UserError(
            f"there is no set of features '{name}'",
            code="U056",
            hint=did_you_mean(name, FEATURE_SETS, f"one of {known}"),
        )
    return found


def summary(matrix: Matrix, columns: Sequence[str] = NAMES) -> Vector:
    """One vector for a kernel from the rows of its statements: counts that add up are summed, the other columns are
    means weighted by the work of the statements.

    Zeros for a kernel without statements.
    """
    if not len(matrix):
        return np.zeros(len(columns), np.float32)
    at = [_COLUMN[name] for name in columns]
    chosen = matrix[:, at].astype(np.float64)
    weights = np.exp2(matrix[:, _COLUMN["operations"]].astype(np.float64))
    total = (chosen * (weights / weights.sum())[:, None]).sum(axis=0)
    summed = np.array([name in SUMMED for name in columns])
    total[summed] = np.log2(1 + (np.exp2(chosen[:, summed]) - 1).sum(axis=0))
    made: Vector = total.astype(np.float32)
    return made


_COLUMN: Final = {name: n for n, name in enumerate(NAMES)}
_RELATIONS: Final = tuple(name for group in ("loops", "traffic", "reuse", "curves") for name in GROUPS[group])


def _stores(candidate: Candidate) -> Vector:
    return summary(features(candidate.kernel, candidate.task.target))


def _relations(candidate: Candidate) -> Vector:
    return summary(features(candidate.kernel, candidate.task.target), _RELATIONS)


def _nests(candidate: Candidate) -> Vector:
    return candidate.nest_row


FEATURE_SETS: Final = {
    s.name: s
    for s in (
        FeatureSet("nests", NEST_COLUMNS, _nests, lowers=False),
        FeatureSet("stores", NAMES, _stores),
        FeatureSet("relations", _RELATIONS, _relations),
    )
}
"""``nests``: what the draft model sees in the scheduled program. ``stores``: everything that the features of the
lowered program tell. ``relations``: how data are used again there, which means the same for all operators and
machines."""
