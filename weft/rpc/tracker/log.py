"""The lines that a tracker writes about what happens."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

_LINES_PER_SECOND: Final = 20
"""Who connects a thousand times a second does not fill the disk."""


class EventLog:
    """Writes lines with the time of day before them; of many in one second, the number of those left out."""

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        """``write`` takes a line; None: lines go to the standard error stream."""
        self._write = write or _to_stderr
        self._second = 0
        self._count = 0

    def __call__(self, line: str) -> None:
        """Write a line; characters that a terminal would obey are replaced."""
        second = int(time.time())
        if second != self._second:
            left_out = self._count - _LINES_PER_SECOND
            self._second, self._count = second, 0
            if left_out > 0:
                self._line(f"({left_out} more lines in that second)")
        self._count += 1
        if self._count <= _LINES_PER_SECOND:
            self._line(line)

    def _line(self, line: str) -> None:
        shown = "".join(c if c.isprintable() else "?" for c in line)
        self._write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {shown}")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
