"""Points as rows of features, for models that learn from trials while a search runs.

Two kinds need no program: the decisions themselves, and what the draft model sees. A row of the kinds that
need the lowered program takes as long as a tenth of a trial or more: :mod:`weft.tune.search.lowered` is about these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.tune.draft.model import DraftModel
from weft.tune.encoding import Encoding
from weft.tune.model.sets import FEATURE_SETS, beside_default
from weft.tune.space import Point

REFUSED_SECONDS: Final = 1e6
"""What a structure counts as that primitives refuse, or that the draft model does not know yet."""

Rows = NDArray[np.float32]
Seconds = NDArray[np.float64]


class Described(Protocol):
    """What a model is told of points."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a row."""

    def of(self, points: Sequence[Point]) -> tuple[Rows, Seconds | None]:
        """A row for each point, and the seconds that are predicted for it without a trial, if they are."""

    def of_measured(self, points: Sequence[Point]) -> tuple[Rows, Seconds | None]:
        """The same for points that were measured: there are few, and something is to be learned from each."""


class KnobRows:
    """The decisions of points, which mean something in one space only. Without a ``draft`` nothing is predicted."""

    def __init__(self, encoding: Encoding, draft: DraftModel | None = None) -> None:
        self._encoding, self._draft = encoding, draft

    @property
    def columns(self) -> tuple[str, ...]:
        """See :class:`Described`."""
        return self._encoding.columns

    def of(self, points: Sequence[Point]) -> tuple[Rows, Seconds | None]:
        """See :class:`Described`."""
        rows = self._encoding.rows(points)
        return rows, None if self._draft is None else np.minimum(self._draft.seconds(points), REFUSED_SECONDS)

    def of_measured(self, points: Sequence[Point]) -> tuple[Rows, Seconds | None]:
        """See :class:`Described`."""
        rows = self._encoding.rows(points)
        if self._draft is None:
            return rows, None
        return rows, np.minimum(self._draft.rows_of_measured(points)[1], REFUSED_SECONDS)


class NestRows:
    """What the draft model sees of points, which means the same for all kernels, beside that of the default point."""

    columns = FEATURE_SETS["nests"].model_columns

    def __init__(self, draft: DraftModel) -> None:
        self._draft = draft
        self._default: NDArray[np.float32] | None = None

    def of(self, points: Sequence[Point]) -> tuple[Rows, Seconds]:
        """See :class:`Described`."""
        return self._beside(*self._draft.rows(points))

    def of_measured(self, points: Sequence[Point]) -> tuple[Rows, Seconds]:
        """See :class:`Described`."""
        return self._beside(*self._draft.rows_of_measured(points))

    def _beside(self, rows: Rows, seconds: Seconds) -> tuple[Rows, Seconds]:
        if self._default is None:
            self._default = self._draft.rows_of_measured([self._draft.space.default()])[0][0]
        return beside_default(rows, self._default), np.minimum(seconds, REFUSED_SECONDS)
