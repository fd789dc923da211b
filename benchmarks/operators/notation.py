"""The notation of recipes: a recipe makes the nodes, inputs and weights of one operator for a size, rank and dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.movement import Node

Array = np.ndarray[Any, Any]
FLOATS = ("float32", "float16", "float64")
INTEGERS = ("int64", "int32", "int8", "uint8")
DISTINCT_NUMBERS = 1 << 20
"""Number of distinct random numbers in one array, which are then repeated: generating more takes longer than a row."""


@dataclass(frozen=True)
class Size:
    """A class of sizes: about how many ``numbers`` an operand has, and whether its axes are odd."""

    name: str
    numbers: int
    odd: bool = False


SIZES = (
    Size("one", 1),
    Size("registers", 64),
    Size("L1", 1 << 12),
    Size("L2", 100_000),
    Size("memory", 1 << 23),
    Size("odd L1", 1 << 12, odd=True),
    Size("odd L2", 100_000, odd=True),
)
_IMAGES = {"one": (1, 1, 1), "registers": (4, 4, 4), "L1": (16, 16, 16), "L2": (64, 40, 40), "memory": (128, 256, 256)}
_ODD_IMAGES = {"odd L1": (17, 15, 17), "odd L2": (41, 43, 57)}
_HEAVY = (64, 160, 160)
"""Image of operators that compute much for each number: the largest that takes well under a second."""
_TYPICAL = {1: (), 2: (256,), 3: (64, 128), 4: (32, 28, 28), 5: (16, 8, 14, 14)}
"""Sizes of the last axes of a tensor with many numbers, by rank; the first axis takes the rest."""


@dataclass(frozen=True)
class Made:
    """A case: nodes in order, the last of which gives the results. ``open`` holds the axes of inputs that an open form
    of the case leaves unknown (of every input that has so many axes; none: there is no open form)."""

    nodes: tuple[Node, ...]
    inputs: Mapping[str, Array]
    weights: Mapping[str, Array] = field(default_factory=dict)
    open: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Maker:
    """What a recipe sees."""

    size: Size
    rank: int
    dtype: str

    @cached_property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(7)

    def dims(self, rank: int | None = None) -> tuple[int, ...]:
        """Axes of a tensor of about ``size.numbers`` numbers."""
        rank = rank or self.rank
        n = self.size.numbers
        typical = _TYPICAL[rank]
        if n < 4 * math.prod(typical):
            side = max(1, round(n ** (1 / rank)))
            typical = (side,) * (rank - 1)
        last = tuple(d | 1 if self.size.odd else d for d in typical)
        first = max(1, n // math.prod(last))
        return (first | 1 if self.size.odd else first, *last)

    def image(self, heavy: bool = False) -> tuple[int, int, int]:
        """Channels, height and width."""
        if heavy and self.size.name == "memory":
            return _HEAVY
        return _ODD_IMAGES[self.size.name] if self.size.odd else _IMAGES[self.size.name]

    def x(self, *shape: int, low: float = -2.0, high: float = 2.0, dtype: str = "") -> Array:
        """Random numbers between the bounds."""
        kind = np.dtype(dtype or self.dtype)
        count = min(math.prod(shape), DISTINCT_NUMBERS - 1)
        if kind.kind == "b":
            return np.resize(self.rng.random(count) > 0.5, shape)
        if kind.kind in "iu":
            least = max(math.ceil(low), 0) if kind.kind == "u" else math.ceil(low)
            return np.resize(self.rng.integers(least, math.floor(high) + 1, count), shape).astype(kind)
        return np.resize(self.rng.uniform(low, high, count), shape).astype(kind)


Make = Callable[[Maker], Made | None]


@dataclass(frozen=True)
class Recipe:
    """One operator with one choice of attributes, and the ranks and dtypes for which it is made."""

    op: str
    variant: str
    make: Make
    ranks: tuple[int, ...] = (4,)
    dtypes: tuple[str, ...] = ("float32",)


def longs(*values: int) -> Array:
    return np.array(values, np.int64)


def node(
    op: str,
    inputs: Mapping[str, Array],
    weights: Mapping[str, Array] | None = None,
    *,
    outputs: Sequence[str] = ("y",),
    open: tuple[int, ...] = (0,),
    **attrs: Any,
) -> Made:
    """A case of one node whose operands are the inputs and then the weights."""
    names = (*inputs, *(weights or ()))
    return Made((Node(op, names, tuple(outputs), attrs),), inputs, weights or {}, open)
