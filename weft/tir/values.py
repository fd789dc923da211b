"""Scalars of the interpreter: Python int for INDEX, Python bool for bool, NumPy scalars for all other dtypes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from weft.expr.added import find
from weft.expr.intrinsics import Intrinsic
from weft.expr.nodes import BINARY
from weft.support.dtypes import BOOL, INDEX, DType
from weft.support.errors import ProgramError

_TOP = 1 << 63
_FULL = 1 << 64


def wrap64(value: Any) -> int:
    """``value`` as a 64-bit integer, wrapped around."""
    made = int(value)
    return made if -_TOP <= made < _TOP else (made + _TOP) % _FULL - _TOP


def scalar(value: Any, dtype: DType) -> Any:
    """``value`` (in range) as a scalar of ``dtype``."""
    if dtype == INDEX:
        return int(value)
    if dtype == BOOL:
        return bool(value)
    return np.asarray(value).astype(dtype.numpy)[()]


def to_list(array: np.ndarray[Any, Any], dtype: DType) -> list[Any]:
    """The elements of ``array`` in row-major order as scalars of ``dtype``."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.tolist() if dtype in (INDEX, BOOL) else list(flat)


def _checked_division(op: str) -> Callable[[Any, Any], Any]:
    evaluate = BINARY[op].evaluate

    def divide(a: Any, b: Any) -> Any:
        if b == 0:
            raise ZeroDivisionError
        return evaluate(a, b)

    return divide


@cache
def binary(op: str, dtype: DType) -> Callable[[Any, Any], Any]:
    """The function ``a op b`` on scalars of ``dtype``. Integer division by zero raises ZeroDivisionError."""
    if dtype.is_float:
        evaluate = BINARY[op].evaluate
        kind = dtype.numpy.type
        return lambda a, b: kind(evaluate(a, b))
    divide = _checked_division(op)
    if dtype == INDEX:
        return {
            "floordiv": lambda a, b: a // b,
            "floormod": lambda a, b: a % b,
            "truncdiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
            "truncmod": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
        }[op]
    return lambda a, b: np.asarray(divide(a, b)).astype(dtype.numpy)[()]


def _wrap_to(dtype: DType) -> Callable[[Any], Any]:
    size, half = 1 << dtype.bits, (1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    kind = dtype.numpy.type
    return lambda x: kind((int(x) + half) % size - half)


def _from_float(dtype: DType) -> Callable[[Any], Any]:
    """Truncation. The result for NaN and values out of range is undefined; here it is the smallest value."""
    low, high = dtype.limits()
    made = wrap64 if dtype == INDEX else _wrap_to(dtype)

    def convert(x: Any) -> Any:
        value = float(x)
        return made(int(value) if low - 1 < value < high + 1 else low)

    return convert


@cache
def caster(source: DType, to: DType) -> Callable[[Any], Any]:
    """The function that converts a scalar of ``source`` to ``to``."""
    if to == BOOL:
        return lambda x: bool(x != 0)
    if to.is_float:
        kind = to.numpy.type
        if to.bits >= 32:
            return kind
        if source.is_float and source.bits <= 32:
            return lambda x: kind(x)
        return lambda x: np.asarray(x).astype(to.numpy)[()]
    if source.is_float:
        return _from_float(to)
    return wrap64 if to == INDEX else _wrap_to(to)


def intrinsic(name: str, dtype: DType) -> Callable[..., Any]:
    """The intrinsic ``name`` with a result of ``dtype``."""
    row = find(name)
    if row is None:
        raise ProgramError(f"the interpreter does not know the intrinsic '{name}'", code="V901")
    return _meaning(row, dtype)


@cache
def _meaning(row: Intrinsic, dtype: DType) -> Callable[..., Any]:
    evaluate = row.evaluate
    if row.name == "reinterpret":
        return lambda x: scalar(evaluate(x, dtype), dtype)
    if dtype == BOOL:
        return lambda *args: bool(evaluate(*args))
    if dtype == INDEX:
        return lambda *args: int(evaluate(*(np.int64(a) for a in args)))
    if dtype.is_float:
        kind = dtype.numpy.type
        return lambda *args: kind(evaluate(*args))
    return lambda *args: np.asarray(evaluate(*args)).astype(dtype.numpy)[()]
