"""Features in the tuning database: each trial of the corpus has a row of what the draft model sees in it.

A row is the version, the seconds that the draft model estimates, and the columns of the set ``nests``. Rows of another
version are ignored, and computed again from the schedule. So are the sets that need the lowered program: lowering takes
as long as measuring, and would halve the corpus.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weft.kernels.task import KernelTask
from weft.schedule.dispatch import Dispatch
from weft.schedule.trace import Trace
from weft.support.errors import WeftError
from weft.tune.database import Database
from weft.tune.model.candidate import Candidate
from weft.tune.model.features import FEATURES_VERSION
from weft.tune.model.sets import FEATURE_SETS, FeatureSet
from weft.tune.record import Outcome, TrialRecord

Row = NDArray[np.float32]

KEPT: Final = FEATURE_SETS["nests"]
_FIRST: Final = ("version", "draft_seconds")


def feature_row(task: KernelTask, trace: Trace | None, threads: int) -> Row | None:
    """The row of one schedule; None for one that is refused."""
    with contextlib.suppress(WeftError):
        candidate = Candidate.of(task, trace, threads)
        first = np.array([FEATURES_VERSION, candidate.draft_seconds], np.float32)
        return np.concatenate([first, KEPT.of(candidate)])
    return None


def vector_of(
    row: Row | None, features: FeatureSet, task: KernelTask, trace: Trace | None, threads: int
) -> tuple[NDArray[np.float32], float] | None:
    """The vector of a set of features, and the seconds that the draft model estimates: from the row of a trial if it
    has them, else from its schedule. None for a schedule that is refused or cannot be lowered."""
    if features is KEPT and row is not None and len(row) == len(_FIRST) + len(KEPT.columns) and row[0] == KEPT.version:
        return row[len(_FIRST) :], float(row[1])
    with contextlib.suppress(WeftError):
        candidate = Candidate.of(task, trace, threads)
        return features.of(candidate), candidate.draft_seconds
    return None


class KeepsFeatures:
    """A database as the memory of a tuner that stores the features of all trials."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        task: KernelTask,
        records: Iterable[TrialRecord],
        *,
        run: str = "",
        seed: int | None = None,
        best: TrialRecord | None = None,
    ) -> Any:
        """Keep trials with their features."""
        found = list(records)
        rows = [_row(task, r) for r in found]
        return self._database.add(task, found, run=run, seed=seed, features=rows, best=best)

    def known(self, task: KernelTask, threads: int) -> Sequence[TrialRecord]:
        """All trials of a kernel with so many threads."""
        return self._database.known(task, threads)

    def similar(self, task: KernelTask, threads: int) -> Sequence[Trace]:
        """None: schedules of other kernels are no spread."""
        return ()


def _row(task: KernelTask, record: TrialRecord) -> Row | None:
    """The features of a trial; None for a schedule that is refused, and for a dispatch, which is several programs."""
    if record.outcome is Outcome.REFUSED or isinstance(record.trace, Dispatch):
        return None
    return feature_row(task, record.trace, record.threads)
