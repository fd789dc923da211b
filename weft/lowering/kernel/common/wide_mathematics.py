"""Transcendental functions of float64 as arithmetic, for scalars and vectors alike, with stated error bounds.

As in ``mathematics``, which has those of float32: NumPy's special values, products and sums may be fused. Functions
that need more than the precision of float64 inside are in ``compensated``.

Sources: range reduction after W. J. Cody and W. Waite, *Software Manual for the Elementary Functions* (1980); forms of
log, expm1 and sinh as in Sun's fdlibm. The polynomials interpolate at Chebyshev nodes, computed with 60 digits.
"""

from __future__ import annotations

import math
from typing import Final

from weft.expr.intrinsics import call, reinterpret
from weft.expr.nodes import Cast, Expr, make, maximum, minimum
from weft.lowering.kernel.common import function_forms as forms
from weft.lowering.kernel.common.function_forms import (
    Function,
    like,
    log_edges,
    odd,
    pick,
    polynomial,
    polynomial_in_halves,
    unless_zero,
)
from weft.support.dtypes import FLOAT64, INT64

LN2_HIGH: Final = 6.93147180369123816490e-01  # 33 bits: products with whole numbers below 2^20 are exact
LN2_LOW: Final = 1.90821492927058770002e-10
_LOG2_E: Final = 1.4426950408889634
ROUND: Final = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer and leaves that in the low bits
_ROUND_BITS: Final = 0x4338000000000000
_EXP_IS_ZERO: Final = -745.2  # below, e^x is less than half of the least subnormal number
_LOWEST_NORMAL: Final = -708.396418  # e^x is the least normal number, rounded up
_EXP2_IS_ZERO: Final = -1075.1
_SQRT_HALF_BITS: Final = 0x3FE6A09E667F3BCD
_PI_HALVES_LOW: Final = 6.123233995736766e-17  # pi / 2 minus the float64 number nearest to it
_TAN_PI_8: Final = 0.41421356237309503
_LOGARITHM_FROM: Final = 1e17
"""From this number on, asinh(x) and acosh(x) equal log(x) + log(2) in float64."""
# exp: e^r = 1 + r + r^2 q(r) for |r| <= ln(2) / 2; log: log((1 + s) / (1 - s)) = 2 s + s^3 p(s^2); atan, asin:
# f(x) = x + x^3 p(x^2) for |x| <= tan(pi / 8) and 1/2; erf(x) = x + x p(x^2) for |x| <= 3/4, and
# erf(x) = 1 - 2^-p(x - 3/4) for 3/4 < x < 6 (Lawson's least squares); 2^-r for |r| <= 1/2. Errors are at most 0.2 ulp,
# of erf 0.8 ulp.
_EXP: Final = (
    2.5100472505694996e-08,
    2.7620201591031547e-07,
    2.7557268276905696e-06,
    2.4801521057868204e-05,
    0.00019841269863171557,
    0.0013888888917367081,
    0.008333333333330039,
    0.041666666666623824,
    0.16666666666666669,
    0.5000000000000001,
)
_LOG: Final = (
    0.13089445145293532,
    0.1326850331278954,
    0.15386249788196335,
    0.18181795454526495,
    0.2222222239345263,
    0.28571428570795937,
    0.4000000000000089,
    0.6666666666666666,
)
_ATAN: Final = (
    -0.019162065212891138,
    0.039219549505845004,
    -0.05085030387937621,
    0.05858068736800538,
    -0.06664502213359817,
    0.07692182534952374,
    -0.09090904549877532,
    0.11111111014560839,
    -0.1428571428465789,
    0.1999999999999548,
    -0.3333333333333333,
)
_ASIN: Final = (
    0.02877844261277394,
    -0.0148814093931001,
    0.017419357965078285,
    0.005450878187643824,
    0.010324318288763578,
    0.011478952690254089,
    0.013971235301124917,
    0.0173523912659092,
    0.0223721730020056,
    0.030381944137085216,
    0.04464285714637338,
    0.07499999999998425,
    0.16666666666666669,
)
_ERF_SMALL: Final = (
    -1.2711547089821422e-07,
    1.6044523839624666e-06,
    -1.489862284147446e-05,
    0.00012054266028326731,
    -0.0008548300832069432,
    0.005223977232952475,
    -0.02686617061128781,
    0.11283791670806737,
    -0.3761263890318123,
    0.1283791670955125,
)
_ERF_SMALL_BELOW: Final = 0.75
_ERF_IS_ONE: Final = 6.0
_ERFC: Final = (
    -2.670450426921086e-12,
    7.990780672713054e-11,
    -1.1109302440672537e-09,
    9.523594829945536e-09,
    -5.604792563603576e-08,
    2.3539947369976957e-07,
    -6.827817701244451e-07,
    1.019420113347508e-06,
    2.0693485706450732e-06,
    -2.0706846700613716e-05,
    7.836015540873333e-05,
    -0.00015278371932501744,
    -0.00018699388683093425,
    0.0032755613964945774,
    -0.018330342328698464,
    0.07631855261206577,
    1.1654834133022238,
    3.211256902441052,
    1.791635738423792,
)
_EXP2_OF_MINUS: Final = (
    -4.4549606161816176e-10,
    7.072585983019291e-09,
    -1.0178062445755827e-07,
    1.3215442587752943e-06,
    -1.5252733829836267e-05,
    0.00015403530441736326,
    -0.0013333558146416936,
    0.009618129107606888,
    -0.0555041086648216,
    0.24022650695910097,
    -0.6931471805599453,
    1.0,
)


def parts(x: Expr) -> tuple[Expr, Expr]:
    """``r`` in [-ln 2 / 2, ln 2 / 2] and ``n``, a whole number, with ``x = n ln 2 + r``."""
    n = (x * _LOG2_E + ROUND) - ROUND
    return (x - n * LN2_HIGH) - n * LN2_LOW, n


def exp_of_parts(r: Expr) -> Expr:
    return polynomial(r, (*_EXP, 1.0, 1.0))


def exp(x: Expr) -> Expr:
    """e^x. At most 2 ulp, subnormal results within one unit of the last place."""

    def power(y: Expr) -> Expr:
        r, n = parts(minimum(y, 710.0))
        return call("ldexp", exp_of_parts(r), n)

    return unless_zero(x, _EXP_IS_ZERO, power)


def exp_nonpositive(x: Expr) -> Expr:
    """e^x for x <= 0, or 0 where that is no normal number. At most 2 ulp."""
    r, n = parts(maximum(x, _LOWEST_NORMAL))
    return pick(make("lt", x, like(_LOWEST_NORMAL, x)), like(0.0, x), call("ldexp", exp_of_parts(r), n))


def exp2(x: Expr) -> Expr:
    """2^x. At most 2 ulp."""

    def power(y: Expr) -> Expr:
        y = minimum(y, 1025.0)
        n = (y + ROUND) - ROUND
        return call("ldexp", exp_of_parts((y - n) * math.log(2)), n)

    return unless_zero(x, _EXP2_IS_ZERO, power)


def _power_of_two(n: Expr) -> Expr:
    """2^n for a whole number ``n`` within the exponents of normal numbers."""
    return reinterpret(call("shl", reinterpret(n + (ROUND + 1023.0), INT64), 52), FLOAT64)


def _expm1_moderate(x: Expr) -> Expr:
    """e^x - 1 for -50 <= x <= 700."""
    r, n = parts(x)
    tail = polynomial(r, _EXP) * (r * r) + r
    scale = _power_of_two(n)
    return pick(make("eq", n, 0.0), tail, tail * scale + (scale - 1.0))


def expm1(x: Expr) -> Expr:
    """e^x - 1. At most 4 ulp."""
    moderate = _expm1_moderate(minimum(maximum(x, -50.0), 700.0))
    moderate = pick(make("eq", x, 0.0), x, moderate)
    return pick(make("gt", x, 700.0), exp(x), moderate)


def mantissa(x: Expr) -> tuple[Expr, Expr]:
    """``m`` in [sqrt(1/2), sqrt(2)) and ``e``, a whole number, with ``x = m * 2^e``, for x > 0."""
    tiny = make("lt", x, 2.2250738585072014e-308)
    bits = reinterpret(pick(tiny, x * 2.0**54, x), INT64)
    shift = call("shr", bits - _SQRT_HALF_BITS, 52)
    exponent = Cast(shift, FLOAT64) - pick(tiny, like(54.0, x), like(0.0, x))
    return reinterpret(bits - call("shl", shift, 52), FLOAT64), exponent


def _log_parts(x: Expr) -> tuple[Expr, Expr, Expr]:
    """``f``, ``y`` and ``e`` with ``log x = f + y + e ln 2`` and ``1 + f`` in [sqrt(1/2), sqrt(2)), for x > 0."""
    m, exponent = mantissa(x)
    f = m - 1.0
    s = f / (f + 2.0)
    square = s * s
    half = f * f * 0.5
    return f, s * (half + polynomial(square, _LOG) * square) - half, exponent


def log(x: Expr) -> Expr:
    """Natural logarithm. At most 2 ulp."""
    f, y, e = _log_parts(x)
    return log_edges(x, (f + (y + e * LN2_LOW)) + e * LN2_HIGH)


def log2(x: Expr) -> Expr:
    """Logarithm to base 2. At most 3 ulp."""
    f, y, e = _log_parts(x)
    extra = 0.44269504088896340736  # log2(e) - 1
    return log_edges(x, ((y * extra + f * extra) + y) + f + e)


def log1p(x: Expr) -> Expr:
    """log(1 + x), corrected by the rounding error of the sum. At most 4 ulp."""
    u = x + 1.0
    lost = pick(make("gt", call("abs", x), 1.0), 1.0 - (u - x), x - (u - 1.0))
    return forms.corrected_log1p(x, lost, log)


def tanh(x: Expr) -> Expr:
    """Hyperbolic tangent. At most 3 ulp."""
    size = call("abs", x)
    t = _expm1_moderate(minimum(size, 22.0) * 2.0)
    return call("copysign", pick(make("eq", x, 0.0), size, t / (t + 2.0)), x)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x), without overflow on either side. At most 3 ulp."""
    small = exp(call("copysign", x, -1.0))
    return pick(make("lt", x, 0.0), small, like(1.0, x)) / (small + 1.0)


def erf(x: Expr) -> Expr:
    """Error function. At most 3 ulp."""
    size = call("abs", x)
    small = polynomial(x * x, _ERF_SMALL) * x + x
    power = polynomial_in_halves(minimum(size, _ERF_IS_ONE) - _ERF_SMALL_BELOW, _ERFC)
    shifted = power + ROUND
    fraction = reinterpret(polynomial_in_halves(power - (shifted - ROUND), _EXP2_OF_MINUS), INT64)
    rest = reinterpret(fraction - call("shl", reinterpret(shifted, INT64), 52), FLOAT64)
    # the integer arithmetic may make a number of NaN, which the comparison leaves to the other side
    far = make("ge", size, _ERF_SMALL_BELOW)
    return pick(far, call("copysign", 1.0 - rest, x), small)


def atan(x: Expr) -> Expr:
    """Inverse tangent. At most 3 ulp."""
    size = call("abs", x)
    far, middle = make("gt", size, 1 / _TAN_PI_8), make("gt", size, _TAN_PI_8)
    above = pick(far, like(-1.0, x), pick(middle, size - 1.0, size))
    below = pick(far, size, pick(middle, size + 1.0, like(1.0, x)))
    inner = odd(above / below, _ATAN)
    low = pick(far, like(_PI_HALVES_LOW, x), pick(middle, like(_PI_HALVES_LOW / 2, x), like(0.0, x)))
    high = pick(far, like(math.pi / 2, x), pick(middle, like(math.pi / 4, x), like(0.0, x)))
    return call("copysign", high + (inner + low), x)


def asin(x: Expr) -> Expr:
    """Inverse sine. At most 3 ulp."""
    return forms.asin(x, _ASIN, _PI_HALVES_LOW)


def acos(x: Expr) -> Expr:
    """Inverse cosine. At most 3 ulp."""
    return forms.acos(x, _ASIN, _PI_HALVES_LOW)


def _half_exp(size: Expr) -> Expr:
    """e^size / 2 for size >= 0; finite where e^size overflows and its half does not."""
    r, n = parts(minimum(size, 711.0))
    return call("ldexp", exp_of_parts(r), n - 1.0)


def sinh(x: Expr) -> Expr:
    """Hyperbolic sine. At most 4 ulp."""
    size = call("abs", x)
    t = _expm1_moderate(minimum(size, 25.0))
    near = pick(make("eq", x, 0.0), size, (t + t / (t + 1.0)) * 0.5)
    far = pick(call("isnan", x), x, _half_exp(size))
    return call("copysign", pick(make("lt", size, 20.0), near, far), x)


def cosh(x: Expr) -> Expr:
    """Hyperbolic cosine. At most 3 ulp."""
    return forms.cosh(x, _half_exp)


def asinh(x: Expr) -> Expr:
    """Inverse hyperbolic sine. At most 5 ulp."""
    return call("copysign", forms.asinh_of_size(call("abs", x), log1p, _LOGARITHM_FROM), x)


def acosh(x: Expr) -> Expr:
    """Inverse hyperbolic cosine. At most 5 ulp."""
    return forms.acosh(x, log1p, _LOGARITHM_FROM)


def atanh(x: Expr) -> Expr:
    """Inverse hyperbolic tangent. At most 5 ulp."""
    size = call("abs", x)
    return call("copysign", log1p(size * 2.0 / (1.0 - size)) * 0.5, x)


FUNCTIONS: Final[tuple[Function, ...]] = (
    *(exp, exp_nonpositive, exp2, expm1, log, log2, log1p, tanh, sigmoid, erf),
    *(atan, asin, acos, sinh, cosh, asinh, acosh, atanh),
)
