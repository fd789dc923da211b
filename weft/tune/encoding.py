"""Points as rows of numbers, for models that know nothing of programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from weft.tune.space import Knob, Point, Space

ZERO_COUNTS_AS: Final = 0.5
"""What a decision of 0 counts as, since logarithms are taken."""


class Encoding:
    """Rows for the points of a space: which sketch it is, and the columns of each knob of each sketch (zero in the
    rows of others). Numbers and factors are logarithms; an order is the place of each loop; texts and places are one
    column for each candidate."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._tables = [[knob_table(k) for k in s.knobs] for s in space.sketches]
        self._starts: list[int] = []
        at = len(space.sketches)
        for tables in self._tables:
            self._starts.append(at)
            at += sum(t.shape[1] for t in tables)
        self.width = at
        """Columns of a row."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns: the sketches, then each candidate's columns of each knob."""
        names = [f"sketch {s.name}" for s in self.space.sketches]
        for sketch, tables in zip(self.space.sketches, self._tables, strict=True):
            for knob, table in zip(sketch.knobs, tables, strict=True):
                names += [f"{sketch.name} {knob.name} {i}" for i in range(table.shape[1])]
        return tuple(names)

    def rows(self, points: Sequence[Point]) -> NDArray[np.float32]:
        """A row for each point."""
        made = np.zeros((len(points), self.width), np.float32)
        numbers = np.array([p.sketch for p in points], np.int64)
        made[np.arange(len(points)), numbers] = 1.0
        for sketch in set(numbers.tolist()):
            members = np.flatnonzero(numbers == sketch)
            at = self._starts[sketch]
            positions = np.array([points[i].positions for i in members.tolist()], np.int64).reshape(len(members), -1)
            for knob, table in enumerate(self._tables[sketch]):
                made[members, at : at + table.shape[1]] = table[positions[:, knob]]
                at += table.shape[1]
        return made


def knob_table(knob: Knob) -> NDArray[np.float32]:
    """The columns of each candidate of a knob."""
    if knob.numeric:
        return np.array([[np.log2(max(v, ZERO_COUNTS_AS))] for v in knob.values], np.float32)
    if knob.is_order:
        return np.array([np.argsort(v) for v in knob.values], np.float32)
    if knob.factors:
        return np.log2(np.array(knob.values, np.float32))
    return np.eye(len(knob.values), dtype=np.float32)
