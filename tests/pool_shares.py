"""The division of a parallel loop by the thread pool, and each thread's share if iterations take equally long."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

ROUNDS = 4


def divide(count: int, grain: int, threads: int) -> list[int]:
    """Sizes of the chunks in the order in which they are claimed, as csrc/src/pool.c makes them."""
    if threads == 1 or count // 2 < grain:
        return [count]
    sizes: list[int] = []
    for left_rounds in range(ROUNDS, 0, -1):
        left = count - sum(sizes)
        each = left // threads
        size = max(grain, each * 2 // (left_rounds + 1))
        if left_rounds > 1 and each - size >= grain:
            sizes += [size] * threads
            continue
        chunks = left // grain if each < grain else left if each == 1 else threads
        return sizes + [left // chunks + (i < left % chunks) for i in range(chunks)]
    raise AssertionError("the last round takes everything")


def busy(chunks: Sequence[int], threads: int) -> list[int]:
    """Iterations that each thread runs when whoever is done first claims the next chunk."""
    done = [0] * threads
    for size in chunks:
        heapq.heapreplace(done, done[0] + size)
    return done
