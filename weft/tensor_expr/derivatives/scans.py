"""Derivatives of recurrences: a scan that runs backwards through the stored states.

The steps of a scan are operations over all times, which read earlier times of the states. Traversed backwards, they
give the adjoint of a state at a time from adjoints at later times. With the time reversed that is a scan again, whose
states are the adjoints of the states and those of the operations between them that other times read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, Load, Var, make
from weft.expr.prove import Facts
from weft.expr.visit import free_vars, rewrite, substitute
from weft.support.dtypes import INDEX
from weft.support.errors import UserError
from weft.tensor_expr.bounds import accesses, scan_steps
from weft.tensor_expr.derivatives.reductions import compute_op
from weft.tensor_expr.derivatives.scalars import both, guarded
from weft.tensor_expr.nodes import ComputeOp, Operation, PlaceholderOp, Reduce, ScanOp, Tensor, UpdateOp
from weft.tensor_expr.visit import read_tensors, topological

Pull = Callable[[Sequence[Operation], Mapping[Tensor, Tensor], Sequence[Tensor]], Mapping[Tensor, Tensor]]
"""From operations, adjoints of some of their results and what derivatives are wanted of: the adjoints of these."""

_ZERO: Final = Const(0, INDEX)


def scan_adjoints(
    op: ScanOp, known: Mapping[Tensor, Tensor], live: Collection[Tensor], outer: tuple[IterVar, ...], pull: Pull
) -> list[tuple[Tensor, Tensor]]:
    """What ``op`` adds to the adjoints of the tensors of ``live`` that it reads, from those known of its results.

    Raises UserError E142 if steps are not operations of one time each.
    """
    steps = _steps(op)
    inner = {t: made for old, new in steps.items() for t, made in zip(_outputs(old), _outputs(new), strict=True)}
    shapes = [tuple(a.extent for a in outer) + s.shape for s in op.states]
    marks = [PlaceholderOp(f"d_{s.name}", e, s.dtype).output(0) for s, e in zip(op.states, shapes, strict=True)]
    floats = [n for n, s in enumerate(op.states) if s.dtype.is_float]
    bounds = dict.fromkeys(t for s in steps for t in read_tensors(s) if t not in inner and t not in op.states)
    bounds.update(dict.fromkeys(u for u in op.update if u not in inner))
    wanted = [t for t in bounds if t in live]
    states = [op.states[n] for n in floats]
    seeds: list[tuple[Tensor, Tensor]] = [(inner[op.update[n]], marks[n]) for n in floats if op.update[n] in inner]
    found: dict[Tensor, list[Tensor]] = {}
    for result, mark in seeds:  # two states may have the same update
        for t, part in pull(list(steps.values()), {result: mark}, [*states, *wanted]).items():
            found.setdefault(t, []).append(part)
    back = _Backwards(op, outer, {s: op.output(n) for n, s in enumerate(op.states)})
    for n in floats:
        given = known.get(op.output(n))
        back.sum_of(marks[n], [*(() if given is None else (given,)), *found.get(op.states[n], ())])
    results = [(t, part) for t in wanted for part in found.get(t, ())]
    for n in floats:
        if op.update[n] in wanted:
            axes = [IterVar(Var(f"i{d}", INDEX), e) for d, e in enumerate(shapes[n])]
            value = guarded(axes[len(outer)].var >= op.axis.start, Load(marks[n], tuple(a.var for a in axes)))
            results.append((op.update[n], compute_op(f"{marks[n].name}_set", axes, (), value)))
        if op.init[n] in live:
            axes = [*outer, *(IterVar(Var(f"i{d}", INDEX), e) for d, e in enumerate(op.init[n].shape))]
            value = Load(marks[n], tuple(a.var for a in axes))
            results.append((op.init[n], compute_op(f"{marks[n].name}_init", axes, (), value)))
    made = back.whole([t for _, t in results])
    return [(t, new) for (t, _), new in zip(results, made, strict=True)]


def _steps(op: ScanOp) -> dict[ComputeOp, ComputeOp]:
    """The operations that are computed step by step, and copies of them that read nothing before the first step."""
    copies: dict[ComputeOp, ComputeOp] = {}
    changed: dict[Tensor, Tensor] = {}
    for step in scan_steps(op, topological([op.output(0)]), ()):
        if not isinstance(step, ComputeOp) or not step.axis or step.axis[0].extent is not op.states[0].shape[0]:
            raise _unknown(op.name, f"its step '{step.name}' is no computation over its times")
        copies[step] = _copied(step, lambda e: _moved(e, changed), op.axis.start)
        changed.update(zip(_outputs(step), _outputs(copies[step]), strict=True))
    return copies


def _outputs(op: Operation) -> list[Tensor]:
    return [op.output(n) for n in range(op.num_outputs)]


def _moved(e: Expr, changed: Mapping[Tensor, Tensor]) -> Expr | None:
    if not isinstance(e, Load) or not isinstance(e.source, Tensor) or e.source not in changed:
        return None
    return Load(changed[e.source], e.indices)


def _unknown(name: str, why: str) -> UserError:
    return UserError(
        f"the derivative of '{name}' is not known: {why}",
        code="E142",
        hint="differentiate what comes before and after apart: te.gradient(…, [it]) and head=",
    )


def _copied(op: ComputeOp, change: Callable[[Expr], Expr | None], start: Expr = _ZERO) -> ComputeOp:
    """``op`` with loads changed. Before ``start`` of its first axis it reads nothing, and its elements are 0."""
    axes = {a.var: Var(a.var.name, INDEX) for a in (*op.axis, *op.reduce_axis)}
    outer = tuple(IterVar(axes[a.var], a.extent) for a in op.axis)
    inner = tuple(IterVar(axes[a.var], a.extent, IterVar.REDUCE, a.start) for a in op.reduce_axis)
    body = []
    for old in op.body:
        e = rewrite(substitute(old, axes), change)
        if isinstance(e, Reduce):
            e = replace(e, axes=inner)
        if not (isinstance(start, Const) and start.value == 0):
            e = _from(e, outer[0].var >= start)
        body.append(e)
    return ComputeOp(op.name, outer, inner, tuple(body), op.attrs)


def _from(e: Expr, holds: Expr) -> Expr:
    if not isinstance(e, Reduce):
        return guarded(holds, e)
    init = None if e.init is None else tuple(guarded(holds, v) for v in e.init)
    return replace(e, condition=both(holds, e.condition), init=init)


@dataclass(slots=True)
class _Backwards:
    """The scan of adjoints, from the last time to the first.

    Adjoints are made as tensors over (*outer, time, …). Those that depend on adjoints of states become steps of the
    scan over (time from the end, *outer, …): at one time they read each other, of other times they read states.
    """

    scan: ScanOp
    outer: tuple[IterVar, ...]
    stored: Mapping[Tensor, Tensor]
    """For each state of the scan its result, which holds what the state was at all times."""
    alias: dict[Tensor, Tensor] = field(default_factory=dict)
    """For what stands for the adjoint of a state: the sum of all that is known of it."""
    recurring: set[Tensor] = field(default_factory=set)
    """Tensors that depend on adjoints of states."""
    changed: dict[Tensor, Tensor] = field(default_factory=dict)
    """Other tensors, reading results in the place of states."""
    steps: dict[Tensor, Tensor | None] = field(default_factory=dict)
    """Tensors as steps of the new scan; None while one is being made."""
    states: dict[Tensor, Tensor] = field(default_factory=dict)

    @property
    def times(self) -> Expr:
        return self.scan.states[0].shape[0]

    def sum_of(self, mark: Tensor, given: Sequence[Tensor]) -> None:
        axes = [IterVar(Var(f"i{d}", INDEX), e) for d, e in enumerate(mark.shape)]
        total: Expr | None = None
        for t in given:
            term = Load(t, tuple(a.var for a in axes))
            total = term if total is None else make("add", total, term)
        self.alias[mark] = compute_op(mark.name, axes, (), Const(0, mark.dtype) if total is None else total)

    def whole(self, wanted: Sequence[Tensor]) -> list[Tensor]:
        """``wanted`` over all times, without what stood for adjoints of states."""
        sums = list(self.alias.values())
        order = topological([*sums, *wanted], (*self.alias, *self.stored, *self.stored.values()))
        self.recurring = {*self.alias, *sums}
        for op in order:
            reads = read_tensors(op)
            if not self.recurring.isdisjoint(reads):
                self.recurring.update(_outputs(op))
        for op in order:
            if self.recurring.isdisjoint(_outputs(op)):
                self._change(op, self._stored)
        for t in sums:
            self._state(t)
        made: list[Tensor] = []
        while len(made) < len(self.states):  # steps add states
            made.append(self._step(list(self.states)[len(made)]))
        results = self._run(list(self.states), made)
        n = len(self.outer)

        def of_results(e: Expr) -> Expr | None:
            if not isinstance(e, Load):
                return None
            source = self.alias.get(e.source, e.source) if isinstance(e.source, Tensor) else e.source
            if source not in results:
                return self._stored(e)
            rest = (*e.indices[:n], *e.indices[n + 1 :])
            return Load(results[source], (self.times - 1 - e.indices[n], *rest))

        for op in order:
            if not self.recurring.isdisjoint(_outputs(op)) and op.output(0) not in results:
                self._change(op, of_results)
        return [self.changed.get(t, t) for t in wanted]

    def _stored(self, e: Expr) -> Expr | None:
        """A load of a state, from the result; one of another tensor, from what it became."""
        return _moved(e, self.stored if isinstance(e, Load) and e.source in self.stored else self.changed)

    def _change(self, op: Operation, change: Callable[[Expr], Expr | None]) -> None:
        """Note what ``op`` becomes, if it reads what changed."""
        reads = read_tensors(op)
        if all(t not in self.stored and t not in self.changed and t not in self.recurring for t in reads):
            return
        if isinstance(op, ComputeOp):
            new: Operation = _copied(op, change)
        elif isinstance(op, UpdateOp):
            at, value, condition = (
                tuple(rewrite(i, change) for i in op.at),
                rewrite(op.value, change),
                rewrite(op.condition, change),
            )
            base = self.changed.get(op.base, op.base)
            new = replace(op, base=base, at=at, value=value, condition=condition, made={})
        else:
            raise _unknown(self.scan.name, f"its steps depend on '{op.name}'")
        self.changed.update(zip(_outputs(op), _outputs(new), strict=True))

    def _state(self, t: Tensor) -> Tensor:
        if t not in self.states:
            n = len(self.outer)
            shape = (self.times, *t.shape[:n], *t.shape[n + 1 :])
            self.states[t] = PlaceholderOp(f"{t.name}_later", shape, t.dtype).output(0)
        return self.states[t]

    def _step(self, t: Tensor) -> Tensor:
        if t in self.steps:
            made = self.steps[t]
            if made is None:
                raise _unknown(self.scan.name, f"'{t.name}' depends on itself at the same time")
            return made
        self.steps[t] = None
        op, n = t.op, len(self.outer)
        if (
            not isinstance(op, ComputeOp)
            or op.num_outputs > 1
            or len(op.axis) <= n
            or op.axis[n].extent is not self.times
        ):
            raise _unknown(self.scan.name, "its steps read states at places that are known only when it runs")
        time = IterVar(Var("t", INDEX), self.times)
        fresh = {a.var: Var(a.var.name, INDEX) for a in (*op.axis, *op.reduce_axis)}
        outer = tuple(IterVar(fresh[a.var], a.extent) for d, a in enumerate(op.axis) if d != n)
        inner = tuple(IterVar(fresh[a.var], a.extent, IterVar.REDUCE, a.start) for a in op.reduce_axis)
        facts = Facts()
        for size in free_vars(*(e for a in (time, *outer, *inner) for e in (a.extent, a.start))):
            facts.bind_size(size, 0)
        for a in (time, *outer, *inner):
            facts.bind(a)
        body = substitute(op.body[0], {**fresh, op.axis[n].var: self.times - 1 - time.var})
        if isinstance(body, Reduce):
            body = replace(body, axes=inner)
        now = self._of_now(ComputeOp(op.name, (time, *outer), inner, (body,)), time.var, facts)

        def change(e: Expr) -> Expr | None:
            if not isinstance(e, Load) or not isinstance(e.source, Tensor):
                return None
            source = self.alias.get(e.source, e.source)
            if source not in self.recurring:
                return self._stored(e)
            rest = (*e.indices[:n], *e.indices[n + 1 :])
            if now[source, e.indices[n]]:
                return Load(self._step(source), (time.var, *rest))
            return Load(self._state(source), (facts.simplify(self.times - 1 - e.indices[n]), *rest))

        made = ComputeOp(op.name, (time, *outer), inner, (rewrite(body, change),)).output(0)
        self.steps[t] = made
        return made

    def _of_now(self, op: ComputeOp, time: Var, facts: Facts) -> dict[tuple[Tensor, Expr], bool]:
        """For each step and time that ``op`` reads: whether this is ``time``, not one before."""
        found: dict[tuple[Tensor, Expr], bool] = {}
        for load, conditions in accesses(op):
            source = self.alias.get(load.source, load.source) if isinstance(load.source, Tensor) else None
            if source not in self.recurring or source is None:
                continue
            at = load.indices[len(self.outer)]
            with facts.assuming(*conditions):
                when = self.times - 1 - at
                same = facts.equal(when, time)
                known = same or facts.nonnegative(time - when - 1)
            if not known or found.setdefault((source, at), same) is not same:
                raise _unknown(self.scan.name, "its steps read states at times that are not known to be earlier")
        return found

    def _run(self, tensors: Sequence[Tensor], updates: Sequence[Tensor]) -> dict[Tensor, Tensor]:
        states = tuple(self.states[t] for t in tensors)
        inits = []
        for s in states:
            axes = [IterVar(Var(f"i{d}", INDEX), e) for d, e in enumerate((_ZERO, *s.shape[1:]))]
            inits.append(compute_op(f"{s.name}_start", axes, (), Const(0, s.dtype)))
        axis = IterVar(Var("t", INDEX), self.times, IterVar.ORDERED, _ZERO)
        name = f"d_{self.scan.name}"
        scan = ScanOp(name, axis, tuple(inits), tuple(updates), states, ())
        return {t: scan.output(n) for n, t in enumerate(tensors)}
