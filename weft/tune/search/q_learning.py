"""Annealing whose steps a Q-network chooses (S. Zheng et al., "FlexTensor", 2020), and the search it is compared with.

Both start from measured points, chosen with a probability that falls with their distance from the best. From such a
point a step changes one knob to a neighbour. *Neighbour annealing* measures every step. *Q-guided annealing* measures
the step whose predicted gain is largest: a small network learns from all steps so far what each direction is worth at
a point, and what is expected after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from weft.tune.search.history import History, Trial
from weft.tune.search.strategy import Guide, Strategy
from weft.tune.space import Knob, Point, Space

GREED: Final = 4.0
"""Starting points are drawn with the probability exp(-GREED * loss), where a loss of 1 is as slow as never ending."""
STARTS: Final = 8
"""Measured points among which starting points are drawn."""
WARM_UP: Final = 8
"""Random points before the first step."""
EXPLORED: Final = 0.1
"""Probability of a random direction."""
DISCOUNT: Final = 0.5
"""Weight of what is expected after a step."""
HIDDEN: Final = 32
RATE: Final = 0.01
EPOCHS: Final = 20
"""Passes over the last steps after each batch."""
MEMORY: Final = 512
"""Steps that are remembered."""

Direction = tuple[int, int]
"""A knob, and -1 or 1: down or up."""


def stepped(knobs: Sequence[Knob], point: Point, direction: Direction) -> Point | None:
    """The point one step in a direction, or None at the end. Knobs that are not ordered have a step to the next of
    their neighbours, in a circle."""
    at, sign = direction
    knob, position = knobs[at], point.positions[at]
    if knob.ordered:
        return point.changed(at, position + sign) if 0 <= position + sign < len(knob.values) else None
    near = knob.neighbours(position)
    below, above = [p for p in near if p < position], [p for p in near if p > position]
    chosen = (max(below) if below else max(near)) if sign < 0 else (min(above) if above else min(near))
    return point.changed(at, chosen)


class NeighbourAnnealing(Strategy):
    """Measures all steps from each starting point."""

    name = "neighbours"

    def proposed(self, count: int) -> list[Point]:
        """The steps from starting points; random points to begin with."""
        if len(self.history.trials) < WARM_UP:
            return self.fresh(count)
        found: dict[Point, None] = {}
        for _ in range(4 * count):
            start = self.started()
            knobs = self.space.knobs(start)
            for direction in self.directions(knobs):
                point = stepped(knobs, start, direction)
                if point is not None and not self.history.tried(point):
                    found[point] = None
            if len(found) >= count:
                break
        return [*found, *self.fresh(max(0, count - len(found)))]

    @staticmethod
    def directions(knobs: Sequence[Knob]) -> list[Direction]:
        """Both directions of every knob."""
        return [(i, sign) for i in range(len(knobs)) for sign in (-1, 1)]

    def started(self) -> Point:
        """A measured point, the more likely the faster it is."""
        top = self.history.top(STARTS)
        if not top:
            return self.space.sample(self.rng)
        best = top[0].score
        return self.rng.choices(top, [math.exp(-GREED * (best - t.score) / best) for t in top])[0].point


@dataclass(frozen=True, slots=True)
class _Step:
    sketch: int
    state: NDArray[np.float64]
    direction: int
    gain: float
    after: NDArray[np.float64]


class QGuidedAnnealing(NeighbourAnnealing):
    """Measures the steps that a Q-network prefers."""

    name = "q-learning"

    def __init__(self, space: Space, history: History, rng: Random, guide: Guide | None = None) -> None:
        super().__init__(space, history, rng, guide)
        self._taken: dict[Point, tuple[Point, int]] = {}
        """The step that leads to each point which was proposed: where it starts, and the number of its direction."""
        self._memory: list[_Step] = []
        self._networks: dict[int, Network] = {}

    def proposed(self, count: int) -> list[Point]:
        """One step from each of ``count`` starting points; random points to begin with."""
        if len(self.history.trials) < WARM_UP:
            return self.fresh(count)
        found: dict[Point, None] = {}
        for _ in range(8 * count):
            start = self.started()
            step = self._chosen(start, found)
            if step is not None:
                point, number = step
                found[point] = None
                self._taken[point] = start, number
            if len(found) >= count:
                break
        return [*found, *self.fresh(max(0, count - len(found)))]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Remember the steps and train the networks."""
        for trial in trials:
            if trial.point not in self._taken:
                continue
            start, number = self._taken.pop(trial.point)
            if not self.history.tried(start):
                continue
            before = self.history.by_point[start].score
            gain = (trial.score - before) / max(before, 1e-9)
            self._memory.append(_Step(start.sketch, self._state(start), number, gain, self._state(trial.point)))
        del self._memory[:-MEMORY]
        for _ in range(EPOCHS):
            self._train()

    def _network(self, sketch: int) -> Network:
        if sketch not in self._networks:
            knobs = self.space.sketches[sketch].knobs
            self._networks[sketch] = Network(len(knobs), 2 * len(knobs), self.rng.randrange(1 << 30))
        return self._networks[sketch]

    def _state(self, point: Point) -> NDArray[np.float64]:
        knobs = self.space.knobs(point)
        pairs = zip(point.positions, knobs, strict=True)
        return np.array([2 * p / max(1, len(k.values) - 1) - 1 for p, k in pairs], np.float64)

    def _chosen(self, start: Point, taken: dict[Point, None]) -> tuple[Point, int] | None:
        knobs = self.space.knobs(start)
        directions = self.directions(knobs)
        values = self._network(start.sketch)(self._state(start)[None])[0]
        order = sorted(range(len(directions)), key=lambda i: -values[i])
        if self.rng.random() < EXPLORED:
            self.rng.shuffle(order)
        for number in order:
            point = stepped(knobs, start, directions[number])
            if point is not None and point not in taken and not self.history.tried(point):
                return point, number
        return None

    def _train(self) -> None:
        for sketch, network in self._networks.items():
            steps = [s for s in self._memory if s.sketch == sketch]
            if not steps:
                continue
            after = network(np.stack([s.after for s in steps])).max(axis=1)
            wanted = np.array([s.gain for s in steps]) + DISCOUNT * np.maximum(after, 0.0)
            network.train(np.stack([s.state for s in steps]), np.array([s.direction for s in steps]), wanted)


class Network:
    """Two hidden layers of rectified units, trained by Adam (D. Kingma and J. Ba, 2015) on single outputs."""

    def __init__(self, inputs: int, outputs: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        sizes = (inputs, HIDDEN, HIDDEN, outputs)
        pairs = zip(sizes, sizes[1:], strict=False)  # noqa: RUF007  # the pairs are layers
        self._weights = [rng.standard_normal((a, b)) * math.sqrt(2 / max(1, a)) for a, b in pairs]
        self._weights[-1] *= 0.1
        self._biases = [np.zeros(b) for b in sizes[1:]]
        self._moments = [(np.zeros_like(p), np.zeros_like(p)) for p in (*self._weights, *self._biases)]
        self._updates = 0

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Outputs for rows of inputs."""
        return self._layers(x)[-1]

    def _layers(self, x: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        found = [x]
        for i, (w, b) in enumerate(zip(self._weights, self._biases, strict=True)):
            y = found[-1] @ w + b
            found.append(y if i == len(self._weights) - 1 else np.maximum(y, 0.0))
        return found

    def train(self, x: NDArray[np.float64], output: NDArray[np.int64], wanted: NDArray[np.float64]) -> None:
        """One step towards ``wanted``, the value of one output for each row."""
        layers, rows = self._layers(x), np.arange(len(x))
        error = np.zeros_like(layers[-1])
        error[rows, output] = np.clip(layers[-1][rows, output] - wanted, -1.0, 1.0) / len(x)
        weights, biases = [], []
        for i in reversed(range(len(self._weights))):
            weights.append(layers[i].T @ error)
            biases.append(error.sum(axis=0))
            error = (error @ self._weights[i].T) * (layers[i] > 0)
        self._update([*reversed(weights), *reversed(biases)])

    def _update(self, gradients: list[NDArray[np.float64]]) -> None:
        self._updates += 1
        t = self._updates
        parameters = [*self._weights, *self._biases]
        for p, (m, v), g in zip(parameters, self._moments, gradients, strict=True):
            m *= 0.9
            m += 0.1 * g
            v *= 0.999
            v += 0.001 * g * g
            p -= RATE * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
