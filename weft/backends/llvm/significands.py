"""Significands and exponents of numbers by the instructions of AVX-512."""

from __future__ import annotations

from typing import Final

from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.types import scalar_type, vector
from weft.backends.llvm.vectors import LARGE_BITS, in_whole_vectors
from weft.expr.nodes import Call
from weft.support.dtypes import DType

_NAMES: Final = {32: "ps", 64: "pd"}
_IN_THREE_QUARTERS: Final = 15
"""Significands in [3/4, 3/2), of negative numbers NaN, of zeros 1. Source: Intel 64 and IA-32 Architectures Software
Developer's Manual, VGETMANTPS."""


def significand(f: LlvmFunction, e: Call, args: list[str]) -> str:
    """``args[0]`` without its power of two."""
    own = LARGE_BITS // e.dtype.bits
    return in_whole_vectors(f, args[0], e.dtype, e.lanes, own, lambda part: _significand(f, e.dtype, part))


def exponent(f: LlvmFunction, e: Call, args: list[str]) -> str:
    """The power of two. The instruction gives that of the highest bit, which is 1 too small for significands below 1;
    theirs is -1 too."""
    own = LARGE_BITS // e.dtype.bits

    def one(part: str) -> str:
        highest, inside = _highest(f, e.dtype, part), _highest(f, e.dtype, _significand(f, e.dtype, part))
        return f.op(f"fsub {vector(scalar_type(e.dtype), own)} {highest}, {inside}")

    return in_whole_vectors(f, args[0], e.dtype, e.lanes, own, one)


def _significand(f: LlvmFunction, dtype: DType, x: str) -> str:
    return _instruction(f, dtype, "getmant", x, f"i32 {_IN_THREE_QUARTERS}, ")


def _highest(f: LlvmFunction, dtype: DType, x: str) -> str:
    return _instruction(f, dtype, "getexp", x)


def _instruction(f: LlvmFunction, dtype: DType, name: str, x: str, how: str = "") -> str:
    own = LARGE_BITS // dtype.bits
    ty = vector(scalar_type(dtype), own)
    full = f"llvm.x86.avx512.mask.{name}.{_NAMES[dtype.bits]}.{LARGE_BITS}"
    return f.op(f"call {ty} @{full}({ty} {x}, {how}{ty} zeroinitializer, i{own} -1, i32 4)")
