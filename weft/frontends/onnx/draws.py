"""Which random numbers the nodes of a model draw: the state of this while the model is imported."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from weft.expr.nodes import Var as Symbol
from weft.graph.nodes import Var
from weft.graph.types import TensorType
from weft.support.dtypes import INT64

SEED_INPUT = "seed"
"""The name of the input that the seed of each run is given in."""


class Draws:
    """``seed`` is an integer of 64 bits, or ``"input"``: the model gets an input for the seed of each run."""

    def __init__(self, seed: int | str) -> None:
        self.seed = 0 if isinstance(seed, str) else operator.index(seed)
        self.iterations: list[Symbol] = []
        """The numbers of the iterations of the loops that are being imported, outermost first."""
        self.input: Var | None = None
        """The input for the seed, once a node depends on it."""
        self._is_input = seed == "input"
        self._streams = 0
        self._conversions: Counter[tuple[str, tuple[str, ...]]] = Counter()

    def next_stream(self) -> int:
        """A number from 1 on that no other node without a seed of its own has."""
        self._streams += 1
        return self._streams

    def repetition(self, scope: str, outputs: tuple[str, ...]) -> int:
        """How often the node with these outputs was converted before: each iteration of an unrolled loop draws other
        numbers."""
        self._conversions[scope, outputs] += 1
        return self._conversions[scope, outputs] - 1

    def run_seed(self) -> Var | None:
        """The seed of the run, where it is an input."""
        if self._is_input and self.input is None:
            self.input = Var(SEED_INPUT, TensorType((), INT64))
        return self.input

    @contextmanager
    def iterating(self, number: Symbol) -> Iterator[None]:
        """Import the body of a loop whose iterations have this number."""
        self.iterations.append(number)
        try:
            yield
        finally:
            self.iterations.pop()
