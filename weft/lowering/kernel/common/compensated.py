"""Functions of float64 that need more than its precision inside: circular ones, powers and remainders, as arithmetic.

As in ``wide_mathematics``: for scalars and vectors alike, with stated error bounds and NumPy's special values. A number
is carried as two, a value and what its rounding lost. Where arguments are so large that a reduction needs all bits of
pi, or a quotient more than float64 holds, the function of the C library is called (the intrinsics ``…_beyond``): a
vector is looked at lane by lane only if one of its lanes needs that.

Sources: range reduction and forms of sin and cos as in Sun's fdlibm; T. J. Dekker, "A floating-point technique for
extending the available precision" (1971); D. E. Knuth, *The Art of Computer Programming* 2, 4.2.2 (exact sums). The
polynomials interpolate at Chebyshev nodes, computed with 60 digits.
"""

from __future__ import annotations

import math
from typing import Final

from weft.expr.intrinsics import call, reinterpret
from weft.expr.nodes import Expr, make, maximum, minimum
from weft.lowering.kernel.common.function_forms import (
    Function,
    known_exponent,
    like,
    pick,
    polynomial,
    powers,
    short_power,
)
from weft.lowering.kernel.common.wide_mathematics import LN2_HIGH, LN2_LOW, ROUND, exp_of_parts, mantissa, parts
from weft.support.dtypes import FLOAT64, INT64

_PI: Final = (3.1415926534682512, 1.2154201012607932e-10, 4.044532497422333e-21)
"""pi in parts of 33 bits, whose products with whole numbers and halves below 2^19 are exact."""
_PI_REST: Final = 1.69568553207378e-31
_EXACT_BELOW: Final = 1.6e6
"""Below this size, pi in four parts is exact enough."""
_FADES: Final = 0.405284734569351
"""(2 / pi)^2: 1 - r^2 times this is near cos r, and 0 where that is."""
# sin r = r - r^3 p(r^2) for |r| <= pi / 2; in tangents for |r| <= pi / 4, sin r = r + r^3 p(r^2) and
# cos r = 1 - r^2 / 2 + r^4 p(r^2);
# log((1 + s) / (1 - s)) = 2 s + 2/3 s^3 + s^5 p(s^2). Errors are at most 0.01 ulp, of the first 0.4 ulp.
_HALF_WAVE: Final = (
    -2.731444466004534e-15,
    7.643970272659895e-13,
    -1.6058977311708036e-10,
    2.5052107616984522e-08,
    -2.755731921916314e-06,
    0.00019841269841254974,
    -0.008333333333333316,
    0.16666666666666666,
)
_SIN: Final = (
    1.5917848524808262e-10,
    -2.5051127944014188e-08,
    2.755731608381636e-06,
    -0.00019841269836722418,
    0.008333333333330925,
    -0.16666666666666666,
)
_COS: Final = (
    -1.1382456778061306e-11,
    2.0876143827993133e-09,
    -2.7557317260008837e-07,
    2.480158729874307e-05,
    -0.0013888888888887382,
    0.041666666666666664,
)
_LOG: Final = (
    0.11724327060846747,
    0.11706126464563398,
    0.1333480879881234,
    0.1538459488700718,
    0.18181818336099848,
    0.22222222221652765,
    0.2857142857142937,
    0.4,
)
_TWO_THIRDS: Final = (0.6666666666666666, 3.700743415417188e-17)
_LARGEST_POWER, _SMALLEST_POWER = 720.0, -760.0
"""Beyond these, e^p is infinite or 0 in float64."""
_MAX_QUOTIENT: Final = 2.0**50
"""The whole part of a smaller quotient is found by one division, but for 1."""


def _exact_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """``a + b`` and what rounding it loses."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _exact_product(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """``a * b`` and what rounding it loses."""
    product = a * b
    return product, call("fma", a, b, 0.0 - product)


def _without(x: Expr, n: Expr, scale: float) -> tuple[Expr, Expr]:
    """``x - n * scale * pi`` and what rounding it lost; ``n`` is a whole number or a half of one near ``x`` in units of
    ``scale * pi``, and ``scale`` a power of two.

    Each product is exact, fused or not, and a whole number of the last places of the next one: the differences in the
    order below lose nothing, whichever of the two is larger.
    """
    high, middle, low = (part * scale for part in _PI)
    first = x - n * high
    rest = first - n * middle
    lost = (first - rest) - n * middle
    r = rest - n * low
    return r, (lost + ((rest - r) - n * low)) - n * (_PI_REST * scale)


def _half_wave(r: Expr, lost: Expr) -> tuple[Expr, Expr]:
    """Two numbers whose difference is sin(r + lost) for |r| <= pi / 2; of a negative zero it is that. The cube of ``r``
    is carried as two numbers: at pi / 2, it is more than half of the sine."""
    square, square_lost = _exact_product(r, r)
    cube, cube_lost = _exact_product(square, r)
    p = polynomial(square, _HALF_WAVE)
    more = (square_lost * r + cube_lost) * p - lost * (1.0 - square * _FADES)
    return r, cube * p + more


def _flipped(value: Expr, shifted: Expr) -> Expr:
    """``value`` with its sign flipped where the whole number in the low bits of ``shifted`` is odd."""
    return reinterpret(call("bitxor", reinterpret(value, INT64), call("shl", reinterpret(shifted, INT64), 63)), FLOAT64)


def _or_beyond(name: str, near: Expr, usable: Expr, *args: Expr) -> Expr:
    return call(f"{name}_beyond", pick(usable, near, like(math.nan, near)), *args)


def _is_near(x: Expr) -> Expr:
    return make("lt", call("abs", x), _EXACT_BELOW)


def sin(x: Expr) -> Expr:
    """Sine. At most 2 ulp below 1.6e6, beyond as exact as that of the C library."""
    shifted = x * (1 / math.pi) + ROUND
    most, rest = _half_wave(*_without(x, shifted - ROUND, 1.0))
    return _or_beyond("sin", _flipped(most - rest, shifted), _is_near(x), x)


def cos(x: Expr) -> Expr:
    """Cosine. At most 2 ulp below 1.6e6, beyond as exact as that of the C library."""
    shifted = (x * (1 / math.pi) - 0.5) + ROUND
    most, rest = _half_wave(*_without(x, (shifted - ROUND) + 0.5, 1.0))
    return _or_beyond("cos", _flipped(rest - most, shifted), _is_near(x), x)


def tan(x: Expr) -> Expr:
    """Tangent. At most 3 ulp below 1.6e6, beyond as exact as that of the C library."""
    shifted = x * (2 / math.pi) + ROUND
    r, lost = _without(x, shifted - ROUND, 0.5)
    square = r * r
    half = square * 0.5
    sine = r + (polynomial(square, _SIN) * (square * r) + (lost - lost * half))
    whole = 1.0 - half
    cosine = whole + (((1.0 - whole) - half) + (polynomial(square, _COS) * (square * square) - r * lost))
    odd = make("ne", call("bitand", reinterpret(shifted, INT64), 1), 0)
    value = pick(odd, 0.0 - cosine, sine) / pick(odd, sine, cosine)
    return _or_beyond("tan", pick(make("eq", x, 0.0), x, value), _is_near(x), x)


def _log(x: Expr) -> tuple[Expr, Expr]:
    """Natural logarithm of numbers not below 0, as a value and what rounding it lost: about 64 good bits."""
    m, exponent = mantissa(x)
    f = m - 1.0
    below = f + 2.0
    s = f / below
    s_lost = (call("fma", 0.0 - s, below, f) - s * (f - (below - 2.0))) / below
    square, square_lost = _exact_product(s, s)
    square_lost = square_lost + s * s_lost * 2.0
    cube, cube_lost = _exact_product(s, square)
    cube_lost = cube_lost + (s * square_lost + s_lost * square)
    third, third_lost = _exact_product(cube, like(_TWO_THIRDS[0], x))
    third_lost = third_lost + (cube * _TWO_THIRDS[1] + cube_lost * _TWO_THIRDS[0])
    tail = polynomial(square, _LOG) * (square * cube)
    near, near_lost = _exact_sum(s * 2.0, third)
    value, lost = _exact_sum(exponent * LN2_HIGH, near)
    lost = lost + (near_lost + (s_lost * 2.0 + (third_lost + (tail + exponent * LN2_LOW))))
    value, lost = _exact_sum(value, lost)  # of a large power, what is lost must stay small too
    infinite = make("eq", x, math.inf)
    zero = make("eq", x, 0.0)
    value = pick(infinite, x, pick(zero, like(-math.inf, x), value))
    return value, pick(make("or", infinite, zero), like(0.0, x), lost)


def pow(x: Expr, y: Expr) -> Expr:
    """x^y with all the special cases of IEEE 754 pow. At most 2 ulp."""
    known = short_power(x, y)
    if known is not None:
        return known
    if known_exponent(y) == 3.0:
        return x * x * x
    value, lost = _log(call("abs", x))
    power = value * y
    inside = make("and", make("lt", power, _LARGEST_POWER), make("gt", power, _SMALLEST_POWER))
    more = call("fma", value, y, 0.0 - power) + lost * y
    r, n = parts(minimum(maximum(power, _SMALLEST_POWER), _LARGEST_POWER))
    r = r + pick(inside, more, like(0.0, x))
    return powers(x, y, call("ldexp", exp_of_parts(r), n), make("lt", reinterpret(x, INT64), 0))


def fmod(x: Expr, y: Expr) -> Expr:
    """x - trunc(x / y) * y, correctly rounded (exact)."""
    size, divisor = call("abs", x), call("abs", y)
    rest = call("fma", 0.0 - call("trunc", size / divisor), divisor, size)
    rest = pick(make("lt", rest, 0.0), rest + divisor, rest)
    rest = pick(make("ge", rest, divisor), rest - divisor, rest)
    # Where the divisor is infinite the quotient is 0, and 0 * inf is NaN: those remainders are the dividends.
    small = make("lt", size, divisor)
    value = call("copysign", pick(small, size, rest), x)
    usable = make("or", small, make("lt", size / divisor, _MAX_QUOTIENT))
    return _or_beyond("fmod", value, usable, x, y)


FUNCTIONS: Final[tuple[Function, ...]] = (sin, cos, tan, pow, fmod)
