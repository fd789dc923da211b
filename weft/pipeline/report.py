"""What happened during a compilation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Report:
    """What happened during one compilation: seconds by stage, how many operators became how many kernels, and memory.

    ``cached`` counts kernels that came from the cache, ``built`` those compiled now. ``largest_live_set`` is what no
    memory plan can do without; ``arena_bytes`` what the plan takes (symbolic sizes as the plan assumes). ``notes`` are
    sentences about wishes that the target could not grant.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    operators: int = 0
    calls: int = 0
    groups: int = 0
    built: int = 0
    cached: int = 0
    arena_bytes: int = 0
    largest_live_set: int = 0
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
