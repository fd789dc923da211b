"""Coordinate descent: one knob after another, from the best point."""

from __future__ import annotations

from collections.abc import Sequence

from weft.tune.search.history import Trial
from weft.tune.search.strategy import Strategy
from weft.tune.space import Point


class CoordinateDescent(Strategy):
    """Measures the neighbours of the best point. The knobs whose changes were worth most come first. When no neighbour
    is better, it goes on from the next best points, and at last from random ones."""

    name = "descent"

    def proposed(self, count: int) -> list[Point]:
        """Neighbours without a trial, of the best point first."""
        default = self.space.default()
        if not self.history.tried(default):
            return [default, *self.fresh(count - 1)] if count > 1 else [default]
        gains = self._gains()
        found: dict[Point, None] = {}
        for trial in self.history.top(8) or []:
            here = [p for p in self.space.neighbours(trial.point) if not self.history.tried(p)]
            worth = {p: gains.get(_changed(trial.point, p), 0.0) for p in here}
            here.sort(key=worth.__getitem__, reverse=True)
            found.update((p, None) for p in here)
            if len(found) >= count:
                break
        return [*found, *self.fresh(max(0, count - len(found)))]

    def tell(self, trials: Sequence[Trial]) -> None:
        """The history says all."""

    def _gains(self) -> dict[tuple[int, int], float]:
        """The best relative change that each knob of each sketch made to a measured neighbour."""
        gains: dict[tuple[int, int], float] = {}
        for trial in self.history.top(4):
            for point in self.space.neighbours(trial.point):
                other = self.history.by_point.get(point)
                if other is not None and other.score > 0:
                    key = _changed(trial.point, point)
                    gains[key] = max(gains.get(key, 0.0), abs(other.score / trial.score - 1))
        return gains


def _changed(a: Point, b: Point) -> tuple[int, int]:
    """The sketch and the knob in which two neighbours differ."""
    at = next((i for i, (x, y) in enumerate(zip(a.positions, b.positions, strict=True)) if x != y), -1)
    return a.sketch, at
