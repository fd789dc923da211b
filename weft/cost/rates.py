"""The rates of a machine: how fast one core computes and moves data, and what starting work costs.

The defaults are the *reference rates*. The machine at hand uses them unless it was measured, so that what the compiler
decides does not depend on where it runs; named machines have their own (:mod:`weft.cost.core`). They come from two
machines: products, bytes and threads from one core of AMD Zen 4, matrix tiles from one core of Intel Sapphire Rapids.
Rates of products are those that whole kernels achieve, not peaks; what counts is mostly their proportion.

Known contradictions, kept because each was tuned with its own decision; whoever tunes again should look here first:

* ``packed_products`` and ``winograd_products`` are the same inner loop with 60e9 and 50e9 multiply-adds a second.
* ``converted_bytes``, ``streamed_bytes`` and ``far_bytes`` are one memory with 10e9, 20e9 and 23e9 bytes a second.
* One more kernel costs 0.3 µs where products are merged and 1 µs where layouts are converted.
* ``paired_products`` holds on cores without a matrix unit. On those with one, pairs were measured at half the speed of
  float32 (``pair_row_cycles``); layouts count them as equal to float32 there.
* ``loads_per_cycle`` says two vectors a cycle, ``threads.OPERATIONS_PER_BYTE`` half a vector: the former come from the
  first-level cache, the latter from the second-level cache.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Rates:
    """What one core of a machine achieves. The unit of each field is in its name or in the title of its group."""

    # -- products: multiply-adds a second, in float32 where nothing else is said --------------------------------------

    packed_products: float = 60e9
    """Over operands packed for vectors."""
    panel_products: float = 56e9
    """Whose vectors lie side by side in each row of the second operand: the kernel copies panels of a large one into a
    cache as it goes."""
    pixel_products: float = 42e9
    """Whose vectors run over all pixels of an image."""
    row_products: float = 35e9
    """Whose vectors run along rows of pixels."""
    unpacked_products: float = 8e9
    """Over operands that are not packed for vectors."""
    paired_products: float = 120e9
    """In bfloat16, over operands packed in pairs, by vectors."""
    tiled_products: float = 600e9
    """In half precision, by a matrix unit whose tiles are full."""
    winograd_products: float = 50e9
    """Between the transforms of Winograd's algorithm, and of the direct form that it is compared with."""

    peak_products: float = 59e9
    """The most that vectors can do in float32."""
    peak_tiled_products: float = 1.57e12
    """The most that a matrix unit can do in bfloat16."""

    winograd_operations: float = 11e9
    """Additions and multiplications a second in transforms; what they load and store is counted with them."""

    # -- memory: bytes a second ---------------------------------------------------------------------------------------

    converted_bytes: float = 10e9
    """Read or written by a conversion of layouts."""
    streamed_bytes: float = 20e9
    """Of constants read as one stream, or of a copy."""
    far_bytes: float = 23e9
    """Read from behind the second-level cache."""

    # -- starting work ------------------------------------------------------------------------------------------------

    conversion_seconds: float = 1e-6
    """A conversion of layouts, whatever its size."""
    kernel_seconds: float = 0.3e-6
    """One more kernel."""
    winograd_seconds: float = 20e-6
    """The three stages of Winograd's algorithm beyond what one stage takes: their code is long."""

    # -- threads: cycles ----------------------------------------------------------------------------------------------

    fork_cycles: float = 1200
    """Until another thread that waits for work has begun and ended its part."""
    claim_cycles: float = 150
    """For which one thread that takes a piece of work keeps the others from taking theirs: a cache line moves."""

    # -- tiles of sums in vector registers ----------------------------------------------------------------------------

    multiply_adds_per_cycle: float = 2
    """Of whole vectors."""
    multiply_add_latency_cycles: float = 4
    """Until the result of a multiply-add can be used."""
    loads_per_cycle: float = 2
    """Of vectors, or of scalars to all lanes, from the first-level cache."""
    near_scalar_cycles: float = 0.05
    """Beside the arithmetic, for a scalar that comes from the first-level cache."""
    far_scalar_cycles: float = 0.3
    """The same where all rows together come from behind the second-level cache."""
    near_vector_cycles: float = 0.2
    """Beside the arithmetic, for a vector that comes from the second-level cache."""
    far_vector_cycles: float = 0.4
    """The same where a panel of vectors does not stay in the second-level cache."""

    # -- matrix units -------------------------------------------------------------------------------------------------

    tile_rows_per_cycle: float = 2
    """Rows of matrix tiles that are loaded in a cycle. A product takes a cycle for each row."""
    pair_row_cycles: float = 32
    """For one row of a product of tiles, 16 columns by 32 numbers of bfloat16, where vectors compute it."""
    tile_turn_cycles: float = 24
    """To bring the sums of a tile into a register and out again."""

    @property
    def text(self) -> str:
        """What differs from the reference, as ``name:number,…``; :meth:`parse` reads it."""
        different = [f.name for f in fields(self) if getattr(self, f.name) != getattr(REFERENCE, f.name)]
        return ",".join(f"{name}:{getattr(self, name)!r}" for name in different)

    @staticmethod
    def parse(text: str) -> Rates:
        """The reference with the numbers that ``text`` gives. Raises ValueError that says what is wrong."""
        known = [f.name for f in fields(Rates)]
        given: dict[str, float] = {}
        for item in filter(None, text.split(",")):
            name, _, number = item.partition(":")
            if name not in known:
                raise ValueError(f"there is no rate '{name}'; there are {', '.join(known)}")
            try:
                given[name] = float(number)
            except ValueError:
                raise ValueError(f"'{number}', given for {name}, is no number") from None
            if not 0 < given[name] < float("inf"):
                raise ValueError(f"{name} must be a positive number, not {number}")
        return replace(REFERENCE, **given)


REFERENCE: Final = Rates()
"""The rates of machines that have none of their own."""
