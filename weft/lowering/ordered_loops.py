"""Loops of tensor expressions whose steps run in order: updates of single elements, and orders. The rows of an order
run in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.cost import threads
from weft.expr.folds import product
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, Var
from weft.expr.visit import free_vars
from weft.ir.frozen import FrozenMap
from weft.lowering.digit_sort import NewBuffer
from weft.lowering.sorting import Sorting
from weft.support.dtypes import INDEX
from weft.tensor_expr.nodes import OrderOp, UpdateOp
from weft.tir.nodes import Buffer, For, If, Let, Stmt, Store

_ZERO = Const(0, INDEX)


def update_loops(op: UpdateOp, out: Buffer, swap: Callable[[Expr], Expr]) -> Stmt:
    """The steps of an update of ``out``; ``swap`` rewrites expressions to read buffers."""
    at, value, condition = tuple(swap(i) for i in op.at), swap(op.value), swap(op.condition)
    body: Stmt = Store(out, at, value)
    if not isinstance(condition, Const):
        body = If(condition, body)
    for d, axis in reversed(list(enumerate(op.axes))):
        if d == len(op.axes) - 1 and d and _is_row(axis, at, condition):
            body = For(axis.var, _ZERO, axis.extent, body, "vectorized")
            continue
        parallel = d == 0 and axis.kind == IterVar.SPATIAL
        each = _steps(op.axes[1:])
        body = _loop(axis.var, axis.extent, body, each if parallel else None)
    return body


def _is_row(axis: IterVar, at: Sequence[Expr], condition: Expr) -> bool:
    """Whether the steps along the last axis can be the lanes of a vector: each step changes the element at its own
    place in a row, and all of them happen or none. The result is the same as that of single steps, because all lanes
    are written before the next step of the outer axes."""
    *rest, last = at
    moves = any(axis.var in free_vars(e) for e in (*rest, condition))
    constant = isinstance(axis.extent, Const) and int(axis.extent) > 1
    return axis.kind == IterVar.SPATIAL and constant and last == axis.var and not moves


def order_loops(op: OrderOp, out: Buffer, swap: Callable[[Expr], Expr], new: NewBuffer) -> Stmt:
    """The loops that fill ``out`` with numbers in order; ``new(name, shape, scope)`` creates buffers."""
    return _rows(op.axes, Sorting(op, out, swap, new).body(), op.size)


def _steps(axes: Sequence[IterVar]) -> int | None:
    """The number of steps of the axes together; None if it is not known."""
    total = product([a.extent for a in axes]) if axes else 1
    return int(total) if isinstance(total, (int, Const)) else None


def _loop(var: Var, extent: Expr, body: Stmt, work: int | None = None) -> For:
    """A loop. It is parallel if ``work``, the number of steps in one iteration, is given."""
    if work is None:
        return For(var, _ZERO, extent, body)
    if isinstance(extent, Const) and int(extent) * max(1, work) < 2 * threads.MIN_ORDERED_STEPS:
        return For(var, _ZERO, extent, body)
    grain = max(1, threads.MIN_ORDERED_STEPS // max(1, work))
    return For(var, _ZERO, extent, body, "parallel", annotations=FrozenMap({"grain": grain}))


def _rows(axes: Sequence[IterVar], body: Stmt, size: Expr) -> Stmt:
    """``body`` for each combination of the axes' values, in parallel over all of them."""
    if not axes:
        return body
    work = 8 * int(size) if isinstance(size, Const) else 1000
    flat = Var("row", INDEX)
    rest: Expr = flat
    for axis in reversed(axes[1:]):
        body = Let(axis.var, rest % axis.extent, body)
        rest = rest // axis.extent
    total = axes[0].extent
    for axis in axes[1:]:
        total = total * axis.extent
    return _loop(flat, total, Let(axes[0].var, rest, body), work)
