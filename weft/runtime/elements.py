"""Element types by name, for code that runs where only NumPy is installed."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from weft.support.errors import UserError
from weft.support.words import did_you_mean

# Types that NumPy itself lacks and ml_dtypes adds.
_EXTENDED = """int1 int2 int4 uint1 uint2 uint4 bfloat16 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn
float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float6_e2m3fn float6_e3m2fn float4_e2m1fn"""
_STANDARD = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
EXTENDED: frozenset[str] = frozenset(_EXTENDED.split())
STANDARD: frozenset[str] = frozenset(_STANDARD.split())


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype called ``name`` (for strings: object). Raises UserError if there is none, or if it needs
    ml_dtypes, which is not installed."""
    if name in STANDARD:
        return np.dtype(name)
    if name in VALUES:
        return np.dtype(object)
    if name not in EXTENDED:
        raise UserError(
            f"unknown dtype '{name}'",
            code="T010",
            hint=did_you_mean(name, STANDARD | EXTENDED, "one of " + ", ".join(sorted(STANDARD | EXTENDED))),
        )
    try:
        import ml_dtypes
    except ImportError as error:
        raise UserError(f"dtype {name} needs ml_dtypes", code="X001", hint="pip install ml_dtypes") from error
    made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return made


VALUES: frozenset[str] = frozenset(("data", "string"))
"""Names used in place of a dtype for values without elements that kernels could read."""


def item_bytes(name: str) -> int:
    """Bytes of one stored element; types smaller than a byte are stored unpacked. 0 for inputs passed as a value."""
    if name in VALUES:
        return 0
    if name in EXTENDED:
        return 2 if name == "bfloat16" else 1
    return numpy_dtype(name).itemsize


def size_element(name: str) -> int:
    """How the C executor reads a size from such a buffer: bytes, plus 16 if signed; 0 if it holds no integers."""
    if name not in STANDARD or name.startswith("float"):
        return 0
    return numpy_dtype(name).itemsize + (16 if name.startswith("int") else 0)
