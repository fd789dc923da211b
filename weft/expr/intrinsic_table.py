"""The table of intrinsics: the values of ``Call.name``, their meaning, and how to build a call.

Every intrinsic works lane by lane. ``evaluate`` defines the meaning, on NumPy scalars or arrays of the argument dtypes;
code generators may approximate the transcendental ones within the error bounds that they state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from weft.support.dtypes import BOOL, INDEX, INT32, DType
from weft.support.errors import ProgramError

Accepts = Literal["float", "integer", "number", "any"]


@dataclass(frozen=True, slots=True)
class NativeCode:
    """How the code generator for targets of one ``kind`` writes a call with arguments of ``dtype``.

    ``call`` is the value: an expression of C, or the right-hand side of an instruction of LLVM IR. In it ``{0}``,
    ``{1}`` … stand for the arguments, ``{type}`` for the type of the result, ``{type0}`` … for those of the arguments,
    and ``{suffix}`` for the type of the first one in the names of overloaded intrinsics of LLVM (``f32``, ``v8f32``).
    ``defines`` is written once, before the kernel: functions, declarations. ``vectors`` says that ``call`` is also
    right for vectors; otherwise vectors are computed lane by lane.
    """

    kind: str
    dtype: str
    call: str
    defines: str = ""
    vectors: bool = False


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """One intrinsic function.

    ``accepts`` says which arguments it takes (``float``: others are converted to float32 by the builders);
    ``result`` gives the result dtype from those of the arguments, or is None if the call must say it. ``pure`` calls
    may be repeated, moved and dropped.

    Intrinsics of plugins say how code is made: ``codes`` for some kinds of targets and dtypes, ``expand`` for all
    others. ``expand`` takes as many scalar expressions and returns one, made of other intrinsics.
    """

    name: str
    arity: int
    accepts: Accepts
    result: Callable[[Sequence[DType]], DType] | None
    evaluate: Callable[..., Any]
    doc: str
    pure: bool = True
    expand: Callable[..., Any] | None = None
    codes: tuple[NativeCode, ...] = ()

    def code(self, kind: str, dtype: str) -> NativeCode | None:
        """How a call with arguments of ``dtype`` is written for targets of ``kind``; None if ``codes`` has no text."""
        return next((c for c in self.codes if c.kind == kind and c.dtype == dtype), None)


def _first(dtypes: Sequence[DType]) -> DType:
    return dtypes[0]


def _last(dtypes: Sequence[DType]) -> DType:
    return dtypes[-1]


def _truth(dtypes: Sequence[DType]) -> DType:
    return BOOL


def _nothing(dtypes: Sequence[DType]) -> DType:
    return INT32


def _position(dtypes: Sequence[DType]) -> DType:
    return INDEX


_erf = np.frompyfunc(math.erf, 1, 1)


def _like(result: Any, x: Any) -> Any:
    return np.asarray(result).astype(np.asarray(x).dtype)[()]


def _exp_nonpositive(x: Any) -> Any:
    made = np.exp(x)
    return np.where(made < np.finfo(made.dtype).tiny, made.dtype.type(0), made)[()]


def _sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return _like(np.where(x >= 0, 1 / (1 + small), small / (1 + small)), x)


def _fma(a: Any, b: Any, c: Any) -> Any:
    wide = np.asarray(a).astype(np.float64) * np.asarray(b).astype(np.float64)
    return _like(wide + np.asarray(c).astype(np.float64), a)


def _beyond(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda near, *args: _like(np.where(np.isnan(near), function(*args), near), near)


def _ldexp(x: Any, n: Any) -> Any:
    return _like(np.asarray(x).astype(np.float64) * np.exp2(np.asarray(n).astype(np.float64)), x)


def _width(x: Any) -> int:
    return int(np.asarray(x).dtype.itemsize * 8)


def _shl(a: Any, b: Any) -> Any:
    return np.left_shift(a, b)


def _unsigned(x: Any) -> Any:
    array = np.asarray(x)
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "i" else array


def _popcount(x: Any) -> Any:
    return _like(np.bitwise_count(_unsigned(x)), x)


def _clz(x: Any) -> Any:
    lengths = np.frompyfunc(lambda v: _width(x) - int(v).bit_length(), 1, 1)
    return _like(lengths(_unsigned(x)), x)


def _significand(x: Any) -> Any:
    size, _ = np.frexp(np.abs(x))
    usual = np.where(size < 0.75, size * 2, size)
    special = np.where((x == 0) | (x == math.inf), 1.0, math.nan)
    return _like(np.where((x > 0) & (x < math.inf), usual, special), x)


def _exponent(x: Any) -> Any:
    size, power = np.frexp(np.abs(x))
    usual = power - (size < 0.75)
    special = np.where(x == 0, -math.inf, np.where(x == math.inf, math.inf, math.nan))
    return _like(np.where((x > 0) & (x < math.inf), usual, special), x)


def _lookup16(x: Any, *numbers: Any) -> Any:
    return _like(np.choose(np.asarray(x).astype(np.int64) & 15, numbers), numbers[0])


def _reinterpret(x: Any, dtype: DType) -> Any:
    return np.asarray(x).view(dtype.numpy)[()]


def _prefetch(x: Any) -> Any:
    return np.zeros(np.shape(x), np.int32)[()]


def _no_value(*values: Any) -> Any:
    raise ProgramError("places in memory are not values of tensor expressions", code="V018")


def _pack4(*bytes_: Any) -> Any:
    total: Any = 0
    for i, x in enumerate(bytes_):
        total = total | (np.asarray(x).astype(np.int64) & 255) << (8 * i)
    return np.asarray(total).astype(np.uint32).view(np.int32)[()]


def _dot4(total: Any, x: Any, y: Any) -> Any:
    sum_ = np.asarray(total).astype(np.int64)
    for i in range(4):
        unsigned = (np.asarray(x).astype(np.int64) >> (8 * i)) & 255
        signed = (np.asarray(y).astype(np.int64) >> (8 * i)).astype(np.int8).astype(np.int64)
        sum_ = sum_ + unsigned * signed
    return np.asarray(sum_).astype(np.uint32).view(np.int32)[()]


def _pack2(*halves: Any) -> Any:
    low, high = (np.asarray(x).view(np.uint16).astype(np.uint32) for x in halves)
    return (low | high << 16).view(np.int32)[()]


def _dot2(total: Any, x: Any, y: Any) -> Any:
    sum_ = np.asarray(total).astype(np.float64)
    for part in (_low_half, _high_half):
        sum_ = sum_ + part(x) * part(y)
    return sum_.astype(np.float32)[()]


def _low_half(x: Any) -> Any:
    return (np.asarray(x).view(np.uint32) << 16).view(np.float32).astype(np.float64)


def _high_half(x: Any) -> Any:
    return (np.asarray(x).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(np.float64)


def _rows() -> tuple[Intrinsic, ...]:
    def real(name: str, evaluate: Callable[..., Any], doc: str, arity: int = 1) -> Intrinsic:
        return Intrinsic(name, arity, "float", _first, evaluate, doc)

    def bits(name: str, evaluate: Callable[..., Any], doc: str, arity: int = 2) -> Intrinsic:
        return Intrinsic(name, arity, "integer", _first, evaluate, doc)

    return (
        real("exp", np.exp, "e to the power x"),
        real(
            "exp_nonpositive", _exp_nonpositive, "e to the power x, which is at most 0; 0 instead of subnormal numbers"
        ),
        real("exp2", np.exp2, "2 to the power x"),
        real("expm1", np.expm1, "exp(x) - 1 without cancellation"),
        real("log", np.log, "natural logarithm"),
        real("log2", np.log2, "logarithm to base 2"),
        real("log1p", np.log1p, "log(1 + x) without cancellation"),
        real("sqrt", np.sqrt, "square root, correctly rounded"),
        real("rsqrt", lambda x: _like(1 / np.sqrt(x), x), "1 / sqrt(x)"),
        real("tanh", np.tanh, "hyperbolic tangent"),
        real("sigmoid", _sigmoid, "1 / (1 + exp(-x))"),
        real("erf", lambda x: _like(_erf(np.asarray(x, np.float64)), x), "error function"),
        real("sin", np.sin, "sine of x radians"),
        real("cos", np.cos, "cosine of x radians"),
        real("tan", np.tan, "tangent of x radians"),
        real("asin", np.arcsin, "inverse sine"),
        real("acos", np.arccos, "inverse cosine"),
        real("atan", np.arctan, "inverse tangent"),
        real("sinh", np.sinh, "hyperbolic sine"),
        real("cosh", np.cosh, "hyperbolic cosine"),
        real("asinh", np.arcsinh, "inverse hyperbolic sine"),
        real("acosh", np.arccosh, "inverse hyperbolic cosine"),
        real("atanh", np.arctanh, "inverse hyperbolic tangent"),
        real("pow", np.power, "x to the power y (IEEE pow)", 2),
        real("fmod", np.fmod, "remainder with the sign of x (C fmod)", 2),
        real("copysign", np.copysign, "magnitude of x, sign of y", 2),
        real("ldexp", _ldexp, "x * 2^y for a whole y, at most 250 in magnitude, rounded once", 2),
        real("significand", _significand, "x / 2^n in [3/4, 3/2), for a whole n; of 0 and infinity 1, below 0 NaN"),
        real("exponent", _exponent, "the n of the significand; of 0 -inf, of infinity infinity, below 0 NaN"),
        real("fma", _fma, "x * y + z, rounded once", 3),
        *(
            real(f"{name}_beyond", _beyond(f), f"x, but {name} of the other arguments where x is NaN, which is rare", n)
            for name, f, n in (("sin", np.sin, 2), ("cos", np.cos, 2), ("tan", np.tan, 2), ("fmod", np.fmod, 3))
        ),
        real("floor", np.floor, "largest integer not above x"),
        real("ceil", np.ceil, "smallest integer not below x"),
        real("round", np.rint, "nearest integer, halves to even"),
        real("trunc", np.trunc, "integer part"),
        Intrinsic("abs", 1, "number", _first, np.abs, "magnitude (of the smallest integer: itself)"),
        Intrinsic("isnan", 1, "float", _truth, np.isnan, "whether x is not a number"),
        Intrinsic("isinf", 1, "float", _truth, np.isinf, "whether x is infinite"),
        bits("bitand", np.bitwise_and, "x & y"),
        bits("bitor", np.bitwise_or, "x | y"),
        bits("bitxor", np.bitwise_xor, "x ^ y"),
        bits("bitnot", np.invert, "all bits flipped", 1),
        bits("shl", _shl, "x shifted left by 0 <= y < bits"),
        bits("shr", np.right_shift, "x shifted right by 0 <= y < bits; copies the sign of signed x"),
        bits("popcount", _popcount, "number of bits set", 1),
        bits("clz", _clz, "number of zero bits before the highest set one; the width for 0", 1),
        Intrinsic("pack4", 4, "any", _nothing, _pack4, "four integers of 8 bits as one of 32, the first lowest"),
        Intrinsic(
            "dot4", 3, "any", _nothing, _dot4, "x + the products of the unsigned bytes of y and the signed ones of z"
        ),
        Intrinsic("pack2", 2, "any", _nothing, _pack2, "two bfloat16 numbers as one int32, the first in the low half"),
        Intrinsic("dot2", 3, "any", _first, _dot2, "x + the products of the bfloat16 halves of y and z; x is float32"),
        Intrinsic("lookup16", 17, "any", _last, _lookup16, "that of 16 numbers whose place is in the last bits of x"),
        Intrinsic("reinterpret", 1, "any", None, _reinterpret, "the same bits as another dtype of that width"),
        Intrinsic("likely", 1, "any", _first, lambda x: x, "x; a hint that the condition usually holds"),
        Intrinsic(
            "prefetch", 1, "any", _nothing, _prefetch, "load the element's cache line into all caches", pure=False
        ),
        Intrinsic(
            "prefetch_l2", 1, "any", _nothing, _prefetch, "load its line, but not into the first cache", pure=False
        ),
        Intrinsic("offset_of", 1, "any", _position, _no_value, "the elements before x in its buffer", pure=False),
        Intrinsic("apart", 2, "any", _position, _no_value, "the elements from x to y in their buffer", pure=False),
        *(
            Intrinsic(name, 2, "any", _position, _no_value, doc, pure=False)
            for name, doc in (
                ("pointer_r", "the address of x, for a function that reads the elements from x to y"),
                ("pointer_w", "the address of x, for a function that writes the elements from x to y"),
                ("pointer_rw", "the address of x, for a function that reads and writes the elements from x to y"),
            )
        ),
        Intrinsic("require", 1, "any", _nothing, _prefetch, "refuse the program unless x is proved", pure=False),
    )


PREFETCH_LEVELS: Final = {"prefetch": 1, "prefetch_l2": 2}
"""Intrinsics that prefetch the element which their argument loads, and the cache level nearest to the core that gets
it."""

PLACES: Final = ("offset_of", "apart")
"""Intrinsics whose arguments are elements in memory. They load nothing."""

POINTERS: Final = {"pointer_r": "r", "pointer_w": "w", "pointer_rw": "rw"}
"""Addresses that functions of other languages get (:mod:`weft.tir.foreign`), and what these do with the elements."""

INTRINSICS: Final[dict[str, Intrinsic]] = {row.name: row for row in _rows()}

ROOTS: Final = frozenset({"sqrt", "rsqrt"})
"""Functions that are one instruction, though a slow one."""
LOGICAL: Final = ("bitand", "bitor", "bitxor", "bitnot")
"""Intrinsics on bits that conditions have as logical operations: builders write these in their place."""

OF_NUMBERS: Final = tuple(
    name for name, row in INTRINSICS.items() if row.accepts in ("integer", "number") and name not in LOGICAL
)
"""Intrinsics of numbers, which no conditions are converted to."""


def result_dtype(name: str, dtypes: Sequence[DType]) -> DType | None:
    """The dtype of a call of ``name`` by the table, or None if the call itself must state it."""
    row = INTRINSICS.get(name)
    return row.result(dtypes) if row is not None and row.result is not None and dtypes else None
