"""Random search and grid search: what every other strategy must beat."""

from __future__ import annotations

from random import Random

from weft.tune.search.history import History
from weft.tune.search.strategy import Guide, Strategy
from weft.tune.space import Point, Space


class RandomSearch(Strategy):
    """Every point is as likely as the others of its sketch."""

    name = "random"

    def proposed(self, count: int) -> list[Point]:
        """Random points."""
        return self.fresh(count)


class GridSearch(Strategy):
    """All points in order."""

    name = "grid"

    def __init__(self, space: Space, history: History, rng: Random, guide: Guide | None = None) -> None:
        super().__init__(space, history, rng, guide)
        self._points = space.points()

    def proposed(self, count: int) -> list[Point]:
        """The next points without a trial."""
        found: list[Point] = []
        for point in self._points:
            if not self.history.tried(point):
                found.append(point)
            if len(found) >= count:
                break
        return found
