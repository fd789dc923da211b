"""The value of an expression, given values of its variables: the exact meaning stated in :mod:`weft.expr.nodes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft.expr.added import find
from weft.expr.nodes import (
    BINARY,
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Shuffle,
    Source,
    Var,
)
from weft.expr.operators import DIVISIONS
from weft.support.dtypes import DType
from weft.support.errors import InternalError, UserError

Read: TypeAlias = Callable[[Source, Sequence[Any], Any], Any]
"""Reads elements: source, index values (scalars or arrays with one entry per lane), mask value or None."""


def convert(value: Any, dtype: DType) -> Any:
    """``value`` in ``dtype``: integers wrap, floats round to nearest even, float to integer truncates."""
    array = np.asarray(value)
    to = dtype.numpy
    with np.errstate(all="ignore"):
        if array.dtype.kind in "Vf" and array.dtype.itemsize == 1:
            array = array.astype(np.float32)  # exact, and not every pair of narrow types has a conversion
        if dtype.is_integer and dtype.bits < 8:
            array = _wrap(array.astype(np.int64), dtype)
        return array.astype(to)[()]


def _wrap(array: Any, dtype: DType) -> Any:
    low = array & ((1 << dtype.bits) - 1)
    return np.where(low >> (dtype.bits - 1) > 0, low - (1 << dtype.bits), low) if dtype.kind == "int" else low


def evaluate(e: Expr, values: Mapping[Any, Any] | None = None, read: Read | None = None) -> Any:
    """The value of ``e`` as a NumPy scalar, or an array with one entry per lane.

    ``values`` maps variables (and optionally other sub-expressions) to scalars; ``read`` performs loads. Only the
    selected operand of a select is evaluated. Raises UserError for an unbound variable or a division of integers by
    zero.
    """
    done: dict[Expr, Any] = {key: convert(value, key.dtype) for key, value in (values or {}).items()}
    _run(e, done, read)
    return done[e]


def evaluate_all(roots: Sequence[Expr], values: Mapping[Any, Any]) -> list[Any]:
    """The values of several expressions, as :func:`evaluate` has them; what they share is computed once. If ``values``
    are arrays, one entry for each case, so are the results of what depends on them."""
    done: dict[Expr, Any] = {key: convert(value, key.dtype) for key, value in values.items()}
    for e in roots:
        _run(e, done, None)
    return [done[e] for e in roots]


def _run(e: Expr, done: dict[Expr, Any], read: Read | None) -> None:
    stack = [e]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if type(node) is Select and node.condition in done and np.ndim(done[node.condition]) == 0:
            needed: tuple[Expr, ...] = (node.then if done[node.condition] else node.otherwise,)
        elif type(node) is Select and node.condition not in done:
            needed = (node.condition,)
        else:
            needed = node.children
        waiting = [c for c in needed if c not in done]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        with np.errstate(all="ignore"):
            done[node] = _value(node, done, read)


def _value(e: Expr, done: dict[Expr, Any], read: Read | None) -> Any:
    if isinstance(e, Const):
        return convert(e.value, e.dtype)
    if isinstance(e, Var):
        raise UserError(f"the variable '{e.name}' has no value", code="E030")
    if isinstance(e, Binary):
        return _binary(e, done[e.a], done[e.b])
    if isinstance(e, Not):
        return np.logical_not(done[e.a])
    if isinstance(e, Select):
        condition = done[e.condition]
        if np.ndim(condition) == 0:
            return done[e.then if condition else e.otherwise]
        return np.where(condition, done[e.then], done[e.otherwise])
    if isinstance(e, Cast):
        return convert(done[e.a], e.dtype)
    if isinstance(e, Call):
        return _call(e, [done[a] for a in e.args])
    if isinstance(e, Load):
        if read is None:
            raise UserError(f"'{e.source.name}' cannot be read here", code="E031")
        indices = [done[i] for i in e.indices]
        return convert(read(e.source, indices, None if e.mask is None else done[e.mask]), e.dtype)
    if isinstance(e, Ramp):
        return convert(done[e.base] + np.arange(e.count) * done[e.stride], e.dtype)
    if isinstance(e, Broadcast):
        return np.full(e.count, done[e.value])
    if isinstance(e, Shuffle):
        return np.concatenate([np.atleast_1d(done[v]) for v in e.vectors])[list(e.picks)]
    raise InternalError(f"expressions of kind {type(e).__name__} have no value here")


def _wide(value: Any, dtype: DType) -> Any:
    """Narrow floats are computed in float32."""
    return np.asarray(value).astype(np.float32)[()] if dtype.is_float and dtype.bits < 32 else value


def _binary(e: Binary, a: Any, b: Any) -> Any:
    dtype = e.a.dtype
    if e.op in DIVISIONS and dtype.is_integer and not np.all(b):
        raise UserError(f"integer division by zero in '{e}'", code="E032")
    if dtype.kind == "bool" and e.op in ("add", "mul", "sub"):
        a, b = np.asarray(a).astype(np.int8), np.asarray(b).astype(np.int8)
    if dtype.is_integer and dtype.bits < 8:
        a, b = np.asarray(a).astype(np.int64), np.asarray(b).astype(np.int64)
    return convert(BINARY[e.op].evaluate(_wide(a, dtype), _wide(b, dtype)), e.dtype)


def _call(e: Call, args: list[Any]) -> Any:
    row = find(e.name)
    if row is None:
        raise UserError(
            f"there is no intrinsic '{e.name}'",
            code="E033",
            hint="compile with the plugin that defines it: plugins=[…]",
        )
    if row.result is None:
        return row.evaluate(*args, e.dtype)
    return convert(row.evaluate(*(_wide(v, a.dtype) for v, a in zip(args, e.args, strict=True))), e.dtype)
