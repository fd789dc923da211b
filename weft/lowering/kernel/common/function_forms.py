"""Pieces that the expansions of float32 and float64 functions share; coefficients and other functions are arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from weft.expr.intrinsics import call
from weft.expr.nodes import Broadcast, Const, Expr, Select, make
from weft.support.dtypes import DType

Function: TypeAlias = "Callable[..., Expr]"
Coefficients: TypeAlias = "Sequence[float] | Sequence[Expr]"

_PI_HALVES: Final = math.pi / 2


def like(value: float, x: Expr, dtype: DType | None = None) -> Expr:
    """A constant with as many lanes as ``x``."""
    made = Const(value, dtype or x.dtype)
    return made if x.lanes == 1 else Broadcast(made, x.lanes)


def polynomial(x: Expr, coefficients: Coefficients) -> Expr:
    """Horner's scheme, highest power first."""
    first = coefficients[0]
    out = first if isinstance(first, Expr) else like(first, x)
    for c in coefficients[1:]:
        out = out * x + c
    return out


def polynomial_in_halves(x: Expr, coefficients: Coefficients, lowest: int = 2) -> Expr:
    """As ``polynomial``, with two chains of steps that do not wait for each other: the even and the odd powers of all
    but the ``lowest`` terms, which decide the rounding, are summed apart.

    For functions that are one chain from their argument to their result: a processor looks only so many instructions
    ahead for others. It costs two more.
    """
    high, low = coefficients[:-lowest], coefficients[-lowest:]
    square, last = x * x, len(high) % 2
    even, odd_powers = (polynomial(square, high[n::2]) for n in (1 - last, last))
    out = odd_powers * x + even
    for c in low:
        out = out * x + c
    return out


def pick(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """A choice for which both sides are computed; neither side reads memory."""
    return Select(condition, then, otherwise)


def unless_zero(x: Expr, limit: float, power: Callable[[Expr], Expr]) -> Expr:
    """``power(x)``, or exactly 0 where ``x`` is below ``limit``. Nothing is computed there that underflows, even if the
    result is 0: it takes a processor many times as long, and attention has millions of scores that a mask made -inf."""
    zero, vanishes = like(0.0, x), make("lt", x, like(limit, x))
    return pick(vanishes, zero, power(pick(vanishes, zero, x)))


def log_edges(x: Expr, inside: Expr) -> Expr:
    """Zero → -inf, negative → NaN, infinity and NaN → themselves."""
    out = pick(make("lt", x, math.inf), inside, x)
    out = pick(make("lt", x, 0.0), like(math.nan, x), out)
    return pick(make("eq", x, 0.0), like(-math.inf, x), out)


def corrected_log1p(x: Expr, lost: Expr, log: Function) -> Expr:
    """log(1 + x), where rounding 1 + x has ``lost`` so much."""
    u = x + 1.0
    ordinary = call("abs", u)
    usable = make("and", make("lt", ordinary, math.inf), make("gt", ordinary, 0.0))
    fixed = log(u) + pick(usable, lost / u, like(0.0, x))
    return pick(make("eq", x, 0.0), x, fixed)


def odd(x: Expr, coefficients: Sequence[float]) -> Expr:
    """x + x^3 * p(x^2)."""
    square = x * x
    return polynomial(square, coefficients) * square * x + x


def _half_asin(size: Expr, coefficients: Sequence[float]) -> Expr:
    """asin(sqrt((1 - size) / 2)), half of acos(size), for ``size`` in [1/2, 1]; NaN above 1."""
    return odd(call("sqrt", (1.0 - size) * 0.5), coefficients)


def asin(x: Expr, coefficients: Sequence[float], pi_halves_low: float) -> Expr:
    """Inverse sine, from ``odd`` on [0, 1/2]; ``pi_halves_low`` is what pi / 2 loses by rounding."""
    size = call("abs", x)
    far = _PI_HALVES - (_half_asin(size, coefficients) * 2.0 - pi_halves_low)
    return call("copysign", pick(make("gt", size, 0.5), far, odd(size, coefficients)), x)


def acos(x: Expr, coefficients: Sequence[float], pi_halves_low: float) -> Expr:
    """Inverse cosine, as ``asin``."""
    size = call("abs", x)
    near = _PI_HALVES - (odd(x, coefficients) - pi_halves_low)
    far = _half_asin(size, coefficients) * 2.0
    return pick(make("gt", size, 0.5), pick(make("lt", x, 0.0), math.pi - (far - 2 * pi_halves_low), far), near)


def cosh(x: Expr, half_exp: Function) -> Expr:
    """Hyperbolic cosine; ``half_exp(size)`` is e^size / 2."""
    half = half_exp(call("abs", x))
    return pick(call("isnan", x), x, half + 0.25 / half)


def asinh_of_size(size: Expr, log1p: Function, logarithm_from: float) -> Expr:
    """Inverse hyperbolic sine of numbers not below 0; from ``logarithm_from`` on it is log(size) + log(2), since the
    square may overflow."""
    large = make("gt", size, logarithm_from)
    square = size * size
    made = log1p(pick(large, size, size + square / (call("sqrt", square + 1.0) + 1.0)))
    return made + pick(large, like(math.log(2), size), like(0.0, size))


def acosh(x: Expr, log1p: Function, logarithm_from: float) -> Expr:
    """Inverse hyperbolic cosine; from ``logarithm_from`` on it is log(x) + log(2)."""
    above = x - 1.0
    large = make("gt", x, logarithm_from)
    made = log1p(pick(large, x, above + call("sqrt", above * 2.0 + above * above)))
    made = made + pick(large, like(math.log(2), x), like(0.0, x))
    return pick(make("lt", x, 1.0), like(math.nan, x), made)


def known_exponent(y: Expr) -> float | None:
    """The number that ``y`` is in all lanes, or None."""
    one = y.value if isinstance(y, Broadcast) else y
    return float(one.value) if isinstance(one, Const) else None


def short_power(x: Expr, y: Expr) -> Expr | None:
    """x^y correctly rounded, for exponents that need one operation and no table of special cases; None for others."""
    exponent = known_exponent(y)
    if exponent == 0.0:
        return like(1.0, x)
    if exponent == 1.0:
        return x
    if exponent == 2.0:
        return x * x
    if exponent == -1.0:
        return 1.0 / x
    if exponent == 0.5:  # the powers of the negative infinity and zero are positive, their roots are not
        return pick(make("eq", x, -math.inf), like(math.inf, x), call("sqrt", x + 0.0))
    return None


def powers(x: Expr, y: Expr, value: Expr, negative: Expr) -> Expr:
    """x^y with all the special cases of IEEE 754 pow, where ``value`` is |x|^y and ``negative`` says whether the sign
    of ``x`` is set."""
    value = pick(make("or", make("eq", call("abs", x), 1.0), make("eq", y, 0.0)), like(1.0, x), value)
    whole = make("eq", call("floor", y), y)
    half = y * 0.5
    odd = make("and", whole, make("ne", call("floor", half), half))
    signed = pick(make("and", negative, odd), call("copysign", value, -1.0), value)
    finite_negative = make("and", make("lt", x, 0.0), make("gt", x, -math.inf))
    undefined = make("and", finite_negative, make("ne", call("floor", y), y))
    signed = pick(undefined, like(math.nan, x), signed)
    signed = pick(make("or", call("isnan", x), call("isnan", y)), x + y, signed)
    one = make("or", make("eq", x, 1.0), make("eq", y, 0.0))
    return pick(one, like(1.0, x), signed)
