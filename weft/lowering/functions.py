"""A whole module as instructions: functions, closures, data, ``match``, and operators that run on the host.

Each function becomes a contiguous range of instructions with its own window of buffers and registers. An inner function
is lifted out, and the values that it captures become additional parameters. Values passed between functions are
objects. Values that only one function uses are in the arena, except for those needed after a call, because the called
function may use the same memory. See "Functions and data" in docs/design.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from weft.expr.nodes import ExprLike, index
from weft.expr.nodes import Var as Symbol
from weft.graph.nodes import (
    Call,
    Constructor,
    Function,
    GraphExpr,
    If,
    Let,
    Match,
    Module,
    Tuple,
    Var,
)
from weft.graph.operator import Operator
from weft.graph.passes.aliases import with_checks
from weft.graph.passes.memory import Lives, MemoryPlan, execution_order, is_straight, plan_lives
from weft.graph.types import DataType, TensorType, TupleType, Type
from weft.lowering.control_parts import Goto, Label, Opaque, Place, assembled, flat, is_object, unsupported
from weft.lowering.function_table import Functions, Job, as_values
from weft.lowering.function_values import ValueEmitter, paired
from weft.lowering.shared import Instructions, Shared
from weft.lowering.verify_memory import verify_memory
from weft.runtime.program import (
    Allocate,
    BufferSpec,
    Check,
    FunctionSpec,
    Give,
    Invoke,
    Return,
    SetSize,
    Take,
)
from weft.support.dtypes import INDEX


def lower_functions(module: Module, names: dict[Symbol, str], shared: Shared, spaces: int) -> Instructions:
    """The instructions that run ``module``.

    ``names`` maps the sizes of the inputs to registers; sizes bound at run time are added to it. ``shared`` answers
    queries about the call of a fused group. ``spaces`` is the number of memory spaces besides the main memory. Raises
    ModelError (M020) if functions would have to be passed into or out of the program.
    """
    work = Functions(module, shared, as_values(module))
    main = _Unit(work, work.scopes(module.main), module.main, names, tuple(module.attrs.get("requires", ())))
    main.run_main()
    units = []
    while work.jobs:
        job = work.jobs.pop(0)
        unit = _Unit(work, job.scopes, job.function, {})
        unit.run_function(job)
        units.append(unit)
    return _finished(work, main, units, spaces)


class _Unit(ValueEmitter):
    """One function of the program."""

    # -- emitting a function -------------------------------------------------------------------------------------------

    def run_main(self) -> None:
        self.is_main = True
        if is_straight(self.function):
            order = execution_order(self.function, workspace=self.shared.workspace)
            self.is_straight = True
            self.members = {(self.function, 0): with_checks(order, self.function.body)}
        for i, p in enumerate(self.function.params):
            (t,) = flat(p.type) if not isinstance(p.type, TupleType) else (None,)
            if t is None or (isinstance(t, Opaque) and not isinstance(t.holds, DataType)):
                raise unsupported(f"takes the input '{p.name}' of type {p.type}")
            place = self.place(t, "input", i, space=self._where_read(p, t))
            self.made[p] = [place]
            if is_object(t):
                self.emit(Take(place.number, i))
                self._learn([(place, t)], f"input '{p.name}'")
        self._flush_requires()
        body = self.function.body
        fields = body.fields if isinstance(body, Tuple) else (body,)
        types = flat(TupleType(tuple(f.type for f in fields)))
        for t in types:
            if isinstance(t, Opaque) and not isinstance(t.holds, DataType):
                raise unsupported(f"gives a result of type {t.holds}")
        self._demand_all(())
        outputs = [
            None if is_object(t) else self.place(t, "output", i, space=self._where_made(body, i))
            for i, t in enumerate(types)
        ]
        self._claim(body, outputs, types)
        self._block(self.function, 0)
        for i, (source, target, t) in enumerate(zip(self.leaves(body), outputs, types, strict=True)):
            if target is None:
                self.emit(Give(source.number, i))
            elif source is not target:
                self._copy(source, target, t)
        self.output_types = types
        inputs = [self.made[p][0].space for p in self.function.params]
        self.port_spaces = inputs, [p.space if p is not None else 0 for p in outputs]

    def _where_read(self, p: Var, t: TensorType) -> int:
        """The space of an input: the space of the kernels that read it if all of them use the same one, else main
        memory."""
        if is_object(t) or p is self.function.body:
            return 0
        users = self.scopes.users(p)
        spaces = {self._space(u) for u in users}
        return spaces.pop() if len(spaces) == 1 else 0

    def _where_made(self, body: GraphExpr, i: int) -> int:
        """The space of an output: the space of the kernel that computes it, else main memory."""
        made_by = self._maker(body, i)
        return self._space(made_by[0]) if made_by is not None else 0

    def run_function(self, job: Job) -> None:
        params = [self._parameters(p, p.type) for p in self.function.params]
        captured = [self._parameters(e, e.type) for e in job.captured]
        sizes = [self.object(TensorType((), INDEX)) for _ in job.sizes]
        for symbol, place in zip(job.sizes, sizes, strict=True):
            self.emit(SetSize(self._bind(symbol), buffer=place.number))
        given = [x for p, places in zip(self.function.params, params, strict=True) for x in paired(places, p.type)]
        held = [x for e, places in zip(job.captured, captured, strict=True) for x in paired(places, e.type)]
        self._learn(given, f"an argument of @{job.name}", whole=job.open)
        self._learn(held, "what a function captures")
        self._demand_all((self.function.body,))
        self._finish(self.function, 0, self.function.body)
        self.job = job
        self.parameters = tuple(p.number for places in params for p in places)
        self.captured = tuple(p.number for places in (*captured, sizes) for p in places)
        self.results = len(flat(self.function.body.type))

    def _parameters(self, e: GraphExpr, t: Type) -> list[Place]:
        self.made[e] = [self.object(part) for part in flat(t)]
        return self.made[e]

    def function_spec(self, entry: int, end: int) -> FunctionSpec:
        window = (self.places[0].number, self.places[-1].number + 1) if self.places else (0, 0)
        return FunctionSpec(self.job.name, entry, end, window, self.parameters, self.captured, self.results)

    # -- the end of a function -----------------------------------------------------------------------------------------

    def _finish(self, owner: GraphExpr, slot: int, result: GraphExpr) -> None:
        """Emit a block whose value is the result of the function: each path through it ends with a return or a tail
        call."""
        final = result
        while isinstance(final, Let) and final not in self.pending:
            final = final.body
        special = isinstance(final, (If, Match)) or (
            isinstance(final, Call) and not isinstance(final.target, (Operator, Function, Constructor))
        )
        self._block(owner, slot, final if special else None)
        if not special or final in self.made:
            self._return(final)
            return
        if final in self.pending.places:  # if the value is already computed, return it
            again = Label()
            self.emit(Goto(again, (self.pending.flags[final],)))
            with self._branch(), self._unchecked():
                self.made[final] = self.pending.places[final]
                self._return(final)
            self.emit(again)
        if isinstance(final, Call):
            self._invoke(final, tail=True)
        elif isinstance(final, If):
            self._finish_if(final)
        else:
            assert isinstance(final, Match)
            self._finish_match(final)

    def _return(self, e: GraphExpr) -> None:
        values = self._objects([e])
        self.emit(Return(tuple(p.number for p in values)))

    def _finish_if(self, e: If) -> None:
        condition, otherwise = self._name("if"), Label()
        self.emit(SetSize(condition, buffer=self._seen(e.condition)))
        self.emit(Goto(otherwise, (condition,)))
        with self._branch(), self._unchecked():
            self._finish(e, 1, e.then)
        self.emit(otherwise)
        with self._branch(), self._unchecked():
            self._finish(e, 2, e.otherwise)

    def _finish_match(self, e: Match) -> None:
        for slot, (pattern, body) in enumerate(e.clauses, 1):
            missed = Label()
            with self._branch(), self._unchecked():
                fails = self._pattern(e.value, pattern, missed)
                self._finish(e, slot, body)
            self.emit(missed)
            if not fails:
                return
        self.emit(Check((0,), "no clause of a match fits"))

    # -- memory --------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Measure lifetimes. A value needed after a call of a function cannot be in the arena, which all functions
        share."""
        self.measure()
        calls = [at for at, item in enumerate(self.items) if isinstance(item, Invoke)]
        for p in self.places if not self.is_main else ():
            after = bisect_right(calls, p.first)
            if p.kind == "arena" and after < len(calls) and calls[after] < p.last:
                p.late = True
        self.exchange()

    def instructions(self) -> list[Any]:
        """The items, without the allocations of places that are in the arena."""
        places = self.work.shared.places
        return [i for i in self.items if not isinstance(i, Allocate) or places[i.buffer].late]


def _planned(main: _Unit, units: Sequence[_Unit], space: int, offsets: dict[Place, ExprLike]) -> Lives:
    """Assign offsets to the places in the arena of a space. The result includes the memory of all functions."""
    area = 0  # all functions share this area: values needed after a call are not in it
    for unit in units:
        arena = unit.stretches_of_memory(space)
        lives = plan_lives([(p.nbytes, first, last) for p, first, last in arena])
        assert isinstance(lives.total, int)
        offsets.update((p, o) for (p, _, _), o in zip(arena, lives.offsets, strict=True))
        area = max(area, lives.total)
    arena = main.stretches_of_memory(space)
    lives = plan_lives([(p.nbytes, first, last) for p, first, last in arena])
    offsets.update((p, _plus(area, o)) for (p, _, _), o in zip(arena, lives.offsets, strict=True))
    return Lives((), _plus(area, lives.total), lives.largest + area, lives.assumed + area)


def _finished(work: Functions, main: _Unit, units: Sequence[_Unit], spaces: int) -> Instructions:
    offsets: dict[Place, ExprLike] = {}
    for unit in (main, *units):
        unit.settle()
    arenas = [_planned(main, units, space, offsets) for space in range(spaces + 1)]
    plan = MemoryPlan(
        tuple(work.shared.calls),
        arenas[0].total,
        sum(a.largest for a in arenas),
        sum(a.assumed for a in arenas),
        spaces=tuple(a.total for a in arenas[1:]),
    )
    specs: dict[Place, BufferSpec] = {}
    items: list[Any] = []
    labels = []
    end = Label()
    leave = [Goto(end)] if units else []
    for unit in (main, *units):
        verify_memory(unit.items, unit.shared.places, offsets, plan, unit.written, unit.exchanges)
        unit.free_late()
        specs.update((p, unit.spec(p, offsets.get(p.memory, 0))) for p in unit.places)
        labels.append((Label(), Label()))
        items += [labels[-1][0], *unit.instructions(), *(leave if unit is main else []), labels[-1][1]]
    instructions = assembled([*items, end])
    functions = tuple(u.function_spec(a.at, b.at) for u, (a, b) in zip(units, labels[1:], strict=True))
    buffers = tuple(specs[p] for p in work.shared.places)
    constants = tuple(work.shared.constants)
    types, hosts = tuple(main.output_types), tuple(work.hosts)
    return Instructions(instructions, buffers, constants, types, functions, hosts, plan, *main.port_spaces)


def _plus(a: ExprLike, b: ExprLike) -> ExprLike:
    return a + b if isinstance(a, int) and isinstance(b, int) else index(a) + index(b)
