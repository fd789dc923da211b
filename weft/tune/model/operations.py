"""Arithmetic of a statement: operations by kind and by width of the vectors that they work on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from weft.expr.intrinsic_table import PLACES, POINTERS, ROOTS
from weft.expr.nodes import Binary, Call, Cast, Const, Expr, Load, Select, Shuffle, Var
from weft.expr.operators import DIVISIONS
from weft.expr.visit import outside_of_loads, post_order
from weft.support.dtypes import BOOL
from weft.target import Target
from weft.tir.nodes import Evaluate, Stmt, Store

KINDS: Final = (
    "float_add",
    "float_multiply",
    "float_multiply_add",
    "float_divide",
    "float_special",
    "float_compare",
    "integer",
    "integer_divide",
    "dot_product",
    "matrix_tile",
    "choose",
    "convert",
    "shuffle",
    "call",
)
"""Kinds of operations. ``float_divide`` are divisions and roots; ``float_special`` functions that are not expanded;
``float_compare`` comparisons, minima and maxima; ``matrix_tile`` multiply-adds of a matrix unit; ``call`` functions of
other languages."""
WIDTHS: Final = ("scalar", "narrow", "whole")
"""One number, a part of a vector register, whole registers (counted one by one)."""

_FLOATS: Final = {
    "add": "float_add",
    "sub": "float_add",
    "mul": "float_multiply",
    "div": "float_divide",
    "min": "float_compare",
    "max": "float_compare",
}
_CALLS: Final = {
    "fma": "float_multiply_add",
    "dot2": "dot_product",
    "dot4": "dot_product",
    "abs": "integer",
    "copysign": "integer",
    "reinterpret": "",
    "likely": "",
    "pack2": "shuffle",
    "pack4": "shuffle",
    "lookup16": "shuffle",
    "floor": "float_add",
    "ceil": "float_add",
    "round": "float_add",
    "trunc": "float_add",
    "ldexp": "float_multiply",
    "isnan": "float_compare",
    "isinf": "float_compare",
    **dict.fromkeys((*POINTERS, *PLACES), ""),
    **dict.fromkeys(ROOTS, "float_divide"),
    **dict.fromkeys(("bitand", "bitor", "bitxor", "bitnot", "shl", "shr", "popcount", "clz"), "integer"),
}
"""Intrinsics that are one or two instructions; those with an empty kind are none."""
_PART: Final = "part"
"""Of a multiplication that is a part of a multiply-add."""


def operations(s: Stmt, target: Target, in_tile: bool = False) -> dict[tuple[str, str], float]:
    """The operations of one run of ``s``, by kind and width. ``in_tile``: they are part of a product of matrix tiles.

    Equal expressions are computed once. A multiplication whose result an addition takes is one multiply-add.
    """
    found: dict[tuple[str, str], float] = {}
    roots = [e for e in (getattr(s, "value", None), getattr(s, "mask", None)) if e is not None]
    joined = _joined(roots) if target.cpu.fma else {}
    for e in (*outside_of_loads(*roots), *_in_addresses(s, roots)):
        kind = joined.get(e, None) or _kind(e, isinstance(s, Evaluate))
        if in_tile:
            kind = "matrix_tile" if kind in ("float_multiply_add", "float_multiply", "dot_product") else ""
        if kind and kind != _PART:
            width, count = _width(e, target)
            found[kind, width] = found.get((kind, width), 0.0) + count
    return found


def _joined(roots: list[Expr]) -> dict[Expr, str]:
    """Additions that are multiply-adds, and the multiplications in them."""
    found: dict[Expr, str] = {}
    for e in outside_of_loads(*roots):
        if isinstance(e, Binary) and e.op in ("add", "sub") and e.dtype.is_float:
            product = next((c for c in (e.a, e.b) if isinstance(c, Binary) and c.op == "mul" and c not in found), None)
            if product is not None:
                found[e], found[product] = "float_multiply_add", _PART
    return found


def _in_addresses(s: Stmt, roots: list[Expr]) -> Iterator[Expr]:
    """The divisions in addresses: sums and products of loop variables are steps of pointers and cost nothing."""
    places = [i for e in outside_of_loads(*roots) if isinstance(e, Load) for i in e.indices]
    places += s.indices if isinstance(s, Store) else ()
    for e in post_order(*places):
        if isinstance(e, Binary) and e.op in DIVISIONS:
            yield e


def _kind(e: Expr, evaluated: bool) -> str:
    """The kind of one operation; empty for what is none."""
    if isinstance(e, (Const, Var, Load)):
        return ""
    if isinstance(e, Binary):
        return _binary(e)
    if isinstance(e, Call):
        if e.name in _CALLS:
            return _CALLS[e.name]
        return "call" if evaluated or not e.dtype.is_float else "float_special"
    if isinstance(e, Cast):
        return "" if e.a.dtype.bits == e.dtype.bits and not (e.a.dtype.is_float or e.dtype.is_float) else "convert"
    if isinstance(e, Select):
        return "choose"
    return "shuffle" if isinstance(e, Shuffle) else ""


def _binary(e: Binary) -> str:
    dtype = e.a.dtype
    if dtype.is_float:
        return _FLOATS.get(e.op, "float_compare")
    if e.op in DIVISIONS:
        cheap = isinstance(e.b, Const) and e.b.value > 0 and int(e.b.value).bit_count() == 1
        return "integer" if cheap else "integer_divide"
    return "choose" if dtype is BOOL else "integer"


def _width(e: Expr, target: Target) -> tuple[str, float]:
    """The width of an operation, and how many instructions it is."""
    operand = e.a.dtype if isinstance(e, Binary) else e.dtype
    bits, whole = operand.bits * e.lanes, target.cpu.vector_bits
    if e.lanes == 1 or not whole:
        return "scalar", float(e.lanes)
    return ("narrow", 1.0) if bits < whole else ("whole", float(-(-bits // whole)))
