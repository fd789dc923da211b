"""What a cost model is: it learns from trials, and says which candidates are probably fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray


class CostModel(Protocol):
    """Learns scores of schedules from trials, while a search runs.

    Rows of features are those of one set (:mod:`weft.tune.model.sets`). ``task_key`` tells which kernel they are of:
    scores compare candidates of one task and mean nothing between tasks. ``analytic`` are seconds that were predicted
    for each candidate without a clock; models that do not correct a prediction ignore them.
    """

    @property
    def is_empty(self) -> bool:
        """Whether nothing was learned."""
        ...

    def update(
        self,
        task_key: str,
        features: ArrayLike,
        seconds: Sequence[float | None],
        analytic: ArrayLike | None = None,
    ) -> None:
        """Learn from trials: ``features[n, columns]`` and the seconds of each, None for a trial without a time, which
        counts as infinitely slow."""
        ...

    def predict(self, task_key: str, features: ArrayLike, analytic: ArrayLike | None = None) -> NDArray[np.float64]:
        """Scores of candidates: the higher, the faster. All are equal as long as nothing was learned."""
        ...

    def uncertainty(self, task_key: str, features: ArrayLike) -> NDArray[np.float64]:
        """How little is known of each candidate, on the scale of scores. 1 as long as nothing was learned."""
        ...

    def to_text(self) -> str:
        """What was learned, as text."""
        ...

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The model that :meth:`to_text` wrote. It goes on learning from there; trials are not stored."""
        ...
