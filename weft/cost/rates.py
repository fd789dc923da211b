"""The rates of a machine: how fast one core computes and moves data, and how long it takes to start work.

The defaults are the *reference rates*. They were measured on two machines: products, bytes and threads on one core of
AMD Zen 4, matrix tiles on one core of Intel Sapphire Rapids. The machine at hand uses them unless it was measured, so
that decisions of the compiler do not depend on the machine that it runs on. Named machines have their own rates
(:mod:`weft.cost.core`). Rates of products are those of whole kernels, not peaks; mostly their ratios matter.

Some rates contradict each other, because each was tuned together with one decision. Tuning should begin here:

* ``packed_products`` and ``winograd_products`` are the same inner loop, with 60e9 and 50e9 multiply-adds per second.
* ``converted_bytes``, ``streamed_bytes`` and ``far_bytes`` are the same memory, with 10e9, 20e9 and 23e9 bytes per
  second.
* One more kernel costs 0.3 µs where products are merged and 1 µs where layouts are converted.
* ``paired_products`` is right for cores without a matrix unit. On cores with one, pairs were measured at half the speed
  of float32 (``pair_row_cycles``); the choice of layouts counts them as equal to float32 there.
* ``loads_per_cycle`` is two vectors per cycle, ``threads.OPERATIONS_PER_BYTE`` means half a vector per cycle: the first
  is the rate of the first-level cache, the second that of the second-level cache.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of one core. The unit of each field is in its name or in the title of its group."""

    # -- products: multiply-adds per second, in float32 unless stated otherwise ---------------------------------------

    packed_products: float = 60e9
    """With operands packed for vectors."""
    panel_products: float = 56e9
    """With vectors along the rows of the second operand, which is not packed. While it runs, the kernel copies panels
    of a large operand into a cache."""
    pixel_products: float = 42e9
    """With vectors over all pixels of an image."""
    row_products: float = 35e9
    """With vectors along rows of pixels."""
    unpacked_products: float = 8e9
    """With operands that are not packed and have no contiguous vectors."""
    paired_products: float = 120e9
    """In bfloat16, with operands packed in pairs, by vectors. Bytes packed in groups count as equally fast."""
    tiled_products: float = 600e9
    """In half precision, by a matrix unit with full tiles."""
    winograd_products: float = 50e9
    """The products of Winograd's algorithm, and those of the direct form that it is compared with."""

    peak_products: float = 59e9
    """The peak of vectors in float32."""
    peak_tiled_products: float = 1.57e12
    """The peak of a matrix unit in bfloat16."""

    winograd_operations: float = 11e9
    """Additions and multiplications per second in transforms, their loads and stores included."""

    # -- memory: bytes per second -------------------------------------------------------------------------------------

    converted_bytes: float = 10e9
    """Bytes that a layout conversion reads and writes."""
    streamed_bytes: float = 20e9
    """Bytes of constants that are read as one stream, or of a copy."""
    far_bytes: float = 23e9
    """Bytes that are read from beyond the second-level cache."""

    # -- starting work ------------------------------------------------------------------------------------------------

    conversion_seconds: float = 1e-6
    """The fixed cost of a layout conversion."""
    kernel_seconds: float = 0.3e-6
    """The fixed cost of one more kernel."""
    winograd_seconds: float = 20e-6
    """The fixed cost of the three stages of Winograd's algorithm, compared with one stage: their code is long."""

    # -- threads: cycles ----------------------------------------------------------------------------------------------

    fork_cycles: float = 1200
    """The time until a waiting thread has started and finished an empty piece of work."""
    claim_cycles: float = 150
    """The time in which a thread that takes a piece of work blocks the others: a cache line moves between cores."""

    # -- tiles of sums in vector registers ----------------------------------------------------------------------------

    multiply_adds_per_cycle: float = 2
    """Multiply-adds of whole vectors."""
    multiply_add_latency_cycles: float = 4
    """Until the result of a multiply-add can be used."""
    loads_per_cycle: float = 2
    """Loads from the first-level cache, of vectors or of scalars broadcast to all lanes."""
    near_scalar_cycles: float = 0.05
    """The cost of a scalar from the first-level cache, in addition to the arithmetic."""
    far_scalar_cycles: float = 0.12
    """The same, if the rows do not fit into the second-level cache."""
    near_vector_cycles: float = 0.2
    """The cost of a vector from the second-level cache, in addition to the arithmetic."""
    far_vector_cycles: float = 0.4
    """The same, if a panel of vectors does not stay in the second-level cache."""
    far_latency_cycles: float = 600
    """From asking for data of another page, beyond the second-level cache, until it can be used."""

    # -- matrix units -------------------------------------------------------------------------------------------------

    tile_rows_per_cycle: float = 2
    """Rows of matrix tiles that are loaded per cycle. A product takes one cycle for each row."""
    pair_row_cycles: float = 32
    """The cost of one row of a product of tiles (16 columns, 32 numbers of bfloat16) if vectors compute it."""
    tile_turn_cycles: float = 24
    """The cost of moving the sums of a tile into a register and out again."""

    @property
    def text(self) -> str:
        """The rates that differ from the reference, as ``name:number,…``; :meth:`parse` reads it."""
        different = [f.name for f in fields(self) if getattr(self, f.name) != getattr(REFERENCE, f.name)]
        return ",".join(f"{name}:{getattr(self, name)!r}" for name in different)

    @staticmethod
    def parse(text: str) -> Rates:
        """The reference with the numbers in ``text``. Raises ValueError with a message about the first mistake."""
        known = [f.name for f in fields(Rates)]
        given: dict[str, float] = {}
        for item in filter(None, text.split(",")):
            name, _, number = item.partition(":")
            if name not in known:
                raise ValueError(f"there is no rate '{name}'; there are {', '.join(known)}")
            try:
                given[name] = float(number)
            except ValueError:
                raise ValueError(f"'{number}' is not a number ({name})") from None
            if not 0 < given[name] < float("inf"):
                raise ValueError(f"{name} must be a positive number, not {number}")
        return replace(REFERENCE, **given)


REFERENCE: Final = Rates()
"""The rates of machines without rates of their own."""
