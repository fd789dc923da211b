"""Unsigned whole numbers in the order of the values of any dtype: what long rows are sorted by."""

from __future__ import annotations

from weft import tensor_expr as te
from weft.expr.nodes import Expr, select
from weft.support.dtypes import BOOL, FLOAT32, DType

_EXPONENTS = {
    DType("float16"): 0x7C00,
    DType("bfloat16"): 0x7F80,
    DType("float32"): 0x7F800000,
    DType("float64"): 0x7FF0000000000000,
}
"""The bits of infinity. Without the sign, those of NaN are above them."""


def sort_key(value: Expr, *, descending: bool = False, nan_first: bool = False) -> Expr:
    """An unsigned number of the width of ``value``: smaller where ``value`` comes first, equal where values compare
    equal. All NaN are equal and come last, or first; so do -0.0 and 0.0."""
    if value.dtype == BOOL or (value.dtype.is_integer and value.dtype.bits < 8):
        value = te.cast(value, "uint8" if value.dtype.kind in ("bool", "uint") else "int8")
    if value.dtype.is_float and value.dtype not in _EXPONENTS:
        value = te.cast(value, FLOAT32)
    word = DType(f"uint{value.dtype.bits}")
    top, ones = te.const(1 << (word.bits - 1), word), te.const((1 << word.bits) - 1, word)
    if not value.dtype.is_float:
        key = value if value.dtype == word else te.bitxor(te.reinterpret(value, word), top)
        return te.bitxor(key, ones) if descending else key
    bits = te.reinterpret(value, word)
    size = te.bitand(bits, te.const((1 << (word.bits - 1)) - 1, word))
    signed = select(te.all(bits >= top, size > te.const(0, word)), te.bitxor(bits, ones), te.bitxor(size, top))
    key = te.bitxor(signed, ones) if descending else signed
    return select(size > te.const(_EXPONENTS[value.dtype], word), te.const(0, word) if nan_first else ones, key)
