"""Pauses between attempts to reach somebody who does not answer."""

from __future__ import annotations

import random
from typing import Final

FIRST_SECONDS: Final = 0.2
LONGEST_SECONDS: Final = 4.0
"""Below ``settle_seconds`` of a tracker, which waits for so long for those whom a former one knew."""
_SPREAD: Final = 0.25
"""Pauses differ by so much, so that many who lost the same tracker do not all come back at one moment."""


class Backoff:
    """Pauses that grow from ``first`` seconds (0.2), each twice the one before, to ``longest`` (4)."""

    def __init__(self, first: float | None = None, longest: float | None = None) -> None:
        self._first = self._next = FIRST_SECONDS if first is None else first
        self._longest = LONGEST_SECONDS if longest is None else longest

    def pause(self) -> float:
        """Seconds until the next attempt."""
        seconds = self._next
        self._next = min(2 * seconds, self._longest)
        return seconds * random.uniform(1 - _SPREAD, 1)

    def reset(self) -> None:
        """An attempt has succeeded."""
        self._next = self._first
