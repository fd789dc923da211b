"""Guides: what predicts the speed of points that were not measured.

The *draft* estimates without any measurement. The *learned* guide corrects it: a cost model
(:mod:`weft.tune.model`) learns the rest that the draft leaves, from rows of features
(:mod:`weft.tune.search.described`). What primitives refuse is recognized by the draft where it concerns a whole
structure, and by the share of failures near a point otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from weft.tune.draft.model import DraftModel
from weft.tune.model.cost_model import CostModel
from weft.tune.search.described import REFUSED_SECONDS, Described
from weft.tune.search.history import Trial
from weft.tune.space import Point

MIN_SEEN: Final = 8
"""Trials from which a model is used that knew nothing before."""
PROBES_A_TRIAL: Final = 2
"""Programs that the draft may schedule for every trial that was measured."""


class DraftGuide:
    """Orders points by the draft model alone."""

    def __init__(self, draft: DraftModel) -> None:
        self._draft = draft

    def score(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """Minus the logarithm of the estimated seconds."""
        return -np.log(np.minimum(self._draft.seconds(points), REFUSED_SECONDS))

    def sketches(self) -> NDArray[np.float64]:
        """By the estimated seconds."""
        return self._draft.speeds_of_sketches()

    def closely(self, points: Sequence[Point], count: int) -> NDArray[np.float64]:
        """The same: the draft does not know better."""
        return self.score(points)

    def learn(self, trials: Sequence[Trial]) -> None:
        """The draft may look at more structures; it does not learn."""
        self._draft.most_probes += PROBES_A_TRIAL * len(trials)

    @property
    def ready(self) -> bool:
        """Always."""
        return True


class LearnedGuide:
    """Orders points by a cost model, or by what is predicted without it until it has seen a few trials.

    A ``model`` that knows something already (:func:`weft.tune.model.pretrained.pretrained`) is used from the beginning.
    ``draft`` may look at more structures with every trial.
    """

    def __init__(self, described: Described, model: CostModel, draft: DraftModel | None = None, key: str = "") -> None:
        self._described, self._model, self._draft, self._key = described, model, draft, key
        self._needed = MIN_SEEN if model.is_empty else 0
        self._seen = 0

    def score(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """The predicted speed; of structures that are refused, less than all others."""
        rows, predicted = self._described.of(points)
        if self._seen < self._needed:
            return np.zeros(len(points)) if predicted is None else -np.log(predicted)
        scores = self._model.predict(self._key, rows, predicted)
        if predicted is not None:
            scores = np.where(predicted >= REFUSED_SECONDS, scores.min(initial=0.0) - 1e3, scores)
        return scores

    def sketches(self) -> NDArray[np.float64] | None:
        """By the draft model, if there is one."""
        return None if self._draft is None else self._draft.speeds_of_sketches()

    def closely(self, points: Sequence[Point], count: int) -> NDArray[np.float64]:
        """The same: all that the model knows is in every score."""
        return self.score(points)

    def learn(self, trials: Sequence[Trial]) -> None:
        """Train the model with more trials. What could not be built or was refused counts as infinitely slow."""
        if not trials:
            return
        if self._draft is not None:
            self._draft.most_probes += PROBES_A_TRIAL * len(trials)
        rows, predicted = self._described.of_measured([t.point for t in trials])
        seconds = [t.record.seconds if t.score > 0 else None for t in trials]
        if predicted is not None:  # of what the draft has not looked at, nothing can be learned
            known = predicted < REFUSED_SECONDS
            rows, predicted = rows[known], predicted[known]
            seconds = [s for s, k in zip(seconds, known.tolist(), strict=True) if k]
        self._model.update(self._key, rows, seconds, predicted)
        self._seen += len(seconds)

    @property
    def ready(self) -> bool:
        """Whether anything orders the points yet."""
        return self._draft is not None or self._seen >= self._needed
