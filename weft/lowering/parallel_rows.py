"""Loops over rows that do not depend on each other: in parallel where there is enough work."""

from __future__ import annotations

from collections.abc import Sequence

from weft.cost import threads
from weft.expr.nodes import Const, Expr, Var
from weft.ir.frozen import FrozenMap
from weft.support.dtypes import INDEX
from weft.tir.nodes import For, Let, Stmt

_ZERO = Const(0, INDEX)


def loop(var: Var, extent: Expr, body: Stmt, work: int | None = None) -> For:
    """A loop. It is parallel if ``work``, the number of steps in one iteration, is given."""
    if work is None:
        return For(var, _ZERO, extent, body)
    if isinstance(extent, Const) and int(extent) * max(1, work) < 2 * threads.MIN_ORDERED_STEPS:
        return For(var, _ZERO, extent, body)
    grain = max(1, threads.MIN_ORDERED_STEPS // max(1, work))
    return For(var, _ZERO, extent, body, "parallel", annotations=FrozenMap({"grain": grain}))


def rows(axes: Sequence[tuple[Var, Expr]], body: Stmt, work: int) -> Stmt:
    """``body`` for each combination of the axes' values (variable and extent), in parallel over all of them. ``work``
    is the number of steps of one of them."""
    if not axes:
        return body
    flat = Var("row", INDEX)
    rest: Expr = flat
    for var, extent in reversed(axes[1:]):
        body = Let(var, rest % extent, body)
        rest = rest // extent
    total = axes[0][1]
    for _, extent in axes[1:]:
        total = total * extent
    return loop(flat, total, Let(axes[0][0], rest, body), work)
