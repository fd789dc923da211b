"""Compute units beside ordinary vector arithmetic, as data: dot products and matrix tiles.

A unit multiplies narrow numbers and sums the products in wide ones. A new instruction of this kind is a new row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ComputeUnit:
    """Instructions that multiply numbers of dtype ``left`` by numbers of dtype ``right`` and add ``group`` neighbouring
    products to each sum of dtype ``accumulator``.

    ``intrinsic`` names the scalar intrinsic that the instruction computes in each lane (:mod:`weft.expr.intrinsics`),
    for units that work on vectors; ``tile`` names the kind of matrix tile, for units that work on tiles of
    ``rows`` × ``columns`` sums. The other one of the two is empty. ``needs`` are the features of the CPU.
    """

    name: str
    left: str
    right: str
    accumulator: str
    group: int
    needs: frozenset[str]
    intrinsic: str = ""
    tile: str = ""
    rows: int = 1
    columns: int = 1


def _needs(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BF16 = ("bfloat16", "bfloat16", "float32", 2)
_INT8 = ("uint8", "int8", "int32", 4)

CPU_UNITS: Final = (
    ComputeUnit("avx512-bf16", *_BF16, _needs("avx512bf16 avx512vl"), intrinsic="dot2"),
    ComputeUnit("avx512-vnni", *_INT8, _needs("avx512vnni"), intrinsic="dot4"),
    ComputeUnit("amx-bf16", *_BF16, _needs("amx-tile amx-bf16"), tile="bf16", rows=16, columns=16),
    ComputeUnit("amx-int8", *_INT8, _needs("amx-tile amx-int8"), tile="u8s8", rows=16, columns=16),
)
"""The units that CPUs may have."""


def cpu_units(features: frozenset[str]) -> tuple[ComputeUnit, ...]:
    """The units of a CPU with these features."""
    return tuple(unit for unit in CPU_UNITS if unit.needs <= features)
