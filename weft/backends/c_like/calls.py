"""Calls of intrinsics. Transcendental ones are expanded before code generation, but for rare arguments, for which the
language's library has functions."""

from __future__ import annotations

from typing import Final

from weft.backends.c_like.function import CFunction
from weft.backends.c_like.names import words
from weft.backends.c_like.operations import mask_bits
from weft.backends.c_like.text import ATOM, BIT_AND, BIT_OR, BIT_XOR, EQUAL, UNARY, CText, call, cast, infix
from weft.backends.native import filled
from weft.expr.added import added
from weft.expr.intrinsic_table import NativeCode
from weft.expr.nodes import Call
from weft.support.errors import InternalError

LIBRARY: Final = frozenset(
    words("exp exp2 expm1 log log2 log1p tanh erf pow fmod sin cos tan asin acos atan sinh cosh asinh acosh atanh")
)
"""Functions that languages of the C family have under the same name, for float64 and with a suffix for float32."""
_REAL: Final = frozenset(
    words("sqrt rsqrt floor ceil round trunc abs fma copysign ldexp sin_beyond cos_beyond tan_beyond fmod_beyond")
)
_WHOLE: Final = frozenset(words("abs shl shr popcount clz"))
_WORDS: Final = frozenset(words("pack2 pack4 dot2 dot4"))
_BITS: Final = {"bitand": ("&", BIT_AND), "bitor": ("|", BIT_OR), "bitxor": ("^", BIT_XOR)}


def intrinsic(f: CFunction, e: Call, args: list[CText]) -> CText:
    """The value of a call whose arguments are written as ``args``."""
    s, dtype = f.spelling, e.args[0].dtype
    if e.name == "likely":
        return args[0]
    if e.name == "reinterpret":
        if dtype == e.dtype or (dtype.bits == e.dtype.bits == 16 and {dtype.kind, e.dtype.kind} <= {"float", "uint"}):
            return args[0]
        return call(s.helper("reinterpret", dtype, e.lanes, e.dtype), *args)
    if e.name in _WORDS:
        return call(s.helper(e.name, dtype if e.name.startswith("pack") else e.dtype, e.lanes), *args)
    if dtype.is_float:
        if e.name in ("isnan", "isinf"):
            return _classified(f, e, args[0])
        if e.name in _REAL or e.name in LIBRARY:
            return call(s.helper(e.name, dtype, e.lanes), *args)
    else:
        if e.name in _BITS:
            symbol, level = _BITS[e.name]
            made = infix(args[0], symbol, args[1], level)
            return cast(s.scalar(dtype), made) if e.lanes == 1 and dtype.bits < 32 else made
        if e.name == "bitnot":
            if dtype == "bool" and e.lanes == 1:
                return CText(f"!{args[0].within(UNARY)}", UNARY)
            made = CText(f"~{args[0].within(UNARY)}", UNARY)
            return cast(s.scalar(dtype), made) if e.lanes == 1 and dtype.bits < 32 else made
        if e.name == "abs" and dtype.kind == "uint":
            return args[0]
        if e.name in _WHOLE:
            return call(s.helper(e.name, dtype, e.lanes), *args)
    row = added().get(e.name)
    native = row.code(s.kind, dtype) if row is not None else None
    if native is not None:
        return _native(f, e, native, args)
    raise InternalError(f"no C code for the intrinsic '{e.name}' on {dtype}")


def _native(f: CFunction, e: Call, native: NativeCode, args: list[CText]) -> CText:
    """The value of a call by the text that a plugin has for it."""
    s, conditions = f.spelling, "bool" in (e.dtype, *(a.dtype for a in e.args))
    s.define(native.defines)
    if e.lanes == 1:
        return _filled(native, args, s.scalar(e.dtype), [s.scalar(a.dtype) for a in e.args])
    if native.vectors and not conditions:
        types = [s.vector(a.dtype, e.lanes) for a in e.args]
        return _filled(native, args, s.vector(e.dtype, e.lanes), types)
    return call(s.in_each_lane(e, native, [mask_bits(x) for x in (e, *e.args)]), *args)


def _filled(native: NativeCode, args: list[CText], result: str, types: list[str]) -> CText:
    return CText(f"({filled(native.call, [a.within(ATOM) for a in args], result, types)})")


def _classified(f: CFunction, e: Call, x: CText) -> CText:
    s, dtype = f.spelling, e.args[0].dtype
    if e.name == "isnan":
        made = infix(x, "!=", x, EQUAL)
    else:
        limit = CText("INFINITY")
        size = call(s.helper("abs", dtype, e.lanes), x)
        made = infix(size, "==", limit if e.lanes == 1 else call(s.helper("splat", dtype, e.lanes), limit), EQUAL)
    return made if e.lanes == 1 else cast(s.mask(mask_bits(e), e.lanes), made)
