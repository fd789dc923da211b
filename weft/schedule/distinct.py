"""Whether loops give every instance of a block other values, found by trying all iterations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from weft.expr.linear import Linear, linear
from weft.expr.nodes import Binary, Const, Expr, Var
from weft.expr.visit import occurs
from weft.tir.nodes import For
from weft.tir.visit import postorder

MAX_ITERATIONS: Final = 1 << 14
"""Limit on the iterations that are tried; more count as unknown."""
_OPERATIONS: Final[dict[str, Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "floormod": np.mod,
    "min": np.minimum,
    "max": np.maximum,
}


def are_distinct(values: Sequence[Expr], loops: Sequence[For]) -> bool:
    """Whether no two iterations of ``loops``, which have constant bounds, give the same ``values``.

    Other variables may only be added to what the loops give.
    """
    extents = [int(x.extent) if isinstance(x.extent, Const) else MAX_ITERATIONS + 1 for x in loops]
    if prod(extents) > MAX_ITERATIONS or any(not isinstance(x.start, Const) for x in loops):
        return False
    grid = np.meshgrid(*(np.arange(n, dtype=np.int64) for n in extents), indexing="ij") if loops else []
    known: dict[Expr, Any] = {x.var: int(x.start) + g.ravel() for x, g in zip(loops, grid, strict=True)}  # type: ignore[call-overload]  # constant
    columns = []
    for value in values:
        terms = {t: f for t, f in linear(value).terms.items() if any(occurs(x.var, t) for x in loops)}
        moving = Linear(terms).expr()
        if any(isinstance(e, Var) and e not in known for e in postorder(moving)):
            return False
        made = _evaluate(moving, known)
        if made is None:
            return False
        columns.append(np.broadcast_to(made, (prod(extents),)))
    return _all_differ(np.stack(columns)) if columns else prod(extents) <= 1


def _all_differ(table: Any) -> bool:
    """Whether no two columns of a matrix of integers are equal. Equal columns are neighbors once sorted. (NumPy's
    ``unique`` along an axis compares whole columns as records, which is many times slower.)"""
    ordered = table[:, np.lexsort(table)]
    return bool((ordered[:, 1:] != ordered[:, :-1]).any(axis=0).all())


def _evaluate(root: Expr, known: dict[Expr, Any]) -> Any:
    """The values of an index expression in all iterations; None for operations that are not index arithmetic."""
    for e in postorder(root):
        if e in known:
            continue
        if isinstance(e, Const):
            known[e] = np.int64(int(e.value))
        elif isinstance(e, Binary) and e.op in _OPERATIONS:
            known[e] = _OPERATIONS[e.op](known[e.a], known[e.b])
        else:
            return None
    return known[root]
