"""How long calls take. Everything here is in seconds of wall-clock time."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Any


def seconds_of(function: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def repeated(function: Callable[[], Any], most: int, seconds: float = inf) -> tuple[float, ...]:
    """Seconds of each of ``most`` calls, or of fewer once ``seconds`` have passed; of one at least."""
    until = time.perf_counter() + seconds
    times = [seconds_of(function)]
    while len(times) < most and time.perf_counter() < until:
        times.append(seconds_of(function))
    return tuple(times)


def warmed_up(function: Callable[[], Any], seconds: float = 0.0) -> None:
    """Call ``function`` for ``seconds``, once at least, so that caches, pages and clock rates are as in steady use."""
    until = time.perf_counter() + seconds
    function()
    while time.perf_counter() < until:
        function()


def best_seconds(function: Callable[[], Any], rounds: int = 8) -> float:
    """Seconds of the fastest of several calls, after one to warm up."""
    warmed_up(function)
    return min(repeated(function, rounds))
