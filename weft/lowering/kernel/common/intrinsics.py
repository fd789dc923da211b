"""Intrinsics → arithmetic: transcendental functions are expanded here, for all back ends and vector widths alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from weft.expr.intrinsics import call
from weft.expr.nodes import Call, Cast, Expr, make
from weft.lowering.kernel.common import compensated, significands, tables
from weft.lowering.kernel.common import function_forms as forms
from weft.lowering.kernel.common import inverse_functions as inverse
from weft.lowering.kernel.common import mathematics as plain
from weft.lowering.kernel.common import wide_mathematics as wide
from weft.lowering.kernel.common.bits import is_half
from weft.lowering.kernel.common.passes import Lowered
from weft.support.dtypes import FLOAT16, FLOAT32, FLOAT64, DType
from weft.target import Target
from weft.tir.nodes import Stmt, Store
from weft.tir.visit import map_expr, transform, transform_expressions

_EXPONENTIAL = (plain.exp, plain.exp_nonpositive, plain.exp2, plain.expm1, plain.log, plain.log2, plain.log1p)
_POWERS = (plain.pow, plain.rsqrt)
_CURVES = (plain.tanh, plain.sigmoid, plain.erf, plain.sin, plain.cos, plain.tan, inverse.sinh, inverse.cosh)
_INVERSE = (inverse.asin, inverse.acos, inverse.atan, inverse.asinh, inverse.acosh, inverse.atanh, inverse.fmod)
EXPANSIONS: Final[dict[str, forms.Function]] = {f.__name__: f for f in (*_EXPONENTIAL, *_POWERS, *_CURVES, *_INVERSE)}
"""The expansions of float32 intrinsics. Other intrinsics are machine instructions or C library calls."""
WIDE_EXPANSIONS: Final[dict[str, forms.Function]] = {f.__name__: f for f in (*wide.FUNCTIONS, *compensated.FUNCTIONS)}
"""The expansions of float64 intrinsics."""
_BY_DTYPE: Final[dict[DType, dict[str, forms.Function]]] = {FLOAT32: EXPANSIONS, FLOAT64: WIDE_EXPANSIONS}
SHORT_EXPANSIONS: Final[dict[str, forms.Function]] = {"erf": plain.short_erf, "tanh": plain.short_tanh}
"""The expansions of float32 intrinsics whose results are stored with 16 bits."""
_WITH_INSTRUCTIONS: Final[dict[DType, dict[str, forms.Function]]] = {
    FLOAT32: {
        **significands.LOGARITHMS,
        "exp_nonpositive": plain.exp_nonpositive_by_scaling,
        "sigmoid": plain.sigmoid_by_scaling,
    },
    FLOAT64: tables.TABLES,
}
"""Expansions that take the place of these where a target looks up numbers in registers and takes numbers apart."""


def lower_intrinsics(state: Lowered) -> Lowered:
    """The program with the transcendental functions expanded."""
    memo: dict[Expr, Expr] = {}
    of_halves: dict[Expr, Expr] = {}
    has_instructions = _has_instructions(state.target)

    def change(e: Expr) -> Expr | None:
        return expand(e, has_instructions)

    def shorten(s: Stmt) -> Stmt | None:
        if not isinstance(s, Store) or not is_half(s.buffer.dtype):
            return None
        made = map_expr(s.value, _short, of_halves)
        return None if made is s.value else replace(s, value=made)

    body = transform(state.program.body, shorten)
    body = transform_expressions(body, lambda e: map_expr(e, change, memo))
    return state.with_program(replace(state.program, body=body))


def _short(e: Expr) -> Expr | None:
    """The expansion of a call that a value of 16 bits is computed from, or None if it is that of all others."""
    if not isinstance(e, Call) or e.dtype != FLOAT32 or e.name not in SHORT_EXPANSIONS:
        return None
    return SHORT_EXPANSIONS[e.name](*e.args)


def _has_instructions(target: Target) -> bool:
    """Whether the code generator has the instructions of AVX-512 for tables, significands and exponents."""
    return target.kind.name == "llvm" and target.cpu.has("avx512f")


def expand(e: Expr, has_instructions: bool) -> Expr | None:
    """The expansion of one call, or None if it has none."""
    if not isinstance(e, Call):
        return None
    if e.name == "lookup16":
        return None if has_instructions and tables.table_of(e) else tables.chosen(*e.args)
    if e.name in significands.WRITTEN_OUT:
        return None if has_instructions else significands.WRITTEN_OUT[e.name](*e.args)
    if has_instructions and e.name in _WITH_INSTRUCTIONS.get(e.dtype, {}):
        return _WITH_INSTRUCTIONS[e.dtype][e.name](*e.args)
    if e.name in _WHOLE and isinstance(e.args[0], Cast) and e.args[0].a.dtype == FLOAT16 and e.dtype == FLOAT32:
        return _whole_half(e.name, e.args[0])
    made = _BY_DTYPE.get(e.dtype, {}).get(e.name)
    return None if made is None else made(*e.args)


_WHOLE: Final = ("floor", "ceil", "round", "trunc")


def _whole_half(name: str, x: Expr) -> Expr:
    """A float16 number that was widened, rounded to a whole one. LLVM would narrow the instruction of float32 to one of
    float16, which few machines have, and compute that element by element."""
    size = call("abs", x)
    near = (size + 2.0**23) - 2.0**23
    if name == "round":
        return call("copysign", near, x)
    if name == "trunc":
        return call("copysign", near - _one_where(make("gt", near, size)), x)
    nearest = call("copysign", near, x)
    if name == "floor":
        return call("copysign", nearest - _one_where(make("gt", nearest, x)), x)
    return call("copysign", nearest + _one_where(make("lt", nearest, x)), x)


def _one_where(condition: Expr) -> Expr:
    return forms.pick(condition, forms.like(1.0, condition, FLOAT32), forms.like(0.0, condition, FLOAT32))
