"""What the draft model sees in a schedule, as features of a cost model: no program has to be lowered for them.

A schedule is a few nests, and the estimate of each (:mod:`weft.tune.draft.estimate`) goes through numbers that mean the
same for all kernels: cycles of instructions, cycles in which data come into each cache, vectors, registers, turns of
loops, idle threads. A cost model learns from them where the estimate is wrong. They are computed for thousands of
points at once, as the estimate is.

Shares are relative to the time of their nest; all other columns are ``log2(1 + x)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from weft.tune.draft.estimate import DraftMachine, EstimatedNest, Order, estimated_nests
from weft.tune.draft.nests import Structure

Array = NDArray[np.float64]

CACHES: Final = 3
"""Caches of a :class:`~weft.tune.draft.estimate.DraftMachine`."""
_SHARES: Final = ("instructions_share", *(f"into_cache_{n}_share" for n in range(CACHES)), "busy_share")
_COUNTS: Final = (
    "seconds_e9",
    "body_cycles",
    "body_vectors",
    "body_filled",
    "body_arithmetic",
    "body_loads",
    "body_stores",
    "body_sums",
    "body_spilled",
    "body_turns",
    "last_serial_turns",
    "next_serial_turns",
    "parallel_turns",
    "loops",
    "depth_of_body",
    "touched_bytes",
    "touched_bytes_outside_l1",
    "body_touched_bytes",
    "operations",
    "reduction_axes",
    "buffers",
    "element_bits",
)
_NEST: Final = (*_SHARES, *_COUNTS)
NEST_COLUMNS: Final = (
    "nests",
    "seconds_e9",
    *(f"mean_{name}" for name in _NEST),
    *(f"main_{name}" for name in _NEST),
)
"""The columns: of all nests together, their means weighted by time, and those of the nest that takes most of it."""


def nest_rows(
    structure: Structure, numbers: Array, machine: DraftMachine, orders: Sequence[Order | None] | None = None
) -> tuple[NDArray[np.float32], Array]:
    """Rows of :data:`NEST_COLUMNS`, and the estimated seconds, for each row of ``numbers``
    (:func:`weft.tune.draft.estimate.estimate`)."""
    count = len(numbers)
    nests = estimated_nests(structure, numbers, machine, orders)
    if not nests:
        return np.zeros((count, len(NEST_COLUMNS)), np.float32), np.zeros(count)
    seconds = np.stack([n.seconds() for n in nests])
    total = seconds.sum(axis=0)
    own = np.stack([_nest(n, s) for n, s in zip(nests, seconds, strict=True)])
    weights = seconds / np.maximum(total, 1e-30)
    mean = (own * weights[:, :, None]).sum(axis=0)
    main = own[seconds.argmax(axis=0), np.arange(count)]
    whole = np.stack([np.full(count, np.log2(1.0 + len(nests))), _log(1e9 * total)], axis=1)
    made = np.concatenate([whole, mean, main], axis=1).astype(np.float32)
    return np.nan_to_num(made, nan=0.0, posinf=float(MAX_LOGARITHM), neginf=0.0), total


MAX_LOGARITHM: Final = 126
"""What a number beyond float32 counts as."""


def _nest(nest: EstimatedNest, seconds: Array) -> Array:
    """The columns of one nest, for all rows."""
    machine, loops, body = nest.machine, nest.nest.loops, nest.body
    busy = nest.busy_threads()
    cycles = np.maximum(seconds * machine.hertz * busy, 1e-9)
    parallel = [i for i, loop in enumerate(loops) if loop.kind == "parallel"]
    one = np.ones(len(seconds))
    turns = [nest.extents[:, i] for i in nest.serial[:-3:-1]] + [one, one]
    outside = next((i for i in range(len(loops)) if loops[i].kind in ("serial", "unrolled")), 0)
    shares = [part / cycles for part in nest.parts] + [busy / machine.threads]
    counts = [
        1e9 * seconds,
        *body,
        nest.outside[:, nest.inner],
        *turns[:2],
        nest.product(parallel),
        len(loops) * one,
        nest.inner * one,
        nest.touched[0],
        nest.touched[outside],
        nest.touched[nest.inner],
        nest.nest.operations * one,
        len(nest.nest.reduces) * one,
        len(nest.nest.accesses) * one,
        nest.nest.bits * one,
    ]
    return np.stack([*shares, *map(_log, counts)], axis=1)


def _log(x: Array) -> Array:
    found: Array = np.log2(1.0 + np.maximum(x, 0.0))
    return found
