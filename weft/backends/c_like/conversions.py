"""Casts between element types, half precision included."""

from __future__ import annotations

from weft.backends.c_like.function import CFunction
from weft.backends.c_like.operations import mask_bits
from weft.backends.c_like.text import BIT_AND, EQUAL, CText, call, cast, infix
from weft.expr.nodes import Expr
from weft.support.dtypes import FLOAT32, INT32, INT64, DType


def convert(f: CFunction, x: CText, e: Expr, to: DType) -> CText:
    """The value ``x`` of ``e`` as a value of dtype ``to``."""
    if e.lanes > 1 and (e.dtype == "bool" or to == "bool"):
        return _masks(f, x, e, to)
    return _numbers(f, x, e.dtype, to, e.lanes)


def _numbers(f: CFunction, x: CText, source: DType, to: DType, lanes: int) -> CText:
    s = f.spelling
    if source == to:
        return x
    if source.is_float and source.bits == 16:
        single = call(s.helper("widen", source, lanes, FLOAT32), x)
        return _numbers(f, single, FLOAT32, to, lanes)
    if to.is_float and to.bits == 16:
        if source == "float64" and to == "float16":  # rounding twice would be wrong in the last bit
            return call(s.helper("narrow", FLOAT32, lanes, to), call(s.helper("to_odd", source, lanes, FLOAT32), x))
        return call(s.helper("narrow", FLOAT32, lanes, to), _numbers(f, x, source, FLOAT32, lanes))
    if to == "bool":
        return infix(x, "!=", s.literal(0, source), EQUAL)
    for between in _steps(source, to):
        x = _by_language(f, x, source, between, lanes)
        source = between
    return _by_language(f, x, source, to, lanes)


def _steps(source: DType, to: DType) -> tuple[DType, ...]:
    """Intermediate types between a float and an integer: a number that does not fit keeps its low bits."""
    if not source.is_float or to.is_float:
        return ()
    if to.bits < 32:
        return (INT32,)
    return (INT64,) if to == "uint32" else ()


def _by_language(f: CFunction, x: CText, source: DType, to: DType, lanes: int) -> CText:
    if lanes == 1:
        return cast(f.spelling.scalar(to), x)
    return f.spelling.convert(x, source, to, lanes)


def _masks(f: CFunction, x: CText, e: Expr, to: DType) -> CText:
    """Conversions between vector conditions and numbers."""
    s, n = f.spelling, e.lanes
    if to == "bool":
        if e.dtype == "bool":
            return x
        source = e.dtype
        if source.is_float and source.bits == 16:
            low = call(s.helper("splat", DType("uint16"), n), CText("0x7fffu"))
            size = CText(f"({infix(x, '&', low, BIT_AND).code})")  # zeros have a sign
            return cast(s.mask(16, n), infix(size, "!=", _zero(f, DType("uint16"), n), EQUAL))
        wide = cast(s.mask(source.bits, n), infix(x, "!=", _zero(f, source, n), EQUAL))
        return wide
    bits = mask_bits(e)
    whole = DType(f"int{max(bits, 8)}")
    ones = infix(x, "&", call(s.helper("splat", whole, n), CText("1")), BIT_AND)
    return _numbers(f, CText(f"({ones.code})"), whole, to, n)


def _zero(f: CFunction, dtype: DType, lanes: int) -> CText:
    return call(f.spelling.helper("splat", dtype, lanes), CText("0"))
