"""Spaces without kernels, and measuring functions for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.schedule.primitives.sampling import factorizations
from weft.schedule.trace import Instruction, Slot, Trace
from weft.tune.record import Outcome, TrialRecord
from weft.tune.search.history import History, Trial
from weft.tune.search.strategy import Guide, Strategy
from weft.tune.space import Point, Space, TraceSketch

Speed = Callable[[Point], float]
"""How many times as fast as the default a point is; 0: it is refused."""
BASELINE = 1e-3
"""Seconds of the default schedule."""


def choice(*values: int | str, at: int = 0) -> Instruction:
    """A sampling instruction with these candidates."""
    return Instruction("sample_choice", (("candidates", values), ("weights", None)), ("v",), at)


def tile(extent: int, parts: int, most: int = 64, at: int = 0) -> Instruction:
    """A sampling instruction of factors."""
    decision = factorizations(extent, parts, most)[at]
    args = (("loop", Slot("l0")), ("parts", parts), ("innermost_at_most", most))
    return Instruction("sample_tile", args, tuple("v" * parts), decision, extent)


def order(count: int, decision: Sequence[int] = ()) -> Instruction:
    """A sampling instruction of an order of loops."""
    loops = tuple(Slot(f"l{i}") for i in range(count))
    return Instruction("sample_order", (("loops", loops),), tuple("l" * count), tuple(decision) or tuple(range(count)))


def sketch(*instructions: Instruction, name: str = "made") -> TraceSketch:
    """The sketch of a trace that consists of sampling instructions."""
    return TraceSketch(name, Trace(instructions))


def space(*instructions: Instruction) -> Space:
    """The space of one such sketch."""
    return Space((sketch(*instructions),))


def terraces() -> tuple[Space, Speed]:
    """7,680 points, where numbers and factors matter by their logarithms, an order by one of its loops, and a corner is
    refused. The best point is 8 times as fast as the default."""
    made = space(
        choice(1, 2, 4, 8, 16), tile(64, 2), order(3), choice("plain", "packed"), choice(*range(1, 17)), choice(0, 16)
    )
    best = (3, 4, 0, 1, 11, 1)

    def speed(point: Point) -> float:
        a, b, c, d, e, f = (k.values[p] for k, p in zip(made.knobs(point), point.positions, strict=True))
        if a == 16 and e > 12:
            return 0.0
        loss = abs(math.log2(a / 8)) * 0.3 + abs(math.log2(b[1] / 16)) * 0.2 + c.index(0) * 0.15
        return 8 * math.exp(-loss - (d == "plain") * 0.4 - abs(e - 12) * 0.06 - (f == 0) * 0.1)

    assert speed(Point(0, best)) == 8
    return made, speed


class Known:
    """A guide that knows the logarithms of all speeds, up to noise that depends on the point alone."""

    ready = True

    def __init__(self, speed: Speed, noise: float = 0.0) -> None:
        self.speed, self.noise = speed, noise
        self._scores: dict[Point, float] = {}

    def score(self, points: Sequence[Point]) -> NDArray[np.float64]:
        return np.array([self._scores[p] if p in self._scores else self._one(p) for p in points])

    def _one(self, point: Point) -> float:
        error = self.noise * Random(hash(point)).gauss(0, 1) if self.noise else 0.0
        self._scores[point] = score = math.log(max(self.speed(point), 1e-3)) + error
        return score

    def sketches(self) -> None:
        return None

    def closely(self, points: Sequence[Point], count: int) -> NDArray[np.float64]:
        return self.score(points)

    def learn(self, trials: Sequence[Trial]) -> None:
        pass


def record_of(speed: float, trace: Trace | None = None) -> TrialRecord:
    """The record of a point so many times as fast as the default."""
    if speed <= 0:
        return TrialRecord(trace, Outcome.REFUSED, message="refused")
    return TrialRecord(trace, Outcome.OK, BASELINE / speed, (BASELINE / speed,))


def searched(
    kind: type[Strategy], made: Space, speed: Speed, trials: int, *, guide: Guide | None = None, seed: int = 0,
    batch: int = 8, default: bool = False,
) -> History:  # fmt: skip
    """A search of so many trials, or until the strategy has ended. No point may come twice, none from outside."""
    history = History(record_of(1.0))
    if default:
        history.by_point[made.default()] = Trial(made.default(), history.baseline, 1.0)
    strategy = kind(made, history, Random(seed), guide)
    while len(history.trials) < trials:
        points = strategy.ask(min(batch, trials - len(history.trials)))
        assert len(points) <= batch
        assert len(set(points)) == len(points)
        if not points:
            break
        for point in points:
            assert not history.tried(point)
            check_inside(made, point)
        told = [history.add(p, record_of(speed(p))) for p in points]
        strategy.tell(told)
        if guide is not None:
            guide.learn(told)
    return history


def check_inside(made: Space, point: Point) -> None:
    """A point of the space, nothing else."""
    knobs: Sequence[Any] = made.knobs(point)
    assert len(knobs) == len(point.positions)
    assert all(type(p) is int and 0 <= p < len(k.values) for k, p in zip(knobs, point.positions, strict=True)), point
