"""Derivatives of updates: what the base and the values of the steps get of the adjoint of the result.

An update of independent steps overwrites each element once at most: the step gets the adjoint of its element, and the
base keeps the adjoint of the others. Steps that run in order may meet at an element. Those that add to it share its
adjoint; of those that overwrite it the last one gets it.
"""

from __future__ import annotations

from dataclasses import replace

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Const, Expr, Load, Var, make
from weft.expr.visit import loads, rewrite, substitute
from weft.support.dtypes import INDEX
from weft.support.errors import UserError
from weft.tensor_expr.derivatives.reductions import Root, compute_op
from weft.tensor_expr.derivatives.scalars import guarded
from weft.tensor_expr.nodes import PlaceholderOp, Tensor, UpdateOp


def update_roots(op: UpdateOp, known: Tensor, outer: tuple[IterVar, ...]) -> tuple[Tensor, list[Root]]:
    """The adjoint that ``base`` keeps, and what the steps evaluate. ``known`` is the adjoint of the result, whose first
    dimensions are ``outer``.

    Raises UserError E142 if steps in an order change an element by more than adding to it.
    """
    adjoint: Expr = Load(known, (*(a.var for a in outer), *op.at))
    if all(a.kind == IterVar.SPATIAL for a in op.axes):
        alone = _from_base(op)
        root = Root(alone.value, Load(known, (*(a.var for a in outer), *alone.at)), alone.condition, op.axes)
        return _without_changed(alone, known, outer), [root]
    if not _reads(op, op.value, op.condition, *op.at):
        value = guarded(_is_last(op), adjoint)
        return _without_changed(op, known, outer), [Root(op.value, value, op.condition, op.axes)]
    added = None if _reads(op, op.condition, *op.at) else _added(op)
    if added is None:
        raise UserError(
            f"the derivative of '{op.name}' is not known: its steps run in an order and depend on what others changed",
            code="E142",
            hint="steps may set an element or add to it; steps that never meet may do more: independent=",
        )
    term, sign = added
    return known, [Root(term, adjoint if sign > 0 else -adjoint, op.condition, op.axes)]


def _reads(op: UpdateOp, *values: Expr) -> bool:
    """Whether ``values`` depend on what earlier steps changed."""
    return any(load.source is op.state for load in loads(*values))


def _from_base(op: UpdateOp) -> UpdateOp:
    """``op``, each step of which finds its element as it was, so that it may read the base."""

    def change(e: Expr) -> Expr | None:
        return Load(op.base, e.indices) if isinstance(e, Load) and e.source is op.state else None

    at = tuple(rewrite(i, change) for i in op.at)
    return replace(op, at=at, value=rewrite(op.value, change), condition=rewrite(op.condition, change), made={})


def _added(op: UpdateOp) -> tuple[Expr, int] | None:
    """``(term, sign)`` of steps ``state[at] + term`` and ``state[at] - term``."""
    e = op.value
    if not isinstance(e, Binary) or e.op not in ("add", "sub"):
        return None
    for current, term in ((e.a, e.b), (e.b, e.a)) if e.op == "add" else ((e.a, e.b),):
        if isinstance(current, Load) and current.source is op.state and not _reads(op, term):
            return term, 1 if e.op == "add" else -1
    return None


def _without_changed(op: UpdateOp, known: Tensor, outer: tuple[IterVar, ...]) -> Tensor:
    """``known`` with 0 where a step changes the element."""
    front = tuple(IterVar(Var(a.var.name, INDEX), a.extent) for a in outer)
    return _steps(op, f"d_{op.name}_kept", known, front, Const(0, known.dtype))


def _is_last(op: UpdateOp) -> Expr:
    """Whether no later step changes the element of this one."""
    number: Expr = Const(0, INDEX)
    for a in op.axes:
        number = make("add", make("mul", number, a.extent), make("sub", a.var, a.start))
    places = [IterVar(Var(f"i{d}", INDEX), e) for d, e in enumerate(op.base.shape)]
    start = compute_op(f"{op.name}_untouched", places, (), Const(-1, INDEX))
    return make("eq", Load(_steps(op, f"{op.name}_last", start, (), number), op.at), number)


def _steps(op: UpdateOp, name: str, base: Tensor, front: tuple[IterVar, ...], value: Expr) -> Tensor:
    """An update of ``base`` that sets the elements that ``op`` changes, for each step of ``front``."""
    fresh = {a.var: Var(a.var.name, INDEX) for a in op.axes}
    own = tuple(IterVar(fresh[a.var], a.extent, a.kind, a.start) for a in op.axes)
    axes = (*(IterVar(a.var, a.extent, IterVar.SPATIAL) for a in front), *own)
    state = PlaceholderOp(f"{name}_state", base.shape, base.dtype).output(0)
    at = (*(a.var for a in front), *(substitute(i, fresh) for i in op.at))
    return UpdateOp(name, base, axes, state, at, substitute(value, fresh), substitute(op.condition, fresh)).output(0)
