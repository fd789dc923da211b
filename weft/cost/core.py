"""Computes the rates of a core from its limits, by scaling the reference rates.

Kernels are assumed to reach the same share of the limits as on the reference machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from weft.cost.rates import REFERENCE, Rates

REFERENCE_HERTZ: Final = 3.7e9
"""Clock of the core on which the reference rates of vectors, memory and threads were measured."""
_REFERENCE_L2_BYTES_PER_CYCLE: Final = 32
_REFERENCE_VECTOR_BYTES: Final = 64
_LINE_TRANSFERS_PER_CLAIM: Final = 2
"""A thread that takes a piece of work waits for the cache line of the counter; then others wait for the same line."""
_CLAIMS_PER_FORK: Final = REFERENCE.fork_cycles / REFERENCE.claim_cycles
_WITH_PEAK: Final = (
    "packed_products",
    "panel_products",
    "pixel_products",
    "row_products",
    "unpacked_products",
    "winograd_products",
    "winograd_operations",
    "peak_products",
)
"""Rates that are proportional to the peak of vectors in float32."""
_WITH_CLOCK: Final = ("conversion_seconds", "kernel_seconds", "winograd_seconds")
"""Times of a fixed number of instructions; they do not depend on sizes."""


@dataclass(frozen=True, slots=True)
class CorePeaks:
    """The limits of one core.

    ``products``: multiply-adds per second in float32, by vectors. ``pairs``: the same in bfloat16. ``tiles``: the same
    in bfloat16, by a matrix unit. None: the core has no such instructions. ``far_bytes`` and ``memory_bytes``: bytes
    per second of the last-level cache and of memory, read and written together.
    """

    products: float
    pairs: float | None
    tiles: float | None
    far_bytes: float
    memory_bytes: float


def rates_of(peaks: CorePeaks) -> Rates:
    """The reference rates scaled to ``peaks``. Times of starting work, and the costs of threads and of cycles, stay
    those of the reference."""
    factor = peaks.products / REFERENCE.peak_products
    found = {name: getattr(REFERENCE, name) * factor for name in _WITH_PEAK}
    found["paired_products"] = found["packed_products"] * (peaks.pairs or peaks.products) / peaks.products
    if peaks.tiles is not None:
        found["tiled_products"] = REFERENCE.tiled_products * peaks.tiles / REFERENCE.peak_tiled_products
        found["peak_tiled_products"] = peaks.tiles
    found["far_bytes"], found["streamed_bytes"] = peaks.far_bytes, peaks.memory_bytes
    found["converted_bytes"] = peaks.memory_bytes * REFERENCE.converted_bytes / REFERENCE.streamed_bytes
    return replace(REFERENCE, **_rounded(found))


@dataclass(frozen=True, slots=True)
class Core:
    """The published data of one core.

    ``vectors_per_cycle``: multiply-adds of whole vectors of ``vector_bytes``. ``latency_cycles``: cycles until their
    result can be used. ``loads_per_cycle``: loads of vectors. ``l2_bytes_per_cycle``: bandwidth of the second-level
    cache. ``l3_bytes`` and ``memory_bytes``: bytes per second that one core alone reads from the last-level cache and
    from memory. ``transfer_ns``: the time in which a cache line moves from one core to another. ``pairs_per_cycle`` and
    ``tiles_per_cycle``: multiply-adds in bfloat16 by vectors and by a matrix unit; 0 if there are no such instructions.
    """

    hertz: float
    vector_bytes: int
    vectors_per_cycle: float
    latency_cycles: float
    loads_per_cycle: float
    l2_bytes_per_cycle: float
    l3_bytes: float
    memory_bytes: float
    transfer_ns: float
    pairs_per_cycle: float = 0
    tiles_per_cycle: float = 0

    @property
    def peaks(self) -> CorePeaks:
        """The limits of the core, per second."""
        return CorePeaks(
            self.vectors_per_cycle * self.vector_bytes / 4 * self.hertz,
            self.pairs_per_cycle * self.hertz or None,
            self.tiles_per_cycle * self.hertz or None,
            self.l3_bytes,
            self.memory_bytes,
        )

    @property
    def rates(self) -> Rates:
        """The reference rates scaled to this core: products and bandwidths by its limits, cycles by its loads, caches
        and clock, times of starting work by its clock."""
        from_l2 = (self.vector_bytes / self.l2_bytes_per_cycle) / (
            _REFERENCE_VECTOR_BYTES / _REFERENCE_L2_BYTES_PER_CYCLE
        )
        cycles_per_byte = (self.hertz / self.l3_bytes) / (REFERENCE_HERTZ / REFERENCE.far_bytes)
        claim = _LINE_TRANSFERS_PER_CLAIM * self.transfer_ns * 1e-9 * self.hertz
        cycles = {
            "multiply_adds_per_cycle": self.vectors_per_cycle,
            "multiply_add_latency_cycles": self.latency_cycles,
            "loads_per_cycle": self.loads_per_cycle,
            "near_scalar_cycles": REFERENCE.near_scalar_cycles * REFERENCE.loads_per_cycle / self.loads_per_cycle,
            "far_scalar_cycles": REFERENCE.far_scalar_cycles * cycles_per_byte,
            "near_vector_cycles": REFERENCE.near_vector_cycles * from_l2,
            "far_vector_cycles": (
                REFERENCE.far_vector_cycles * cycles_per_byte * self.vector_bytes / _REFERENCE_VECTOR_BYTES
            ),
            "far_latency_cycles": REFERENCE.far_latency_cycles * self.hertz / REFERENCE_HERTZ,
            "claim_cycles": claim,
            "fork_cycles": claim * _CLAIMS_PER_FORK,
        }
        start = {name: getattr(REFERENCE, name) * REFERENCE_HERTZ / self.hertz for name in _WITH_CLOCK}
        return replace(rates_of(self.peaks), **_rounded({**cycles, **start}))


def _rounded(numbers: dict[str, float]) -> dict[str, float]:
    """Rounded to three digits, to keep the text of targets short."""
    return {name: float(f"{value:.3g}") for name, value in numbers.items()}
