"""Guides: what predicts the speed of points that were not measured.

The *draft* estimates without any measurement. The *learned* guide corrects it: a cost model
(:mod:`weft.tune.model`) learns the rest that the draft leaves, from rows of knobs. What primitives refuse is recognized
by the draft where it concerns a whole structure, and by the share of failures near a point otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from weft.tune.draft.model import DraftModel
from weft.tune.encoding import Encoding
from weft.tune.model.cost_model import CostModel
from weft.tune.search.history import Trial
from weft.tune.space import Point

MIN_SEEN: Final = 8
"""Trials from which the learned part is used."""
PROBES_A_TRIAL: Final = 2
"""Programs that the draft may schedule for every trial that was measured."""
REFUSED_SECONDS: Final = 1e6
"""What a refused structure counts as."""


class DraftGuide:
    """Orders points by the draft model alone."""

    def __init__(self, draft: DraftModel) -> None:
        self._draft = draft

    def score(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """Minus the logarithm of the estimated seconds."""
        return -np.log(np.minimum(self._draft.seconds(points), REFUSED_SECONDS))

    def learn(self, trials: Sequence[Trial]) -> None:
        """The draft may look at more structures; it does not learn."""
        self._draft.most_probes += PROBES_A_TRIAL * len(trials)

    @property
    def ready(self) -> bool:
        """Always."""
        return True


class LearnedGuide:
    """Orders points by a cost model that corrects the draft, or by the draft until it has seen a few trials.

    Without a draft the model orders them alone."""

    def __init__(self, encoding: Encoding, model: CostModel, draft: DraftModel | None = None, key: str = "") -> None:
        self._encoding, self._model, self._draft, self._key = encoding, model, draft, key
        self._seen = 0

    def score(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """The predicted speed; of structures that are refused, less than all others."""
        analytic = self._analytic(points)
        if self._seen < MIN_SEEN:
            return np.zeros(len(points)) if analytic is None else -np.log(analytic)
        scores = self._model.predict(self._key, self._encoding.rows(points), analytic)
        if analytic is not None:
            scores = np.where(analytic >= REFUSED_SECONDS, scores.min(initial=0.0) - 1e3, scores)
        return scores

    def learn(self, trials: Sequence[Trial]) -> None:
        """Train the model with more trials. What could not be built or was refused counts as infinitely slow."""
        if not trials:
            return
        if self._draft is not None:
            self._draft.most_probes += PROBES_A_TRIAL * len(trials)
        points = [t.point for t in trials]
        seconds = [t.record.seconds if t.score > 0 else None for t in trials]
        self._model.update(self._key, self._encoding.rows(points), seconds, self._analytic(points))
        self._seen += len(trials)

    @property
    def ready(self) -> bool:
        """Whether anything orders the points yet."""
        return self._draft is not None or self._seen >= MIN_SEEN

    def _analytic(self, points: Sequence[Point]) -> NDArray[np.float64] | None:
        return None if self._draft is None else np.minimum(self._draft.seconds(points), REFUSED_SECONDS)
