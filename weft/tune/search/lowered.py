"""Features of lowered programs in a search: for as many candidates as the time allows.

Lowering a candidate takes from a few milliseconds to a quarter of a second, as long as measuring it where loops are
unrolled far. So another guide orders all points, and only the best of those from which the next candidates are chosen
are lowered: as many as keep the time for it at a share of the time for measuring, by the measured cost of both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from weft.support.errors import WeftError
from weft.tune.measure.runner import Workload
from weft.tune.model.candidate import Candidate
from weft.tune.model.cost_model import CostModel
from weft.tune.model.sets import FeatureSet, beside_default
from weft.tune.search.history import Trial
from weft.tune.search.strategy import Guide
from weft.tune.space import Point, Space

MAX_SHARE: Final = 0.15
"""Time for lowering, relative to that for measuring: with the draft's, it stays below a fifth."""
TRIAL_SECONDS: Final = 0.15
"""What a trial is taken to last as long as none was measured."""
LOWERING_SECONDS: Final = 0.03
"""What lowering is taken to last as long as nothing was lowered."""


class LoweredGuide:
    """Orders the most promising points by a ``model`` over ``features`` of their lowered programs; all others as
    ``first`` does. The model corrects the draft model's estimates. ``clock`` gives seconds."""

    def __init__(
        self,
        first: Guide,
        space: Space,
        workload: Workload,
        features: FeatureSet,
        model: CostModel,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._first, self._space, self._workload = first, space, workload
        self._features, self._model, self._clock = features, model, clock
        self._known: dict[Point, tuple[NDArray[np.float32], float] | None] = {}
        self._lowering = self._measuring = 0.0
        self._trials = 0
        self._asked_at: float | None = None

    def score(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """As the first guide."""
        return self._first.score(points)

    def sketches(self) -> NDArray[np.float64] | None:
        """As the first guide."""
        return self._first.sketches()

    def closely(self, points: Sequence[Point], count: int) -> NDArray[np.float64]:
        """Scores by the lowered programs of as many of the best points as the time allows; of the others by the first
        guide, on a scale on which both have the same mean. A point that is refused comes last."""
        scores = np.array(self._first.closely(points, count), np.float64)
        begin = self._clock()
        spent = 0.0
        chosen = []
        for at in np.argsort(-scores, kind="stable").tolist():
            if points[at] not in self._known:
                if spent + self._cost > self._allowed(count):
                    continue
                self._look_at(points[at])
                spent = self._clock() - begin
            chosen.append(at)
        self._lowering += spent
        self._asked_at = self._clock()
        found = [(at, known) for at in chosen if (known := self._known[points[at]]) is not None]
        if len(found) > 1 and not self._model.is_empty:
            places = [at for at, _ in found]
            better = self._scored([known for _, known in found])
            scores[places] = better + scores[places].mean() - better.mean()
        scores[[at for at in chosen if self._known[points[at]] is None]] = scores.min() - 1e3
        return scores

    def learn(self, trials: Sequence[Trial]) -> None:
        """Both guides learn."""
        if self._asked_at is not None:
            self._measuring += self._clock() - self._asked_at
            self._trials += len(trials)
            self._asked_at = None
        self._first.learn(trials)
        rows, seconds, draft = [], [], []
        for t in trials:
            known = self._known.get(t.point)
            if known is not None:
                rows.append(known[0])
                draft.append(known[1])
                seconds.append(t.record.seconds if t.score > 0 else None)
        if rows:
            self._model.update(self._workload.task.identity, np.stack(rows), seconds, draft)

    @property
    def ready(self) -> bool:
        """As the first guide."""
        return self._first.ready

    @property
    def lowered(self) -> int:
        """Programs that were lowered so far."""
        return len(self._known)

    @property
    def _cost(self) -> float:
        """Seconds for the next point."""
        return self._lowering / len(self._known) if self._lowering and self._known else LOWERING_SECONDS

    def _allowed(self, count: int) -> float:
        """Seconds for lowering, before so many trials."""
        each = self._measuring / self._trials if self._trials else TRIAL_SECONDS
        return MAX_SHARE * (self._measuring + each * count) - self._lowering

    @cached_property
    def _default(self) -> NDArray[np.float32]:
        """The row of the default point; of zeros where it is refused."""
        try:
            return self._features.of(self._candidate(self._space.default()))
        except WeftError:
            return np.zeros(len(self._features.columns), np.float32)

    def _candidate(self, point: Point) -> Candidate:
        return Candidate.of(self._workload.task, self._space.trace(point), self._workload.threads)

    def _look_at(self, point: Point) -> None:
        try:
            candidate = self._candidate(point)
            (row,) = beside_default(self._features.of(candidate)[None], self._default)
            self._known[point] = row, max(candidate.draft_seconds, 1e-12)
        except WeftError:
            self._known[point] = None

    def _scored(self, known: Sequence[tuple[NDArray[np.float32], float]]) -> NDArray[np.float64]:
        rows, draft = np.stack([r for r, _ in known]), np.array([s for _, s in known])
        return self._model.predict(self._workload.task.identity, rows, draft)
