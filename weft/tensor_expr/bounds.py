"""Accesses in bounds: every element that a tensor expression reads or changes lies inside the tensor.

An access is *certain* where it is proved for all sizes, *wrong* where it lies outside whenever it is evaluated, for all
sizes, and otherwise *open*. Sizes alone may decide an open access: then a condition on them is checked before the code
runs. All others (data decides, a guard may not suffice, or the arithmetic is not followed, such as bits of an index)
are guarded where they are computed (:func:`guarded`): an element outside reads as 0, and a step of an update that would
change one changes nothing. No code ever accesses memory outside of a tensor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from weft.expr.folds import all_of, any_of
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Call, Const, Expr, Load, Select, Var, cast, index, logical_not, make, select
from weft.expr.prove import Facts
from weft.expr.visit import free_vars, loads, post_order, substitute
from weft.support.dtypes import BOOL, INDEX
from weft.support.errors import Location, UserError
from weft.tensor_expr.nodes import ComputeOp, ExternOp, Operation, OrderOp, Reduce, ScanOp, Tensor, UpdateOp
from weft.tensor_expr.scan_steps import steps_of
from weft.tensor_expr.visit import read_tensors, topological

Conditions = tuple[Expr, ...]
_TRUE, _FALSE = Const(True, BOOL), Const(False, BOOL)
DATA = Var("data", INDEX)
"""Stands for a condition that sizes alone do not decide."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of a dimension at which an index is not proved to be inside."""

    axis: int
    low: bool
    high: bool

    def facts(self, indices: Sequence[Expr], shape: Sequence[Expr]) -> Iterator[Expr]:
        """What is known where the index is inside, for proofs."""
        if self.low:
            yield indices[self.axis] >= 0
        if self.high:
            yield indices[self.axis] < shape[self.axis]

    def conditions(self, indices: Sequence[Expr], shape: Sequence[Expr]) -> Iterator[Expr]:
        """The same for code. Where data decides, it is one comparison, at which no loop is split: before it holds and
        after, there are hardly any iterations, and they would all be run."""
        if loads(indices[self.axis]):
            yield cast(indices[self.axis], "uint64") < cast(shape[self.axis], "uint64")
        else:
            yield from self.facts(indices, shape)


@dataclass(frozen=True, slots=True)
class OpenAccess:
    """An access that is not proved: ``condition`` on sizes under which it is in bounds; None if they do not decide.

    Then ``load`` is the element that is read, or None for the one that an update changes, and ``ends`` are those of
    its index that are not proved; ``ends`` is None otherwise.
    """

    op: Operation
    message: str
    condition: Expr | None
    load: Load | None = None
    ends: Ends | None = None


def open_accesses(outputs: Sequence[Tensor], inputs: Iterable[Tensor] = ()) -> list[OpenAccess]:
    """The accesses of operations between ``inputs`` and ``outputs`` that are not proved to be in bounds.

    Raises UserError E209 for an access that is outside for all sizes.
    """
    given = tuple(inputs)
    order = topological(outputs, given)
    first_steps = _first_steps(order, outputs, given)
    found: list[OpenAccess] = []
    for op in order:
        if isinstance(op, ComputeOp):
            found += _of_compute(op, first_steps.get(op))
        elif isinstance(op, UpdateOp):
            found += _of_update(op)
        elif isinstance(op, OrderOp):
            found += _of_order(op)
        elif isinstance(op, ExternOp):
            found += [OpenAccess(op, message, condition) for condition, message in op.checks]
    return found


def guarded(accesses: Iterable[OpenAccess]) -> dict[Operation, Operation]:
    """For each operation with accesses that sizes do not decide: the operation that computes the same and makes these
    accesses only where they are inside. Its outputs are those of the original."""
    found: dict[Operation, dict[Load | None, list[Ends]]] = {}
    for a in accesses:
        if a.ends is not None:
            found.setdefault(a.op, {}).setdefault(a.load, []).append(a.ends)
    return {op: _guarded(op, ends) for op, ends in found.items()}


def _guarded(op: Operation, found: Mapping[Load | None, Sequence[Ends]]) -> Operation:
    inside = {load: ends for load, ends in found.items() if load is not None}
    if isinstance(op, ComputeOp):
        return dataclasses.replace(op, body=guarded_values(op.body, inside))
    if isinstance(op, UpdateOp):
        *at, value, condition = guarded_values((*op.at, op.value, op.condition), inside)
        own = [c for ends in found.get(None, ()) for c in ends.conditions(at, op.base.shape)]
        return dataclasses.replace(op, at=tuple(at), value=value, condition=all_of(condition, *own))
    assert isinstance(op, OrderOp)
    before, among, hides, *key = guarded_values((op.before, op.among, op.hides, *op.keys), inside)
    return dataclasses.replace(op, before=before, among=among, hides=hides, key=key[0] if key else None)


def guarded_values(roots: Sequence[Expr], found: Mapping[Load, Sequence[Ends]]) -> tuple[Expr, ...]:
    """The same values, in which each load of ``found`` reads 0 where its indices are outside."""
    made: dict[Expr, Expr] = {}
    for e in post_order(*roots):
        parts = tuple(made[c] for c in e.children)
        now = e if all(a is b for a, b in zip(parts, e.children, strict=True)) else e.rebuild(parts)
        if isinstance(e, Load) and isinstance(now, Load) and e in found:
            conditions = [c for ends in found[e] for c in ends.conditions(now.indices, now.source.shape)]
            now = select(all_of(*conditions), now, Const(0, now.dtype))
        made[e] = now
    return tuple(made[e] for e in roots)


def _first_steps(
    order: Sequence[Operation], outputs: Sequence[Tensor], inputs: Sequence[Tensor]
) -> dict[Operation, Expr]:
    """For each operation that is a step of a scan: the first time at which it is computed."""
    scans = [op for op in order if isinstance(op, ScanOp)]
    return {op: scan.axis.start for scan in scans for op in scan_steps(scan, order, outputs, inputs)}


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


class _Search:
    """Looks at accesses of one operation while the variables of ``ranges`` (start and extent of each) move, for sizes
    of at least ``least``."""

    def __init__(
        self,
        op: Operation,
        ranges: Mapping[Var, tuple[Expr, Expr]],
        shapes: Iterable[Expr] = (),
        least: int = 0,
    ) -> None:
        self.op, self.moving = op, list(ranges)
        self.found: list[OpenAccess] = []
        self.facts, self.outside = Facts(), Facts()
        extents = [extent for _, extent in ranges.values()]
        self.is_empty = any(isinstance(e, Const) and int(e.value) <= 0 for e in extents)
        """Whether nothing is computed, for all sizes."""
        read = (d for t in read_tensors(op) for d in t.shape)
        for v in free_vars(*(e for pair in ranges.values() for e in pair), *read, *shapes):
            if v not in ranges:
                self.facts.bind_size(v, least)
                self.outside.bind_size(v, least)
        if not self.is_empty:
            for var, (start, extent) in ranges.items():
                self.facts.bind(var, start, extent)
        self.nothing = [index(e) <= 0 for e in extents]

    def read(self, load: Load, conditions: Conditions) -> None:
        """Look at a load that is evaluated under ``conditions``."""
        if isinstance(load.source, Tensor):
            self._access(load, load.source.name, load.indices, load.source.shape, conditions)

    def change(self, tensor: Tensor, indices: Sequence[Expr], conditions: Conditions) -> list[Expr]:
        """Look at the change of an element; what must hold for it to happen."""
        before = len(self.found)
        self._access(None, tensor.name, indices, tensor.shape, conditions)
        ends = [a.ends for a in self.found[before:] if a.ends is not None]
        return [c for e in ends for c in e.facts(indices, tensor.shape)]

    def require(self, condition: Expr, message: str) -> None:
        """Look at a condition on sizes without which the operation is not defined."""
        self._found(self.outside.simplify(condition), message, None)

    def _found(self, condition: Expr, message: str, load: Load | None) -> None:
        if condition is _FALSE:
            raise UserError(
                f"{message}: outside",
                code="E209",
                place=Location(node=f"tensor {self.op.name}"),
                hint="guard the access with te.if_then_else, or limit the index with te.min and te.max",
            )
        if condition is not _TRUE:
            self.found.append(OpenAccess(self.op, message, condition, load))

    def _access(
        self, load: Load | None, name: str, indices: Sequence[Expr], shape: Sequence[Expr], conditions: Conditions
    ) -> None:
        if self.is_empty:
            return
        with self.facts.scope():
            if not holds_ever(self.facts, conditions):
                return
            for axis, (at, size) in enumerate(zip(indices, shape, strict=True)):
                condition = needed(self.facts, at, index(size), self.moving, guarded=bool(conditions))
                if condition is None:
                    continue
                does = "changes" if load is None else "reads"
                message = f"'{self.op.name}' {does} '{name}' at {at} in dimension {axis}, whose size is {size}"
                if condition is DATA:
                    self.found.append(OpenAccess(self.op, message, None, load, open_ends(self.facts, axis, at, size)))
                    continue
                never = [logical_not(c) for c in conditions if not self._moves(c)]
                self._found(self.outside.simplify(any_of(*self.nothing, *never, condition)), message, load)

    def _moves(self, e: Expr) -> bool:
        return bool(loads(e)) or any(v in self.moving for v in free_vars(e))


def _of_compute(op: ComputeOp, first_step: Expr | None, least: int = 0) -> list[OpenAccess]:
    """The accesses of ``op`` that are not proved to be in bounds, for sizes of at least ``least``."""
    ranges, reduced = _ranges(op.axis), _ranges(op.reduce_axis)
    if first_step is not None:
        time = op.axis[0]
        ranges[time.var] = (first_step, index(time.extent) - first_step)
    search = _Search(op, ranges | reduced, least=least)
    for load, conditions in accesses(op):
        search.read(load, conditions)
    # The values at which reductions start are read also where the reduction has no step.
    before = _Search(op, ranges, (e for pair in reduced.values() for e in pair), least)
    for load, conditions in _first_accesses(op):
        before.read(load, conditions)
    return search.found + before.found


def _of_update(op: UpdateOp) -> list[OpenAccess]:
    search = _Search(op, _ranges(op.axes), op.base.shape)
    for load, conditions in guarded_loads(op.condition, ()):
        search.read(load, conditions)
    happens = _and((), op.condition)
    for at in op.at:
        for load, conditions in guarded_loads(at, happens):
            search.read(load, conditions)
    inside = search.change(op.base, op.at, happens)
    for load, conditions in guarded_loads(op.value, (*happens, *inside)):
        search.read(load, conditions)
    return search.found


def _of_order(op: OrderOp) -> list[OpenAccess]:
    numbers = dict.fromkeys((op.a, op.b), (Const(0, INDEX), op.size))
    search = _Search(op, {**_ranges(op.axes), **numbers}, (op.count,))
    if not op.is_filtered:
        search.require(op.count <= op.size, f"'{op.name}' takes the first {op.count} of {op.size} numbers")
    for e in (op.among, *op.keys):
        for load, conditions in guarded_loads(e, ()):
            search.read(load, conditions)
    sorted_ones = _and(_and((), op.among), substitute(op.among, {op.a: op.b}))
    for e in (op.before, op.hides):
        for load, conditions in guarded_loads(e, sorted_ones):
            search.read(load, conditions)
    return search.found


def _ranges(axes: Iterable[IterVar]) -> dict[Var, tuple[Expr, Expr]]:
    return {a.var: (index(a.start), index(a.extent)) for a in axes}


def holds_ever(facts: Facts, conditions: Iterable[Expr]) -> bool:
    """State ``conditions``, one after the other; False if one of them is proved to hold never."""
    for c in conditions:
        if facts.prove(logical_not(c)):
            return False
        facts.assume(c)
    return True


def open_ends(facts: Facts, axis: int, at: Expr, size: Expr) -> Ends:
    """The ends at which an index is not proved to be inside."""
    return Ends(axis, not facts.nonnegative(at), not facts.nonnegative(index(size) - 1 - at))


def needed(facts: Facts, at: Expr, size: Expr, moving: list[Var], guarded: bool) -> Expr | None:
    """What must hold for an index to be in bounds: None if it is proved, a condition on sizes (false if it is outside
    for all of them), or ``DATA``."""
    if facts.nonnegative(at) and facts.nonnegative(size - 1 - at):
        return None
    if facts.prove(at < 0) or facts.prove(at >= size):
        return _FALSE
    limits = None if guarded or loads(at) else _ends(facts, at, moving)
    if limits is None:
        return DATA
    made = all_of(limits[0] >= 0, limits[1] < size)
    if any(v in moving for v in free_vars(made)) or not _are_values(facts, at, limits, moving):
        return DATA
    return made


def _ends(facts: Facts, at: Expr, moving: list[Var]) -> tuple[Expr, Expr] | None:
    """Limits of the values of an index; None unless it consists of linear terms, quotients, minima and maxima."""
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


def _are_values(facts: Facts, at: Expr, limits: tuple[Expr, Expr], moving: list[Var]) -> bool:
    """Whether an index certainly has the values ``limits``. Limits that it does not reach, such as those of the
    difference of two terms that move together, say nothing about sizes that they exclude."""
    low = high = at
    with facts.scope():
        for v in (v for v in moving if v in free_vars(at)):
            swept = facts.sweep(v, moving)
            if swept is None:
                return False
            facts.assume(swept.width >= 0)  # else nothing is read
            first, last = {v: swept.low}, {v: swept.low + swept.width}
            rises = facts.nonnegative(substitute(at, last) - substitute(at, first))
            if not rises and not facts.nonnegative(substitute(at, first) - substitute(at, last)):
                return False
            low, high = substitute(low, first if rises else last), substitute(high, last if rises else first)
        return facts.equal(low, limits[0]) and facts.equal(high, limits[1])


def accesses(op: ComputeOp) -> Iterator[tuple[Load, Conditions]]:
    """The loads in the body, each with the conditions under which it is evaluated; of reductions those of each step."""
    first = op.body[0]
    conditions: Conditions = ()
    if isinstance(first, Reduce):
        roots: tuple[Expr, ...] = first.sources
        yield from guarded_loads(first.condition, conditions)
        conditions = _and((), first.condition)
    else:
        roots = op.body
    seen: set[tuple[Expr, Conditions]] = set()
    for root in roots:
        yield from guarded_loads(root, conditions, seen)


def _first_accesses(op: ComputeOp) -> Iterator[tuple[Load, Conditions]]:
    """The loads of the values at which a reduction starts."""
    first = op.body[0]
    for start in (isinstance(first, Reduce) and first.init) or ():
        yield from guarded_loads(start, ())


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
    return conditions if isinstance(more, Const) and more.value else (*conditions, more)


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
