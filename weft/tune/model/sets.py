"""Sets of features by name: one vector of numbers for each schedule of a kernel.

The rows of a kernel's statements become one vector, as trees take one row for each label. Sums and weighted means
order unseen operators as well as the largest values, or the rows of the three largest statements beside each other,
with a half or a third of the columns. The row of the largest statement alone is worse: it does not see the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from weft.schedule.trace import Trace
from weft.support.errors import UserError
from weft.support.words import did_you_mean
from weft.target import Target
from weft.tir.nodes import Program
from weft.tune.model.features import FEATURES_VERSION, GROUPS, NAMES, Matrix, features
from weft.tune.model.knobs import knobs

Vector: TypeAlias = "NDArray[np.float32]"

MAX_KNOBS: Final = 96
"""Numbers of the set ``knobs``; those of later decisions are left out, missing ones are 0."""
SUMMED: Final = frozenset((*GROUPS["arithmetic"], *GROUPS["traffic"], "iterations"))
"""Columns whose counts add up over the statements of a kernel."""


@dataclass(frozen=True, slots=True)
class FeatureSet:
    """A named set: ``columns`` are the names of the numbers of a vector; ``of(kernel, target, trace)`` makes it.

    ``kernel`` is in kernel form. The trace is that of its schedule, which only the set ``knobs`` looks at.
    """

    name: str
    columns: tuple[str, ...]
    make: Callable[[Program, Target, Trace | None], Vector]
    version: int = FEATURES_VERSION

    def of(self, kernel: Program, target: Target, trace: Trace | None = None) -> Vector:
        """The vector of one candidate. Raises UserError U050 for a program that is not in kernel form, and U051
        without a trace where the set needs one."""
        return self.make(kernel, target, trace)


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


def _stores(kernel: Program, target: Target, trace: Trace | None) -> Vector:
    return summary(features(kernel, target))


def _relations(kernel: Program, target: Target, trace: Trace | None) -> Vector:
    return summary(features(kernel, target), _RELATIONS)


def _knobs(kernel: Program, target: Target, trace: Trace | None) -> Vector:
    if trace is None:
        raise UserError(
            "the set of features 'knobs' is made of the decisions of a schedule, which is not given",
            code="U051",
            hint="pass the trace of the schedule, or use the set 'stores'",
        )
    numbers: list[Any] = list(knobs(trace).values())[:MAX_KNOBS]
    return np.array(numbers + [0.0] * (MAX_KNOBS - len(numbers)), np.float32)


FEATURE_SETS: Final = {
    s.name: s
    for s in (
        FeatureSet("stores", NAMES, _stores),
        FeatureSet("relations", _RELATIONS, _relations),
        FeatureSet("knobs", tuple(f"knob_{n}" for n in range(MAX_KNOBS)), _knobs),
    )
}
"""``stores``: everything that features tell. ``relations``: how data are used again, which means the same for all
operators and machines. ``knobs``: the decisions of the schedule, for one kernel only."""
