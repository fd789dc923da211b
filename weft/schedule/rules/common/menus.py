"""Candidate values from which a search may choose: numbers near the default of a rule."""

from __future__ import annotations

from typing import Final

MAX_DOUBLINGS: Final = 3
"""How many times the default is doubled, and how many times it is halved."""
VECTORS_AT_A_TIME: Final = (1, 2, 4, 8)
"""Candidate numbers of vectors that are computed at the same time, as independent sums or as columns."""
ROWS_OF_A_TILE: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28)
"""Candidate row counts of a register tile. Some exceed the registers of any machine; search measures that."""
ITERATIONS_AHEAD: Final = (1, 2, 4)
"""Candidate prefetch distances, in iterations."""
MAX_UNROLLED_STEPS: Final = 25
"""Limit on the steps of a reduction that is unrolled, such as a window; its result then stays in a register."""
UNROLLED: Final = (0, 4, 16, 64)
"""Candidate limits on the iterations of a loop that is unrolled."""


def near(default: int, most: int | None = None, least: int = 1) -> tuple[int, ...]:
    """``default``, doubled and halved up to :data:`MAX_DOUBLINGS` times, within ``least`` to ``most``; both limits are
    included."""
    found = {
        least,
        *(default << n for n in range(MAX_DOUBLINGS + 1)),
        *(default >> n for n in range(MAX_DOUBLINGS + 1)),
    }
    if most is not None:
        found.add(most)
    return tuple(sorted(n for n in found if n >= least and (most is None or n <= most)))


def divisors(extent: int, most: int) -> tuple[int, ...]:
    """The numbers up to ``most`` that divide ``extent``."""
    return tuple(n for n in range(1, min(extent, most) + 1) if extent % n == 0)
