"""Random search and grid search: what every other strategy must beat."""

from __future__ import annotations

from weft.tune.search.strategy import Strategy
from weft.tune.space import Point


class RandomSearch(Strategy):
    """Every point is as likely as the others of its sketch."""

    name = "random"

    def proposed(self, count: int) -> list[Point]:
        """Random points."""
        return self.fresh(count)


class GridSearch(Strategy):
    """All points in order."""

    name = "grid"

    def proposed(self, count: int) -> list[Point]:
        """The next points without a trial."""
        if not hasattr(self, "_points"):
            self._points = self.space.points()
        found: list[Point] = []
        for point in self._points:
            if not self.history.tried(point):
                found.append(point)
            if len(found) >= count:
                break
        return found
