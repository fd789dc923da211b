"""The parts of a kernel that languages of the C family write differently: types, literals, helpers, declarations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np

from weft.backends.c_like.names import words
from weft.backends.c_like.text import ATOM, UNARY, CText
from weft.expr.intrinsic_table import NativeCode
from weft.expr.nodes import Call
from weft.lowering.tir_to_kernel import C_KEYWORDS
from weft.support.dtypes import DType
from weft.support.errors import TargetError

_VALUE: Final = {
    "bool": "bool",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
}
KEYWORDS: Final = C_KEYWORDS | frozenset(
    words(
        "main buffers sizes begin end closure status errno signbit isnan isinf fmin fmax floor ceil round trunc exp "
        "log sqrt pow sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf fmod fma fabs copysign y0 y1 yn "
        "j0 j1 jn gamma div abs labs memcpy"
    )
)
"""Names that a variable or a buffer must not have: keywords of C and functions of its library."""


class Spelling(ABC):
    """One language. Half-precision numbers are represented by their bits; vector conditions are integers of some width,
    0 or -1 in each lane."""

    kind: str
    """Kind of the target, for the native code of plugins' intrinsics."""

    def scalar(self, dtype: DType) -> str:
        """The type of one value. Raises TargetError G020 for types without arithmetic."""
        found = _VALUE.get(dtype)
        if found is None:
            raise TargetError(
                f"code generation for {dtype} is not supported",
                code="G020",
                hint="cast to float32 or int8 in the graph",
            )
        return found

    def memory(self, dtype: DType) -> str:
        """The type of one element in memory."""
        return "uint8_t" if dtype == "bool" else self.scalar(dtype)

    def unsigned(self, dtype: DType) -> str:
        """The type in which sums and products of integers of ``dtype`` wrap around."""
        return f"uint{max(32, dtype.bits)}_t"

    def literal(self, value: float | int | bool, dtype: DType) -> CText:
        """A scalar constant."""
        if dtype.kind == "bool":
            return CText("true" if value else "false")
        if dtype.kind == "float":
            return self._real(float(value), dtype)
        whole, bits = int(value), dtype.bits
        if dtype.kind == "uint":
            return CText(f"UINT64_C({whole})" if bits == 64 else f"{whole}u")
        if bits >= 32 and whole == -(1 << (bits - 1)):
            return CText(f"INT{bits}_MIN")
        text = str(whole) if -(1 << 31) < whole < 1 << 31 else f"INT64_C({whole})"
        return CText(text, UNARY if whole < 0 else ATOM)

    def _real(self, value: float, dtype: DType) -> CText:
        if dtype.bits == 16:
            return CText(str(int(np.asarray(value).astype(dtype.numpy).view(np.uint16))))
        if value != value:
            return CText("NAN")
        if value in (float("inf"), float("-inf")):
            return CText("INFINITY") if value > 0 else CText("-INFINITY", UNARY)
        text = str(np.float32(value)) if dtype.bits == 32 else repr(value)
        text = text if any(c in text for c in ".en") else text + ".0"
        suffix = "f" if dtype.bits == 32 else ""
        return CText(text + suffix, UNARY if text.startswith("-") else ATOM)

    @abstractmethod
    def vector(self, dtype: DType, lanes: int) -> str:
        """The type of a vector of numbers."""

    @abstractmethod
    def mask(self, bits: int, lanes: int) -> str:
        """The type of a condition in each lane."""

    @abstractmethod
    def helper(self, name: str, dtype: DType, lanes: int, to: DType | None = None) -> str:
        """The helper function of that name for ``lanes`` elements of ``dtype`` (1: for scalars)."""

    @abstractmethod
    def define(self, text: str) -> None:
        """Write ``text`` once, before the functions of the kernel."""

    @abstractmethod
    def in_each_lane(self, e: Call, native: NativeCode, bits: Sequence[int]) -> str:
        """The helper function that computes a call of vectors by the ``native`` text for scalars. ``bits`` are those
        of the result and of the arguments where they are conditions."""

    @abstractmethod
    def shuffle(self, dtype: DType, parts: Sequence[tuple[CText, int]], picks: Sequence[int]) -> CText:
        """Lanes ``picks`` of the concatenation of ``parts``, which have more than one lane each."""

    @abstractmethod
    def lanes_of(self, dtype: DType, values: Sequence[CText]) -> CText:
        """A vector from its elements."""

    @abstractmethod
    def mask_of(self, bits: int, lanes: Sequence[bool]) -> CText:
        """A constant condition."""

    @abstractmethod
    def convert(self, x: CText, source: DType, to: DType, lanes: int) -> CText:
        """A vector converted to another element type, by the language's own rules."""

    @abstractmethod
    def convert_mask(self, x: CText, bits: int, to: int, lanes: int) -> CText:
        """A vector condition converted to another width."""

    @abstractmethod
    def prefetch(self, address: CText, level: int) -> str | None:
        """A statement that prefetches a cache line into the caches from ``level`` on, if the language has one."""

    @abstractmethod
    def unrolled(self, count: int) -> str | None:
        """The line before a loop that requests unrolling by ``count`` (1: none)."""

    def scalar_operand(self, repeated: CText) -> CText | None:
        """The scalar, if ``repeated`` is a broadcast of it and the language broadcasts implicitly; else None."""
        return None
