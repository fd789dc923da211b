"""Reductions by any combination of values, as scans over what they reduce: these have derivatives.

A state is what the values before it combine to, in row-major order of the reduce axes; the last one is the result.
"""

from __future__ import annotations

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, Load, Var, make, select
from weft.expr.prove import Facts
from weft.expr.visit import free_vars, substitute
from weft.support.dtypes import INDEX
from weft.tensor_expr.nodes import ComputeOp, PlaceholderOp, Reduce, ScanOp, Tensor


def by_scan(op: ComputeOp) -> list[Tensor]:
    """The outputs of ``op``, a reduction, as the last states of a scan."""
    body = op.body[0]
    assert isinstance(body, Reduce)
    count: Expr = Const(1, INDEX)
    sizes = [_size(a.extent) for a in body.axes]
    for size in sizes:
        count = make("mul", count, size)
    times = count + 1
    shape = tuple(a.extent for a in op.axis)
    states = [
        PlaceholderOp(f"{op.name}_before{n}", (times, *shape), s.dtype).output(0) for n, s in enumerate(body.sources)
    ]
    first = _axes(op, Const(1, INDEX))
    known = {a.var: b.var for a, b in zip(op.axis, first[1:], strict=True)}
    init = ComputeOp(f"{op.name}_first", first, (), tuple(substitute(e, known) for e in body.first))
    axes = _axes(op, times)
    known = {a.var: b.var for a, b in zip(op.axis, axes[1:], strict=True)}
    values: dict[Var, Expr] = dict(known)
    rest: Expr = axes[0].var - 1
    for n, (a, size) in reversed(list(enumerate(zip(body.axes, sizes, strict=True)))):
        values[a.var] = (rest % size if n else rest) + a.start
        rest = rest // size if n else rest
    before = [Load(s, (axes[0].var - 1, *(a.var for a in axes[1:]))) for s in states]
    following = [substitute(s, values) for s in body.sources]
    both = dict(zip((*body.reducer.lhs, *body.reducer.rhs), (*before, *following), strict=True))
    holds = substitute(body.condition, values)
    steps = tuple(select(holds, substitute(r, both), x) for r, x in zip(body.reducer.result, before, strict=True))
    update = ComputeOp(f"{op.name}_step", axes, (), steps)
    start, time = Const(1, INDEX), Var("t", INDEX)
    scan = ScanOp(
        f"{op.name}_steps",
        IterVar(time, count, IterVar.ORDERED, start),
        tuple(init.output(n) for n in range(len(states))),
        tuple(update.output(n) for n in range(len(states))),
        tuple(states),
        (),
    )
    last = _axes(op, start)[1:]
    at = (count, *(a.var for a in last))
    whole = ComputeOp(f"{op.name}_last", last, (), tuple(Load(scan.output(n), at) for n in range(len(states))))
    return [whole.output(n) for n in range(len(states))]


def _axes(op: ComputeOp, first: Expr) -> tuple[IterVar, ...]:
    return (
        IterVar(Var("t", INDEX), first),
        *(IterVar(Var(a.var.name, INDEX), a.extent) for a in op.axis),
    )


def _size(extent: Expr) -> Expr:
    """The number of values along an axis; what its extent is computed from may make that negative."""
    facts = Facts()
    for size in free_vars(extent):
        facts.bind_size(size, 0)
    return extent if facts.nonnegative(extent) else make("max", extent, Const(0, INDEX))
