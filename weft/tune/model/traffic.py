"""Loads, stores, chains of dependent operations and lines brought into caches, from the accesses of statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.cost.caches import last_cache
from weft.target import Target
from weft.tune.model.accesses import AnalysedGroup, BufferAccess

INSTRUCTIONS: Final = ("loads", "stores", "gathered", "chained")
"""Vectors or numbers that are loaded and stored, lanes that are loaded from or stored to any places one by one, and
operations that each wait for the one before."""
CACHES: Final = ("lines_into_l1", "lines_into_l2", "lines_into_l3")
"""Cache lines that are brought into each cache of one core."""


def instructions(g: AnalysedGroup, target: Target) -> list[float]:
    """The numbers :data:`INSTRUCTIONS` for all runs of a group. Registers are not loaded."""
    vector = max(1, target.cpu.vector_bits // 8)
    loads = stores = gathered = 0
    for a in _in_memory(g):
        whole = a.lanes == 1 or (a.lane_strides is not None and _is_contiguous(a))
        count = len(a.offsets) * (-(-a.width * a.lanes // vector) if whole and a.lanes > 1 else 1)
        if not whole:
            gathered += len(a.offsets) * a.lanes * (a.reads + a.writes)
        loads += count * a.reads
        stores += count * a.writes
    times = g.group.iterations
    return [loads * times, stores * times, gathered * times, times if _is_chain(g) else 0.0]


def moved_lines(g: AnalysedGroup, target: Target) -> list[float]:
    """The numbers :data:`CACHES` for all runs of a group.

    The innermost loop whose data do not fit into a cache brings each of its lines in once, as what two of its
    iterations share stays in the cache; the loops outside of it bring them in again.
    """
    cpu, memory = target.cpu, list(_in_memory(g))
    iterations = [1.0]
    for loop in g.loops:
        iterations.append(iterations[-1] * loop.extent)
    nbytes = [sum(a.touched[k].nbytes for a in memory) for k in range(len(iterations))]
    found = []
    for cache in (cpu.l1, cpu.l2, last_cache(cpu.l2, cpu.l3, cpu.cores)):
        inner = next((k for k, n in enumerate(nbytes) if n > cache), len(nbytes) - 1)
        lines = sum(a.touched[inner].lines for a in memory)
        found.append(lines * iterations[-1] / iterations[inner] * g.group.place.share)
    return found


def _in_memory(g: AnalysedGroup) -> Sequence[BufferAccess]:
    return [a for a in g.accesses if a.buffer.scope != "register"]


def _is_contiguous(a: BufferAccess) -> bool:
    """Whether the lanes of a vector are adjacent or one number."""
    return not a.lane_strides or (len(a.lane_strides) == 1 and abs(a.lane_strides[0].step) <= a.width)


def _is_chain(g: AnalysedGroup) -> bool:
    """Whether each iteration of the innermost loop reads what the one before it wrote."""
    return any(a.reads and a.writes and bool(a.strides) and a.strides[0] == () for a in g.accesses)
