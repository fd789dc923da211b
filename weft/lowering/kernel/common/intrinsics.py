"""Intrinsics → arithmetic: float32 functions are expanded here, so all back ends and vector widths share them."""

from __future__ import annotations

from dataclasses import replace

from weft.expr.nodes import Call, Const, Expr, cast
from weft.lowering.kernel.common.mathematics import EXPANSIONS
from weft.support.dtypes import FLOAT32, FLOAT64
from weft.tir.nodes import Program
from weft.tir.visit import map_expr, transform_expressions


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
