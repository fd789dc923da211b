"""The lines that a tracker writes about what happens."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

MAX_FREQUENT_LINES: Final = 20
"""In one second, about those who have not proved the key: who connects a thousand times does not fill the disk."""


class EventLog:
    """Writes lines with the time of day before them."""

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        """``write`` takes a line; None: lines go to the standard error stream."""
        self._write = write or _to_stderr
        self._second = 0
        self._count = 0

    def __call__(self, line: str, is_frequent: bool = False) -> None:
        """Write a line; characters that a terminal would obey are replaced. Of many lines in one second that are
        ``is_frequent``, only the number is written."""
        if not is_frequent:
            self._line(line)
            return
        second = int(time.time())
        if second != self._second:
            left_out = self._count - MAX_FREQUENT_LINES
            self._second, self._count = second, 0
            if left_out > 0:
                self._line(f"({left_out} more lines in that second)")
        self._count += 1
        if self._count <= MAX_FREQUENT_LINES:
            self._line(line)

    def _line(self, line: str) -> None:
        shown = "".join(c if c.isprintable() else "?" for c in line)
        self._write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {shown}")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
