"""How an operator call relates output elements to input elements: what fusion needs to know."""

from __future__ import annotations

from enum import IntEnum


class FusionKind(IntEnum):
    """From the freest to the most closed; compare with ``<``.

    * ELEMENTWISE: each output element depends on the operands' elements at the same index.
    * BROADCAST: the same, with operands repeated along dimensions.
    * INJECTIVE: each output element is a function of a few elements anywhere (transpose, slice, pad).
    * REDUCTION: combines many elements; may take element-wise work before and after it.
    * OUT_FUSABLE: a contraction or window that reads operands many times; takes element-wise work on its output only.
    * OPAQUE: alone.
    """

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    OUT_FUSABLE = 4
    OPAQUE = 5
