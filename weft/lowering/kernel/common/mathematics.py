"""Transcendental functions of float32 as arithmetic, for scalars and vectors alike, with stated error bounds.

Every function agrees with NumPy on NaN, infinities, zeros, overflow and, where it does not say otherwise, subnormal
results. The compiler may fuse a product and a sum into one multiply-add; the range reductions are accurate enough with
and without fusion.

Sources: range reduction after W. J. Cody and W. Waite, *Software Manual for the Elementary Functions* (1980);
polynomials of log, sin and cos as in S. Moshier's Cephes library; erf after N. Juffa (2016). The others are
least-squares fits on Chebyshev nodes.
"""

from __future__ import annotations

import math
from typing import Final

from weft.expr.intrinsics import call, reinterpret
from weft.expr.nodes import Cast, Expr, make, maximum, minimum
from weft.lowering.kernel.common import function_forms as forms
from weft.lowering.kernel.common.function_forms import (
    known_exponent,
    like,
    log_edges,
    pick,
    polynomial,
    powers,
    short_power,
    unless_zero,
)
from weft.support.dtypes import FLOAT32, FLOAT64, INT32, INT64

_LN2_HIGH: Final = 0.693359375
_LN2_LOW: Final = -2.12194440e-4
_LOG2_E: Final = 1.4426950408889634
_ROUND32: Final = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer and leaves that in the low bits
_ONE: Final = 0x3F800000  # the bits of 1.0
_ROUND64: Final = 6755399441055744.0  # 1.5 * 2**52
_EXP_IS_ZERO: Final = -104.0  # below, e^x is less than half of the least subnormal number
_LOWEST_NORMAL: Final = -87.33654  # e^x is the least normal number, rounded up
_EXP2_IS_ZERO: Final = -150.0
# e^r = 1 + r + r^2 * q(r) on |r| <= ln(2) / 2, to 0.03 ulp
_EXP: Final = (1.3814539879e-3, 8.3687451272e-3, 4.1668390790e-2, 1.6666520399e-1, 4.9999993432e-1)
_LOG: Final = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_ERF_SMALL: Final = (
    -5.96761703e-4,
    4.99119423e-3,
    -2.67681349e-2,
    1.12819925e-1,
    -3.76125336e-1,
    1.28379166e-1,
)
_ERF_LARGE: Final = (
    -1.72853470e-5,
    3.83197126e-4,
    -3.88396438e-3,
    2.42546219e-2,
    -1.06777877e-1,
    -6.34846687e-1,
    -1.28717512e-1,
)
# log2(erfc(t)) / t on [0, 4] and (2^r - 1) / r on [-1/2, 1/2]
_ERF_SHORT: Final = (
    -7.4160030025e-06,
    9.2710111439e-05,
    -2.0439765572e-04,
    -3.0694967412e-03,
    3.0296147947e-02,
    -1.4929193658e-01,
    -9.1830993243e-01,
    -1.6279098487e00,
)
_EXP2_SHORT: Final = (
    9.6180656284e-03,
    5.5837291415e-02,
    2.4023252788e-01,
    6.9313685841e-01,
)
_SIN: Final = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS: Final = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


def _rounded(x: Expr) -> tuple[Expr, Expr]:
    """The whole number ``n`` next to ``x`` as float32, and the bits of a number that ends with ``n``."""
    shifted = x + _ROUND32
    return shifted - _ROUND32, reinterpret(shifted, INT32)


def _power_of_two(bits: Expr) -> Expr:
    """2^n for the second result of :func:`_rounded`, within the exponents of normal float32 numbers: one shift moves
    ``n`` to the place of the exponent, and all other bits out."""
    return reinterpret(call("shl", bits, 23) + _ONE, FLOAT32)


def _split(x: Expr) -> tuple[Expr, Expr, Expr]:
    """``r`` in [-ln 2 / 2, ln 2 / 2] and ``n``, a whole number, with ``x = n ln 2 + r``, and bits that end with ``n``
    (:func:`_rounded`)."""
    n, bits = _rounded(x * _LOG2_E)
    return (x - n * _LN2_HIGH) - n * _LN2_LOW, n, bits


def exp_parts(x: Expr) -> tuple[Expr, Expr]:
    """``r`` and ``n`` of :func:`_split`."""
    r, n, _ = _split(x)
    return r, n


def exp_of_parts(r: Expr) -> Expr:
    """e^r for ``r`` in [-ln 2 / 2, ln 2 / 2]."""
    return polynomial(r, (*_EXP, 1.0, 1.0))


def exp(x: Expr) -> Expr:
    """e^x. At most 2 ulp, subnormal results within one unit of the last place."""
    return unless_zero(x, _EXP_IS_ZERO, lambda y: call("ldexp", *_of_parts(minimum(y, 89.0))))


def _of_parts(x: Expr) -> tuple[Expr, Expr]:
    r, n = exp_parts(x)
    return exp_of_parts(r), n


def exp_nonpositive(x: Expr) -> Expr:
    """e^x for x <= 0, or 0 where that is no normal number. At most 2 ulp. Softmax needs no more."""
    return _unless_subnormal(x, _exp_moderate(maximum(x, _LOWEST_NORMAL)))


def exp_nonpositive_by_scaling(x: Expr) -> Expr:
    """The same where :func:`ldexp` is one instruction."""
    return _unless_subnormal(x, call("ldexp", *_of_parts(maximum(x, _LOWEST_NORMAL))))


def _unless_subnormal(x: Expr, power: Expr) -> Expr:
    """e^x, or 0 where it is no normal float32 number."""
    return pick(make("lt", x, like(_LOWEST_NORMAL, x)), like(0.0, x), power)


def _exp_moderate(x: Expr) -> Expr:
    """e^x for ``|x| <= 87``: one scaling is enough."""
    r, _, bits = _split(x)
    return exp_of_parts(r) * _power_of_two(bits)


def exp2(x: Expr) -> Expr:
    """2^x. At most 2 ulp."""

    def power(y: Expr) -> Expr:
        y = minimum(y, 129.0)
        n, _ = _rounded(y)
        return call("ldexp", exp_of_parts((y - n) * math.log(2)), n)

    return unless_zero(x, _EXP2_IS_ZERO, power)


def expm1(x: Expr) -> Expr:
    """e^x - 1. At most 4 ulp."""
    r, n, bits = _split(minimum(maximum(x, -25.0), 88.0))
    tail = polynomial(r, _EXP) * (r * r) + r
    scale = _power_of_two(bits)
    moderate = tail * scale + (scale - 1.0)
    moderate = pick(make("eq", n, 0.0), tail, moderate)
    moderate = pick(make("eq", x, 0.0), x, moderate)
    return pick(make("gt", x, 88.0), exp(x), moderate)


def _log_parts(x: Expr) -> tuple[Expr, Expr, Expr]:
    """``f``, ``y`` and ``e`` with ``log x = f + y + e ln 2`` and ``1 + f`` in [sqrt(1/2), sqrt(2)), for x > 0."""
    tiny = make("lt", x, 1.17549435e-38)
    bits = reinterpret(pick(tiny, x * 8388608.0, x), INT32)
    shift = call("shr", bits - 0x3F3504F3, 23)
    f = reinterpret(bits - call("shl", shift, 23), FLOAT32) - 1.0
    exponent = Cast(shift, FLOAT32) - pick(tiny, like(23.0, x), like(0.0, x))
    square = f * f
    return f, polynomial(f, _LOG) * f * square - square * 0.5, exponent


def log(x: Expr) -> Expr:
    """Natural logarithm. At most 2 ulp."""
    f, y, e = _log_parts(x)
    return log_edges(x, (f + (y + e * _LN2_LOW)) + e * _LN2_HIGH)


def log2(x: Expr) -> Expr:
    """Logarithm to base 2. At most 3 ulp."""
    f, y, e = _log_parts(x)
    extra = _LOG2_E - 1.0
    return log_edges(x, ((y * extra + f * extra) + y) + f + e)


def log1p(x: Expr) -> Expr:
    """log(1 + x), corrected by the rounding error of the sum. At most 4 ulp."""
    return forms.corrected_log1p(x, x - ((x + 1.0) - 1.0), log)


def tanh(x: Expr) -> Expr:
    """Hyperbolic tangent, as u / (u + 2) with u = e^2x - 1, which is accurate near 0. At most 3 ulp."""
    y = minimum(maximum(x, -10.0), 10.0)
    n, bits = _rounded(y * (2.0 * _LOG2_E))
    r = (y - n * (0.5 * _LN2_HIGH)) - n * (0.5 * _LN2_LOW)  # e^2x = 2^n e^2r
    tail = polynomial(r, [c * 2.0 ** (len(_EXP) + 1 - i) for i, c in enumerate(_EXP)]) * (r * r) + (r + r)
    scale = _power_of_two(bits)
    u = tail * scale + (scale - 1.0)
    return call("copysign", u / (u + 2.0), x)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x), or 0 where that is below 2^-127.5. At most 3 ulp."""
    r, _, bits = _split(minimum(maximum(x, -89.0), 88.0))  # there, 2^-n has the bits of infinity and of zero
    scale = reinterpret(_ONE - call("shl", bits, 23), FLOAT32)
    return 1.0 / (_exp_of_minus(r) * scale + 1.0)


def sigmoid_by_scaling(x: Expr) -> Expr:
    """The same where :func:`ldexp` is one instruction: 0 below 2^-128."""
    r, n = exp_parts(minimum(maximum(x, -89.0), 88.0))
    return 1.0 / (call("ldexp", _exp_of_minus(r), 0.0 - n) + 1.0)


def _exp_of_minus(r: Expr) -> Expr:
    """e^-r for ``r`` in [-ln 2 / 2, ln 2 / 2]."""
    odd = len(_EXP) % 2
    return polynomial(r, (*(-c if i % 2 == odd else c for i, c in enumerate(_EXP)), -1.0, 1.0))


def erf(x: Expr) -> Expr:
    """Error function. At most 2 ulp."""
    size = call("abs", x)
    square = x * x
    small = polynomial(square, _ERF_SMALL) * x + x
    t = minimum(size, 4.0)
    large = 1.0 - _exp_moderate(polynomial(t, _ERF_LARGE) * t - t)
    return pick(make("lt", size, 0.921875), small, call("copysign", large, x))


def _one_less_power(y: Expr) -> Expr:
    """1 - 2^y for ``y`` in [-120, 0]: relative errors of the result and of 2^y are below 2^-16, but for rounding."""
    n, bits = _rounded(y)
    r, power = y - n, _power_of_two(bits)
    return (1.0 - power) - polynomial(r, _EXP2_SHORT) * r * power


def short_erf(x: Expr) -> Expr:
    """Error function for results that are rounded to 16 bits: 1 - 2^(t p(t)) for the size t of ``x``, with p fitted to
    log2(erfc(t)) / t. Relative errors are below 2^-15, also those of the distance from 1, but for rounding."""
    t = minimum(call("abs", x), 4.0)
    return call("copysign", _one_less_power(polynomial(t, _ERF_SHORT) * t), x)


def short_tanh(x: Expr) -> Expr:
    """Hyperbolic tangent for results that are rounded to 16 bits: u / (2 - u) with u = 1 - e^(-2 t) for the size t of
    ``x``. Relative errors are below 2^-15, also those of the distance from 1, but for rounding."""
    u = _one_less_power(minimum(call("abs", x), 20.0) * (-2.0 * _LOG2_E))
    return call("copysign", u / (2.0 - u), x)


def _quadrant(x: Expr) -> tuple[Expr, Expr]:
    """``r`` in [-pi/4, pi/4] and the quadrant modulo 4 (int32), reduced in float64: exact enough for |x| < 2^40."""
    wide = Cast(x, FLOAT64)
    shifted = wide * (2 / math.pi) + _ROUND64
    n = shifted - _ROUND64
    # pi/2 in three parts of 33 bits and the rest
    r = ((wide - n * 1.57079632673412561417e00) - n * 6.07710050630396597660e-11) - n * 2.02226624879595063154e-21
    quadrant = Cast(call("bitand", reinterpret(shifted, INT64), 3), INT32)
    return Cast(r, FLOAT32), quadrant


def _sin_cos(r: Expr) -> tuple[Expr, Expr]:
    square = r * r
    sine = polynomial(square, _SIN) * square * r + r
    cosine = polynomial(square, _COS) * (square * square) - square * 0.5 + 1.0
    return sine, cosine


def _signed(value: Expr, bit: Expr) -> Expr:
    """``value`` with its sign flipped where bit 1 of ``bit`` is set."""
    flip = call("shl", call("bitand", bit, 2), 30)
    return reinterpret(call("bitxor", reinterpret(value, INT32), flip), FLOAT32)


def sin(x: Expr) -> Expr:
    """Sine. At most 2 ulp for |x| < 2^40."""
    r, q = _quadrant(x)
    sine, cosine = _sin_cos(r)
    odd = make("ne", call("bitand", q, 1), 0)
    return _signed(pick(odd, cosine, sine), q)


def cos(x: Expr) -> Expr:
    """Cosine. At most 2 ulp for |x| < 2^40."""
    r, q = _quadrant(x)
    sine, cosine = _sin_cos(r)
    odd = make("ne", call("bitand", q, 1), 0)
    return _signed(pick(odd, sine, cosine), q + 1)


def tan(x: Expr) -> Expr:
    """Tangent. At most 4 ulp for |x| < 2^40."""
    r, q = _quadrant(x)
    sine, cosine = _sin_cos(r)
    odd = make("ne", call("bitand", q, 1), 0)
    return pick(odd, 0.0 - cosine, sine) / pick(odd, sine, cosine)


def _log2_wide(x: Expr) -> Expr:
    """log2 of a non-negative float32, as float64 with about 40 good bits."""
    wide = Cast(x, FLOAT64)
    bits = reinterpret(wide, INT64)
    shift = call("shr", bits - 0x3FE6A09E667F3BCD, 52)
    m = reinterpret(bits - call("shl", shift, 52), FLOAT64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = polynomial(z, [2 / math.log(2) / k for k in (15, 13, 11, 9, 7, 5, 3, 1)]) * s
    out = series + Cast(shift, FLOAT64)
    out = pick(make("eq", x, 0.0), like(-math.inf, wide), out)
    return pick(make("lt", x, math.inf), out, wide)


def _exp2_wide(x: Expr) -> Expr:
    """2^x for a float64 ``x``, with about 40 good bits."""
    x = minimum(maximum(x, -300.0), 300.0)
    shifted = x + _ROUND64
    r = (x - (shifted - _ROUND64)) * math.log(2)
    value = polynomial(r, [1 / math.factorial(k) for k in range(10, -1, -1)])
    n = reinterpret(shifted, INT64) - 0x4338000000000000
    return value * reinterpret(call("shl", n + 1023, 52), FLOAT64)


def pow(x: Expr, y: Expr) -> Expr:
    """x^y with all the special cases of IEEE 754 pow, computed in float64. At most 1 ulp."""
    known = short_power(x, y)
    if known is not None:
        return known
    if known_exponent(y) in (3.0, 4.0):
        wide = Cast(x, FLOAT64)
        square = wide * wide  # exact
        return Cast(square * (wide if known_exponent(y) == 3.0 else square), FLOAT32)
    size = call("abs", x)
    value: Expr = Cast(_exp2_wide(_log2_wide(size) * Cast(y, FLOAT64)), FLOAT32)
    return powers(x, y, value, make("lt", reinterpret(x, INT32), 0))


def rsqrt(x: Expr) -> Expr:
    """1 / sqrt(x), both correctly rounded."""
    return 1.0 / call("sqrt", x)
