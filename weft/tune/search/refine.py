"""Draft, verify, refine: the default strategy.

*Begin*: the default points of the sketches that are predicted to be good are measured. A sketch whose best point stays
behind is given up, the earlier the further it is behind: to predict its other points would take programs of it.
*Draft*: a population evolves on the guide's predictions, from random points and the best measured ones.
*Verify*: the guide looks at the best few hundred more closely; a few that differ from one another are measured, and the
guide learns from them.
*Refine*: when that no longer helps, the neighbours of the best point are measured, the most promising first, until
none is better. Then the search drafts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from weft.tune.search.history import Trial
from weft.tune.search.strategy import Strategy
from weft.tune.space import Point

POPULATION: Final = 2048
GENERATIONS: Final = 3
SURVIVORS: Final = 512
"""The best of a generation, from which the next one comes."""
VERIFIED: Final = 256
"""The best of the last generation, from which those that are measured are chosen."""
SAME_SHARE: Final = 0.25
"""A candidate loses so much of the spread of all scores for each other one that has all its decisions in common, in
proportion to the decisions."""
EXPLORED: Final = 0.1
"""Share of the measured points that are random."""
MIN_OF_SKETCH: Final = 4
"""Trials that every sketch gets that is not given up: estimates of different sketches are harder to compare than those
of one."""
BEHIND: Final = (0.3, 0.5, 0.7, 0.8, 0.9)
"""A sketch is given up when its best point has less than such a share of the best speed, after none (as predicted),
one, two … trials."""
DRAWN_OF_SKETCH: Final = 64
"""Random points of a neglected sketch among which the guide chooses."""
STALE: Final = 2
"""Rounds without progress after which drafting gives way to refining, and refining to drafting."""


class DraftVerifyRefine(Strategy):
    """See the module."""

    name = "refine"
    _refining = False
    _stale = 0
    _best = 1.0

    def proposed(self, count: int) -> list[Point]:
        """Points of the present phase; of the other one where it has none left."""
        new = self._begun() if not self.history.trials else []
        if new:  # a small batch, perhaps, but it needs no predictions of other points
            return new
        first, second = (self._refined, self._drafted) if self._refining else (self._drafted, self._refined)
        found = first(count)
        return found if len(found) >= count else [*found, *second(count)]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Change the phase after rounds without progress."""
        better = self.history.best_score > self._best * 1.002
        self._best = max(self._best, self.history.best_score)
        self._stale = 0 if better else self._stale + 1
        if self._stale >= STALE:
            self._refining, self._stale = not self._refining, 0

    def _drafted(self, count: int) -> list[Point]:
        """Good points that differ, good ones of sketches that were hardly tried, and random ones."""
        few = round(EXPLORED * count) if self.history.trials else 0
        population = self._population()
        neglected = self._neglected(population, (count - few) // 2)
        taken = set(neglected)
        rest = self._diverse([p for p in population if p not in taken], max(1, count - few - len(neglected)))
        found = [*neglected, *rest]
        return [*found, *self.fresh(few if found else count)]

    def _neglected(self, population: list[Point], count: int) -> list[Point]:
        """The best points of the sketches with fewest trials, as long as these are fewer than :data:`MIN_OF_SKETCH`."""
        alive = self._alive()
        tried = dict.fromkeys(alive, 0)
        for t in self.history.trials:
            if t.point.sketch in tried:
                tried[t.point.sketch] += 1
        found: list[Point] = []
        for _ in range(count):
            sketch = min(alive, key=tried.__getitem__)
            if tried[sketch] >= MIN_OF_SKETCH:
                break
            own = [p for p in population if p.sketch == sketch and p not in found]
            if not own:
                drawn = [self.space.sample(self.rng, sketch) for _ in range(DRAWN_OF_SKETCH)]
                fresh = [p for p in dict.fromkeys(drawn) if not self.history.tried(p) and p not in found]
                own = self._best_of(fresh, 1) if fresh else []
            found += own[:1]
            tried[sketch] += 1
        return found

    def _population(self) -> list[Point]:
        """The best points of the last generation without a trial, the best first."""
        measured, alive = [t.point for t in self.history.top(32)], self._alive()
        drawn = [self.space.sample(self.rng, self.rng.choice(alive)) for _ in range(POPULATION)]
        current = (
            [p for p in drawn[::2] if not self.history.tried(p)]
            + [self.space.near_default(self.rng, p) for p in drawn[1::2]]
            + [self.space.mutated(self.rng, p) for p in measured for _ in range(8)]
        )
        for _ in range(GENERATIONS):
            best = self._best_of([*measured, *current], SURVIVORS)  # the draft looks at their structures in this order
            children = [self.space.mutated(self.rng, self.rng.choice(best)) for _ in range(POPULATION // 2)]
            children += [
                self.space.crossed(self.rng, self.rng.choice(best), self.rng.choice(best))
                for _ in range(POPULATION // 4)
            ]
            current = list(dict.fromkeys([*best, *children]))
        return [p for p in self._best_of(current, VERIFIED + len(measured)) if not self.history.tried(p)]

    def _begun(self) -> list[Point]:
        """The default points of the sketches that are alive, the one that is predicted to be fastest first."""
        speeds = self._predicted
        order = sorted(self._alive(), key=lambda s: -speeds[s])
        return [p for p in map(self.space.default, order) if not self.history.tried(p)]

    def _alive(self) -> list[int]:
        """The sketches that are not given up (:data:`BEHIND`). That of the default schedule never is."""
        best: dict[int, list[float]] = {}
        for t in self.history.trials:
            best.setdefault(t.point.sketch, []).append(t.score)
        found = []
        for sketch, predicted in enumerate(self._predicted):
            scores = best.get(sketch, [])
            least = BEHIND[min(len(scores), len(BEHIND) - 1)]
            shown = max(scores) / self.history.best_score if scores else float(np.exp(predicted))
            if sketch == 0 or shown >= least:
                found.append(sketch)
        return found

    @cached_property
    def _predicted(self) -> list[float]:
        speeds = self.guide.sketches()
        return [0.0] * len(self.space.sketches) if speeds is None else speeds.tolist()

    def _best_of(self, points: list[Point], count: int) -> list[Point]:
        scores = self.guide.score(points)
        return [points[i] for i in np.argsort(-scores, kind="stable")[:count]]

    def _diverse(self, points: list[Point], count: int) -> list[Point]:
        """``count`` of the points: good ones that have few decisions in common with those chosen before."""
        if not points:
            return []
        scores = np.array(self.guide.closely(points, count), np.float64)
        spread = float(np.subtract(*np.percentile(scores, [90, 10]))) or 1.0
        lost = np.zeros(len(points))
        found: list[Point] = []
        for _ in range(min(count, len(points))):
            at = int(np.argmax(scores - lost))
            found.append(points[at])
            scores[at] = -np.inf
            lost += SAME_SHARE * spread * np.array([_common(p, points[at]) for p in points])
        return found

    def _refined(self, count: int) -> list[Point]:
        """Neighbours of the best points without a trial, ordered by the guide."""
        found: dict[Point, None] = {}
        tops = [t.point for t in self.history.top(4)] or [self.space.default()]
        for point in tops:
            near = [p for p in self.space.neighbours(point) if not self.history.tried(p)]
            if near:
                found.update((p, None) for p in self._best_of(near, count))
            if len(found) >= count:
                break
        return list(found)[:count]


def _common(a: Point, b: Point) -> float:
    """The share of decisions that two points have in common; 0 for different sketches."""
    if a.sketch != b.sketch or not a.positions:
        return 0.0
    return sum(x == y for x, y in zip(a.positions, b.positions, strict=True)) / len(a.positions)
