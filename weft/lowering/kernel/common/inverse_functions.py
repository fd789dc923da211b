"""Hyperbolic functions and the inverses of circular and hyperbolic ones, and remainders, of float32 as arithmetic.

As in ``mathematics``: for scalars and vectors alike, with stated error bounds, NumPy's special values. The polynomials
are weighted least-squares fits whose weights were adapted until the largest relative errors were equal (Lawson).
"""

from __future__ import annotations

import math
from typing import Final

from weft.expr.intrinsics import call
from weft.expr.nodes import Cast, Expr, make, minimum
from weft.lowering.kernel.common import function_forms as forms
from weft.lowering.kernel.common.function_forms import like, odd, pick
from weft.lowering.kernel.common.mathematics import exp_of_parts, exp_parts, log, log1p
from weft.support.dtypes import FLOAT32, FLOAT64

_PI_HALVES: Final = math.pi / 2
_PI_HALVES_LOW: Final = -4.37113900018624283e-8  # pi / 2 minus the float32 number nearest to it
# f(x) = x + x^3 * p(x^2), with p as follows: atan for |x| <= 1, asin for |x| <= 1/2, sinh for |x| <= 1, the others for
# |x| <= 1/2; errors below 0.05 ulp
_ATAN: Final = (
    -0.0017936203108,
    0.010914599561,
    -0.031177834471,
    0.057957582318,
    -0.084034496826,
    0.10952185558,
    -0.1426424164,
    0.19998548281,
    -0.33333299089,
)
_ASIN: Final = (0.037516475767, 0.01443858755, 0.031807722587, 0.044516954764, 0.075005041859, 0.16666659991)
_SINH: Final = (2.8169512405e-6, 0.00019836159775, 0.0083333500582, 0.16666666498)
_ATANH: Final = (0.17669115146, 0.05135826597, 0.11823729296, 0.14222762199, 0.20002518277, 0.33333300072)
_ASINH: Final = (0.0091677107646, -0.019979982856, 0.030012951913, -0.044613250249, 0.074998892815, -0.16666665278)
_LOGARITHM_FROM: Final = 1e9
"""From this number on, asinh(x) and acosh(x) equal log(x) + log(2) in float32. The usual formula squares x, which
may overflow."""
_QUOTIENT_BITS: Final = 50
"""Bits of the quotient that one step of a division in float64 finds. The rounding of the reciprocal costs some of
53."""
_LARGEST_QUOTIENT_BITS: Final = 128 + 149
"""Bits of the largest quotient of two float32 numbers."""


def atan(x: Expr) -> Expr:
    """Inverse tangent. At most 3 ulp."""
    size = call("abs", x)
    outside = make("gt", size, 1.0)
    inner = odd(pick(outside, 1.0 / size, size), _ATAN)
    return call("copysign", pick(outside, _PI_HALVES - (inner - _PI_HALVES_LOW), inner), x)


def asin(x: Expr) -> Expr:
    """Inverse sine. At most 3 ulp."""
    return forms.asin(x, _ASIN, _PI_HALVES_LOW)


def acos(x: Expr) -> Expr:
    """Inverse cosine. At most 3 ulp."""
    return forms.acos(x, _ASIN, _PI_HALVES_LOW)


def _half_exp(size: Expr) -> Expr:
    """e^size / 2 for size >= 0; finite where e^size overflows and its half does not."""
    r, n = exp_parts(minimum(size, 90.0))
    return call("ldexp", exp_of_parts(r), n - 1.0)


def sinh(x: Expr) -> Expr:
    """Hyperbolic sine. At most 4 ulp."""
    size = call("abs", x)
    half = _half_exp(size)
    large = pick(call("isnan", x), x, half - 0.25 / half)
    return pick(make("lt", size, 1.0), odd(x, _SINH), call("copysign", large, x))


def cosh(x: Expr) -> Expr:
    """Hyperbolic cosine. At most 3 ulp."""
    return forms.cosh(x, _half_exp)


def asinh(x: Expr) -> Expr:
    """Inverse hyperbolic sine. At most 4 ulp."""
    size = call("abs", x)
    far = call("copysign", forms.asinh_of_size(size, log1p, _LOGARITHM_FROM), x)
    return pick(make("lt", size, 0.5), odd(x, _ASINH), far)


def acosh(x: Expr) -> Expr:
    """Inverse hyperbolic cosine. At most 4 ulp."""
    return forms.acosh(x, log1p, _LOGARITHM_FROM)


def atanh(x: Expr) -> Expr:
    """Inverse hyperbolic tangent. At most 4 ulp."""
    size = call("abs", x)
    far = call("copysign", log((size + 1.0) / (1.0 - size)) * 0.5, x)
    return pick(make("lt", size, 0.5), odd(x, _ATANH), far)


def fmod(x: Expr, y: Expr) -> Expr:
    """x - trunc(x / y) * y, correctly rounded (exact).

    A long division in float64, with enough steps for all bits of the largest quotient. Each step multiplies ``y`` by
    the leading bits of the remaining quotient and subtracts the product, in one fused operation. This is exact: the
    remainder is a multiple of the last place of ``y`` and has few enough bits. If the reciprocal was rounded up, the
    remainder may be negative; the last two lines on it correct that.
    """
    rest: Expr = Cast(call("abs", x), FLOAT64)
    divisor = Cast(call("abs", y), FLOAT64)
    reciprocal = 1.0 / divisor
    for _ in range(math.ceil(_LARGEST_QUOTIENT_BITS / _QUOTIENT_BITS)):
        rest = call("fma", like(0.0, rest) - call("trunc", rest * reciprocal), divisor, rest)
    rest = pick(make("lt", rest, 0.0), rest + divisor, rest)
    rest = pick(make("ge", rest, divisor), rest - divisor, rest)
    inside = make("and", call("isinf", y), make("lt", call("abs", x), math.inf))
    return pick(inside, x, call("copysign", Cast(rest, FLOAT32), x))
