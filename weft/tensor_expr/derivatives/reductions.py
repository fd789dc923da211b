"""Derivatives of reductions: what each reduced value gets of the adjoint of the result.

A sum gives the adjoint to every term. A product gives each factor the product of all others, which is computed anew for
each: it is right where factors are zero, for derivatives of derivatives too. Equal extremes share the adjoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from weft.expr.folds import all_of
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Const, Expr, Load, Var, cast, make, select
from weft.expr.visit import substitute
from weft.support.dtypes import BOOL, FLOAT32, INDEX
from weft.tensor_expr.derivatives.scalars import TRUE, both, guarded
from weft.tensor_expr.nodes import ComputeOp, Reduce, Reducer, Tensor
from weft.tensor_expr.reducers import named_reducer


@dataclass(frozen=True, slots=True)
class Root:
    """An expression that an operation evaluates for all values of ``axes`` where ``guard`` holds, and its adjoint."""

    value: Expr
    adjoint: Expr
    guard: Expr
    axes: tuple[IterVar, ...]


def compute_op(name: str, axis: Sequence[IterVar], over: Sequence[IterVar], body: Expr) -> Tensor:
    """The tensor of ``body``, with axes of its own in place of those given."""
    return compute_ops(name, axis, over, (body,))[0]


def compute_ops(name: str, axis: Sequence[IterVar], over: Sequence[IterVar], bodies: Sequence[Expr]) -> list[Tensor]:
    """The tensors of ``bodies``, values of one reduction or of none, with axes of their own in place of those given."""
    fresh = {a.var: Var(a.var.name, INDEX) for a in (*axis, *over)}
    outer = tuple(IterVar(fresh[a.var], a.extent) for a in axis)
    inner = tuple(IterVar(fresh[a.var], a.extent, IterVar.REDUCE, a.start) for a in over)
    made = [substitute(body, fresh) for body in bodies]
    own = tuple(replace(e, axes=inner) if isinstance(e, Reduce) else e for e in made)
    op = ComputeOp(name, outer, inner, own)
    return [op.output(n) for n in range(len(own))]


def summed(value: Expr, axes: Sequence[IterVar], condition: Expr, init: Expr | None = None) -> Reduce:
    start = None if init is None else (init,)
    return Reduce(named_reducer("sum", value.dtype), (value,), tuple(axes), condition, 0, start)


def roots(op: ComputeOp, position: int, adjoint: Expr) -> list[Root]:
    """What the output ``position`` of ``op`` consists of. ``adjoint`` is its adjoint, over the axes of ``op``."""
    body = op.body[position]
    if not isinstance(body, Reduce):
        return [Root(body, adjoint, TRUE, op.axis)]
    return _RULES[combining(body.reducer) or ""](op, body, adjoint)


def has_rule(op: ComputeOp) -> bool:
    """Whether :func:`roots` knows ``op``: it is no reduction, or one by an operator that has a rule."""
    body = op.body[0]
    return not isinstance(body, Reduce) or combining(body.reducer) in _RULES


def combining(reducer: Reducer) -> str | None:
    """The operator with which a reducer of single values combines two of them."""
    if len(reducer.result) != 1 or not isinstance(reducer.result[0], Binary):
        return None
    made = reducer.result[0]
    pair = {made.a, made.b}
    return made.op if pair == {reducer.lhs[0], reducer.rhs[0]} and len(pair) == 2 else None


def _sum(op: ComputeOp, body: Reduce, adjoint: Expr) -> list[Root]:
    found = [Root(body.sources[0], adjoint, body.condition, (*op.axis, *op.reduce_axis))]
    return [*found, *(Root(start, adjoint, TRUE, op.axis) for start in body.init or ())]


def _extreme(op: ComputeOp, body: Reduce, adjoint: Expr) -> list[Root]:
    result = Load(op.output(0), tuple(a.var for a in op.axis))
    counted = FLOAT32 if adjoint.dtype.bits < 32 else adjoint.dtype
    one = Const(1, counted)
    hit = make("eq", body.sources[0], result)
    first = None if body.init is None else guarded(make("eq", body.init[0], result), one)
    count = summed(guarded(hit, one), op.reduce_axis, body.condition, first)
    ties = compute_op(f"{op.name}_ties", op.axis, op.reduce_axis, count)
    shared = make("div", cast(adjoint, counted), Load(ties, result.indices))
    share = cast(shared, adjoint.dtype)
    found = [Root(body.sources[0], guarded(hit, share), body.condition, (*op.axis, *op.reduce_axis))]
    found += [Root(start, guarded(make("eq", start, result), share), TRUE, op.axis) for start in body.init or ()]
    return found


def _product(op: ComputeOp, body: Reduce, adjoint: Expr) -> list[Root]:
    other = {a.var: Var(a.var.name, INDEX) for a in op.reduce_axis}
    over = tuple(IterVar(other[a.var], a.extent, IterVar.REDUCE, a.start) for a in op.reduce_axis)
    own = tuple(IterVar(a.var, a.extent) for a in op.reduce_axis)  # counted from 0
    moved = {a.var: a.var + a.start for a in op.reduce_axis}
    itself = all_of(*(make("eq", other[a.var], moved[a.var]) for a in op.reduce_axis))
    term = substitute(body.sources[0], other)
    factors = Reduce(
        body.reducer,
        (select(itself, Const(1, term.dtype), term),),
        over,
        substitute(body.condition, other),
    )
    others = compute_op(f"{op.name}_others", (*op.axis, *own), over, factors)
    places = (*(a.var for a in op.axis), *(a.var - a.start for a in op.reduce_axis))
    rest: Expr = Load(others, places)
    if body.init is not None:
        rest = make("mul", rest, body.init[0])
    axes = (*op.axis, *op.reduce_axis)
    found = [Root(body.sources[0], make("mul", adjoint, rest), body.condition, axes)]
    if body.init is not None:
        plain = Reduce(body.reducer, body.sources, op.reduce_axis, body.condition)
        whole = compute_op(f"{op.name}_product", op.axis, op.reduce_axis, plain)
        scale = Load(whole, tuple(a.var for a in op.axis))
        found.append(Root(body.init[0], make("mul", adjoint, scale), TRUE, op.axis))
    return found


@dataclass(frozen=True, slots=True)
class Others:
    """For each value of a reduction, what those before it (from the start of the reduction) and those after it combine
    to, over the axes of the result and those of the reduction (counted from 0)."""

    before: tuple[Tensor, ...]
    after: tuple[Tensor, ...]


def others(op: ComputeOp) -> Others:
    """What the other values of the reduction ``op`` combine to, computed anew for each value."""
    body = op.body[0]
    assert isinstance(body, Reduce)
    other = {a.var: Var(a.var.name, INDEX) for a in op.reduce_axis}
    own = {a.var: Var(f"{a.var.name}_own", INDEX) for a in op.reduce_axis}
    earlier: Expr = Const(False, BOOL)
    later: Expr = Const(False, BOOL)
    for a in reversed(op.reduce_axis):  # in row-major order
        it, its = other[a.var], own[a.var] + a.start
        same = make("eq", it, its)
        earlier = make("or", make("lt", it, its), both(same, earlier))
        later = make("or", make("lt", its, it), both(same, later))
    found = []
    for name, where in (("before", earlier), ("after", later)):
        axes = [*op.axis, *(IterVar(own[a.var], a.extent) for a in op.reduce_axis)]
        fresh = {a.var: Var(a.var.name, INDEX) for a in axes}
        over = tuple(IterVar(other[a.var], a.extent, IterVar.REDUCE, a.start) for a in op.reduce_axis)
        sources = tuple(substitute(s, {**other, **fresh}) for s in body.sources)
        condition = both(substitute(where, fresh), substitute(body.condition, {**other, **fresh}))
        start = tuple(substitute(v, fresh) for v in body.init) if body.init and name == "before" else None
        bodies = tuple(Reduce(body.reducer, sources, over, condition, n, start) for n in range(len(sources)))
        made = ComputeOp(f"{op.name}_{name}", tuple(IterVar(fresh[a.var], a.extent) for a in axes), over, bodies)
        found.append(tuple(made.output(n) for n in range(len(sources))))
    return Others(*found)


def roots_of_any(op: ComputeOp, position: int, adjoint: Expr, rest: Others) -> list[Root]:
    """As :func:`roots`, of a reduction by any combination: of what comes before, the value, and what comes after."""
    body = op.body[position]
    assert isinstance(body, Reduce)
    reducer = body.reducer

    def combined(a: Sequence[Expr], b: Sequence[Expr]) -> list[Expr]:
        given = dict(zip((*reducer.lhs, *reducer.rhs), (*a, *b), strict=True))
        return [substitute(r, given) for r in reducer.result]

    at = (*(a.var for a in op.axis), *(a.var - a.start for a in op.reduce_axis))
    before, after = [Load(t, at) for t in rest.before], [Load(t, at) for t in rest.after]
    total = combined(combined(before, body.sources), after)
    found = [Root(total[position], adjoint, body.condition, (*op.axis, *op.reduce_axis))]
    if body.init is None:
        return found
    plain = tuple(Reduce(reducer, body.sources, body.axes, body.condition, n) for n in range(len(body.sources)))
    whole = compute_ops(f"{op.name}_without_start", op.axis, op.reduce_axis, plain)
    started = combined(body.init, [Load(t, tuple(a.var for a in op.axis)) for t in whole])
    return [*found, Root(started[position], adjoint, TRUE, op.axis)]


_RULES: Final[dict[str, Callable[[ComputeOp, Reduce, Expr], list[Root]]]] = {
    "add": _sum,
    "mul": _product,
    "max": _extreme,
    "min": _extreme,
}
