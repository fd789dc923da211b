"""Intrinsics → arithmetic: float32 functions are expanded here, so all back ends and vector widths share them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from weft.expr.nodes import Call, Const, Expr, cast
from weft.lowering.kernel.common import inverse_functions as inverse
from weft.lowering.kernel.common import mathematics as plain
from weft.support.dtypes import FLOAT32, FLOAT64
from weft.tir.nodes import Program
from weft.tir.visit import map_expr, transform_expressions

_EXPONENTIAL = (plain.exp, plain.exp2, plain.expm1, plain.log, plain.log2, plain.log1p, plain.pow, plain.rsqrt)
_CURVES = (plain.tanh, plain.sigmoid, plain.erf, plain.sin, plain.cos, plain.tan, inverse.sinh, inverse.cosh)
_INVERSE = (inverse.asin, inverse.acos, inverse.atan, inverse.asinh, inverse.acosh, inverse.atanh, inverse.fmod)
EXPANSIONS: Final[dict[str, plain.Function]] = {f.__name__: f for f in (*_EXPONENTIAL, *_CURVES, *_INVERSE)}
"""The expansions of float32 intrinsics. Other intrinsics are machine instructions or C library calls."""


def lower_intrinsics(program: Program) -> Program:
    """The program with the transcendental functions of float32 expanded; those of float64 stay calls."""
    memo: dict[Expr, Expr] = {}
    return replace(program, body=transform_expressions(program.body, lambda e: map_expr(e, expand, memo)))


def expand(e: Expr) -> Expr | None:
    """The expansion of one call, or None if it has none."""
    if not isinstance(e, Call):
        return None
    if e.name in EXPANSIONS and e.dtype == FLOAT32:
        return EXPANSIONS[e.name](*e.args)
    if e.name == "sigmoid" and e.dtype == FLOAT64:
        return cast(1.0, FLOAT64) / (Call("exp", (cast(0.0, FLOAT64) - e.args[0],), FLOAT64) + Const(1.0, FLOAT64))
    return None
