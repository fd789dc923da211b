"""Exact values of expressions for many points at once, computed without the code that simplifies or evaluates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.expr.nodes import Binary, Broadcast, Cast, Const, Expr, Not, Ramp, Select, Var


def _truncdiv(a: Any, b: Any) -> Any:
    quotient = np.abs(a) // np.abs(b)
    return np.where((a < 0) == (b < 0), quotient, -quotient)


_OPERATIONS: Mapping[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide, "floormod": np.mod,
    "truncdiv": _truncdiv, "truncmod": lambda a, b: a - _truncdiv(a, b) * b, "min": np.minimum, "max": np.maximum,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def exact(e: Expr, at: Mapping[Var, Any]) -> Any:
    """The values of an index or bool expression: 64-bit arrays with one entry for each point; vectors have a last
    dimension of lanes. Variables are given as arrays of one dimension."""
    if isinstance(e, Var):
        return at[e]
    if isinstance(e, Const):
        return np.bool_(e.value) if e.dtype.kind == "bool" else np.int64(int(e.value))
    parts = [exact(c, at) for c in e.children]
    if e.lanes > 1:
        parts = [p if c.lanes > 1 else np.expand_dims(p, -1) for p, c in zip(parts, e.children, strict=True)]
    if isinstance(e, Binary):
        return _OPERATIONS[e.op](*parts)
    if isinstance(e, Not):
        return np.logical_not(parts[0])
    if isinstance(e, Select):
        return np.where(*parts)
    if isinstance(e, Cast):
        return parts[0].astype(e.dtype.numpy).astype(np.int64)
    if isinstance(e, Broadcast):
        return parts[0] + np.zeros(e.lanes, parts[0].dtype)
    assert isinstance(e, Ramp), type(e)
    return parts[0] + parts[1] * np.arange(e.lanes)
