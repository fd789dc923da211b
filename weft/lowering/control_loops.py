"""Loops as instructions of the executor.

A loop is one jump back around the instructions of its body. What its iterations share is computed in front of it. If
that may fail or never end, it is computed only if there is an iteration: a jump leads around it (*entry* of the loop,
see :mod:`weft.graph.scope`). The next state is copied over the state; rows are appended to the collected ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.expr.nodes import Var as Symbol
from weft.expr.nodes import index, make
from weft.graph import dims
from weft.graph.demand import surely_runs
from weft.graph.nodes import GraphExpr, Loop
from weft.graph.scope import entry_of
from weft.graph.types import Dim, TensorType, TupleType, Type
from weft.lowering.control_flow import Emitter
from weft.lowering.control_parts import Column, Goto, Label, Place, dealt, flat, flat_all, is_object
from weft.lowering.pending import is_emitted
from weft.lowering.sizes import same_count
from weft.runtime.program import Check, Copy, Reserve, SetSize, SizeExpr


class LoopEmitter(Emitter):
    """Emits loops, besides what an :class:`Emitter` emits."""

    def _other(self, e: GraphExpr) -> None:
        if isinstance(e, Loop):
            self._loop(e)
        else:
            super()._other(e)

    def _loop(self, e: Loop) -> None:
        params = [p.type for p in e.body.params]
        varying = self._fresh(TupleType(tuple(params)))
        states, columns = self._loop_places(e, params)
        self._agree(TupleType(tuple(params)), TupleType(tuple(s.type for s in e.state)), varying)
        for target, source, t in zip(
            states, [p for s in e.state for p in self.leaves(s)], flat_all(e.state), strict=True
        ):
            self._copy(source, target, t)
        self.made.update(dealt(e.body.params, states))
        number, going = self._bind(e.index), self._name("going") if e.going is not None else None
        self.emit(SetSize(number, (0,)))
        if e.going is not None and going is not None:
            self.emit(SetSize(going, buffer=self._seen(e.going)))
        start, end = Label(), Label()
        self.emit(Label(tuple(c.place.number for c in columns)))
        conditions = self._go_on(e, number, going)
        with self._branch(), self._unchecked():
            self._enter(e, conditions, end)
            begin = len(self.items)
            self.emit(start)
            for condition in conditions:
                self.emit(Goto(end, condition))
            self._block(e.body, 0)
            self._step(e, states, columns, number, going, params, varying)
            self.emit(Goto(start))
        self.emit(end)
        self.ranges.append((begin, len(self.items) - 1))
        if isinstance(e.count, Symbol) and e.count is not e.trips:
            self._set(self._bind(e.count), e.index)
        self._agree(TupleType(e.results[: len(e.state)]), TupleType(tuple(params)))
        self.made[e] = [*states, *(c.place for c in columns)]

    def _step(
        self,
        e: Loop,
        states: Sequence[Place],
        columns: Sequence[Column],
        number: str,
        going: str | None,
        params: Sequence[Type],
        varying: Sequence[Symbol],
    ) -> None:
        """The end of an iteration: its rows, the next state, and whether there is another one."""
        results, made, at = self.leaves(e.body.body), e.body.body.type, len(states)
        assert isinstance(made, TupleType)
        next_types = made.fields[e.first_state : e.first_state + len(e.state)]
        if going is not None:
            self.emit(SetSize(going, buffer=self._at(results[0], flat(made)[0], 0).number))
        results = results[e.first_state :]
        for column, row, t in zip(columns, results[at:], flat(made)[e.first_state + at :], strict=True):
            self._append(column, row, t, number)
        self._advance(states, results[:at], next_types, params, varying)
        self.emit(SetSize(number, (number, 1, "add")))

    def _enter(self, e: Loop, conditions: Sequence[SizeExpr], end: Label) -> None:
        """Emit what the iterations share and only they need; jump to ``end`` before if there may be no iteration."""
        slot = entry_of(e)
        shared = any(x is not e.body and is_emitted(x) for x in self.members.get((e, slot), ()))
        for condition in conditions if shared and not surely_runs(e) else ():
            self.emit(Goto(end, condition))
        self._nodes(e, slot, None)

    def _go_on(self, e: Loop, number: str, going: str | None) -> list[SizeExpr]:
        """The conditions that must all hold for another iteration."""
        found: list[SizeExpr] = [] if going is None else [(going,)]
        return found if e.trips is None else [*found, (number, *self._size(e.trips), "lt")]

    def _loop_places(self, e: Loop, params: Sequence[Type]) -> tuple[list[Place], list[Column]]:
        """Places of the loop state, which are those of the result, and columns for the collected tensors."""
        types, inner = flat(e.type), flat(TupleType(tuple(params)))
        states = []
        for i, (t, p) in enumerate(zip(types, inner, strict=False)):
            fixed = same_count(t.shape, p.shape)
            place = self.wanted.get((e, i)) if fixed else None
            states.append(place or self.place(t, late=not fixed))
        columns = []
        for i, t in enumerate(types[len(states) :], len(states)):
            known = all(self._known(s) for s in dims.symbols(t))
            wanted = self.wanted.get((e, i)) if known else None
            place = wanted or self.place(t, late=not known)
            fresh = [s for s in dict.fromkeys(dims.symbols(t.shape[1:])) if not self._known(s)]
            for s in fresh:
                self.emit(SetSize(self._bind(s), (0,)))
            self._allocate(place, self._bytes(t) if known else 0)
            columns.append(Column(place, t, known, frozenset(fresh)))
        return states, columns

    def _append(self, column: Column, row: Place, t: TensorType, number: str) -> None:
        """Append a row to the collected ones. All rows must have the same size."""
        for declared, actual in zip(column.type.shape[1:], t.shape, strict=True):
            if declared is actual or declared == actual:
                continue
            same = self._size(make("eq", index(declared), index(actual)))
            free = (number, 0, "eq") if declared in column.fresh else (0,)
            self.emit(Check((*same, *free, "or"), "the rows that a loop collects have different sizes"))
            if isinstance(declared, Symbol) and declared in column.fresh:
                self._set(self.names[declared], actual)
        nbytes = self._size(self._bytes(t))
        offset = (number, *nbytes, "mul")
        if not column.known:
            self.emit(Reserve(column.place.number, (*offset, *nbytes, "add")))
        self.emit(Copy(row.number, column.place.number, nbytes, target_offset=offset))

    def _advance(
        self,
        states: Sequence[Place],
        made: Sequence[Place],
        made_types: Sequence[Type],
        params: Sequence[Type],
        varying: Sequence[Symbol],
    ) -> None:
        """Copy the new state to the places of the state. A value that a copy would overwrite first is saved before."""
        types = [t for one in made_types for t in flat(one)]
        moves = [(s, d, t) for s, d, t in zip(made, states, types, strict=True) if s is not d]
        overwritten = {d for _, d, _ in moves}
        safe = []
        for source, target, t in moves:
            if source in overwritten:
                source, original = self.object(t) if is_object(t) else self._room(self._bytes(t)), source
                self._copy(original, source, t)
            safe.append((source, target, t))
        values: list[tuple[Symbol, Dim]] = []
        for p, t in zip(flat(TupleType(tuple(params))), types, strict=True):
            for x, y in zip(p.shape, t.shape, strict=True):
                if isinstance(x, Symbol) and x in varying and all(x is not s for s, _ in values):
                    values.append((x, y))
                elif x is not y and x != y:
                    known = dims.substitute(index(x), dict(values))
                    self.emit(
                        Check(self._size(make("eq", known, index(y))), f"a size of a loop that must be {x} is {y}")
                    )
        for source, target, t in safe:
            self._copy(source, target, t)
        later = [(s, self._name("next"), v) for s, v in values if s is not v]
        for _, name, v in later:
            self._set(name, v)
        for s, name, _ in later:
            self.emit(SetSize(self.names[s], (name,)))
