"""Builders of intrinsic calls: ``intrin.exp(x)``. :mod:`weft.expr.intrinsic_table` defines their meaning."""

from __future__ import annotations

from collections.abc import Callable

from weft.expr.added import added, find, is_foreign
from weft.expr.intrinsic_table import INTRINSICS as INTRINSICS
from weft.expr.intrinsic_table import LOGICAL
from weft.expr.intrinsic_table import Intrinsic as Intrinsic
from weft.expr.intrinsic_table import result_dtype as result_dtype
from weft.expr.nodes import Broadcast, Call, Expr, ExprLike, cast, make_bits, promote, wrap
from weft.support.dtypes import BOOL, FLOAT32, DType
from weft.support.errors import UserError
from weft.support.words import did_you_mean


def call(name: str, *args: ExprLike, dtype: str | None = None) -> Expr:
    """A call of the intrinsic ``name``, with arguments converted to one dtype and number of lanes.

    Intrinsics of plugins may be called while a model is compiled with these plugins, and inside of
    ``with weft.plugins.using(…)``. Raises UserError if there is no such intrinsic or the arguments do not fit.
    """
    row = find(name) if isinstance(name, str) and not is_foreign(name) else None
    if row is None:
        raise UserError(
            f"there is no intrinsic '{name}'",
            code="E020",
            hint=did_you_mean(
                name,
                (*INTRINSICS, *added()),
                f"one of {', '.join((*INTRINSICS, *added()))}; those of a plugin need plugins=[…]",
            ),
        )
    if len(args) != row.arity:
        raise UserError(f"'{name}' takes {row.arity} arguments, not {len(args)}", code="E021")
    made = [wrap(a) for a in args]
    for i in range(1, len(made)):
        made[0], made[i] = promote(made[0], args[i] if made[0].dtype != made[i].dtype else made[i])
    if len(made) > 2:
        made = [promote(made[0], a)[1] for a in made]
    if row.accepts == "float" and not made[0].dtype.is_float:
        made = [cast(a, FLOAT32) for a in made]
    if made[0].dtype == BOOL and name in LOGICAL:
        return make_bits(name, *made)
    if made[0].dtype == BOOL and row.accepts in ("integer", "number"):
        raise UserError(f"'{name}' takes numbers, not conditions", code="E022", hint="cast them to a number")
    if row.accepts == "integer" and not made[0].dtype.is_integer:
        raise UserError(f"'{name}' takes integers, not {made[0].dtype}", code="E022")
    if dtype is None:
        if row.result is None:
            raise UserError(f"a call of '{name}' must say its dtype", code="E023")
        dtype = _result(row, [a.dtype for a in made])
    return Call(name, tuple(made), DType(dtype))


def _result(row: Intrinsic, dtypes: list[DType]) -> DType:
    assert row.result is not None
    made = row.result(dtypes)
    try:
        return DType(made)
    except UserError as error:
        raise UserError(
            f"'result' of the intrinsic '{row.name}' gives {made!r} for {', '.join(dtypes)}, which is no dtype",
            code="E025",
            hint=error.hint,
        ) from error


def _unary(name: str) -> Callable[[ExprLike], Expr]:
    def build(x: ExprLike) -> Expr:
        return call(name, x)

    build.__name__, build.__doc__ = name, INTRINSICS[name].doc
    return build


def _binary(name: str) -> Callable[[ExprLike, ExprLike], Expr]:
    def build(x: ExprLike, y: ExprLike) -> Expr:
        return call(name, x, y)

    build.__name__, build.__doc__ = name, INTRINSICS[name].doc
    return build


exp_nonpositive = _unary("exp_nonpositive")
exp, exp2, expm1 = _unary("exp"), _unary("exp2"), _unary("expm1")
log, log2, log1p = _unary("log"), _unary("log2"), _unary("log1p")
sqrt, rsqrt = _unary("sqrt"), _unary("rsqrt")
tanh, sigmoid, erf = _unary("tanh"), _unary("sigmoid"), _unary("erf")
sin, cos, tan = _unary("sin"), _unary("cos"), _unary("tan")
asin, acos, atan = _unary("asin"), _unary("acos"), _unary("atan")
sinh, cosh = _unary("sinh"), _unary("cosh")
asinh, acosh, atanh = _unary("asinh"), _unary("acosh"), _unary("atanh")
floor, ceil, round, trunc = _unary("floor"), _unary("ceil"), _unary("round"), _unary("trunc")
abs = _unary("abs")
isnan, isinf = _unary("isnan"), _unary("isinf")
pow, fmod, copysign = _binary("pow"), _binary("fmod"), _binary("copysign")
ldexp = _binary("ldexp")
significand, exponent = _unary("significand"), _unary("exponent")
sin_beyond, cos_beyond, tan_beyond = _binary("sin_beyond"), _binary("cos_beyond"), _binary("tan_beyond")
bitand, bitor, bitxor = _binary("bitand"), _binary("bitor"), _binary("bitxor")
bitnot, popcount, clz = _unary("bitnot"), _unary("popcount"), _unary("clz")
shl, shr = _binary("shl"), _binary("shr")
likely = _unary("likely")
prefetch, prefetch_l2 = _unary("prefetch"), _unary("prefetch_l2")
offset_of, require = _unary("offset_of"), _unary("require")
apart = _binary("apart")
pointer_r, pointer_w, pointer_rw = map(_binary, ("pointer_r", "pointer_w", "pointer_rw"))


def fma(x: ExprLike, y: ExprLike, z: ExprLike) -> Expr:
    """x * y + z, rounded once"""
    return call("fma", x, y, z)


def fmod_beyond(near: ExprLike, x: ExprLike, y: ExprLike) -> Expr:
    """``near``, but fmod(x, y) where that is NaN"""
    return call("fmod_beyond", near, x, y)


def reinterpret(x: ExprLike, dtype: str) -> Expr:
    """The bits of ``x`` as a value of ``dtype``, which has the same width."""
    made = wrap(x)
    if made.dtype.nbytes != DType(dtype).nbytes:
        raise UserError(f"cannot reinterpret {made.dtype} as {dtype}: the widths differ", code="E024")
    return call("reinterpret", made, dtype=dtype)


def pack4(a: ExprLike, b: ExprLike, c: ExprLike, d: ExprLike) -> Expr:
    """Four 8-bit integers as one of 32 bits; the first is in the lowest bits."""
    return call("pack4", a, b, c, d)


def dot4(total: ExprLike, x: ExprLike, y: ExprLike) -> Expr:
    """``total`` + the products of the four unsigned bytes of ``x`` and the signed ones of ``y``, all of int32."""
    return call("dot4", total, x, y)


def pack2(a: ExprLike, b: ExprLike) -> Expr:
    """Two bfloat16 numbers in one int32, the first in the low half."""
    return call("pack2", a, b)


def dot2(total: ExprLike, x: ExprLike, y: ExprLike) -> Expr:
    """``total`` plus the two products of the bfloat16 halves of ``x`` and ``y``; ``total`` is float32."""
    return call("dot2", total, x, y)


def lookup16(x: ExprLike, *numbers: ExprLike) -> Expr:
    """That one of 16 ``numbers``, of one dtype, whose place the last four bits of the integer ``x`` give."""
    place, listed = wrap(x), [wrap(n) for n in numbers]
    wide = [n if n.lanes == place.lanes else Broadcast(n, place.lanes) for n in listed]
    return Call("lookup16", (place, *wide), listed[0].dtype)
