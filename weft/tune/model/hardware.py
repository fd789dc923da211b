"""What the machine is, as features: caches, vectors, cores and peak rates."""

from __future__ import annotations

from functools import lru_cache
from math import log2
from typing import Final

from weft.target import Target

_RATES: Final = (
    "peak_products",
    "far_bytes",
    "streamed_bytes",
    "multiply_adds_per_cycle",
    "multiply_add_latency_cycles",
    "loads_per_cycle",
    "near_vector_cycles",
    "far_vector_cycles",
    "fork_cycles",
    "claim_cycles",
)
HARDWARE: Final = (
    "l1",
    "l2",
    "l3",
    "vector_bits",
    "vector_registers",
    "cores",
    "multiplies_and_adds",
    "gathers_are_slow",
    "peak_tiled_products",
    *_RATES,
)
"""The names of the numbers of :func:`hardware`."""


@lru_cache(maxsize=16)
def hardware(target: Target) -> tuple[float, ...]:
    """The machine as numbers in the order of :data:`HARDWARE`, each ``log2(1 + x)``; yes is 1 and no is 0.

    Raises TargetError G006 for a target without a CPU.
    """
    cpu = target.cpu
    tiled = cpu.rates.peak_tiled_products if any(u.tile for u in target.units) else 0.0
    counts = (cpu.l1, cpu.l2, cpu.l3, cpu.vector_bits, cpu.vector_registers, cpu.cores, cpu.fma, cpu.gathers_are_slow)
    return tuple(log2(1 + float(x)) for x in (*counts, tiled, *(getattr(cpu.rates, name) for name in _RATES)))
