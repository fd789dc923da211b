"""How much work a block does, and whether a target computes it faster with several threads.

Work is counted in scalar operations; :mod:`weft.cost.threads` converts work to time.
"""

from __future__ import annotations

import math
from typing import Final

from weft.cost import threads
from weft.cost.assumed import EXTENT
from weft.expr.nodes import Call, Expr, Load
from weft.expr.visit import outside_of_loads
from weft.schedule.rules.common.access import View, static_extent
from weft.schedule.rules.common.menus import MAX_UNROLLED_STEPS
from weft.target import Target
from weft.tir.nodes import Buffer

CALL_OPERATIONS = 10
"""Number of operations that a call of an intrinsic, such as an exponential, counts as."""
SINGLE_OPERATIONS: Final = frozenset({"abs", "ceil", "floor", "round", "trunc"})
"""Intrinsics that are an instruction or two on every machine with vectors: they count as one operation."""


def cost_of(value: Expr) -> int:
    """Approximate number of scalar operations in an expression. A call of an intrinsic counts as
    :data:`CALL_OPERATIONS`, unless it is a single instruction."""
    total = 0
    for e in outside_of_loads(value):
        called = isinstance(e, Call) and e.name not in SINGLE_OPERATIONS
        total += CALL_OPERATIONS if called else 1 if e.children or isinstance(e, Load) else 0
    return total


def functions_in(value: Expr) -> int:
    """How many different calls of intrinsics that are more than a single instruction an expression has."""
    return len({e for e in outside_of_loads(value) if isinstance(e, Call) and e.name not in SINGLE_OPERATIONS})


def calls_functions(value: Expr) -> bool:
    """Whether an expression calls an intrinsic that is more than a single instruction."""
    return functions_in(value) > 0


def work_of(view: View) -> float:
    """Scalar operations of all instances of a block; at least the number that could run while its bytes are moved."""
    instances = 1.0
    for axis in view.block.iters:
        instances *= static_extent(axis) or EXTENT
    operations = instances * max(1, sum(cost_of(s.value) for s in view.stores))
    return max(operations, bytes_of(view, instances) * threads.OPERATIONS_PER_BYTE)


def steps_of(view: View) -> int:
    """Steps of the reduction for one result. An open size counts as :data:`EXTENT`."""
    return math.prod(EXTENT if (n := static_extent(axis)) is None else n for axis in view.reduce)


def unrolled_steps(view: View) -> int:
    """Steps of a reduction of vectors that are unrolled: all, if they are few; else those of the innermost axis, if
    they are (the line of a window); else all, in a loop."""
    steps = steps_of(view)
    last = next((n for a in reversed(view.reduce) if (n := static_extent(a)) != 1), None)
    return last if last is not None and last <= MAX_UNROLLED_STEPS < steps else steps


def bytes_of(view: View, instances: float) -> float:
    """Bytes that ``instances`` instances of a block read and write. Each element of a buffer counts once."""
    buffers = dict.fromkeys([*(a.buffer for a in view.loads), *(s.buffer for s in view.stores)])
    return sum(min(instances, _elements(b, instances)) * b.dtype.nbytes for b in buffers)


def _elements(buffer: Buffer, unknown: float) -> float:
    sizes = [getattr(d, "value", None) for d in buffer.shape]
    return unknown if None in sizes else float(math.prod(int(s) for s in sizes if s is not None))


def cycles_of(work: float, target: Target) -> float:
    """Cycles that one thread needs for ``work`` scalar operations, using vectors."""
    return threads.cycles(work, target.cpu.lanes(32))


def pieces_of(work: float, target: Target) -> int:
    """The largest number of pieces into which to divide the work."""
    return threads.pieces(cycles_of(work, target), target.cpu.rates)


def worth_parallel(work: float, target: Target) -> bool:
    """Whether the useful number of threads is faster than one thread."""
    return threads.worth_several(cycles_of(work, target), target.cpu.cores, target.cpu.rates)


def exceeds_l2(target: Target, buffer: Buffer) -> bool:
    """Whether a buffer is larger than the second-level cache, or may be."""
    sizes = [getattr(d, "value", None) for d in buffer.shape]
    known = math.prod(int(n) for n in sizes if n is not None) * buffer.dtype.nbytes
    return None in sizes or known > target.cpu.l2
