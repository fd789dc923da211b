"""Beam search over the decisions of a point, scored by a learned cost (A. Adams et al., "Learning to Optimize Halide
with Tree Search and Random Programs", 2019).

A beam holds the best prefixes of decisions; the decisions after a prefix are those of the best point so far. Every pass
decides all knobs in turn; later passes begin from other points, so that they meet other prefixes.
"""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np

from weft.tune.search.strategy import Strategy
from weft.tune.space import Point

WIDTH: Final = 16
CANDIDATES: Final = 48
"""Candidates of one knob that are tried for each prefix: the default, its neighbours, and random others."""


class BeamSearch(Strategy):
    """Beam search on the guide's predictions; random points until it is ready."""

    name = "beam"

    def proposed(self, count: int) -> list[Point]:
        """The best complete points of a pass."""
        if not self.guide.ready:
            return [self.space.default(), *self.fresh(count)]
        found: dict[Point, float] = {}
        for start in self._starts():
            found.update(self._passed(start))
        new = ((s, i, p) for i, (p, s) in enumerate(found.items()) if not self.history.tried(p))
        best = [p for _, _, p in heapq.nlargest(count, new)]
        return [*best, *self.fresh(max(0, count - len(best)))]

    def _starts(self) -> list[Point]:
        """The best point of each sketch, or its default."""
        best: dict[int, Point] = {n: self.space.default(n) for n in range(len(self.space.sketches))}
        for trial in reversed(self.history.top(64)):
            best[trial.point.sketch] = trial.point
        return list(best.values())

    def _passed(self, start: Point) -> dict[Point, float]:
        beam, met = [start], dict[Point, float]()
        for at, knob in enumerate(self.space.knobs(start)):
            positions = list(range(len(knob.values)))
            if len(positions) > CANDIDATES:
                near = {knob.default, start.positions[at], *knob.neighbours(start.positions[at])}
                positions = sorted(near | set(self.rng.sample(positions, CANDIDATES - min(CANDIDATES, len(near)))))
            made = list(dict.fromkeys(p.changed(at, position) for p in beam for position in positions))
            scores = [float(s) for s in self.guide.score(made)]
            met.update(zip(made, scores, strict=True))
            beam = [made[i] for i in np.argsort([-s for s in scores], kind="stable")[:WIDTH]]
        return met
