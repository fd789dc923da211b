"""What work costs and whether several threads are worth it, from the loops and the target's record.

Work is counted in scalar operations; what moves bytes counts half an operation for each, so that a vector unit moves
half a register in the time of one vector operation, as the second-level caches of the known machines do.
"""

from __future__ import annotations

import math

from weft.expr.nodes import Call, Expr, Load
from weft.schedule.rules.common.access import View, static_extent
from weft.target import Target
from weft.tir.nodes import Buffer

FORK = 1200
"""Cycles until another thread that waits for work has begun and ended its part."""
CLAIM = 150
"""Cycles for which one thread that takes a piece of work keeps the others from taking theirs: a cache line moves."""
GAIN = 0.9
"""Share of the time of one thread that several may take: less gain is not worth their energy."""
UNKNOWN = 64
"""What an extent that is not known counts."""


def cost_of(value: Expr) -> int:
    """Rough scalar operations of an expression: calls of intrinsics count ten."""
    total, seen, pending = 0, set[Expr](), [value]
    while pending:
        e = pending.pop()
        if e in seen:
            continue
        seen.add(e)
        if isinstance(e, Load):
            total += 1
            continue
        total += 10 if isinstance(e, Call) else 1 if e.children else 0
        pending.extend(e.children)
    return total


def work_of(view: View) -> float:
    """Scalar operations of all instances of a block, or those that could be done while its bytes are moved."""
    instances = 1.0
    for axis in view.block.iters:
        instances *= static_extent(axis) or UNKNOWN
    operations = instances * max(1, sum(cost_of(s.value) for s in view.stores))
    return max(operations, bytes_of(view, instances) / 2)


def bytes_of(view: View, instances: float) -> float:
    """Bytes that so many instances of a block read and write, each element of a buffer once."""
    buffers = dict.fromkeys([*(a.buffer for a in view.loads), *(s.buffer for s in view.stores)])
    return sum(min(instances, _elements(b, instances)) * b.dtype.nbytes for b in buffers)


def _elements(buffer: Buffer, unknown: float) -> float:
    sizes = [getattr(d, "value", None) for d in buffer.shape]
    return unknown if None in sizes else float(math.prod(int(s) for s in sizes if s is not None))


def cycles_of(work: float, target: Target) -> float:
    """Cycles that one thread takes for so many scalar operations in vectors."""
    return work / target.cpu.lanes(32)


def pieces_of(work: float, target: Target) -> int:
    """Into how many pieces to divide work at most: to compute one and to hand them all out takes the least together."""
    return max(1, int(math.sqrt(cycles_of(work, target) / CLAIM)))


def worth_parallel(work: float, target: Target) -> bool:
    """Whether as many threads as are of use take less time than one."""
    alone, threads = cycles_of(work, target), min(max(2, target.cpu.cores), pieces_of(work, target))
    return threads > 1 and alone / threads + FORK + CLAIM * threads < GAIN * alone
