"""Accesses in bounds: every element that a tensor expression reads lies inside the tensor that is read.

An access is *certain* where it is proved for all sizes, *wrong* where some element of the result reads outside for all
sizes, and otherwise *open*: it depends on sizes, as a condition that can be checked before the code runs, or on data,
or on arithmetic that is not followed, such as bits of an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from weft.expr.folds import all_of, any_of
from weft.expr.nodes import Binary, Call, Const, Expr, Load, Select, Var, index, logical_not, make
from weft.expr.prove import Facts
from weft.expr.visit import free_vars, loads
from weft.support.dtypes import BOOL, INDEX
from weft.support.errors import Location, UserError
from weft.tensor_expr.nodes import ComputeOp, Operation, Reduce, ScanOp, Tensor
from weft.tensor_expr.scan_steps import steps_of
from weft.tensor_expr.visit import read_tensors, topological

Conditions = tuple[Expr, ...]
_FALSE = Const(False, BOOL)


@dataclass(frozen=True, slots=True)
class OpenAccess:
    """An access that is not proved: ``condition`` on sizes under which it is in bounds; None if data decides."""

    op: Operation
    load: Load
    axis: int
    condition: Expr | None

    @property
    def message(self) -> str:
        name = getattr(self.load.source, "name", "?")
        at, size = self.load.indices[self.axis], self.load.source.shape[self.axis]
        return f"'{self.op.name}' reads '{name}' at {at} in dimension {self.axis}, whose size is {size}"


def open_accesses(outputs: Sequence[Tensor], inputs: Iterable[Tensor] = ()) -> list[OpenAccess]:
    """The accesses of compute operations between ``inputs`` and ``outputs`` that are not proved to be in bounds.

    Raises UserError E209 for an access that is outside for all sizes.
    """
    order = topological(outputs, inputs)
    first_steps = _first_steps(order, outputs)
    found: list[OpenAccess] = []
    for op in order:
        if isinstance(op, ComputeOp):
            found += _of_compute(op, first_steps.get(op))
    return found


def _first_steps(order: Sequence[Operation], outputs: Sequence[Tensor]) -> dict[Operation, Expr]:
    """For each operation that is a step of a scan: the first time at which it is computed."""
    scans = [op for op in order if isinstance(op, ScanOp)]
    return {op: scan.axis.start for scan in scans for op in scan_steps(scan, order, outputs, scan.inputs)}


def scan_steps(
    scan: ScanOp, order: Sequence[Operation], outputs: Sequence[Tensor], stop: Sequence[Tensor] = ()
) -> list[Operation]:
    """The operations that ``scan`` computes step by step (:func:`weft.tensor_expr.scan_steps.steps_of`)."""
    return steps_of(scan, order, outputs, stop, _reads_outside)


def _reads_outside(op: ComputeOp) -> bool:
    """Whether ``op`` reads outside of a tensor for all sizes of at least 1."""
    try:
        _of_compute(op, None, 1)
    except UserError:
        return True
    return False


def _of_compute(op: ComputeOp, first_step: Expr | None, least: int = 0) -> list[OpenAccess]:
    """The accesses of ``op`` that are not proved to be in bounds, for sizes of at least ``least``."""
    facts, outside = Facts(), Facts()
    axes = [*op.axis, *op.reduce_axis]
    sizes = free_vars(*(e for a in axes for e in (a.start, a.extent)), *(d for t in read_tensors(op) for d in t.shape))
    for v in sizes:
        facts.bind_size(v, least)
        outside.bind_size(v, least)
    starts = [a.start for a in axes]
    extents = [a.extent for a in axes]
    if first_step is not None:
        starts[0], extents[0] = first_step, index(extents[0]) - first_step
    for a, start, extent in zip(axes, starts, extents, strict=True):
        if isinstance(extent, Const) and int(extent.value) <= 0:
            return []  # nothing is computed
        facts.bind(a.var, start, extent)
    moving = [a.var for a in axes]
    nothing = any_of(*(index(e) <= 0 for e in extents))
    found = []
    for load, conditions in accesses(op):
        if not isinstance(load.source, Tensor):
            continue
        with facts.scope():
            for c in conditions:
                facts.assume(c)
            for axis, (at, size) in enumerate(zip(load.indices, load.source.shape, strict=True)):
                condition = needed(facts, at, index(size), moving, guarded=bool(conditions))
                if condition is not None and condition is not DATA:
                    condition = outside.simplify(any_of(nothing, condition))
                made = OpenAccess(op, load, axis, None if condition is DATA else condition)
                if condition is None or condition == _TRUE:
                    continue
                if condition == _FALSE:
                    raise UserError(
                        f"{made.message}: outside",
                        code="E209",
                        place=Location(node=f"tensor {op.name}"),
                        hint="guard the access with te.if_then_else, or limit the index with te.min and te.max",
                    )
                found.append(made)
    return found


_TRUE, _FALSE = Const(True, BOOL), Const(False, BOOL)
DATA = Var("data", INDEX)
"""Stands for a condition that data decides."""


def needed(facts: Facts, at: Expr, size: Expr, moving: list[Var], guarded: bool) -> Expr | None:
    """What must hold for an index to be in bounds: None if it is proved, a condition on sizes, or ``DATA``."""
    if facts.nonnegative(at) and facts.nonnegative(size - 1 - at):
        return None
    if facts.prove(at < 0) or facts.prove(at >= size):
        return DATA if guarded else _FALSE  # a guard may never hold
    ends = None if guarded or loads(at) else _ends(facts, at, moving)
    if ends is None:
        return DATA
    made = all_of(ends[0] >= 0, ends[1] < size)
    return DATA if any(v in moving for v in free_vars(made)) else made


def _ends(facts: Facts, at: Expr, moving: list[Var]) -> tuple[Expr, Expr] | None:
    """Limits of the values of an index; None unless it consists of linear terms, quotients, minima and maxima.

    The limits are values of the index, unless both operands of a minimum or maximum move."""
    if isinstance(at, Binary) and at.op in ("min", "max"):
        a, b = _ends(facts, at.a, moving), _ends(facts, at.b, moving)
        return None if a is None or b is None else (make(at.op, a[0], b[0]), make(at.op, a[1], b[1]))
    swept = facts.sweep(at, moving)
    if swept is not None:
        return swept.low, swept.low + swept.width
    if isinstance(at, Binary) and at.op == "floordiv" and isinstance(at.b, Const) and int(at.b.value) > 0:
        inner = _ends(facts, at.a, moving)
        return None if inner is None else (inner[0] // at.b, inner[1] // at.b)
    return None


def accesses(op: ComputeOp) -> Iterator[tuple[Load, Conditions]]:
    """The loads in the body, each with the conditions under which it is evaluated."""
    first = op.body[0]
    conditions: Conditions = ()
    if isinstance(first, Reduce):
        roots: tuple[Expr, ...] = first.sources
        yield from guarded_loads(first.condition, conditions)
        for start in first.init or ():
            yield from guarded_loads(start, conditions)
        conditions = _and((), first.condition)
    else:
        roots = op.body
    seen: set[tuple[Expr, Conditions]] = set()
    for root in roots:
        yield from guarded_loads(root, conditions, seen)


def _and(conditions: Conditions, more: Expr) -> Conditions:
    if isinstance(more, Call) and more.name == "likely":
        more = more.args[0]
    if isinstance(more, Binary) and more.op == "and":
        return _and(_and(conditions, more.a), more.b)
    if isinstance(more, Select):  # guarded conditions: select(a, b, false)
        if more.otherwise is _FALSE:
            return _and(_and(conditions, more.condition), more.then)
        if more.then is _FALSE:
            return _and(_and(conditions, logical_not(more.condition)), more.otherwise)
    return conditions if isinstance(more, Const) else (*conditions, more)


def guarded_loads(
    root: Expr, conditions: Conditions, seen: set[tuple[Expr, Conditions]] | None = None
) -> Iterator[tuple[Load, Conditions]]:
    """The loads in ``root``, each with ``conditions`` and those in ``root`` under which it is evaluated."""
    seen = set() if seen is None else seen
    stack = [(root, conditions)]
    while stack:
        e, known = stack.pop()
        if (e, known) in seen:
            continue
        seen.add((e, known))
        if isinstance(e, Load):
            yield e, known
        if isinstance(e, Select):
            stack += [(e.condition, known), (e.then, _and(known, e.condition))]
            stack.append((e.otherwise, _and(known, logical_not(e.condition))))
        elif isinstance(e, Binary) and e.op in ("and", "or"):
            holds = e.a if e.op == "and" else logical_not(e.a)
            stack += [(e.a, known), (e.b, _and(known, holds))]
        else:
            stack += [(c, known) for c in e.children]
