"""Element types that exist only in memory: floats of 8 and 4 bits, integers of 4 and 2 bits.

Arithmetic on them uses float32 and int8 (uint8), and their buffers become buffers of bytes. Conversions manipulate bits
and are exact, with rounding to nearest even. A value beyond the largest number becomes what the type provides for it,
as ml_dtypes defines: infinity, or NaN if there is no infinity. Formats: "FP8 Formats for Deep Learning" (Micikevicius
et al., 2022) for e4m3fn and e5m2, "8-bit Numerical Formats for Deep Neural Networks" (Noune et al., 2022) for fnuz, the
OCP Microscaling specification 1.0 for e2m1 and e8m0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from weft.expr.folds import any_of
from weft.expr.nodes import Call, Cast, Const, Expr, Load, Select, Var, cast, const, select
from weft.lowering.kernel.common.bits import code_of, is_reinterpretation, is_stored_only
from weft.support.dtypes import FLOAT32, INT32, DType
from weft.tir.foreign import is_pointer
from weft.tir.nodes import Allocate, Buffer, Let, Program, Stmt, Store
from weft.tir.visit import all_expressions, buffers, map_expr, map_expressions, postorder, substitute, transform

UINT8, INT8 = DType("uint8"), DType("int8")


@dataclass(frozen=True, slots=True)
class Format:
    """A float of ``1 + exponent + mantissa`` bits. ``largest`` is the code of the largest number, ``beyond`` the code
    for larger values, ``nan`` the code of NaN (without the sign). ``signed_zero`` is False if 0x80 is the only NaN."""

    exponent: int
    mantissa: int
    bias: int
    largest: int
    beyond: int
    nan: int
    signed_zero: bool = True

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.mantissa)


FORMATS: Final[dict[str, Format]] = {
    "float8_e3m4": Format(3, 4, 3, 0x6F, 0x70, 0x78),
    "float8_e4m3": Format(4, 3, 7, 0x77, 0x78, 0x7C),
    "float8_e4m3b11fnuz": Format(4, 3, 11, 0x7F, 0x80, 0x80, signed_zero=False),
    "float8_e4m3fn": Format(4, 3, 7, 0x7E, 0x7F, 0x7F),
    "float8_e4m3fnuz": Format(4, 3, 8, 0x7F, 0x80, 0x80, signed_zero=False),
    "float8_e5m2": Format(5, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": Format(5, 2, 16, 0x7F, 0x80, 0x80, signed_zero=False),
    "float6_e2m3fn": Format(2, 3, 1, 0x1F, 0x1F, 0x20),
    "float6_e3m2fn": Format(3, 2, 3, 0x1F, 0x1F, 0x20),
    "float4_e2m1fn": Format(2, 1, 1, 0x7, 0x7, 0x8),
}


def arithmetic_type(dtype: DType) -> DType:
    """The type that arithmetic uses in place of a stored type."""
    return FLOAT32 if dtype.is_float else INT8 if dtype.kind == "int" else UINT8


def widen_storage(program: Program) -> Program:
    """Turn buffers of stored types into bytes, and convert their elements at each load and store."""
    bytes_of = {b: b.replace(dtype=UINT8) for b in (*program.params, *buffers(program.body)) if is_stored_only(b.dtype)}
    nodes = postorder(*all_expressions(program.body))
    if not bytes_of and not any(is_stored_only(e.dtype) for e in nodes):
        return program
    body = _Widening(bytes_of, any(is_reinterpretation(e) or is_pointer(e) for e in nodes)).run(program.body)
    return replace(program, params=tuple(bytes_of.get(b, b) for b in program.params), body=body)


class _Widening:
    def __init__(self, bytes_of: dict[Buffer, Buffer], reinterprets: bool) -> None:
        self.bytes_of, self.reinterprets = bytes_of, reinterprets
        self.memo: dict[Expr, Expr] = {}
        self.coded_memo: dict[Expr, Expr] = {}
        self.variables: dict[Var, Var] = {}

    def run(self, body: Stmt) -> Stmt:
        return transform(body, self.statement)

    def widen(self, e: Expr) -> Expr | None:
        """The value of ``e`` in its arithmetic type. The operands of ``e`` are already widened."""
        if isinstance(e, Var):
            return self.variables.get(e)
        if not is_stored_only(e.dtype):
            return e.a if isinstance(e, Cast) and e.a.dtype == e.dtype else None
        wide = arithmetic_type(e.dtype)
        if isinstance(e, Load):
            return decode(Load(self.bytes_of[e.source], e.indices, e.mask), e.dtype)  # type: ignore[index]  # buffer
        if isinstance(e, Const):
            return Const(e.value, wide)
        if isinstance(e, Cast):
            return decode(encode(e.a, e.dtype), e.dtype)
        if isinstance(e, Call):
            return decode(_byte(e.args[0]), e.dtype) if is_reinterpretation(e) else Call(e.name, e.args, wide)
        return None

    def coded(self, e: Expr) -> Expr | None:
        """Read reinterpreted bits directly from the byte. :func:`keep_bits` has left only loads and conversions as
        operands."""
        if is_pointer(e):
            loads = [x for x in e.children if isinstance(x, Load)]
            swapped = (Load(self.bytes_of.get(x.source, x.source), x.indices) for x in loads)  # type: ignore[call-overload]  # buffer
            return e.rebuild(tuple(swapped))
        if not (isinstance(e, Call) and is_reinterpretation(e) and is_stored_only(e.args[0].dtype)):
            return None
        x = e.args[0]
        if isinstance(x, Load):
            return Call(e.name, (Load(self.bytes_of[x.source], x.indices, x.mask),), e.dtype)  # type: ignore[index]  # buffer
        assert isinstance(x, Cast)
        return Call(e.name, (encode(x.a, x.dtype),), e.dtype)

    def raw(self, e: Expr, dtype: DType) -> Expr | None:
        """The code of a value that is only copied (a load, a choice or a constant); None if the value is computed."""
        if isinstance(e, Load) and e.source in self.bytes_of:
            indices = tuple(self.expression(i) for i in e.indices)
            return Load(self.bytes_of[e.source], indices, e.mask)
        if isinstance(e, Const) and e.dtype == dtype:
            return const(code_of(e.value, dtype), UINT8)
        if isinstance(e, Call) and is_reinterpretation(e) and e.dtype == dtype:
            return _byte(self.expression(e.args[0]))
        if isinstance(e, Cast) and e.dtype == dtype:
            return encode(self.expression(e.a), dtype)
        if isinstance(e, Select) and e.dtype == dtype:
            then, otherwise = self.raw(e.then, dtype), self.raw(e.otherwise, dtype)
            if then is not None and otherwise is not None:
                return select(self.expression(e.condition), then, otherwise)
        return None

    def expression(self, e: Expr) -> Expr:
        return map_expr(e, self.widen, self.memo)

    def statement(self, s: Stmt) -> Stmt:
        if self.reinterprets:
            s = map_expressions(s, lambda e: map_expr(e, self.coded, self.coded_memo))
        if isinstance(s, Let) and is_stored_only(s.var.dtype):
            var = self.variables.setdefault(s.var, Var(s.var.name, arithmetic_type(s.var.dtype)))
            return Let(var, self.expression(s.value), substitute(s.body, {s.var: var}))
        if isinstance(s, Store) and s.buffer in self.bytes_of:
            dtype = s.buffer.dtype
            code = self.raw(s.value, dtype)
            if code is None:
                code = encode(self.expression(s.value), dtype)
            made = map_expressions(s, self.expression)
            assert isinstance(made, Store)
            return Store(self.bytes_of[s.buffer], made.indices, code, made.mask)
        s = map_expressions(s, self.expression)
        if isinstance(s, Allocate) and s.buffer in self.bytes_of:
            return Allocate(self.bytes_of[s.buffer], s.body)
        return s


# --- conversions: bytes (uint8) and values of the arithmetic type -----------------------------------------------------


def decode(code: Expr, dtype: DType) -> Expr:
    """The value of a stored byte."""
    if dtype.is_integer:
        return _signed(code, dtype)
    word = cast(code, INT32)
    if dtype == "float8_e8m0fnu":
        return _float(select(word == 0, _i32(1 << 22), select(word == 255, _i32(0x7FC00000), _shl(word, 23))))
    form = FORMATS[dtype]
    magnitude = _and(word, form.sign - 1)
    bits = _shl(magnitude, 23 - form.mantissa)
    scaled = _float(bits) * const(2.0 ** (127 - form.bias), FLOAT32)  # normalizes subnormal numbers
    bits = _bits(scaled)
    if form.beyond < form.nan and form.signed_zero and form.nan < form.sign:
        bits = select(magnitude >= form.beyond, _or(_shl(magnitude, 23 - form.mantissa), _i32(0x7F800000)), bits)
    elif form.signed_zero and form.nan < form.sign:
        bits = select(magnitude == form.nan, _i32(0x7FC00000), bits)
    signed = _or(bits, _shl(_and(word, form.sign), 31 - form.exponent - form.mantissa))
    if not form.signed_zero:
        signed = select(word == form.nan, _i32(0x7FC00000), signed)
    return _float(signed)


def _signed(code: Expr, dtype: DType) -> Expr:
    """An integer of few bits, from the low bits of a byte."""
    if dtype.kind == "uint":
        return Call("bitand", (code, const((1 << dtype.bits) - 1, UINT8)), UINT8)
    spare = const(8 - dtype.bits, INT8)
    return Call("shr", (Call("shl", (cast(code, INT8), spare), INT8), spare), INT8)


def encode(value: Expr, dtype: DType) -> Expr:
    """The byte that stores ``value``, a number of any type."""
    if dtype.is_integer:
        whole = cast(value, INT32) if value.dtype.is_float else value
        mask = const((1 << dtype.bits) - 1, UINT8)
        return Call("bitand", (cast(whole, UINT8), mask), UINT8)
    single = cast(value, FLOAT32)
    if dtype == "float8_e8m0fnu":
        return _encode_power(single)
    return _encode_float(single, FORMATS[dtype])


def _encode_float(x: Expr, form: Format) -> Expr:
    bits = _bits(x)
    magnitude = _and(bits, 0x7FFFFFFF)
    drop = 23 - form.mantissa
    # Subnormal numbers: the addition rounds to a multiple of the smallest number.
    anchor = 2.0 ** (23 - form.mantissa + 1 - form.bias)
    tiny = _bits(_float(magnitude) + const(anchor, FLOAT32)) - int(np.float32(anchor).view(np.int32))
    odd = _and(_shr(magnitude, drop), 1)
    rounded = _shr(magnitude + odd + ((1 << (drop - 1)) - 1), drop) - ((127 - form.bias) << form.mantissa)
    code = select(magnitude < ((127 + 1 - form.bias) << 23), tiny, rounded)
    sign = _and(_shr(bits, 31 - form.exponent - form.mantissa), form.sign)
    code = select(code > form.largest, _i32(form.beyond), code)
    if form.signed_zero:
        if form.nan < form.sign:
            code = _or(select(magnitude > 0x7F800000, _i32(form.nan), code), sign)
        else:  # no NaN in the format: use the code of negative zero
            code = select(magnitude > 0x7F800000, _i32(form.nan), _or(code, sign))
    else:
        special = any_of(magnitude > 0x7F800000, code == form.beyond)
        code = select(special, _i32(form.nan), select(code == 0, _i32(0), _or(code, sign)))
    return cast(code, UINT8)


def _encode_power(x: Expr) -> Expr:
    """The nearest power of two; ties go to the larger one. NaN for values that are not positive and finite."""
    bits = _bits(x)
    code = _shr(bits + (1 << 22), 23)
    code = select(bits < (1 << 23), select(bits > (1 << 22), _i32(1), _i32(0)), code)
    return cast(select(any_of(bits <= 0, bits >= 0x7F800000, code > 254), _i32(255), code), UINT8)


def _i32(value: int) -> Expr:
    return const(value, INT32)


def _byte(x: Expr) -> Expr:
    return x if x.dtype == UINT8 else Call("reinterpret", (x,), UINT8)


def _bits(x: Expr) -> Expr:
    return Call("reinterpret", (x,), INT32)


def _float(x: Expr) -> Expr:
    return Call("reinterpret", (x,), FLOAT32)


def _call(name: str) -> Callable[[Expr, int], Expr]:
    return lambda x, amount: Call(name, (x, const(amount, INT32)), INT32)


_and, _shl, _shr = _call("bitand"), _call("shl"), _call("shr")


def _or(a: Expr, b: Expr) -> Expr:
    return Call("bitor", (a, b), INT32)
