"""Element types. A :class:`DType` is a string (``"float32"``), so NumPy takes it as it is."""

from __future__ import annotations

import sys
from typing import Any, ClassVar, Final, Literal

import ml_dtypes
import numpy as np

from weft.support.errors import UserError
from weft.support.words import did_you_mean

Kind = Literal["bool", "int", "uint", "float", "string"]

# name -> (kind, bits, short name used in text)
_TABLE: Final[dict[str, tuple[Kind, int, str]]] = {
    "bool": ("bool", 8, "bool"),
    "int1": ("int", 1, "i1"),
    "int2": ("int", 2, "i2"),
    "int4": ("int", 4, "i4"),
    "int8": ("int", 8, "i8"),
    "int16": ("int", 16, "i16"),
    "int32": ("int", 32, "i32"),
    "int64": ("int", 64, "i64"),
    "uint1": ("uint", 1, "u1"),
    "uint2": ("uint", 2, "u2"),
    "uint4": ("uint", 4, "u4"),
    "uint8": ("uint", 8, "u8"),
    "uint16": ("uint", 16, "u16"),
    "uint32": ("uint", 32, "u32"),
    "uint64": ("uint", 64, "u64"),
    "float16": ("float", 16, "f16"),
    "bfloat16": ("float", 16, "bf16"),
    "float32": ("float", 32, "f32"),
    "float64": ("float", 64, "f64"),
    "float8_e3m4": ("float", 8, "f8e3m4"),
    "float8_e4m3": ("float", 8, "f8e4m3"),
    "float8_e4m3b11fnuz": ("float", 8, "f8e4m3b11fnuz"),
    "float8_e4m3fn": ("float", 8, "f8e4m3fn"),
    "float8_e4m3fnuz": ("float", 8, "f8e4m3fnuz"),
    "float8_e5m2": ("float", 8, "f8e5m2"),
    "float8_e5m2fnuz": ("float", 8, "f8e5m2fnuz"),
    "float8_e8m0fnu": ("float", 8, "f8e8m0fnu"),
    "float6_e2m3fn": ("float", 6, "f6e2m3fn"),
    "float6_e3m2fn": ("float", 6, "f6e3m2fn"),
    "float4_e2m1fn": ("float", 4, "f4e2m1fn"),
    "string": ("string", 64, "str"),
}
_SHORT: Final[dict[str, str]] = {row[2]: name for name, row in _TABLE.items()}


def _numpy_name(kind: object) -> str:
    """The name of what NumPy takes for a dtype."""
    try:
        return np.dtype(kind).name  # type: ignore[call-overload, no-any-return]  # stub
    except (TypeError, ValueError):
        raise UserError(f"{kind!r} is no dtype", code="T010", hint="one of " + ", ".join(_TABLE)) from None


class DType(str):
    """An element type, interned: ``DType("f32") is DType("float32")``.

    ``kind`` is bool, int, uint, float or string; ``bits`` the width in bits (bool: 8, as stored). Strings are Python
    objects in NumPy arrays; no kernel reads them.
    """

    __slots__ = ("bits", "kind", "short")
    kind: Kind
    bits: int
    short: str
    _all: ClassVar[dict[str, DType]] = {}
    _of_numpy: ClassVar[dict[np.dtype[Any], DType]] = {}  # NumPy takes microseconds to name a dtype

    def __new__(cls, name: object) -> DType:
        if isinstance(name, np.dtype):
            known = cls._of_numpy.get(name)
            if known is None:
                known = cls._of_numpy[name] = cls(_numpy_name(name))
            return known
        key = name if isinstance(name, str) else _numpy_name(name)
        found = cls._all.get(key)
        if found is not None:
            return found
        full = "string" if key == "object" else _SHORT.get(key, key)
        if full not in _TABLE:
            hint = did_you_mean(key, _TABLE, "one of " + ", ".join(_TABLE))
            raise UserError(f"unknown dtype '{key}'", code="T010", hint=hint)
        if full not in cls._all:
            made = super().__new__(cls, full)
            made.kind, made.bits, made.short = _TABLE[full]
            cls._all[sys.intern(full)] = made
        cls._all[key] = cls._all[full]
        return cls._all[full]

    def __reduce__(self) -> tuple[type[DType], tuple[str]]:
        return DType, (str(self),)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in ("int", "uint")

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype (from ml_dtypes where NumPy has none)."""
        return np.dtype(object if self.kind == "string" else str(self))

    @property
    def nbytes(self) -> int:
        """Bytes of one stored element; sub-byte types are stored unpacked, one to a byte."""
        return max(1, self.bits // 8)

    def limits(self) -> tuple[float, float]:
        """Smallest and largest finite value."""
        if self.kind == "bool":
            return 0, 1
        if self.kind == "float":
            info = ml_dtypes.finfo(self.numpy)  # type: ignore[no-untyped-call]  # stub
            return float(info.min), float(info.max)
        if self.kind == "uint":
            return 0, (1 << self.bits) - 1
        return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1


BOOL = DType("bool")
INT8 = DType("int8")
UINT8 = DType("uint8")
INT32 = DType("int32")
UINT32 = DType("uint32")
INT64 = DType("int64")
FLOAT16 = DType("float16")
FLOAT32 = DType("float32")
FLOAT64 = DType("float64")
BFLOAT16 = DType("bfloat16")
INDEX = INT64
"""The dtype of sizes, loop variables and indices everywhere in Weft."""
