"""What rules let a search choose from: numbers near the one that a rule takes by itself."""

from __future__ import annotations

from typing import Final

MAX_DOUBLINGS: Final = 3
"""How often the default is doubled, and halved."""
VECTORS_AT_A_TIME: Final = (1, 2, 4, 8)
"""Vectors in flight, of independent sums or of columns."""
ROWS_OF_A_TILE: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28)
"""Rows of a register tile. Some are too many for the registers of any machine; a search finds out."""
ITERATIONS_AHEAD: Final = (1, 2, 4)
"""How early to fetch what will be read."""
UNROLLED: Final = (0, 4, 16, 64)
"""Iterations of a loop up to which it is unrolled."""


def near(default: int, most: int | None = None, least: int = 1) -> tuple[int, ...]:
    """``default`` doubled and halved a few times, from ``least`` to ``most``, which are among them."""
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
