"""Reverse-mode differentiation of tensor expressions: the operations are traversed backwards once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from weft.expr.folds import all_of
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, Load, Var, make
from weft.expr.prove import Facts
from weft.expr.visit import free_vars, substitute
from weft.support.arguments import checked, optional
from weft.support.dtypes import BOOL, INDEX
from weft.support.errors import UserError
from weft.tensor_expr.api import TENSOR
from weft.tensor_expr.derivatives.inverse import ReadingSteps, readers
from weft.tensor_expr.derivatives.pairs import by_scan
from weft.tensor_expr.derivatives.reductions import (
    Others,
    Root,
    compute_op,
    has_rule,
    others,
    roots,
    roots_of_any,
    summed,
)
from weft.tensor_expr.derivatives.scalars import Part, both, changes_with, guarded, parts
from weft.tensor_expr.derivatives.scans import scan_adjoints
from weft.tensor_expr.derivatives.updates import update_roots
from weft.tensor_expr.nodes import ComputeOp, Operation, PlaceholderOp, Reduce, ScanOp, Tensor, UpdateOp
from weft.tensor_expr.verify import verify
from weft.tensor_expr.visit import read_tensors, topological


@checked("E110", output=TENSOR, head=optional(TENSOR))
def gradient(
    output: Tensor, inputs: Tensor | Expr | Sequence[Tensor | Expr], head: Tensor | None = None
) -> list[Tensor]:
    """The derivatives of ``output`` with respect to each of ``inputs``, as tensors to be scheduled like all others.

    ``head`` is the adjoint of ``output``: its shape ends in that of ``output``, and what comes before (nothing, if it
    has the shape of ``output``) also comes before the shape of each input in the results. Without ``head`` the results
    are whole Jacobians of shape ``(*output.shape, *input.shape)``, so for an output of shape () plain gradients.

    ``inputs`` are placeholders, scalar arguments (``te.var("x", "float32")``) or tensors in between. An input that
    ``output`` does not depend on has the derivative 0. Each element sums up what its readers pass on; where an index
    cannot be solved for the axes, as in ``A[rows[i]]``, steps of ``te.update`` add to the element one after another.

    Raises UserError E142 if an operation has no derivative, E143 if ``output`` or an input is not a tensor of floats,
    E144 if the head does not fit, E201 to E208 if ``output`` is not well formed.
    """
    wanted = [_input(x) for x in (inputs if isinstance(inputs, (list, tuple)) else (inputs,))]
    for t in (output, *wanted):
        if not t.dtype.is_float:
            raise UserError(f"'{t.name}' of {t.dtype} has no derivatives", code="E143", hint="convert it to floats")
    verify([output])
    order = topological([output])
    live = _dependent(order, wanted)
    for op in (op for op in order if isinstance(op, ScanOp)):
        _check_outside(op, wanted)
    made = _Reverse(order, live, _outer(output, head), output, head)
    made.run()
    return made.results(wanted)


def _check_outside(scan: ScanOp, wanted: Sequence[Tensor]) -> None:
    """Refuse (E142) derivatives with respect to what a scan computes of its states at each time."""
    depends = set(scan.states)
    for op in topological(scan.update, scan.states):
        if not depends.isdisjoint(read_tensors(op)):
            depends.update(op.output(n) for n in range(op.num_outputs))
    for t in wanted:
        if t in depends:
            raise UserError(
                f"the derivative with respect to '{t.name}' is not known: it is part of the steps of '{scan.name}'",
                code="E142",
                hint="differentiate with respect to what the steps read, or to results of the scan",
            )


def _input(x: Tensor | Expr) -> Tensor:
    if isinstance(x, Load) and isinstance(x.source, Tensor) and isinstance(x.source.op, PlaceholderOp):
        x = x.source if not x.source.shape else x
    if not isinstance(x, Tensor):
        raise UserError(f"te.gradient: '{x}' is not a tensor", code="E143", hint="give tensors or scalar arguments")
    return x


@dataclass(slots=True)
class _Adjoint:
    """What is known of the derivative with respect to a tensor, over ``axes`` (of the head, then of the tensor)."""

    tensor: Tensor
    axes: tuple[IterVar, ...]
    terms: list[Expr] = field(default_factory=list)
    """Expressions over ``axes``."""
    whole: list[Tensor] = field(default_factory=list)
    """Tensors over ``axes``."""


class _Reverse:
    """Adjoints of the tensors of ``live`` that the operations ``order`` read.

    They start at ``output``, whose adjoint is ``head``, or (None) at adjoints that are given before. ``of_steps``: the
    operations are steps of a scan, in which there are no scans.
    """

    def __init__(
        self,
        order: Sequence[Operation],
        live: Collection[Tensor],
        outer: tuple[IterVar, ...],
        output: Tensor | None = None,
        head: Tensor | None = None,
        of_steps: bool = False,
    ) -> None:
        self.of_steps = of_steps
        self.output, self.head = output, head
        self.order, self.live, self.outer = order, live, outer
        self.adjoints: dict[Tensor, _Adjoint] = {}
        self.done: dict[Tensor, Tensor] = {}
        self.others: dict[ComputeOp, Others] = {}

    def run(self) -> None:
        for op in reversed(self.order):
            if isinstance(op, ScanOp) or (isinstance(op, ComputeOp) and not has_rule(op) and not self.of_steps):
                self._pass_together(op)
                continue
            for n in range(op.num_outputs):
                if op.output(n) in self.live:
                    self._pass_on(op, n)

    def _pull(
        self,
        order: Sequence[Operation],
        known: Mapping[Tensor, Tensor],
        wanted: Sequence[Tensor],
        of_steps: bool = False,
    ) -> dict[Tensor, Tensor]:
        """The adjoints of ``wanted`` that ``order`` passes on from the adjoints ``known``."""
        inner = _Reverse(order, _dependent(order, wanted), self.outer, of_steps=of_steps)
        for t, adjoint in known.items():
            inner._adjoint(t).whole.append(adjoint)
        inner.run()
        return {t: inner._total(inner.adjoints[t]) for t in wanted if t in inner.adjoints and t not in known}

    def _pass_together(self, op: ScanOp | ComputeOp) -> None:
        """Add to the adjoints of what a scan, or a reduction of any values, is computed from."""
        known: dict[Tensor, Tensor] = {}
        for t in (op.output(n) for n in range(op.num_outputs)):
            if t in self.live and (t is self.output or t in self.adjoints):
                known[t] = self._first(t) if t is self.output else self._total(self._adjoint(t))
                self.done[t] = known[t]
        wanted = [t for t in read_tensors(op) if t in self.live]
        if not known:
            return
        if isinstance(op, ScanOp):
            for t, adjoint in scan_adjoints(op, known, self.live, self.outer, partial(self._pull, of_steps=True)):
                self._adjoint(t).whole.append(adjoint)
        elif wanted:
            last = by_scan(op)
            given = {last[t.value_index]: adjoint for t, adjoint in known.items()}
            order = topological(last, read_tensors(op))
            for t, adjoint in self._pull(order, given, wanted).items():
                self._adjoint(t).whole.append(adjoint)

    def results(self, wanted: Sequence[Tensor]) -> list[Tensor]:
        found = []
        for t in wanted:
            if t not in self.done:
                self.done[t] = self._first(t) if t is self.output else self._total(self._adjoint(t))
            found.append(self.done[t])
        return found

    def _first(self, output: Tensor) -> Tensor:
        """The adjoint of the output itself."""
        if self.head is not None:
            return self.head
        axes = self._adjoint(output).axes
        n = len(self.outer)
        same = all_of(*(make("eq", a.var, b.var) for a, b in zip(axes[:n], axes[n:], strict=True)))
        return compute_op(_name(output), axes, (), guarded(same, Const(1, output.dtype)))

    def _adjoint(self, t: Tensor) -> _Adjoint:
        if t not in self.adjoints:
            places = [IterVar(Var(f"i{d}", INDEX), e) for d, e in enumerate(t.shape)]
            outer = [IterVar(Var(a.var.name, INDEX), a.extent) for a in self.outer]
            self.adjoints[t] = _Adjoint(t, (*outer, *places))
        return self.adjoints[t]

    def _total(self, adjoint: _Adjoint) -> Tensor:
        """The sum of what all readers pass on."""
        if len(adjoint.whole) == 1 and not adjoint.terms:
            return adjoint.whole[0]
        at = tuple(a.var for a in adjoint.axes)
        body: Expr | None = None
        for term in (*adjoint.terms, *(Load(t, at) for t in adjoint.whole)):
            body = term if body is None else make("add", body, term)
        zero = Const(0, adjoint.tensor.dtype)
        return compute_op(_name(adjoint.tensor), adjoint.axes, (), zero if body is None else body)

    def _pass_on(self, op: Operation, n: int) -> None:
        """Add to the adjoints of what output ``n`` of ``op`` is computed from."""
        output = op.output(n)
        if isinstance(op, PlaceholderOp) or (output is not self.output and output not in self.adjoints):
            return
        if not any(t in self.live for t in read_tensors(op)):
            return
        if isinstance(op, UpdateOp):
            self._pass_through(op)
            return
        if not isinstance(op, ComputeOp):
            kind = type(op).__name__.removesuffix("Op").lower()
            raise UserError(
                f"the derivative of '{output.name}' is not known: it is made by te.{kind}",
                code="E142",
                hint="differentiate what comes before and after apart: te.gradient(…, [it]) and head=",
            )
        place = {a.var: a for a in op.axis}
        outer = tuple(a.var for a in self.outer)
        if output is self.output and self.head is None:
            seed: Expr = Const(1, output.dtype)
            place = {}
        else:
            known = self.head if output is self.output else self._total(self._adjoint(output))
            assert known is not None
            self.done[output] = known
            seed = Load(known, (*outer, *(a.var for a in op.axis)))
        same = {} if place else {a.var: o for a, o in zip(op.axis, outer, strict=True)}
        rest = None if has_rule(op) else self._others(op)
        for root in roots(op, n, seed) if rest is None else roots_of_any(op, n, seed, rest):
            for part in parts(root.value, root.adjoint, root.guard, self.live):
                self._add(part, root, same)

    def _others(self, op: ComputeOp) -> Others:
        if op not in self.others:
            self.others[op] = others(op)
        return self.others[op]

    def _pass_through(self, op: UpdateOp) -> None:
        """Add to the adjoints of the base of an update, and of what its steps read."""
        output = op.output(0)
        known = self._first(output) if output is self.output else self._total(self._adjoint(output))
        self.done[output] = known
        kept, steps = update_roots(op, known, self.outer)
        if op.base in self.live:
            self._adjoint(op.base).whole.append(kept)
        for root in steps:
            for part in parts(root.value, root.adjoint, root.guard, self.live):
                self._add(part, root, {})

    def _add(self, part: Part, root: Root, same: dict[Var, Var]) -> None:
        """Add what one load passes on. ``same`` are axes that equal axes of the results."""
        assert isinstance(part.load.source, Tensor)
        adjoint = self._adjoint(part.load.source)
        axes = [a for a in root.axes if a.var not in same]
        if any(isinstance(a.extent, Const) and int(a.extent) <= 0 for a in root.axes):
            return
        own = {o.var: a.var for o, a in zip(self.outer, adjoint.axes, strict=False)}
        rename: dict[Var, Expr] = {**own, **{v: own[o] for v, o in same.items()}}
        indices = [substitute(i, rename) for i in part.load.indices]
        guard, value = substitute(part.guard, rename), substitute(part.value, rename)
        at = [a.var for a in adjoint.axes[len(self.outer) :]]
        sizes = _sizes([adjoint.tensor], (e for a in (*axes, *adjoint.axes) for e in (a.extent, a.start)))
        found = readers(list(zip(indices, at, strict=True)), axes, adjoint.axes, sizes)
        if found is None:
            adjoint.whole.append(self._scattered(adjoint, axes, indices, guard, value))
            return
        condition, value = _simplified(found, adjoint.axes, sizes, guard, value)
        if found.axes:
            made = summed(value, found.axes, condition)
            adjoint.whole.append(compute_op(_name(adjoint.tensor), adjoint.axes, found.axes, made))
        else:
            adjoint.terms.append(guarded(condition, value))

    def _scattered(
        self, adjoint: _Adjoint, axes: Sequence[IterVar], indices: Sequence[Expr], guard: Expr, value: Expr
    ) -> Tensor:
        """Steps that add to the elements that were read: for indices that cannot be solved."""
        name = _name(adjoint.tensor)
        outer = adjoint.axes[: len(self.outer)]
        fresh = {a.var: Var(f"u{n}", INDEX) for n, a in enumerate((*outer, *axes))}
        moved: dict[Var, Expr] = {a.var: fresh[a.var] + a.start for a in (*outer, *axes)}
        steps = tuple(
            IterVar(fresh[a.var], a.extent, IterVar.SPATIAL if a in outer or _alone(a, indices) else IterVar.ORDERED)
            for a in (*outer, *axes)
        )
        base = compute_op(f"{name}_start", adjoint.axes, (), Const(0, value.dtype))
        state = PlaceholderOp(f"{name}_state", base.shape, base.dtype).output(0)
        at = tuple(substitute(i, moved) for i in (*(a.var for a in outer), *indices))
        new = make("add", Load(state, at), substitute(value, moved))
        return UpdateOp(name, base, steps, state, at, new, substitute(guard, moved)).output(0)


def _alone(axis: IterVar, indices: Sequence[Expr]) -> bool:
    return any(i is axis.var for i in indices)


def _simplified(
    found: ReadingSteps, known: Sequence[IterVar], sizes: Iterable[Var], guard: Expr, value: Expr
) -> tuple[Expr, Expr]:
    """Condition and value of the sum over the readers."""
    facts = Facts()
    for size in sizes:
        facts.bind_size(size, 0)
    for a in (*known, *found.axes):
        facts.bind(a)
    for c in found.conditions:
        facts.assume(c)
    guard = facts.simplify(substitute(guard, found.values))
    condition = both(all_of(*found.conditions), guard)
    if not (isinstance(guard, Const) and guard.value is True):
        facts.assume(guard)
    return condition, facts.simplify(substitute(value, found.values))


def _outer(output: Tensor, head: Tensor | None) -> tuple[IterVar, ...]:
    """The axes of the results before those of the inputs."""
    if head is None:
        return tuple(IterVar(Var(f"o{d}", INDEX), e) for d, e in enumerate(output.shape))
    count = head.ndim - output.ndim
    facts = Facts(_sizes([output, head]))
    fits = count >= 0 and all(facts.equal(a, b) for a, b in zip(head.shape[count:], output.shape, strict=True))
    if not fits or head.dtype != output.dtype:
        raise UserError(
            f"head {head!r} does not fit {output!r}",
            code="E144",
            hint="its shape must end in that of the output, and its dtype must be the same",
        )
    return tuple(IterVar(Var(f"o{d}", INDEX), e) for d, e in enumerate(head.shape[:count]))


def _dependent(order: Iterable[Operation], wanted: Sequence[Tensor]) -> set[Tensor]:
    """The tensors of floats that depend on ``wanted``, these included, and those of integers that hold bits of them."""
    live = set(wanted)
    for op in order:
        if any(t in live for t in read_tensors(op)):
            outputs = (op.output(n) for n in range(op.num_outputs))
            live.update(t for t in outputs if t.dtype.is_float or _holds_bits(t, live))
    return live


def _holds_bits(t: Tensor, live: Collection[Tensor]) -> bool:
    """Whether a tensor of integers holds bits of floats in ``live``."""
    op = t.op
    if isinstance(op, ScanOp):
        return op.init[t.value_index] in live or op.update[t.value_index] in live
    if isinstance(op, UpdateOp):
        return op.base in live or (t.dtype != BOOL and changes_with(op.value, live))
    if not isinstance(op, ComputeOp) or t.dtype == BOOL:
        return False
    body = op.body[t.value_index]
    if isinstance(body, Reduce):
        return any(changes_with(e, live) and not e.dtype.is_float for e in (*body.sources, *body.first))
    return changes_with(body, live)


def _sizes(tensors: Sequence[Tensor], more: Iterable[Expr] = ()) -> tuple[Var, ...]:
    return free_vars(*(d for t in tensors for d in t.shape), *more)


def _name(t: Tensor) -> str:
    return f"d_{t.name.replace('.', '_')}"
