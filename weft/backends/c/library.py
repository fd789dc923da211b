"""The helper functions of kernels in C, generated for an element type and a number of lanes.

A function is defined on scalars. On vectors it does the same in each lane, and compilers turn this into the
machine's vector instructions (GCC 12 and Clang 14 do so with these). Only operations that scalars do not have are
written for vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from weft.backends.c_like.names import words
from weft.support.dtypes import DType


@dataclass(frozen=True, slots=True)
class Element:
    """Names of C for one element type."""

    dtype: DType
    ctype: str

    @property
    def bits(self) -> int:
        return self.dtype.bits

    @property
    def unsigned(self) -> str:
        """The unsigned integer of the same width."""
        return f"uint{self.bits}_t"

    @property
    def suffix(self) -> str:
        """The suffix of the library's functions on this type."""
        return "f" if self.dtype == "float32" else ""


Body = Callable[[Element], str]
"""The statements of a function on scalars ``a``, ``b``, ``c``, without the braces."""


def _returns(expression: str) -> Body:
    return lambda e: f"return {expression.format(e=e)};"


def _floor_division(e: Element) -> str:
    if e.dtype.kind == "uint":
        return "return a / b;"
    return "return a / b - (a % b != 0 && (a % b < 0) != (b < 0));"


def _floor_remainder(e: Element) -> str:
    if e.dtype.kind == "uint":
        return "return a % b;"
    return "return a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);"


def _harmless(body: Body) -> Body:
    """A divisor of 0 counts as 1. So does -1 if the dividend is the smallest number: the quotient would overflow."""

    def safe(e: Element) -> str:
        overflow = f" || (b == -1 && a == INT{e.bits}_MIN)" if e.dtype.kind == "int" else ""
        return f"b = b == 0{overflow} ? 1 : b;\n{body(e)}"

    return safe


_QUOTIENT: Final = _returns("a / b")
_REMAINDER: Final = _returns("a % b")
_DIVISIONS: Final[dict[str, Body]] = {
    "floordiv": _floor_division,
    "floormod": _floor_remainder,
    "truncdiv": _QUOTIENT,
    "truncmod": _REMAINDER,
}


def _magnitude(e: Element) -> str:
    if e.dtype.is_float:
        return f"return fabs{e.suffix}(a);"
    return f"return a < 0 ? ({e.ctype})(0u - ({e.unsigned})a) : a;"


def _scaled(e: Element) -> str:
    """x * 2^y as two products with powers of two, the first of which is exact."""
    word, fraction, bias = ("int32_t", 23, 127) if e.bits == 32 else ("int64_t", 52, 1023)
    power = f"real_{e.dtype.short}((u{word})({{}} + {bias}) << {fraction})"
    return (
        f"const {word} n = ({word})b, half = n >> 1;\nreturn a * {power.format('half')} * {power.format('(n - half)')};"
    )


def _ones(e: Element) -> str:
    """Count bits by adding adjacent groups: on machines without an instruction, the compiler would call a function."""
    wide = "uint64_t" if e.bits == 64 else "uint32_t"
    literal = "UINT64_C(0x{})" if e.bits == 64 else "0x{}u"
    masks = [literal.format(digits * (2 if e.bits == 64 else 1)) for digits in ("55555555", "33333333", "0f0f0f0f")]
    ones = literal.format("01010101" * (2 if e.bits == 64 else 1))
    return (
        f"{wide} x = ({e.unsigned})a;\n"
        f"x = x - ((x >> 1) & {masks[0]});\n"
        f"x = (x & {masks[1]}) + ((x >> 2) & {masks[1]});\n"
        f"x = (x + (x >> 4)) & {masks[2]};\n"
        f"return ({e.ctype})((x * {ones}) >> {56 if e.bits == 64 else 24});"
    )


def _leading_zeros(e: Element) -> str:
    steps = [s for s in (32, 16, 8, 4, 2, 1) if s < e.bits]
    wide = "uint64_t" if e.bits == 64 else "uint32_t"
    lines = [f"{wide} x = ({e.unsigned})a;", f"int n = {e.bits};"]
    lines += [f"if (x >> {s}) {{ n -= {s}; x >>= {s}; }}" for s in steps]
    return "\n".join([*lines, f"return ({e.ctype})(n - (int)x);"])


def _pack(e: Element) -> str:
    count = 32 // e.bits
    parts = [f"(uint32_t)({e.unsigned}){x}" + (f" << {e.bits * i}" if i else "") for i, x in enumerate("abcd"[:count])]
    return f"return (int32_t)({' | '.join(parts)});"


_DOT4: Final = """uint32_t sum = (uint32_t)a;
for (int i = 0; i < 32; i += 8)
    sum += (uint32_t)((int32_t)((uint32_t)b >> i & 255u) * (int32_t)(int8_t)((uint32_t)c >> i));
return (int32_t)sum;"""
_DOT2: Final = """const float low = real_f32((uint32_t)b << 16) * real_f32((uint32_t)c << 16);
const float high = real_f32((uint32_t)b & 0xffff0000u) * real_f32((uint32_t)c & 0xffff0000u);
return a + low + high;"""
# Round to nearest even; NaN stays a (quiet) NaN.
_TO_BFLOAT: Final = """const uint32_t bits = bits_f32(a), top = bits >> 16;
const uint32_t nan = 0u - (uint32_t)(a != a);
return (uint16_t)((nan & (top | 64u)) | (~nan & (bits + 0x7fffu + (top & 1u)) >> 16));"""
_FROM_BFLOAT: Final = "return real_f32((uint32_t)a << 16);"
# Shift exponent and fraction to their positions; the product with 2^112 rescales, subnormal numbers included.
_FROM_HALF: Final = """const uint32_t magnitude = (uint32_t)(a & 0x7fff) << 13;
const uint32_t scaled = bits_f32(real_f32(magnitude) * 0x1p112f);
const uint32_t bits = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : scaled;
return real_f32(bits | (uint32_t)(a & 0x8000) << 16);"""
# Subnormal results are rounded by adding a number whose last bit equals theirs. (After F. Giesen, "float->half
# variants".)
_TO_HALF: Final = """const uint32_t bits = bits_f32(a), sign = bits & 0x80000000u, magnitude = bits ^ sign;
const uint32_t tiny = bits_f32(real_f32(magnitude) + 0.5f) - 0x3f000000u;
const uint32_t normal = (magnitude + 0xc8000fffu + (magnitude >> 13 & 1u)) >> 13;
const uint32_t finite = magnitude < 0x38800000u ? tiny : normal;
const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
return (uint16_t)((magnitude >= 0x47800000u ? special : finite) | sign >> 16);"""
# Round a float64 to odd: exact if float32 can represent it, else the adjacent float32 whose last bit is set. Rounding
# the result once more equals rounding directly. (After S. Boldo and G. Melquiond, "Emulation of FMA and correctly
# rounded sums".)
_TO_ODD: Final = """const float near = (float)a;
const double back = (double)near;
if (back == a || a != a || isinf(near)) return near;
return real_f32((bits_f32(near) - (uint32_t)(fabs(back) > fabs(a))) | 1u);"""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A function of scalars: how many arguments it has, its statements, and which other functions they call."""

    arity: int
    body: Body
    calls: tuple[str, ...] = ()


def _library(name: str) -> Body:
    return lambda e: f"return {name}{e.suffix}({'a, b' if name in _TWO else 'a'});"


def _beyond(name: str) -> Body:
    return lambda e: f"return a == a ? a : {name}{e.suffix}({'b, c' if name in _TWO else 'b'});"


_TWO: Final = frozenset({"pow", "fmod", "copysign"})
_MATH: Final = tuple(
    words(
        "exp exp2 expm1 log log2 log1p tanh erf pow fmod sin cos tan asin acos atan sinh cosh asinh acosh atanh "
        "sqrt floor ceil trunc copysign"
    )
)
SCALARS: Final[dict[str, Scalar]] = {
    "min": Scalar(2, _returns("a < b ? a : b")),
    "max": Scalar(2, _returns("a > b ? a : b")),
    "nan_min": Scalar(2, _returns("a < b || a != a ? a : b")),
    "nan_max": Scalar(2, _returns("a > b || a != a ? a : b")),
    **{name: Scalar(2, body) for name, body in _DIVISIONS.items()},
    **{f"safe_{name}": Scalar(2, _harmless(body)) for name, body in _DIVISIONS.items()},
    **{name: Scalar(2 if name in _TWO else 1, _library(name)) for name in _MATH},
    **{f"{name}_beyond": Scalar(3 if name in _TWO else 2, _beyond(name)) for name in words("sin cos tan fmod")},
    "round": Scalar(1, lambda e: f"return rint{e.suffix}(a);"),
    "rsqrt": Scalar(1, lambda e: f"return {'1.0f' if e.suffix else '1.0'} / sqrt{e.suffix}(a);"),
    "fma": Scalar(3, lambda e: f"return fma{e.suffix}(a, b, c);"),
    "abs": Scalar(1, _magnitude),
    "ldexp": Scalar(2, _scaled, ("real",)),
    "shl": Scalar(2, lambda e: f"return ({e.ctype})((uint{max(32, e.bits)}_t)a << b);"),
    "shr": Scalar(2, lambda e: f"return ({e.ctype})(a >> b);"),
    "popcount": Scalar(1, _ones),
    "clz": Scalar(1, _leading_zeros),
    "pack4": Scalar(4, _pack),
    "pack2": Scalar(2, _pack),
}
CONVERSIONS: Final[dict[tuple[str, str], str]] = {
    ("bfloat16", "float32"): _FROM_BFLOAT,
    ("float16", "float32"): _FROM_HALF,
    ("float32", "bfloat16"): _TO_BFLOAT,
    ("float32", "float16"): _TO_HALF,
    ("float64", "float32"): _TO_ODD,
}
"""Conversions between half types and float32; for float64, the rounding to odd before a conversion to float16."""
DOTS: Final = {"dot4": ("int32_t", _DOT4), "dot2": ("float", _DOT2)}
"""Functions of the words ``b`` and ``c``, added to ``a`` of that type."""
