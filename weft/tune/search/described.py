"""Points as rows of features, for models that learn from trials while a search runs.

Two kinds need no program: the decisions themselves, and what the draft model sees. A row of the kind that needs the lowered
program takes as long as a tenth of a trial or more; :mod:`weft.tune.search.lowered` is about these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.tune.draft.model import DraftModel
from weft.tune.draft.rows import NEST_COLUMNS
from weft.tune.encoding import Encoding
from weft.tune.model.cost_model import CostModel
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


class KnobRows:
    """The decisions of points, which mean something in one space only. Without a ``draft`` nothing is predicted.

    ``before`` is a model over what the draft sees that corrects it beforehand, so that what is learned of the decisions
    begins where that model ends.
    """

    def __init__(self, encoding: Encoding, draft: DraftModel | None = None, before: CostModel | None = None) -> None:
        self._encoding, self._draft, self._before = encoding, draft, before

    @property
    def columns(self) -> tuple[str, ...]:
        """See :class:`Described`."""
        return self._encoding.columns

    def of(self, points: Sequence[Point]) -> tuple[Rows, Seconds | None]:
        """See :class:`Described`."""
        rows = self._encoding.rows(points)
        if self._draft is None:
            return rows, None
        if self._before is None:
            return rows, np.minimum(self._draft.seconds(points), REFUSED_SECONDS)
        seen, seconds = NestRows(self._draft).of(points)
        corrected = np.exp(-self._before.predict("", seen, seconds))
        return rows, np.where(seconds >= REFUSED_SECONDS, REFUSED_SECONDS, np.minimum(corrected, REFUSED_SECONDS))


class NestRows:
    """What the draft model sees of points, which means the same for all kernels."""

    columns = NEST_COLUMNS

    def __init__(self, draft: DraftModel) -> None:
        self._draft = draft

    def of(self, points: Sequence[Point]) -> tuple[Rows, Seconds]:
        """See :class:`Described`."""
        rows, seconds = self._draft.rows(points)
        return rows, np.minimum(seconds, REFUSED_SECONDS)
