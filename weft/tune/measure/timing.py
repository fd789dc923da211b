"""The time of a kernel beside that of another one, with as few runs as will do.

Runs of the two alternate, in rounds that are long enough for the clock. So a machine that gets slower meanwhile slows
both, and their ratio is known well before either time is. The rounds end when the ratio is known well enough, when
the candidate is certainly slower, or when the time is up.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from weft.target import Cpu, host

Run = Callable[[int], list[float]]
"""Runs a kernel so many times; seconds of each run."""

MIN_ROUND_SECONDS: Final = 1e-4
"""A round lasts at least so long: the clock's own time is then small beside it."""
MAX_CALLS: Final = 1000
"""Limit on the calls of a round."""
MIN_ROUNDS: Final = 5
DISTURBED: Final = 0.1
"""How far apart the two ways to compare times may be, as a logarithm."""
MAX_ROUNDS: Final = 60
ACCURACY: Final = 0.004
"""The ratio is known well enough when its median is known to this share."""
CERTAINLY_SLOWER: Final = 1.15
"""Rounds of a candidate end early when three of four of them take so many times as long as those of the best."""
EARLY_ROUNDS: Final = 3
SLOWER: Final = 1.01
"""Rounds of a candidate end when it is slower than the best by this factor, beyond three standard errors."""


UNKNOWN_CACHE: Final = 32 << 20
"""Bytes of the last cache of a machine that does not tell."""
MAX_EVICTED: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the measuring of one candidate. ``abort``: a candidate whose first run takes so many times as long as
    the best is not measured further. ``seconds``: of all rounds together. ``build`` and ``run``: seconds after which
    building, and all running, counts as hung. ``evict``: bytes of other memory that are read and written before each
    run, so that caches hold nothing of the kernel's; with 0, runs follow each other."""

    abort: float = 3.0
    seconds: float = 0.15
    build: float = 30.0
    run: float = 10.0
    evict: int = 0


def evicted_bytes(cpu: Cpu | None = None) -> int:
    """What :attr:`Limits.evict` is to flush the caches of a machine (None: this one): four times its last level, as
    what is brought in takes the place of old lines only mostly; a whole number of 64 KiB."""
    machine = cpu or host().cpu
    last = max(machine.l1, machine.l2, machine.l3) or UNKNOWN_CACHE
    return min(MAX_EVICTED, -(-4 * last // 65536) * 65536)


@dataclass(frozen=True, slots=True)
class Compared:
    """Times of a candidate: the median of one run, the rounds that it is the median of, and the median of its times
    relative to the runs of the best beside them (None without a best). ``slow``: stopped after the first runs."""

    seconds: float
    samples: tuple[float, ...]
    relative: float | None = None
    slow: bool = False


def compared(run: Run, best: Run | None, best_seconds: float | None, limits: Limits) -> Compared:
    """Measure ``run`` beside ``best``, whose time is about ``best_seconds``."""
    first = run(1)[0]
    if best_seconds is not None and first > limits.abort * best_seconds:
        first = min(first, run(1)[0])  # the first run of a kernel finds nothing in the caches
        if first > limits.abort * best_seconds:
            return Compared(first, (first,), None, slow=True)
    calls = 1 if limits.evict else min(MAX_CALLS, max(1, round(MIN_ROUND_SECONDS / max(first, 1e-9))))
    until, times, others, ratios = time.perf_counter() + limits.seconds, list[float](), list[float](), list[float]()
    while len(times) < MAX_ROUNDS:
        if best is not None and len(times) % 2:  # not in step with whatever else runs on the core
            others.append(statistics.median(best(calls)))
        times.append(statistics.median(run(calls)))
        if best is not None:
            if len(others) < len(times):
                others.append(statistics.median(best(calls)))
            ratios.append(times[-1] / max(others[-1], 1e-12))
        if len(times) >= EARLY_ROUNDS and time.perf_counter() > until:
            break
        if _known(ratios or times) or (ratios and _certainly_slower(times, others, ratios)):
            break
    return Compared(statistics.median(times), tuple(times), _ratio(times, others, ratios) if ratios else None)


def _ratio(times: list[float], others: list[float], ratios: list[float]) -> float:
    """The median of the ratios; that of the least times, where the two are far apart: then something else took turns
    with one of the kernels."""
    median, least = statistics.median(ratios), min(times) / max(min(others), 1e-12)
    return least if least > 0 and median > 0 and abs(math.log(median / least)) > DISTURBED else median


def _certainly_slower(times: list[float], others: list[float], ratios: list[float]) -> bool:
    least = min(times) / max(min(others), 1e-12)  # says the same if nothing disturbed one of them
    if len(ratios) >= EARLY_ROUNDS and min(least, sorted(ratios)[len(ratios) // 4]) > CERTAINLY_SLOWER:
        return True
    return len(ratios) >= MIN_ROUNDS and min(least, statistics.median(ratios) - 3 * _error(ratios)) > SLOWER


def _known(values: list[float]) -> bool:
    """Whether the median of these is known well enough."""
    return len(values) >= MIN_ROUNDS and _error(values) <= ACCURACY * statistics.median(values)


def _error(values: list[float]) -> float:
    """The standard error of the median, from the quartiles of the sample: 1.25 * (distance / 1.35) / sqrt(n)."""
    ordered, n = sorted(values), len(values)
    return 0.93 * (ordered[(3 * n) // 4] - ordered[n // 4]) / math.sqrt(n)
