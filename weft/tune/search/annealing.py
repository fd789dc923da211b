"""Simulated annealing with parallel chains.

With a guide the chains walk on its predictions, for many steps between two measurements, and the best points that
they met are measured (T. Chen et al., "Learning to Optimize Tensor Programs", 2018). Without one each chain takes a
step when its point was measured.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from random import Random
from typing import Final

from weft.tune.search.history import History, Trial
from weft.tune.search.strategy import Guide, Strategy
from weft.tune.space import Point, Space

CHAINS: Final = 64
STEPS: Final = 60
"""Steps of the chains on the predictions between two measurements."""
COOLED: Final = 0.05
"""The temperature at the end, relative to that at the beginning."""
RANDOM_SHARE: Final = 0.1
"""Share of the measured points that are random: what the guide is wrong about is found so."""
START_TEMPERATURE: Final = 0.3
"""Of chains on measured scores: so much loss is accepted with probability 1/e at first."""
COOLING: Final = 0.9
"""Factor of the temperature of chains on measured scores with every batch."""


class Annealing(Strategy):
    """Simulated annealing."""

    name = "annealing"
    _temperature: float = START_TEMPERATURE

    def __init__(self, space: Space, history: History, rng: Random, guide: Guide | None = None) -> None:
        super().__init__(space, history, rng, guide)
        self._chains = [space.default()]
        self._from: list[tuple[Point, Point]] = []
        """Where each chain is, and the point that it steps to."""

    def proposed(self, count: int) -> list[Point]:
        """The best points that the chains meet, and some random ones."""
        if not self.guide.ready:
            return self._next_of_chains(count)
        few = max(1, round(RANDOM_SHARE * count)) if count > 1 else 0
        return [*self._walked(count - few), *self.fresh(few)]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Chains on measured scores go to the new points, or stay."""
        if self.guide.ready:
            return
        for trial in trials:
            at = next((i for i, p in enumerate(self._from) if p[1] == trial.point), None)
            if at is None:
                continue
            old = self.history.by_point.get(self._from[at][0])
            if self._accepts(trial.score - (old.score if old else 0.0), self._temperature):
                self._chains[at % len(self._chains)] = trial.point
        self._temperature *= COOLING

    def _next_of_chains(self, count: int) -> list[Point]:
        while len(self._chains) < count:
            self._chains.extend(self.fresh(count - len(self._chains)) or [self.space.sample(self.rng)])
        self._from = []
        for chain in self._chains[:count]:
            step = chain
            if self.history.tried(chain) or chain == self.space.default():
                for _ in range(10):
                    step = self.space.mutated(self.rng, step)
                    if not self.history.tried(step):
                        break
            self._from.append((chain, step))
        return [step for _, step in self._from] + self.fresh(1)

    def _walked(self, count: int) -> list[Point]:
        """The ``count`` best new points among all that the chains meet."""
        starts = [t.point for t in self.history.top(CHAINS // 2)]
        starts += self.fresh(CHAINS - len(starts)) or [self.space.default()]
        scores = list(self.guide.score(starts))
        met = dict(zip(starts, scores, strict=True))
        spread = (max(scores) - min(scores)) or 1.0
        for step in range(STEPS):
            temperature = spread * COOLED ** (step / STEPS) / 2
            moved = [self.space.mutated(self.rng, p) for p in starts]
            for i, (point, score) in enumerate(zip(moved, self.guide.score(moved), strict=True)):
                met[point] = float(score)
                if self._accepts(float(score) - scores[i], temperature):
                    starts[i], scores[i] = point, float(score)
        new = ((score, i, p) for i, (p, score) in enumerate(met.items()) if not self.history.tried(p))
        return [p for _, _, p in heapq.nlargest(count, new)]

    def _accepts(self, gain: float, temperature: float) -> bool:
        return gain >= 0 or self.rng.random() < math.exp(gain / max(temperature, 1e-9))
