"""The dispatch that a matrix of times gives: which schedule serves which sizes.

The times say how long each schedule takes on each assignment of the open sizes, relative to the default schedule. The
dispatch is the decision tree that makes the mean of their logarithms least. A schedule serves sizes only where it was
measured not to be slower than the default one, and nothing but the default schedule serves sizes far from those that
were measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weft.schedule.dispatch import Dispatch, RecordedSchedule
from weft.schedule.trace import Trace

MAX_VERSIONS: Final = 4
"""Limit on the versions of a kernel between the sizes that were measured: each is code to build and to load."""
MIN_GAIN: Final = 0.02
"""Share of the mean time that another version must gain."""
NOT_SLOWER: Final = 1.02
"""A schedule may serve sizes on which it takes at most so many times as long as the default one."""
BEYOND: Final = 2
"""A schedule serves sizes up to so many times beyond those that were measured."""

Sizes = tuple[int, ...]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Tree:
    """A tree, the sum of the logarithms of its times, and its number of leaves."""

    node: RecordedSchedule | None
    cost: float
    leaves: int


def dispatch_of(
    sizes: Sequence[Sizes], times: Mapping[Trace, Sequence[float]], versions: int = MAX_VERSIONS
) -> RecordedSchedule | None:
    """The schedule for ``sizes``, assignments of all open sizes. ``times`` are those of each trace on each assignment,
    relative to the default schedule; infinite or NaN where a trace failed. None where the default schedule is best."""
    traces: list[Trace | None] = [None, *times]
    logs = np.zeros((len(traces), len(sizes)))
    for row, t in enumerate(times.values(), 1):
        given = np.asarray(t, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs[row] = np.where(np.isfinite(given) & (given > 0) & (given <= NOT_SLOWER), np.log(given), np.inf)
    found = _Builder(list(sizes), logs, traces).best(tuple(range(len(sizes))), versions)
    return None if found.node is None else _bounded(found.node, sizes)


class _Builder:
    """Finds the best tree over assignments, with the least leaves that are worth it."""

    def __init__(self, sizes: list[Sizes], logs: Array, traces: Sequence[Trace | None]) -> None:
        self._sizes, self._logs, self._traces = sizes, logs, traces
        self._known: dict[tuple[tuple[int, ...], int], _Tree] = {}

    def best(self, members: tuple[int, ...], leaves: int) -> _Tree:
        """The best tree for these assignments with at most so many leaves."""
        key = members, leaves
        if key not in self._known:
            self._known[key] = self._found(members, leaves)
        return self._known[key]

    def _found(self, members: tuple[int, ...], leaves: int) -> _Tree:
        totals = self._logs[:, list(members)].sum(axis=1)
        row = int(np.argmin(totals))
        best = _Tree(self._traces[row], float(totals[row]), 1)
        if leaves < 2:
            return best
        least_gain = -math.log(1 - MIN_GAIN) * len(self._sizes)
        for position in range(len(self._sizes[0])):
            values = sorted({self._sizes[m][position] for m in members})
            for low, high in pairwise(values):
                within = tuple(m for m in members if self._sizes[m][position] <= low)
                beyond = tuple(m for m in members if self._sizes[m][position] > low)
                for given in range(1, leaves):
                    a, b = self.best(within, given), self.best(beyond, leaves - given)
                    cost, count = a.cost + b.cost, a.leaves + b.leaves
                    if cost + least_gain * (count - best.leaves) < best.cost:
                        best = _Tree(Dispatch(position, _between(low, high), a.node, b.node), cost, count)
        return best


def _between(low: int, high: int) -> int:
    """The last size that is more like ``low`` than like ``high``: their geometric mean, not beyond either."""
    return min(high - 1, max(low, math.isqrt(low * high)))


def _bounded(node: RecordedSchedule | None, sizes: Sequence[Sizes]) -> RecordedSchedule | None:
    """The tree, with the default schedule for sizes far from all that were measured."""
    for position in range(len(sizes[0])):
        values = [s[position] for s in sizes]
        node = Dispatch(position, BEYOND * max(values), node, None)
        if min(values) // BEYOND > 0:
            node = Dispatch(position, min(values) // BEYOND - 1, None, node)
    return node


def ladder(least: int, most: int) -> tuple[int, ...]:
    """Sizes that stand for all from ``least`` to ``most``: both, and the powers of two between them."""
    powers = [2**i for i in range(most.bit_length()) if least < 2**i < most]
    return tuple(dict.fromkeys((least, *powers, most)))


def anchors_of(sizes: Sequence[Any], most: int) -> tuple[Any, ...]:
    """At most ``most`` of ``sizes``, evenly spread, the first and the last among them."""
    if len(sizes) <= most:
        return tuple(sizes)
    if most == 1:
        return (sizes[-1],)
    return tuple(sizes[round(i * (len(sizes) - 1) / (most - 1))] for i in range(most))
