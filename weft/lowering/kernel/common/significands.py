"""Numbers as significand and exponent, and logarithms of float32 for targets that have instructions for both.

There the instructions take care of all special numbers: the significand of negative numbers is NaN, and the exponent of
zeros and infinity is the logarithm. The other targets compute ``mathematics``. The polynomial interpolates at Chebyshev
nodes, computed with 60 digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from weft.expr.intrinsics import call, reinterpret
from weft.expr.nodes import Cast, Expr, make
from weft.lowering.kernel.common import function_forms as forms
from weft.lowering.kernel.common.function_forms import Function, like, pick, polynomial
from weft.support.dtypes import FLOAT32, FLOAT64, INT32, INT64, DType

_LN2_HIGH: Final = 0.693145751953125  # 15 bits; the rest has the same sign, as infinite exponents need it
_LN2_LOW: Final = 1.4286068203094173e-06
_LOG2_E_REST: Final = 0.4426950408889634
# log(1 + f) = f - f^2 / 2 + f^3 p(f) for -1/4 <= f <= 1/2
_LOG: Final = (
    4.2871978037e-02,
    -9.5613400136e-02,
    1.1680681791e-01,
    -1.2639311138e-01,
    1.4268305970e-01,
    -1.6660817531e-01,
    2.0000140896e-01,
    -2.5000056714e-01,
    3.3333333147e-01,
)


@dataclass(frozen=True, slots=True)
class _Format:
    """Bits of a float: the integer of its width, its fraction, 3/4, its least normal number."""

    word: DType
    fraction: int
    three_quarters: int
    least: float


_FORMATS: Final = {
    FLOAT32: _Format(INT32, 23, 0x3F400000, 2.0**-126),
    FLOAT64: _Format(INT64, 52, 0x3FE8000000000000, 2.0**-1022),
}


def _scaled(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Whether ``x`` is less than all normal numbers; the bits of ``x``, then made larger; its exponent after that."""
    kind = _FORMATS[x.dtype]
    small = make("lt", x, kind.least)
    bits = reinterpret(pick(small, x * 2.0 ** (kind.fraction + 1), x), kind.word)
    return small, bits, call("shr", bits - kind.three_quarters, kind.fraction)


def _usual(x: Expr) -> Expr:
    return make("and", make("gt", x, 0.0), make("lt", x, math.inf))


def significand(x: Expr) -> Expr:
    """The intrinsic in arithmetic."""
    kind, (_, bits, exponent) = _FORMATS[x.dtype], _scaled(x)
    made = reinterpret(bits - call("shl", exponent, kind.fraction), x.dtype)
    other = pick(make("or", make("eq", x, 0.0), make("eq", x, math.inf)), like(1.0, x), like(math.nan, x))
    return pick(_usual(x), made, other)


def exponent(x: Expr) -> Expr:
    """The intrinsic in arithmetic."""
    kind, (small, _, shifted) = _FORMATS[x.dtype], _scaled(x)
    made = Cast(shifted, x.dtype) - pick(small, like(kind.fraction + 1.0, x), like(0.0, x))
    zero, infinite = make("eq", x, 0.0), make("eq", x, math.inf)
    return pick(_usual(x), made, pick(zero, like(-math.inf, x), pick(infinite, x, like(math.nan, x))))


def _log_parts(x: Expr) -> tuple[Expr, Expr, Expr]:
    """``f``, ``y`` and ``e`` with ``log x = f + y + e ln 2`` and ``1 + f`` in [3/4, 3/2)."""
    f = call("significand", x) - 1.0
    square = f * f
    return f, polynomial(f, _LOG) * f * square - square * 0.5, call("exponent", x)


def log(x: Expr) -> Expr:
    """Natural logarithm. At most 2 ulp."""
    f, y, e = _log_parts(x)
    return (f + (y + e * _LN2_LOW)) + e * _LN2_HIGH


def log2(x: Expr) -> Expr:
    """Logarithm to base 2. At most 3 ulp."""
    f, y, e = _log_parts(x)
    return ((y * _LOG2_E_REST + f * _LOG2_E_REST) + y) + f + e


def log1p(x: Expr) -> Expr:
    """log(1 + x), corrected by the rounding error of the sum. At most 4 ulp."""
    return forms.corrected_log1p(x, x - ((x + 1.0) - 1.0), log)


WRITTEN_OUT: Final[dict[str, Function]] = {f.__name__: f for f in (significand, exponent)}
"""Intrinsics that targets without such instructions compute by arithmetic."""
LOGARITHMS: Final[dict[str, Function]] = {f.__name__: f for f in (log, log2, log1p)}
"""The expansions of float32 intrinsics that need these instructions to be fast."""
