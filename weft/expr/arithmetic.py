"""Named arithmetic functions of the classic notation, and functions composed of others."""

from __future__ import annotations

import math

from weft.expr.intrinsics import abs as magnitude
from weft.expr.intrinsics import atan, exp, exp2, isnan, log2, sqrt
from weft.expr.intrinsics import round as nearbyint
from weft.expr.nodes import Const, Expr, ExprLike, cast, logical_not, make, maximum, minimum, promote, select, wrap
from weft.support.dtypes import FLOAT32
from weft.support.errors import UserError

__all__ = [
    "add",
    "atan2",
    "ceildiv",
    "div",
    "exp10",
    "floordiv",
    "floormod",
    "hypot",
    "indexdiv",
    "indexmod",
    "isfinite",
    "ldexp",
    "log10",
    "multiply",
    "nearbyint",
    "subtract",
    "truncdiv",
    "truncmod",
]


def add(a: ExprLike, b: ExprLike) -> Expr:
    """a + b"""
    return make("add", a, b)


def subtract(a: ExprLike, b: ExprLike) -> Expr:
    """a - b"""
    return make("sub", a, b)


def multiply(a: ExprLike, b: ExprLike) -> Expr:
    """a * b"""
    return make("mul", a, b)


def div(a: ExprLike, b: ExprLike) -> Expr:
    """a divided by b: integers round toward zero, as in C"""
    whole = not wrap(a).dtype.is_float and not wrap(b).dtype.is_float
    return make("truncdiv" if whole else "div", a, b)


def floordiv(a: ExprLike, b: ExprLike) -> Expr:
    """The largest integer not above a / b, as ``a // b``"""
    return make("floordiv", a, b)


def floormod(a: ExprLike, b: ExprLike) -> Expr:
    """a - floordiv(a, b) * b, as ``a % b``"""
    return make("floormod", a, b)


indexdiv, indexmod = floordiv, floormod


def truncdiv(a: ExprLike, b: ExprLike) -> Expr:
    """The integer part of a / b"""
    return make("truncdiv", a, b)


def truncmod(a: ExprLike, b: ExprLike) -> Expr:
    """a - truncdiv(a, b) * b: the sign is that of a"""
    return make("truncmod", a, b)


def ceildiv(a: ExprLike, b: ExprLike) -> Expr:
    """The smallest integer not below a / b, for positive b; of floats for any b"""
    x, y = promote(a, b)
    if x.dtype.is_float:
        return -make("floordiv", -x, y)
    return make("floordiv", make("sub", make("add", a, b), 1), b)


def isfinite(x: ExprLike) -> Expr:
    """Whether x is neither infinite nor not a number"""
    value = _real(x)
    return magnitude(value) < Const(math.inf, value.dtype)


def log10(x: ExprLike) -> Expr:
    """Logarithm to base 10"""
    value = _real(x)
    return log2(value) * Const(math.log10(2.0), value.dtype)


def exp10(x: ExprLike) -> Expr:
    """10 to the power x"""
    value = _real(x)
    return exp(value * Const(math.log(10.0), value.dtype))


def hypot(x: ExprLike, y: ExprLike) -> Expr:
    """sqrt(x² + y²), without overflow of intermediate results"""
    a, b = (magnitude(v) for v in promote(_real(x), _real(y)))
    large, small = maximum(a, b), minimum(a, b)
    ratio = select(large == 0, Const(0.0, large.dtype), small / large)
    known = logical_not(isnan(ratio))  # infinity / infinity
    return select(known, large * sqrt(ratio * ratio + 1.0), a + b)


def ldexp(x: ExprLike, power: ExprLike) -> Expr:
    """x times 2 to the power of an integer"""
    value = _real(x)
    if wrap(power).dtype.is_float:
        raise UserError("the power of ldexp is an integer", code="E022", hint="use x * te.exp2(y)")
    return value * exp2(cast(power, value.dtype))


def atan2(y: ExprLike, x: ExprLike) -> Expr:
    """The angle of the point (x, y), from -π to π; 0 for the origin"""
    a, b = promote(_real(y), _real(x))
    zero, quarter = Const(0.0, a.dtype), Const(math.pi / 2, a.dtype)
    upright = select(a == 0, zero, select(a > 0, quarter, -quarter))
    turn = select(a < 0, Const(-math.pi, a.dtype), Const(math.pi, a.dtype))
    slope = atan(a / select(b == 0, Const(1.0, a.dtype), b))
    return select(b == 0, upright, select(b < 0, slope + turn, slope))


def _real(x: ExprLike) -> Expr:
    value = wrap(x)
    return value if value.dtype.is_float else cast(value, FLOAT32)
