"""Rates of the machine at hand, from its measured peaks. Rates that no peak says anything about (of threads, and of
cycles) stay those of the reference."""

from __future__ import annotations

from weft.cost import Rates
from weft.cost.core import CorePeaks, rates_of
from weft.measure.peaks import BEYOND_CACHES_BYTES, CACHE_SHARE, bandwidth, fma_peak, tile_peak, vector_dot_peak
from weft.target import Target


def measured_rates() -> Rates:
    """The rates of one core of the machine at hand. Takes some seconds, during which nothing else should run."""
    return rates_of(measure_core())


def measure_core() -> CorePeaks:
    """The limits of one core of the machine at hand."""
    target = Target("cpu")
    cpu, vectors, tiles = target.cpu, target.vector_unit("bfloat16"), target.tile_unit("bfloat16")
    memory = bandwidth(max(BEYOND_CACHES_BYTES, 4 * cpu.l3), 1)
    far = bandwidth(int(cpu.l3 * CACHE_SHARE), 1) if cpu.l3 > 2 * cpu.l2 else memory
    return CorePeaks(
        _multiply_adds(fma_peak(1)),
        _multiply_adds(vector_dot_peak(vectors, 1)) if vectors is not None else None,
        _multiply_adds(tile_peak(tiles, 1)) if tiles is not None else None,
        far * 1e9,
        memory * 1e9,
    )


def _multiply_adds(giga_operations: float) -> float:
    """Multiply-adds a second; each counts as two operations."""
    return giga_operations * 1e9 / 2
