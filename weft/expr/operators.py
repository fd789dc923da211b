"""Operators on plain values: the table of binary operators, folding, neutral constants."""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from weft.support.dtypes import FLOAT32, INDEX, DType
from weft.support.errors import UserError

Scalar: TypeAlias = "int | float | bool"


@dataclass(frozen=True, slots=True)
class BinaryOp:
    """One binary operator: how it prints, its precedence and how to evaluate it.

    ``evaluate`` works on Python scalars and on NumPy arrays of one dtype alike.
    """

    name: str
    symbol: str
    precedence: int
    evaluate: Callable[[Any, Any], Any]
    commutative: bool = False
    compares: bool = False


def _truncdiv(a: Any, b: Any) -> Any:
    q = np.floor_divide(a, b)
    fix = (np.remainder(a, b) != 0) & ((np.asarray(a) < 0) != (np.asarray(b) < 0))
    return q + np.asarray(fix).astype(np.asarray(q).dtype)


BINARY: dict[str, BinaryOp] = {
    op.name: op
    for op in (
        BinaryOp("add", "+", 5, lambda a, b: a + b, commutative=True),
        BinaryOp("sub", "-", 5, lambda a, b: a - b),
        BinaryOp("mul", "*", 6, lambda a, b: a * b, commutative=True),
        BinaryOp("div", "/", 6, lambda a, b: np.true_divide(a, b)),
        BinaryOp("floordiv", "//", 6, lambda a, b: np.floor_divide(a, b)),
        BinaryOp("floormod", "%", 6, lambda a, b: np.mod(a, b)),
        BinaryOp("truncdiv", "truncdiv", 0, _truncdiv),
        BinaryOp("truncmod", "truncmod", 0, lambda a, b: np.fmod(a, b)),
        BinaryOp("min", "min", 0, lambda a, b: np.minimum(a, b), commutative=True),
        BinaryOp("max", "max", 0, lambda a, b: np.maximum(a, b), commutative=True),
        BinaryOp("lt", "<", 4, lambda a, b: a < b, compares=True),
        BinaryOp("le", "<=", 4, lambda a, b: a <= b, compares=True),
        BinaryOp("gt", ">", 4, lambda a, b: a > b, compares=True),
        BinaryOp("ge", ">=", 4, lambda a, b: a >= b, compares=True),
        BinaryOp("eq", "==", 3, lambda a, b: a == b, commutative=True, compares=True),
        BinaryOp("ne", "!=", 3, lambda a, b: a != b, commutative=True, compares=True),
        BinaryOp("and", "and", 2, np.logical_and, commutative=True),
        BinaryOp("or", "or", 1, np.logical_or, commutative=True),
    )
}

COMPARISONS: frozenset[str] = frozenset(name for name, op in BINARY.items() if op.compares)
DIVISIONS: frozenset[str] = frozenset(("floordiv", "floormod", "truncdiv", "truncmod"))
"""Divisions of integers."""
ARITHMETIC: frozenset[str] = DIVISIONS | {"add", "sub", "mul", "div"}
"""Operators of numbers, which conditions do not have."""


def normal_value(value: Any, dtype: DType) -> Scalar:
    """``value`` converted to ``dtype``: integers wrap, floats round, all NaN become the same NaN."""
    kind, bits = dtype.kind, dtype.bits
    if kind == "bool":
        return bool(value)
    if kind == "float":
        number = float(value)
        if number != number:
            return math.nan
        if bits == 32 and -1e38 < number < 1e38:
            return float(np.float32(number))
        if bits < 64 and math.isfinite(number):
            with np.errstate(over="ignore"):
                return float(np.asarray(number).astype(dtype.numpy))
        return number
    if value != value or value in (math.inf, -math.inf):
        raise UserError(
            f"{value} is no {dtype}", code="E005", hint="a constant of a float dtype can be infinite or NaN"
        )
    whole = int(value)
    half = 1 << (bits - 1)
    if kind == "int":
        return whole if -half <= whole < half else ((whole + half) & ((half << 1) - 1)) - half
    return whole & ((half << 1) - 1)


def join(a: DType, b: DType) -> DType:
    """The common dtype of operands of dtypes ``a`` and ``b``."""
    rank = {"bool": 0, "uint": 1, "int": 1, "float": 2}
    if rank[a.kind] != rank[b.kind]:
        return a if rank[a.kind] > rank[b.kind] else b
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    if a.kind != b.kind:
        return a if a.kind == "int" else b
    return FLOAT32  # float16 with bfloat16


_INTEGER_FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "min": min,
    "max": max,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


def fold_values(op: str, dtype: DType, x: Any, y: Any) -> Scalar | None:
    """``x op y`` on values of ``dtype`` (not yet wrapped into its range), or None if that is not defined."""
    if dtype is INDEX and op in _INTEGER_FOLDS:
        made: Scalar = _INTEGER_FOLDS[op](x, y)
        return made
    entry = BINARY[op]
    if dtype.kind == "float" and op not in ("and", "or"):
        kind: Any = np.float64 if dtype.bits == 64 else np.float32
        with np.errstate(all="ignore"):
            value = entry.evaluate(kind(x), kind(y))
        return bool(value) if entry.compares else float(value)
    if op == "div" or (op in _DIVISIONS and not y):
        return None
    if op in _DIVISIONS:
        return _DIVISIONS[op](int(x), int(y))
    if op in _INTEGER_FOLDS:
        made = _INTEGER_FOLDS[op](int(x), int(y))
        return made
    result: Scalar = entry.evaluate(int(x), int(y))
    return result


_DIVISIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "truncdiv": lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1),
    "truncmod": lambda x, y: abs(x) % abs(y) * (-1 if x < 0 else 1),
}


class Effect(enum.Enum):
    """The result of an operation with a neutral constant: the other operand, the constant, or zero."""

    NEUTRAL = enum.auto()
    ABSORBS = enum.auto()
    ZERO = enum.auto()


def effect_of_constant(op: str, dtype: DType, value: Scalar, *, right: bool) -> Effect | None:
    """The effect of the constant ``value`` as an operand of ``op`` (integers and bools), if it has a trivial one."""
    if dtype.kind == "float":
        return None
    if op in ("and", "or"):
        return Effect.NEUTRAL if bool(value) == (op == "and") else Effect.ABSORBS
    if value == 0:
        if op == "add" or (op == "sub" and right):
            return Effect.NEUTRAL
        return Effect.ABSORBS if op == "mul" else None
    if value == 1:
        if op == "mul" or (op == "floordiv" and right):
            return Effect.NEUTRAL
        return Effect.ZERO if op == "floormod" and right else None
    return None
