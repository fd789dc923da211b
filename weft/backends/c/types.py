"""The types of C that a file needs: those of numbers, and the vector types of GNU C."""

from __future__ import annotations

from typing import Final

from weft.backends.c_like.spelling import Spelling
from weft.support.dtypes import DType
from weft.support.errors import InternalError

_UINT16: Final = DType("uint16")


def stored(dtype: DType) -> DType:
    """The C type that represents values of ``dtype``: half-precision numbers are represented by their bits."""
    return _UINT16 if dtype.is_float and dtype.bits == 16 else dtype


class CTypes(Spelling):
    """Types by name, and the ``features`` of the machine, by LLVM's names."""

    def __init__(self, features: frozenset[str], x86: bool) -> None:
        self.features, self.x86 = features, x86
        self.types: dict[str, str] = {}

    def vector(self, dtype: DType, lanes: int) -> str:
        kind = stored(dtype)
        if kind == "bool":
            raise InternalError("vectors of conditions are masks")
        name, size = f"{kind.short}x{lanes}", kind.bits // 8 * lanes
        if name not in self.types:
            self.types[name] = f"typedef {self.scalar(kind)} {name} __attribute__((vector_size({size})));"
        return name

    def loose(self, dtype: DType, lanes: int) -> str:
        """The same vector type with the alignment of one element."""
        kind = stored(dtype)
        name, size = f"{kind.short}x{lanes}_u", kind.bits // 8 * lanes
        if name not in self.types:
            attributes = f"vector_size({size}), aligned({kind.bits // 8}), may_alias"
            self.types[name] = f"typedef {self.scalar(kind)} {name} __attribute__(({attributes}));"
        return name

    def mask(self, bits: int, lanes: int) -> str:
        return self.vector(DType(f"int{bits}"), lanes)
