"""Which random numbers the nodes of a model draw: the state of this while the model is imported."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from weft.expr.nodes import Var as Symbol
from weft.graph.nodes import Var
from weft.graph.types import TensorType
from weft.ops.random import MAX_STREAMS
from weft.support.dtypes import INT64

SEED_INPUT = "seed"
"""The name of the input that the seed of each run is given in."""


class Draws:
    """``seed`` is an integer of 64 bits, or ``"input"``: the model gets an input for the seed of each run."""

    def __init__(self, seed: int | str) -> None:
        self.seed = 0 if isinstance(seed, str) else operator.index(seed)
        self.iterations: list[Symbol | int] = []
        """The numbers of the iterations of the loops that are being imported, outermost first."""
        self.input: Var | None = None
        """The input for the seed, once a node depends on it."""
        self._is_input = seed == "input"

    def run_seed(self) -> Var | None:
        """The seed of the run, where it is an input."""
        if self._is_input and self.input is None:
            self.input = Var(SEED_INPUT, TensorType((), INT64))
        return self.input

    @contextmanager
    def iterating(self, number: Symbol | int) -> Iterator[None]:
        """Import the body of a loop for the iteration of this number: of every one, if it is a symbol."""
        self.iterations.append(number)
        try:
            yield
        finally:
            self.iterations.pop()


def place_of(path: tuple[tuple[str, ...], ...]) -> tuple[int, int]:
    """The stream and the first step of the numbers of the node with this path, which no other node has.

    They depend on names alone: not on which branches are imported, how often, and whether loops are unrolled."""
    digest = sha256(repr(path).encode(errors="backslashreplace")).digest()
    return 1 + int.from_bytes(digest[:8], "big") % (MAX_STREAMS - 1), int.from_bytes(digest[8:16], "big", signed=True)
