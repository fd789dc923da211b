"""Calls of intrinsics that machines have. Transcendental ones are expanded before code generation, but for arguments
(``…_beyond``) that the C library gets lane by lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.backends.llvm.beyond import BEYOND, beyond
from weft.backends.llvm.function import LlvmFunction
from weft.backends.llvm.packed import dot2, dot4, pack
from weft.backends.llvm.roots import root
from weft.backends.llvm.significands import exponent, significand
from weft.backends.llvm.tables import lookup16
from weft.backends.llvm.types import scalar_type, splat, type_of, vector
from weft.backends.llvm.vectors import intrinsic, mangled
from weft.backends.native import filled
from weft.expr.added import added
from weft.expr.intrinsic_table import NativeCode
from weft.expr.nodes import Call
from weft.support.dtypes import INT32, INT64, DType
from weft.support.errors import InternalError

_FLOAT: Final = {
    "floor": "llvm.floor",
    "ceil": "llvm.ceil",
    "round": "llvm.roundeven",
    "trunc": "llvm.trunc",
    "abs": "llvm.fabs",
    "fma": "llvm.fma",
    "copysign": "llvm.copysign",
}
_SPECIAL: Final = {
    **{"pack2": pack, "pack4": pack, "dot2": dot2, "dot4": dot4},
    **{"lookup16": lookup16, "significand": significand, "exponent": exponent},
}
_BITS: Final = {"bitand": "and", "bitor": "or", "bitxor": "xor", "shl": "shl"}
# Bits and lanes → the instruction that multiplies by a power of two, and the feature it needs. Source: Intel 64 and
# IA-32 Architectures Software Developer's Manual, VSCALEFPS and VSCALEFPD.
_SCALE: Final = {
    (bits, width // bits): (
        f"llvm.x86.avx512.mask.scalef.{kind}.{width}",
        frozenset({"avx512f"} if width == 512 else {"avx512f", "avx512vl"}),
    )
    for bits, kind in ((32, "ps"), (64, "pd"))
    for width in (128, 256, 512)
}
# Bits of a float → the integer type of its width, the bits of its fraction, its bias, the constant whose addition
# rounds to an integer, and the bits of this constant.
_PARTS: Final = {
    32: (INT32, 23, 127, 12582912.0, 0x4B400000),
    64: (INT64, 52, 1023, 6755399441055744.0, 0x4338000000000000),
}
# Functions of the C library that kernels may call (suffix f for float32).
_EXPONENTIAL: Final = ("exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "erf", "pow", "fmod")
_CIRCULAR: Final = ("sin", "cos", "tan", "asin", "acos", "atan")
_HYPERBOLIC: Final = ("sinh", "cosh", "asinh", "acosh", "atanh")
C_MATH: Final = frozenset((*_EXPONENTIAL, *_CIRCULAR, *_HYPERBOLIC))


def emit_call(f: LlvmFunction, e: Call, args: list[str]) -> str:
    """The value of a call whose arguments have values."""
    ty, dtype = type_of(e), e.args[0].dtype
    typed = [(type_of(a), v) for a, v in zip(e.args, args, strict=True)]
    if e.name == "likely":
        return args[0]
    if e.name == "reinterpret":
        return f.op(f"bitcast {typed[0][0]} {args[0]} to {ty}") if typed[0][0] != ty else args[0]
    if e.name in _SPECIAL:
        return _SPECIAL[e.name](f, e, args)
    if dtype.is_float:
        if e.name in _FLOAT:
            return intrinsic(f, _FLOAT[e.name], ty, typed)
        if e.name == "isnan":
            return f.op(f"fcmp uno {typed[0][0]} {args[0]}, {args[0]}")
        if e.name == "isinf":
            size = intrinsic(f, "llvm.fabs", typed[0][0], typed)
            return f.op(f"fcmp oeq {typed[0][0]} {size}, {splat(float('inf'), dtype, e.lanes)}")
        if e.name == "ldexp":
            return _scaled(f, e, args)
        if e.name == "sqrt":
            return root(f, args[0], dtype, e.lanes)
        if e.name == "rsqrt":
            return f.op(f"fdiv {ty} {splat(1.0, dtype, e.lanes)}, {root(f, args[0], dtype, e.lanes)}")
        if e.name in C_MATH:
            return _library(f, e, typed)
        if e.name.endswith(BEYOND):
            return beyond(f, e, typed)
    else:
        found = _integer(f, e, ty, typed)
        if found is not None:
            return found
    code = added().get(e.name)
    native = code.code(f.kind, dtype) if code is not None else None
    if native is not None:
        return _native(f, e, native, typed)
    raise InternalError(f"no LLVM code for the intrinsic '{e.name}' on {dtype}")


def _scaled(f: LlvmFunction, e: Call, args: list[str]) -> str:
    """The instruction if the target has it; else two products with powers of two, the first of which is exact."""
    ty, lanes = type_of(e), e.lanes
    x, n = args
    name, needed = _SCALE.get((e.dtype.bits, lanes), ("", frozenset({"none"})))
    if needed <= f.features:
        if lanes * e.dtype.bits == 512:
            return f.op(f"call {ty} @{name}({ty} {x}, {ty} {n}, {ty} zeroinitializer, i{lanes} -1, i32 4)")
        return f.op(f"call {ty} @{name}({ty} {x}, {ty} {n}, {ty} zeroinitializer, i8 -1)")
    word, mantissa, bias, rounding, offset = _PARTS[e.dtype.bits]
    words = vector(scalar_type(word), lanes)
    rounded = f.op(f"fadd {ty} {n}, {splat(rounding, e.dtype, lanes)}")
    whole = f.op(f"sub {words} {f.op(f'bitcast {ty} {rounded} to {words}')}, {splat(offset, word, lanes)}")
    half = f.op(f"ashr {words} {whole}, {splat(1, word, lanes)}")
    for part in (half, f.op(f"sub {words} {whole}, {half}")):
        exponent = f.op(f"add {words} {part}, {splat(bias, word, lanes)}")
        power = f.op(f"bitcast {words} {f.op(f'shl {words} {exponent}, {splat(mantissa, word, lanes)}')} to {ty}")
        x = f.op(f"fmul {ty} {x}, {power}")
    return x


def _integer(f: LlvmFunction, e: Call, ty: str, typed: list[tuple[str, str]]) -> str | None:
    a = typed[0][1]
    dtype = e.args[0].dtype
    if e.name in _BITS:
        return f.op(f"{_BITS[e.name]} {ty} {a}, {typed[1][1]}")
    if e.name == "shr":
        return f.op(f"{'ashr' if dtype.kind == 'int' else 'lshr'} {ty} {a}, {typed[1][1]}")
    if e.name == "bitnot":
        return f.op(f"xor {ty} {a}, {splat(-1 if dtype.kind == 'int' else _ones(dtype), dtype, e.lanes)}")
    if e.name == "abs":
        return a if dtype.kind == "uint" else intrinsic(f, "llvm.abs", ty, [*typed, ("i1", "false")])
    if e.name == "popcount":
        return intrinsic(f, "llvm.ctpop", ty, typed)
    if e.name == "clz":
        return intrinsic(f, "llvm.ctlz", ty, [*typed, ("i1", "false")])
    return None


def _ones(dtype: DType) -> int:
    return 1 if dtype.kind == "bool" else (1 << dtype.bits) - 1


def _library(f: LlvmFunction, e: Call, typed: list[tuple[str, str]]) -> str:
    element = scalar_type(e.dtype)
    name = e.name + ("f" if e.dtype == "float32" else "")

    def one(values: list[str]) -> str:
        return f.op(f"call {element} @{name}({', '.join(f'{element} {v}' for v in values)})")

    return _in_each_lane(f, e, typed, one)


def _in_each_lane(f: LlvmFunction, e: Call, typed: list[tuple[str, str]], one: Callable[[list[str]], str]) -> str:
    """The value of ``e`` from ``one``, which computes a scalar from scalars."""
    if e.lanes == 1:
        return one([v for _, v in typed])
    element, whole = scalar_type(e.dtype), "poison"
    for lane in range(e.lanes):
        made = one([f.op(f"extractelement {t} {v}, i64 {lane}") for t, v in typed])
        whole = f.op(f"insertelement {vector(element, e.lanes)} {whole}, {element} {made}, i64 {lane}")
    return whole


def _native(f: LlvmFunction, e: Call, native: NativeCode, typed: list[tuple[str, str]]) -> str:
    """The value of a call by the text that a plugin has for it."""
    if native.defines:
        f.defined[native.defines] = None
    if native.vectors:
        types = [t for t, _ in typed]
        return f.op(filled(native.call, [v for _, v in typed], type_of(e), types, mangled(types[0])))
    types = [scalar_type(a.dtype) for a in e.args]

    def one(values: list[str]) -> str:
        return f.op(filled(native.call, values, scalar_type(e.dtype), types, mangled(types[0])))

    return _in_each_lane(f, e, typed, one)
