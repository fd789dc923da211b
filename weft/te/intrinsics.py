"""Scalar functions in tensor expressions. Integer arguments of real functions become float32."""

from __future__ import annotations

from weft.expr.nodes import Call, Expr, ExprLike, cast, promote, wrap
from weft.support.dtypes import BOOL, FLOAT32


def _real(name: str, x: ExprLike) -> Expr:
    value = wrap(x)
    if not value.dtype.is_float:
        value = cast(value, FLOAT32)
    return Call(name, (value,), value.dtype)


def exp(x: ExprLike) -> Expr:
    return _real("exp", x)


def exp2(x: ExprLike) -> Expr:
    return _real("exp2", x)


def expm1(x: ExprLike) -> Expr:
    return _real("expm1", x)


def log(x: ExprLike) -> Expr:
    return _real("log", x)


def log2(x: ExprLike) -> Expr:
    return _real("log2", x)


def log1p(x: ExprLike) -> Expr:
    return _real("log1p", x)


def sqrt(x: ExprLike) -> Expr:
    return _real("sqrt", x)


def rsqrt(x: ExprLike) -> Expr:
    return _real("rsqrt", x)


def tanh(x: ExprLike) -> Expr:
    return _real("tanh", x)


def sigmoid(x: ExprLike) -> Expr:
    return _real("sigmoid", x)


def erf(x: ExprLike) -> Expr:
    return _real("erf", x)


def sin(x: ExprLike) -> Expr:
    return _real("sin", x)


def cos(x: ExprLike) -> Expr:
    return _real("cos", x)


def _rounding(name: str, x: ExprLike) -> Expr:
    value = wrap(x)
    return Call(name, (value,), value.dtype) if value.dtype.is_float else value


def floor(x: ExprLike) -> Expr:
    """Toward minus infinity; integers stay as they are."""
    return _rounding("floor", x)


def ceil(x: ExprLike) -> Expr:
    """Toward plus infinity; integers stay as they are."""
    return _rounding("ceil", x)


def trunc(x: ExprLike) -> Expr:
    """Toward zero; integers stay as they are."""
    return _rounding("trunc", x)


def round(x: ExprLike) -> Expr:
    """To the nearest integer, halves to even; integers stay as they are."""
    return _rounding("round", x)


def abs(x: ExprLike) -> Expr:
    """The magnitude, in the dtype of ``x``."""
    value = wrap(x)
    return value if value.dtype.kind in ("uint", "bool") else Call("abs", (value,), value.dtype)


def power(x: ExprLike, y: ExprLike) -> Expr:
    """``x`` to the power ``y``, real."""
    a, b = promote(x, y)
    if not a.dtype.is_float:
        a, b = cast(a, FLOAT32), cast(b, FLOAT32)
    return Call("pow", (a, b), a.dtype)


def isnan(x: ExprLike) -> Expr:
    """Whether ``x`` is not a number, as bool."""
    return Call("isnan", (_as_real(x),), BOOL)


def isinf(x: ExprLike) -> Expr:
    """Whether ``x`` is an infinity, as bool."""
    return Call("isinf", (_as_real(x),), BOOL)


def _as_real(x: ExprLike) -> Expr:
    value = wrap(x)
    return value if value.dtype.is_float else cast(value, FLOAT32)
