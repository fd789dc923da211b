"""What all strategies share: they are asked for points to measure, and told how these ended."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.tune.search.history import History, Trial
from weft.tune.space import Point, Space

TRIES: Final = 20
"""So many draws for each point that is wanted: in a small space most draws have been tried already."""

MAX_POINTS_EACH: Final = 4
"""A space of so many points for each one that is wanted is enumerated: draws would meet the same points again."""


class Guide(Protocol):
    """Predicts how good points are, without measuring them."""

    def score(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """A number for each point; more is better."""

    def sketches(self) -> NDArray[np.float64] | None:
        """The logarithm of the predicted speed of the default point of each sketch, relative to that of the first. None
        where nothing predicts it."""

    def closely(self, points: Sequence[Point], count: int) -> NDArray[np.float64]:
        """The same for few points, of which ``count`` will be measured: as exact as is worth the time."""

    def learn(self, trials: Sequence[Trial]) -> None:
        """Take in what was measured."""

    @property
    def ready(self) -> bool:
        """Whether the predictions mean anything yet."""


class NoGuide:
    """Knows nothing: all points are equally good."""

    def sketches(self) -> NDArray[np.float64] | None:
        """Nothing."""
        return None

    def score(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """Zeros."""
        return np.zeros(len(points))

    def closely(self, points: Sequence[Point], count: int) -> NDArray[np.float64]:
        """Zeros."""
        return self.score(points)

    def learn(self, trials: Sequence[Trial]) -> None:
        """Nothing is learned."""

    @property
    def ready(self) -> bool:
        """Never."""
        return False


class Strategy:
    """Chooses the points to measure. Subclasses say which in :meth:`proposed`.

    ``rng`` decides all draws, so a search with the same seed and the same measurements takes the same way.
    """

    name: str = ""

    def __init__(self, space: Space, history: History, rng: Random, guide: Guide | None = None) -> None:
        self.space, self.history, self.rng, self.guide = space, history, rng, guide or NoGuide()

    def ask(self, count: int) -> list[Point]:
        """Up to ``count`` different points that have no trial yet; none at all only when the strategy has ended."""
        found: dict[Point, None] = {}
        for point in self.proposed(count):
            if len(found) < count and not self.history.tried(point):
                found[point] = None
        return list(found)

    def proposed(self, count: int) -> list[Point]:
        """Points to measure next, the most promising first, at least ``count`` if possible. Those that were tried
        before are left out by :meth:`ask`."""
        raise NotImplementedError

    def tell(self, trials: Sequence[Trial]) -> None:
        """How the points ended that :meth:`ask` gave; they are in the history already."""

    def fresh(self, count: int) -> list[Point]:
        """Up to ``count`` different random points without a trial."""
        if count <= 0:
            return []
        if self.space.size <= MAX_POINTS_EACH * count:
            return self._rest(count)
        found: dict[Point, None] = {}
        for _ in range(TRIES * count):
            point = self.space.sample(self.rng)
            if not self.history.tried(point):
                found[point] = None
            if len(found) >= count:
                break
        if not found:  # a small space whose last points random draws do not meet
            found.update((p, None) for p in self._rest(count))
        return list(found)

    def _rest(self, count: int) -> list[Point]:
        if self.space.size > 100_000:
            return []
        rest = [p for p in self.space.points() if not self.history.tried(p)]
        return self.rng.sample(rest, min(count, len(rest)))
