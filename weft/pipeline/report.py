"""The report of a compilation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Report:
    """The report of one compilation: seconds by stage, numbers of operators and kernels, and memory in bytes.

    ``cached`` counts kernels that came from the cache, ``built`` those compiled now. ``largest_live_set`` is the lower
    bound of every memory plan; ``arena_bytes`` is the size of the actual plan (symbolic sizes as the plan assumes).
    ``winograd`` gives the tile of each convolution that is computed by Winograd's algorithm, by the name of its node.
    ``notes`` are sentences about options that the target does not support.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    operators: int = 0
    calls: int = 0
    groups: int = 0
    built: int = 0
    cached: int = 0
    arena_bytes: int = 0
    largest_live_set: int = 0
    winograd: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
