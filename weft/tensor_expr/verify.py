"""The invariants of tensor expressions.

A reduction is the outermost operation of a body (E201); all values of one operation come from the same reduction, and
its axes are the operation's reduce axes (E202). An operation uses each axis once, and output axes start at 0 (E203).
Each access has an index for each dimension (E204). Operands of an operation have one dtype, conditions are bool and
there are no vectors (E205). A body uses only its own axes and symbolic sizes, and sizes alone decide shapes and the
ranges of axes (E206). The parts of a reducer have the dtypes of its values and use only its own variables (E207).
Inits, updates and states of a scan agree (E208).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from weft.expr.intrinsic_table import LOGICAL, OF_NUMBERS, PLACES, POINTERS
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Call, Expr, Load, Not, Select, Var
from weft.expr.operators import ARITHMETIC, DIVISIONS
from weft.expr.visit import free_vars, loads, post_order
from weft.support.dtypes import BOOL, INDEX
from weft.support.errors import Location, UserError
from weft.tensor_expr.nodes import (
    ComputeOp,
    ExternOp,
    Operation,
    OrderOp,
    PlaceholderOp,
    Reduce,
    Reducer,
    ScanOp,
    Tensor,
    UpdateOp,
)
from weft.tensor_expr.ranges import check_ranges, check_sizes
from weft.tensor_expr.visit import topological

_ON_NUMBERS = frozenset((*OF_NUMBERS, *LOGICAL))
"""Intrinsics that have no meaning for conditions; what is bitwise is logic there, and is built as such."""


def verify(outputs: Sequence[Tensor], inputs: Iterable[Tensor] = ()) -> None:
    """Raise a UserError that names the tensor if an operation from ``inputs`` to ``outputs`` breaks an invariant."""
    given = tuple(inputs)
    order = topological(outputs, given)
    owner = {v: op for op in order for v in _own(op)}
    for t in given:
        check_sizes(f"the shape of '{t.name}'", t.shape, owner, Location(node=f"tensor {t.name}"))
    for op in order:
        _sizes(op, owner)
        if isinstance(op, ComputeOp):
            _compute(op, owner)
        elif isinstance(op, ScanOp):
            _scan(op)
        elif isinstance(op, UpdateOp):
            _expressions(op, (*op.at, op.value, op.condition), {a.var for a in op.axes}, owner)
        elif isinstance(op, OrderOp):
            axes = {a.var for a in op.axes}
            _expressions(op, (op.before, op.hides), {op.a, op.b, *axes}, owner)
            _expressions(op, (op.among, *op.keys), {op.a, *axes}, owner)


def _axes(op: Operation) -> tuple[IterVar, ...]:
    """The axes of an operation, those of its reduction included."""
    if isinstance(op, ComputeOp):
        return (*op.axis, *op.reduce_axis)
    if isinstance(op, (UpdateOp, OrderOp)):
        return op.axes
    return (op.axis,) if isinstance(op, ScanOp) else ()


def _own(op: Operation) -> tuple[Var, ...]:
    """The variables that only the expressions of ``op`` may use."""
    return (*(a.var for a in _axes(op)), *((op.a, op.b) if isinstance(op, OrderOp) else ()))


def _sizes(op: Operation, owner: Mapping[Var, Operation]) -> None:
    """Check that sizes alone decide shapes and ranges."""
    place = Location(node=f"tensor {op.name}")
    check_ranges(op.name, _axes(op), owner, place)
    if isinstance(op, OrderOp):
        check_sizes(f"the length of '{op.name}'", (op.count, op.size), owner, place)
    elif isinstance(op, PlaceholderOp):
        check_sizes(f"the shape of '{op.name}'", op.shape, owner, place)
    elif isinstance(op, ExternOp):
        check_sizes(f"the shape of '{op.name}'", (d for shape in op.shapes for d in shape), owner, place)


def _fail(op: Operation, code: str, message: str, hint: str | None = None) -> NoReturn:
    raise UserError(message, code=code, place=Location(node=f"tensor {op.name}"), hint=hint)


def _compute(op: ComputeOp, owner: Mapping[Var, Operation]) -> None:
    axes = [a.var for a in _axes(op)]
    if len(set(axes)) != len(axes):
        _fail(op, "E203", "an axis occurs twice", "make a new te.reduce_axis for each place")
    for a in op.axis:
        if int_or_none(a.start) != 0:
            _fail(op, "E203", f"the output axis '{a.var.name}' does not start at 0")
    for a in op.reduce_axis:
        if a.kind != IterVar.REDUCE:
            _fail(op, "E203", f"'{a.var.name}' is reduced over but is of kind {a.kind}")
    first = op.body[0]
    if isinstance(first, Reduce):
        if any(not _same_reduction(b, first, i) for i, b in enumerate(op.body)) or first.axes != op.reduce_axis:
            _fail(op, "E202", "the values do not all come from one reduction over the operation's reduce axes")
        _reducer(op, first, owner)
        roots = (*first.sources, first.condition)
        if first.init is not None:
            _expressions(op, first.init, {a.var for a in op.axis}, owner)
    elif op.reduce_axis:
        _fail(op, "E202", "there are reduce axes but no reduction")
    else:
        roots = op.body
    _expressions(op, roots, set(axes), owner)


def int_or_none(e: Expr) -> int | None:
    """The value of a constant."""
    value = getattr(e, "value", None)
    return value if isinstance(value, int) else None


def _same_reduction(e: Expr, first: Reduce, i: int) -> bool:
    return (
        isinstance(e, Reduce)
        and e.reducer is first.reducer
        and e.sources == first.sources
        and e.axes == first.axes
        and e.condition is first.condition
        and e.init == first.init
        and e.value_index == i
    )


def _reducer(op: ComputeOp, reduce: Reduce, owner: Mapping[Var, Operation]) -> None:
    r: Reducer = reduce.reducer
    wanted = [s.dtype for s in reduce.sources]
    for part in (r.lhs, r.rhs, r.result, r.identity):
        if [e.dtype for e in part] != wanted:
            got = ", ".join(e.dtype for e in part)
            _fail(op, "E207", f"the reducer '{r.name}' has parts of {got} for values of {', '.join(wanted)}")
    own = {*r.lhs, *r.rhs}
    for v in free_vars(*r.result, *r.identity):
        if v not in own:
            _fail(op, "E207", f"the reducer '{r.name}' uses '{v.name}', which is not one of its values")
    _expressions(op, (*r.result, *r.identity), own, owner)
    for load in loads(*r.result, *r.identity):
        _fail(op, "E207", f"the reducer '{r.name}' reads '{load.source.name}'; it may only combine its values")
    if reduce.init is not None and [e.dtype for e in reduce.init] != wanted:
        got = ", ".join(e.dtype for e in reduce.init)
        _fail(op, "E207", f"the reduction of {', '.join(wanted)} starts at values of {got}")
    if reduce.condition.dtype != BOOL:
        _fail(op, "E205", f"the condition of the reduction is {reduce.condition.dtype}, not bool")


def _expressions(op: Operation, roots: Sequence[Expr], own: set[Var], owner: Mapping[Var, Operation]) -> None:
    for e in post_order(*roots):
        if e.lanes != 1:
            _fail(op, "E205", f"'{e}' is a vector")
        if isinstance(e, Reduce):
            _fail(op, "E201", "a reduction is inside another expression", "compute it first, as a separate tensor")
        if isinstance(e, Var) and e not in own:
            if e in owner:
                _fail(op, "E206", f"'{e.name}' is an axis of '{owner[e].name}'", "use only this tensor's own axes")
            if e.dtype != INDEX:
                _fail(
                    op, "E206", f"the variable '{e.name}' of {e.dtype} is not a size", "use a placeholder of shape ()"
                )
        problem = _malformed(e)
        if problem is not None:
            _fail(op, problem[0], problem[1])


def _malformed(e: Expr) -> tuple[str, str] | None:
    if isinstance(e, Load):
        if len(e.indices) != len(e.source.shape):
            return (
                "E204",
                f"'{e.source.name}' has {len(e.source.shape)} dimensions but {len(e.indices)} indices are given",
            )
        if e.mask is not None:
            return "E205", f"a load of '{e.source.name}' has a mask"
    elif isinstance(e, Call) and e.name in (*PLACES, *POINTERS, "require"):
        return "E205", f"'{e}' speaks of memory, which tensor expressions do not have"
    elif isinstance(e, Call) and e.name in _ON_NUMBERS and any(a.dtype == BOOL for a in e.args):
        return "E205", f"'{e}' computes with conditions; use te.all and te.any, or cast them to a number"
    elif isinstance(e, Binary):
        if e.a.dtype != e.b.dtype:
            return "E205", f"the operands of '{e}' are {e.a.dtype} and {e.b.dtype}"
        if e.op in ("and", "or") and e.a.dtype != BOOL:
            return "E205", f"'{e}' combines values of {e.a.dtype}, not conditions"
        if e.op in ARITHMETIC and e.a.dtype == BOOL:
            return "E205", f"'{e}' computes with conditions; use te.all and te.any, or cast them to a number"
        if e.op in DIVISIONS and not e.a.dtype.is_integer:
            return "E205", f"'{e}' divides values of {e.a.dtype}; '{e.op}' is for integers"
    elif isinstance(e, Not) and e.a.dtype != BOOL:
        return "E205", f"'{e}' negates a value of {e.a.dtype}, not a condition"
    elif isinstance(e, Select):
        if e.condition.dtype != BOOL:
            return "E205", f"the condition of '{e}' is {e.condition.dtype}, not bool"
        if e.then.dtype != e.otherwise.dtype:
            return "E205", f"the sides of '{e}' are {e.then.dtype} and {e.otherwise.dtype}"
    return None


def _scan(op: ScanOp) -> None:
    for init, update, state in zip(op.init, op.update, op.states, strict=True):
        if update.shape != state.shape or init.shape[1:] != state.shape[1:]:
            _fail(op, "E208", f"the shapes of '{init.name}', '{update.name}' and '{state.name}' do not agree")
        if not init.dtype == update.dtype == state.dtype:
            _fail(op, "E208", f"the dtypes of '{init.name}', '{update.name}' and '{state.name}' differ")
