"""Which schedules of a kernel the corpus has: a spread of all, and more of the good ones."""

from __future__ import annotations

from typing import Final

from weft.tune.search.strategy import Strategy
from weft.tune.space import Point

BEST: Final = 4
"""The neighbours of so many of the best schedules are tried."""


class CorpusSampling(Strategy):
    """A third of the points are random, a third keep some of the decisions of a default schedule, and a third are a
    step or two away from the best ones so far: what a model must tell apart are the good ones, and what it must know
    to be bad is met at random only."""

    name = "corpus"

    def proposed(self, count: int) -> list[Point]:
        """Points of the three kinds in turn, those of every sketch first."""
        found: dict[Point, None] = {}
        if not self.history.trials:
            found.update((self.space.default(i), None) for i in range(1, len(self.space.sketches)))
        best = [t.point for t in self.history.top(BEST) if t.score > 0]
        for n in range(4 * count):
            kind = n % 3 if best else n % 2
            point = self.space.sample(self.rng)
            if kind == 1:
                point = self.space.near_default(self.rng, point)
            elif kind == 2:
                point = self.rng.choice(best)
                for _ in range(self.rng.choice((1, 1, 2, 3))):
                    point = self.space.mutated(self.rng, point)
            if not self.history.tried(point):
                found[point] = None
            if len(found) >= count:
                break
        return [*found, *self.fresh(count - len(found))]
