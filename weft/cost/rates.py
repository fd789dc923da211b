"""The rates of a machine: how fast one core computes and moves data, and what starting work costs.

The defaults are the *reference rates*. All named machines use them until they have measured rates of their own, so that
what the compiler decides does not depend on where it runs. They come from two machines: products, bytes and threads
from one core of AMD Zen 4 (peak: 59e9 multiply-adds a second in float32), matrix tiles from one core of Intel Sapphire
Rapids (peak: 1.57e12 in bfloat16). Rates of products are those that whole kernels achieve, not peaks; what counts is
mostly their proportion.

Known contradictions, kept because each was tuned with its own decision; whoever tunes again should look here first:

* ``packed_products`` and ``winograd_products`` are the same inner loop with 60e9 and 50e9 multiply-adds a second.
* ``converted_bytes``, ``streamed_bytes`` and ``far_bytes`` are one memory with 10e9, 20e9 and 23e9 bytes a second.
* One more kernel costs 0.3 µs where products are merged and 1 µs where layouts are converted.
* ``paired_products`` holds on cores without a matrix unit. On those with one, pairs were measured at half the speed of
  float32; layouts count them as equal there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rates:
    """What one core of a machine achieves. The name of each field ends in its unit, or its group says it."""

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


REFERENCE: Final = Rates()
"""The rates of machines that have none of their own."""
