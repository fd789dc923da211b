"""Loops of tensor expressions whose steps run in order: updates of single elements, and orders. The rows of an order
run in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.expr.folds import product
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, Var
from weft.expr.visit import free_vars
from weft.lowering.order_parts import NewBuffer
from weft.lowering.parallel_rows import loop, rows
from weft.lowering.sorted_columns import SortedColumns
from weft.lowering.sorting import Sorting
from weft.support.dtypes import INDEX
from weft.tensor_expr.nodes import OrderOp, UpdateOp
from weft.tir.nodes import Buffer, For, If, Let, Stmt, Store, seq

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
        body = loop(axis.var, axis.extent, body, each if parallel else None)
    return body


def _is_row(axis: IterVar, at: Sequence[Expr], condition: Expr) -> bool:
    """Whether the steps along the last axis can be the lanes of a vector: each step changes the element at its own
    place in a row, and all of them happen or none. The result is the same as that of single steps, because all lanes
    are written before the next step of the outer axes."""
    *rest, last = at
    moves = any(axis.var in free_vars(e) for e in (*rest, condition))
    constant = isinstance(axis.extent, Const) and int(axis.extent) > 1
    return axis.kind == IterVar.SPATIAL and constant and last == axis.var and not moves


def _steps(axes: Sequence[IterVar]) -> int | None:
    """The number of steps of the axes together; None if it is not known."""
    total = product([a.extent for a in axes]) if axes else 1
    return int(total) if isinstance(total, (int, Const)) else None


def order_loops(op: OrderOp, out: Buffer, swap: Callable[[Expr], Expr], new: NewBuffer) -> Stmt:
    """The loops that fill ``out`` with numbers in order; ``new(name, shape, scope)`` creates buffers. Where vectors
    can run across adjacent rows, only the rows that are left are sorted one by one."""
    axes = [(a.var, a.extent) for a in op.axes]
    work = 8 * int(op.size) if isinstance(op.size, Const) else 1000
    columns = SortedColumns.of(op, out, swap, new)
    if columns is None:
        return rows(axes, Sorting(op, out, swap, new).body(), work)
    (last, extent), more = axes[-1], Var("more", INDEX)
    done, rest = extent // columns.lanes * columns.lanes, extent % columns.lanes
    if isinstance(rest, Const) and not int(rest):
        return columns.loops()
    one = Let(last, done + more, Sorting(op, out, swap, new).body())
    return seq(columns.loops(), rows([*axes[:-1], (more, rest)], one, work))
