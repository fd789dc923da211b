"""Genetic and evolutionary search.

*Genetic*: a population of measured points; children take each knob from one of two parents, chosen by rank, and
mutate. *Evolutionary*: the published template-free search (L. Zheng et al., "Ansor", 2020): a large population evolves
on the predictions of the guide, and the best of all generations are measured, with a share of random ones.
"""

from __future__ import annotations

import heapq
from typing import Final

from weft.tune.search.strategy import Strategy
from weft.tune.space import Point

ELITE: Final = 32
"""Measured points among which parents are chosen."""
MUTATED: Final = 0.85
"""Probability with which a child mutates."""
POPULATION: Final = 512
GENERATIONS: Final = 4
BEST_SHARE: Final = 0.2
"""Share of the first population that comes from the best measured points."""
RANDOM_SHARE: Final = 0.05
"""Share of the measured points that are random."""
CROSSED: Final = 0.05
"""Probability with which a point of the next generation has two parents."""


class Genetic(Strategy):
    """A genetic algorithm on measured points."""

    name = "genetic"

    def proposed(self, count: int) -> list[Point]:
        """Children of the best measured points; random ones until there are parents."""
        parents = [t.point for t in self.history.top(ELITE)]
        if len(parents) < 2:
            return [self.space.default(), *self.fresh(count)]
        weights = [len(parents) - rank for rank in range(len(parents))]
        found: dict[Point, None] = {}
        for _ in range(20 * count):
            a, b = self.rng.choices(parents, weights, k=2)
            child = self.space.crossed(self.rng, a, b)
            if self.rng.random() < MUTATED:
                child = self.space.mutated(self.rng, child)
            if not self.history.tried(child):
                found[child] = None
            if len(found) >= count:
                break
        return [*found, *self.fresh(max(0, count - len(found)))]


class Evolutionary(Strategy):
    """Evolution on the guide's predictions."""

    name = "evolutionary"

    def proposed(self, count: int) -> list[Point]:
        """The best points of all generations, and a share of random ones."""
        if not self.guide.ready:
            return [self.space.default(), *self.fresh(count)]
        few = max(1, round(RANDOM_SHARE * count)) if count > 1 else 0
        return [*self._evolved(count - few), *self.fresh(few)]

    def _evolved(self, count: int) -> list[Point]:
        best = [t.point for t in self.history.top(round(BEST_SHARE * POPULATION))]
        population = best + (self.fresh(POPULATION - len(best)) or [self.space.default()])
        met: dict[Point, float] = {}
        for _ in range(GENERATIONS + 1):
            scores = [float(s) for s in self.guide.score(population)]
            met.update(zip(population, scores, strict=True))
            low = min(scores)
            weights = [s - low + 1e-6 for s in scores]
            population = [self._child(population, weights) for _ in range(POPULATION)]
        new = ((score, i, p) for i, (p, score) in enumerate(met.items()) if not self.history.tried(p))
        return [p for _, _, p in heapq.nlargest(count, new)]

    def _child(self, population: list[Point], weights: list[float]) -> Point:
        a, b = self.rng.choices(population, weights, k=2)
        if self.rng.random() < CROSSED:
            return self.space.crossed(self.rng, a, b)
        return self.space.mutated(self.rng, a) if self.rng.random() < MUTATED else a
