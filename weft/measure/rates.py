"""Rates of the machine at hand, from its measured peaks.

Kernels achieve the same part of the peak as on the reference machine: that is assumed. Rates that no peak says anything
about, those of threads and of cycles, stay those of the reference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.cost import REFERENCE, Rates
from weft.measure.peaks import BEYOND_CACHES_BYTES, CACHE_SHARE, bandwidth, fma_peak, tile_peak, vector_dot_peak
from weft.target import Target


@dataclass(frozen=True, slots=True)
class CorePeaks:
    """The limits of one core. ``products`` are multiply-adds a second in float32 by vectors, ``pairs`` in bfloat16 by
    vectors, ``tiles`` in bfloat16 by a matrix unit (None: there are no instructions for them). ``far_bytes`` come from
    the last cache, ``memory_bytes`` from memory; bytes a second, read and written together."""

    products: float
    pairs: float | None
    tiles: float | None
    far_bytes: float
    memory_bytes: float


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


def rates_of(peaks: CorePeaks) -> Rates:
    """The reference, scaled to ``peaks``."""
    factor = peaks.products / REFERENCE.peak_products
    scaled = (
        "packed_products",
        "panel_products",
        "pixel_products",
        "row_products",
        "unpacked_products",
        "winograd_products",
        "winograd_operations",
        "peak_products",
    )
    found = {name: getattr(REFERENCE, name) * factor for name in scaled}
    found["paired_products"] = found["packed_products"] * (peaks.pairs or peaks.products) / peaks.products
    if peaks.tiles is not None:
        found["tiled_products"] = REFERENCE.tiled_products * peaks.tiles / REFERENCE.peak_tiled_products
        found["peak_tiled_products"] = peaks.tiles
    found["far_bytes"], found["streamed_bytes"] = peaks.far_bytes, peaks.memory_bytes
    found["converted_bytes"] = peaks.memory_bytes * REFERENCE.converted_bytes / REFERENCE.streamed_bytes
    return replace(REFERENCE, **{name: float(f"{value:.3g}") for name, value in found.items()})
