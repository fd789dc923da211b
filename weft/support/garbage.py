"""Python's collector of cyclic garbage, run seldom: it looks at all objects again and again while the compiler builds
millions."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
"""New objects between two collections of garbage: a few megabytes."""

_changing = threading.Lock()
_inside = 0
_before = 0


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Within, cyclic garbage is collected after as many new objects as a compiler makes in a tenth of a second, not
    after 700. Nested and concurrent uses count as one; what was set before holds afterwards. A collector that is off
    or rarer already stays as it is."""
    global _inside, _before
    with _changing:
        if not _inside:
            _before, *others = gc.get_threshold()
            if 0 < _before < OBJECTS_BETWEEN_COLLECTIONS:
                gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, *others)
        _inside += 1
    try:
        yield
    finally:
        with _changing:
            _inside -= 1
            now, *others = gc.get_threshold()
            if not _inside and now == OBJECTS_BETWEEN_COLLECTIONS:  # nobody else has changed it meanwhile
                gc.set_threshold(_before, *others)
