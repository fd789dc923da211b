"""Programs with control flow, or with sizes known only at run time, as instructions of the executor.

A block of the graph becomes a contiguous range of instructions: its nodes in post-order, with the branches of an ``if``
and the body of a loop in place and jumps around them. Tensors get *places* (buffers). Places of known size are in the
arena, which is planned over the order of the instructions. Other places are allocated where they are computed and freed
after their last use. See "Dynamic programs" in docs/design.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from weft.expr.folds import product
from weft.expr.nodes import Const, Expr, ExprLike, index, make, maximum
from weft.expr.nodes import Var as Symbol
from weft.graph import dims
from weft.graph.nodes import Call, Constant, GraphExpr, If, Let, Loop, Match, Project, Tuple
from weft.graph.passes.aliases import (
    Aliases,
    Within,
    is_check,
    is_join,
    is_part,
    is_view,
    stretches,
)
from weft.graph.types import TensorType, TupleType, Type
from weft.graph.visit import group_of
from weft.lowering.control_parts import (
    FlatTypes,
    Goto,
    KnownNames,
    Label,
    Place,
    Rows,
    binds,
    flat,
    is_object,
    may_be_negative,
    range_check,
    unknown_size,
)
from weft.lowering.lifetimes import Lifetimes
from weft.lowering.pending import Pending, is_computed, is_emitted
from weft.lowering.shared import Shared
from weft.lowering.sizes import same_count, size_expr
from weft.runtime.program import (
    Allocate,
    BufferKind,
    BufferSpec,
    Check,
    Copy,
    NewTensor,
    SetSize,
    Share,
    SizeExpr,
)
from weft.support.errors import InternalError

Members = dict[tuple[GraphExpr | None, int], list[GraphExpr]]


class Emitter(Lifetimes):
    """Emits one function: kernels, branches and sizes. ``weft.lowering.control_loops`` extends it to loops,
    ``weft.lowering.function_values`` to values other than tensors."""

    def __init__(
        self,
        members: Members,
        pending: Pending,
        names: dict[Symbol, str],
        shared: Shared,
        requires: Iterable[tuple[Expr, str]] = (),
        aliases: Aliases | None = None,
    ) -> None:
        self.members, self.pending, self.names, self.shared = members, pending, names, shared
        self.aliases = aliases or Aliases()
        super().__init__(shared.places)
        self.inputs = frozenset(names)
        self.requires = list(requires)
        self._due = list(range(len(self.requires)))
        """Requirements to look at next: those that mention a size bound since they were last looked at."""
        self._mentioned = [list(dims.symbols(condition)) for condition, _ in self.requires]
        self._mentions: dict[Symbol, list[int]] = {}
        for i, symbols in enumerate(self._mentioned):
            for s in symbols:
                self._mentions.setdefault(s, []).append(i)
        self.flat = FlatTypes()
        self.made: dict[GraphExpr, list[Place]] = {}
        self.bound: dict[GraphExpr, GraphExpr] = {}
        self.wanted: dict[tuple[GraphExpr, int], Place] = {}
        self.copies: dict[tuple[Place, int], Place] = {}
        """For a place and a device: the place on that device that holds a copy valid at this point."""
        self.checked: set[Expr] = set()
        self.stale: set[Symbol] = set()

    def spec(self, p: Place, offset: ExprLike) -> BufferSpec:
        """The buffer specification of a place."""
        if p.kind == "object":
            return BufferSpec("object", dtype=p.dtype)
        if p.late and p.kind == "arena":
            return BufferSpec("dynamic", dtype=p.dtype, space=p.space)
        nbytes = (0,) if p.late or (p.kind == "arena" and p.first < 0) else size_expr(p.nbytes, self.names)
        kind, number, start = p.root.kind, p.root.index, offset + p.begin if p.parent is not None else offset
        return BufferSpec(kind, number, size_expr(start, self.names), nbytes, p.dtype, space=p.space)

    # -- places --------------------------------------------------------------------------------------------------------

    def place(
        self, t: TensorType, kind: BufferKind = "arena", number: int = 0, *, late: bool = False, space: int = 0
    ) -> Place:
        if is_object(t):
            return self.object(t)
        nbytes = self._bytes(t)
        late = late or self._is_late(nbytes)
        return self._add(Place(0, kind, nbytes, str(t.dtype), number, late, space=space))

    def object(self, t: TensorType) -> Place:
        """A place that holds a value."""
        return self._add(Place(0, "object", 0, str(t.dtype), late=True, type=t))

    def _add(self, place: Place) -> Place:
        place.number = len(self.shared.places)
        self.shared.places.append(place)
        self.places.append(place)
        return place

    def _stretch(self, whole: Place, start: int, t: TensorType, within: Within | None = None) -> Place:
        """A part of ``whole`` that holds a tensor of type ``t``: one stretch, or one of each row."""
        nbytes, rows = self._bytes(t), None
        if within is not None:
            axis, size = within
            step = _known(product(t.shape[axis + 1 :]) * t.dtype.nbytes)
            rows = Rows(_known(t.shape[axis]) * step, size * step)
            nbytes = maximum(product(t.shape[:axis]) * rows.pitch - (rows.pitch - rows.length), 0)
        return self._add(
            Place(0, whole.kind, nbytes, str(t.dtype), space=whole.space, parent=whole, start=start, rows=rows)
        )

    def _joined(self, e: GraphExpr, space: int = 0) -> Place:
        """The place of a join. The first kernel that writes to it decides its memory space."""
        if e not in self.made:
            home = self.aliases.home((e, 0))
            if home is not None:
                whole = self._joined(home[0][0], space)
                self.made[e] = [self._stretch(whole, home[1], e.tensor)]
            else:
                wanted = self.wanted.get((e, 0))  # a late place has no address yet, so its parts have none either
                self.made[e] = [self.place(e.tensor, space=space) if wanted is None or wanted.late else wanted]
        return self.made[e][0]

    def _parts(self, e: Call) -> list[Place]:
        """The stretches of an operand, or copies of them if the operand has no fixed place."""
        whole, starts = self.leaves(e.args[0])[0], stretches(e)
        assert starts is not None
        if whole.root.kind != "object" and not whole.root.late:
            return [self._stretch(whole, start, t) for start, t in zip(starts, flat(e.type), strict=True)]
        made = [self.place(t, space=whole.space) for t in flat(e.type)]
        for place, start, t in zip(made, starts, flat(e.type), strict=True):
            self._allocate_tensor(place, t)
            self.emit(Copy(whole.number, place.number, self._size(self._bytes(t)), source_offset=(start,)))
        return made

    def _room(self, nbytes: ExprLike, space: int = 0) -> Place:
        return self.place(TensorType.of((nbytes,), "uint8"), space=space)

    def _at(self, place: Place, t: TensorType, space: int) -> Place:
        """The place in ``space`` with the contents of ``place``, a tensor of type ``t``; copied at most once."""
        if place.space == space:
            return place
        made = self.copies.get((place, space))
        if made is None and place.kind == "constant":  # uploaded when the program is loaded
            made = self.place(t, "constant", place.index, space=space)
        elif made is None:
            made = self.place(t, space=space)
            self._copy(place, made, t)
        self.copies[place, space] = made
        return made

    def _seen(self, e: GraphExpr) -> int:
        """The number of the main-memory buffer through which the executor reads a tensor."""
        return self._at(self.leaves(e)[0], flat(e.type)[0], 0).number

    def _bytes(self, t: TensorType) -> ExprLike:
        return product(t.shape) * t.dtype.nbytes

    def _is_late(self, value: Any) -> bool:
        return any(s not in self.inputs for s in dims.symbols(value))

    def leaves(self, e: GraphExpr) -> list[Place]:
        """The places of the tensors that make up a value."""
        low, count = 0, len(self.flat.of(e.type))
        while e not in self.made:
            if isinstance(e, Project):
                low += self.flat.start(e.value.type, e.index)
                e = e.value
            elif isinstance(e, Tuple):
                self.made[e] = [p for f in e.fields for p in self.leaves(f)]
            elif isinstance(e, Let):
                e = e.body
            elif e in self.bound:
                e = self.bound[e]
            elif isinstance(e, Call) and (is_view(e) or is_check(e) or binds(e)):
                e = e.args[0]
            elif isinstance(e, Constant):
                self.made[e] = [self._constant(e)]
            elif is_part(e):
                assert isinstance(e, Call)
                self.made[e] = self._parts(e)
            elif is_join(e):
                self._joined(e)
            else:
                return self._atom(e)
        return self.made[e][low : low + count]

    def _constant(self, e: Constant) -> Place:
        self.shared.constants.append(np.ascontiguousarray(e.data))
        return self.place(e.tensor, "constant", len(self.shared.constants) - 1)

    def _atom(self, e: GraphExpr) -> list[Place]:
        """The places of a value that is not computed by any node of the function."""
        raise InternalError(f"a {type(e).__name__} is used before it is made")

    def _other(self, e: GraphExpr) -> None:
        """Emit a node that is not a kernel, branch or loop, if it needs instructions."""

    def _claim(self, result: GraphExpr, places: Sequence[Place | None], types: Sequence[TensorType]) -> None:
        """Let the nodes that compute a block's result write directly to ``places``, where that is safe."""
        for i, (place, t) in enumerate(zip(places, types, strict=True)):
            key = self._maker(result, i, whole=False)
            if place is None or key is None or key in self.wanted or key[0] in self.made:
                continue
            own = self.flat.of(key[0].type)[key[1]]
            by_kernel = isinstance(key[0], Call)
            if (place.late and by_kernel) or (not place.late and same_count(own.shape, t.shape)):
                self.wanted[key] = place

    def _maker(self, e: GraphExpr, i: int, *, whole: bool = True) -> tuple[GraphExpr, int] | None:
        """The node that computes tensor ``i`` of a value, and the index of that result. None if no node computes it;
        without ``whole``, also None if another part of the program may have computed it."""
        while True:
            if not whole and e in self.pending:
                return None
            if isinstance(e, Project):
                i += self.flat.start(e.value.type, e.index)
                e = e.value
            elif isinstance(e, Tuple):
                at = self.flat.field(e.type, i)
                i -= self.flat.start(e.type, at)
                e = e.fields[at]
            elif isinstance(e, Let):
                self.bound.setdefault(e.var, e.value)
                e = e.body
            elif e in self.bound:
                e = self.bound[e]
            elif isinstance(e, Call) and (is_view(e) or is_check(e)):
                e = e.args[0]
            elif isinstance(e, (If, Loop, Match)) or (isinstance(e, Call) and not binds(e)):
                return e, i
            else:
                return None

    def _results(self, e: GraphExpr, *, late: bool = False) -> list[Place]:
        """Places for the results of ``e``: the requested places, or new ones."""
        known = self.pending.places.get(e)
        space = self._space(e)
        types = flat(e.type)
        return known or [self._result(e, i, t, late, space) for i, t in enumerate(types)]

    def _result(self, e: GraphExpr, i: int, t: TensorType, late: bool, space: int) -> Place:
        """The place of one result of a node: part of the join that contains it, the requested place, or a new one."""
        home = self.aliases.home((e, i))
        within = self.aliases.within((e, i))
        group = group_of(e)
        if within != (None if group is None else group.within):
            raise InternalError("a kernel does not write its result as the join that contains it wants")
        if home is not None:
            return self._stretch(self._joined(home[0][0], space), home[1], t, within)
        return self.wanted.get((e, i)) or self.place(t, late=late, space=space)

    def _space(self, e: GraphExpr) -> int:
        """The memory space in which a node writes its results."""
        return self.shared.space(e) if isinstance(e, Call) and group_of(e) is not None else 0

    # -- emitting ------------------------------------------------------------------------------------------------------

    def emit(self, item: Any) -> None:
        self.items.append(item)

    def _size(self, value: ExprLike) -> SizeExpr:
        try:
            return size_expr(value, self._valid())
        except KeyError as missing:
            raise unknown_size(missing.args[0].name) from None

    def _set(self, name: str, value: ExprLike) -> None:
        self.emit(SetSize(name, self._size(value)))

    def _name(self, base: str) -> str:
        """A new name for an integer register."""
        return f"{base}.{next(self.shared.numbers)}"

    def _known(self, symbol: Symbol) -> bool:
        """Whether the value of a size is known at this point."""
        return symbol in self.names and symbol not in self.stale

    def _bind(self, symbol: Symbol) -> str:
        """The register of a size whose value becomes known at this point."""
        self.stale.discard(symbol)
        self._due += self._mentions.get(symbol, ())
        if symbol not in self.names:
            self.names[symbol] = self._name(symbol.name)
        return self.names[symbol]

    def _valid(self) -> Mapping[Symbol, str]:
        return KnownNames(self.names, self.stale) if self.stale else self.names

    @contextmanager
    def _branch(self, fresh: Iterable[Symbol] = ()) -> Iterator[None]:
        """Emit a range of instructions that may be skipped. Values computed in it, and sizes bound in it, are unknown
        after it. The exception is ``fresh``: every branch binds these sizes."""
        known, stale, count = set(self.names), set(self.stale), len(self.made)
        self.stale.update(fresh)
        yield
        self.stale = (stale | (self.names.keys() - known)) - set(fresh)
        made = [self.made.popitem() for _ in range(len(self.made) - count)]
        self.made.update((e, places) for e, places in made if isinstance(e, Constant))

    def _flush_requires(self) -> None:
        """Emit the checks of the model's requirements whose sizes are known by now, wherever one of them gets a value:
        of a size that two branches bind, both check what is required."""
        due, self._due = sorted(set(self._due)), []
        for i in due:
            if all(map(self._known, self._mentioned[i])):
                condition, message = self.requires[i]
                self.emit(Check(self._size(condition), str(message)))

    def _agree(self, declared: Type, actual: Type, fresh: Iterable[Symbol] = ()) -> None:
        """Bind the ``fresh`` sizes of ``declared`` to those of ``actual``; emit checks that all others are equal."""
        again = set(fresh)
        for d, a in zip(flat(declared), flat(actual), strict=True):
            for x, y in zip(d.shape, a.shape, strict=True):
                if isinstance(x, Symbol) and (not self._known(x) or x in again):
                    again.discard(x)
                    self._set(self._bind(x), y)
                elif x is not y and x != y:
                    message = f"a size that must be {x} is {y}"
                    self.emit(Check(self._size(make("eq", index(x), index(y))), message))
        self._flush_requires()

    def _allocate(self, place: Place, nbytes: ExprLike) -> None:
        if place.late and place.kind == "arena":
            self.emit(Allocate(place.number, self._size(nbytes)))

    def _allocate_tensor(self, place: Place, t: TensorType) -> None:
        if place.kind == "object":
            self.emit(NewTensor(place.number, self._size(self._bytes(t)), tuple(map(self._size, t.shape))))
        else:
            self._allocate(place, self._bytes(t))

    def _copy(self, source: Place, target: Place, t: TensorType) -> None:
        """Emit a copy of ``source``, a tensor of type ``t``, to ``target``."""
        if is_object(t):
            self.emit(Share(source.number, target.number))
            return
        self._allocate_tensor(target, t)
        self.emit(Copy(source.number, target.number, self._size(self._bytes(t))))

    def _block(self, owner: GraphExpr, slot: int, leave: GraphExpr | None = None) -> None:
        """Emit all nodes of a block except ``leave``. Lets at the end of the block are emitted without recursion."""
        with self._unchecked():
            self._nodes(owner, slot, leave)

    @contextmanager
    def _unchecked(self) -> Iterator[None]:
        """Emit a range after which its checks and its copies to other devices no longer count as done."""
        checked, copies = set(self.checked), dict(self.copies)
        yield
        self.checked, self.copies = checked, copies

    def _begin(self, owner: GraphExpr, slot: int) -> list[GraphExpr]:
        """The nodes of a block in reverse order. First, mark each pending value of the block as not yet computed."""
        for e in self.pending.by_block.get((owner, slot), ()):
            if is_emitted(e):
                label = self.pending.begin(e, self.pending.flags.get(e) or self._name("done"))
                self.emit(SetSize(self.pending.flags[e], (0,)))
                self.emit(label)
        return self.members.get((owner, slot), [])[::-1]

    def _once(self, e: GraphExpr) -> None:
        """Compute a pending value, unless its register says that it is computed."""
        flag, begin, done, fresh = self.pending.flags[e], len(self.items), Label(), self._fresh(e.type)
        self.emit(Goto(done, (flag, 0, "eq")))
        with self._branch(fresh), self._unchecked():
            self._emit([e], first=e)
            if is_computed(e):
                made = self.leaves(e)
                places = self.pending.keep(e, made)
                for source, target, t in zip(made, places, flat(e.type), strict=True):
                    if source is not target:
                        self._copy(source, target, t)
        self.emit(SetSize(flag, (1,)))
        self.emit(done)
        self.ranges.append((begin, len(self.items) - 1))
        if is_computed(e):
            self.made[e] = self.pending.places[e]

    def _nodes(self, owner: GraphExpr, slot: int, leave: GraphExpr | None) -> None:
        self._emit(self._begin(owner, slot), leave=leave)

    def _emit(self, todo: list[GraphExpr], leave: GraphExpr | None = None, first: GraphExpr | None = None) -> None:
        """Emit nodes from the end of the list, except ``leave``; ``first`` without testing whether it is pending."""
        while todo:
            e = todo.pop()
            if e is leave:
                continue
            if e in self.pending and e is not first and is_emitted(e):
                self._once(e)
            elif isinstance(e, Let):
                self.bound[e.var] = e.value
                self._agree(e.var.type, e.value.type)
                todo.extend(self._begin(e, 1))
            elif isinstance(e, If):
                self._if(e)
            elif isinstance(e, Call) and group_of(e) is not None:
                self._call(e)
            elif isinstance(e, Call) and binds(e):
                self._bind_sizes(e)
            elif isinstance(e, Call) and is_check(e):
                self.emit(range_check(e, self._seen(e.args[0]), self._size))
            elif is_part(e):
                self.leaves(e)  # if this needs a copy, it is made here and not at each reader
            elif not is_view(e):
                self._other(e)

    def _bind_sizes(self, e: Call) -> None:
        if not e.args:
            for condition, message in zip(e.attrs.conditions, e.attrs.messages, strict=True):
                self.emit(Check(self._size(condition), message))
            self.made[e] = []
            return
        source = self._seen(e.args[0])
        for i, symbol in enumerate(e.attrs.sizes):
            name = self._bind(symbol)
            self.emit(SetSize(name, buffer=source, element=i))
            self.emit(Check((name, 0, "ge"), f"the size '{symbol.name}' computed by the model is negative"))
        self._flush_requires()

    def _call(self, e: Call) -> None:
        self._check_shapes(e)
        space = self.shared.space(e)
        sources = [self._at(p, t, space) for a in e.args for p, t in zip(self.leaves(a), flat(a.type), strict=True)]
        results = self._results(e)
        types = flat(e.type)
        targets = [p if p.space == space else self.place(t, space=space) for p, t in zip(results, types, strict=True)]
        assert all(p is q or p.rows is None for p, q in zip(results, targets, strict=True)), "a copy is in no rows"
        for place, t in zip(targets, types, strict=True):
            self._allocate_tensor(place, t)
        try:
            called = self.shared.describe(e, self._valid())
        except KeyError as missing:
            raise unknown_size(str(missing.args[0])) from None
        buffers = [*sources, *targets]
        needed = self.shared.workspace(e)
        if not (isinstance(needed, int) and needed == 0):
            room = self._room(needed, space)
            self._allocate(room, needed)
            buffers.append(room)
        numbers = tuple(p.number for p in buffers)
        self.written[len(self.items)] = len(buffers) - len(sources)
        self.exchanges[len(self.items)] = self._exchanged(e, sources, targets)
        self.emit(replace(called, buffers=numbers))
        self.shared.calls.append(e)
        for made, wanted, t in zip(targets, results, types, strict=True):
            if made is not wanted:
                self._copy(made, wanted, t)
                self.copies[wanted, space] = made
        self.made[e] = results

    def _exchanged(self, e: Call, sources: Sequence[Place], targets: Sequence[Place]) -> list[tuple[Place, Place]]:
        """Operands and results where the kernel may overwrite the operand with the result."""
        if any(isinstance(a.type, TupleType) for a in e.args):
            return []
        return [(sources[operand], targets[output]) for operand, output in self.shared.in_place(e)]

    def _check_shapes(self, e: Call) -> None:
        """Emit checks that no size is negative, which kernels assume."""
        for t in flat(e.type):
            for d in t.shape:
                if not isinstance(d, int) and not isinstance(d, Symbol) and d not in self.checked:
                    self.checked.add(d)
                    if may_be_negative(d):
                        self.emit(Check(self._size(make("ge", d, index(0))), f"the size {d} would be negative"))

    def _if(self, e: If) -> None:
        condition = self._name("if")
        self.emit(SetSize(condition, buffer=self._seen(e.condition)))
        begin, otherwise, end = len(self.items), Label(), Label()
        fresh = self._fresh(e.type)
        targets = self._results(e)
        self.emit(Goto(otherwise, (condition,)))
        for slot, branch in ((1, e.then), (2, e.otherwise)):
            with self._branch(fresh):
                self._one_branch(e, slot, branch, targets, fresh)
            if slot == 1:
                self.emit(Goto(end))
                self.emit(otherwise)
        self.emit(end)
        self.ranges.append((begin, len(self.items) - 1))
        self.made[e] = targets

    def _fresh(self, t: Type) -> list[Symbol]:
        """Sizes of a type that are unknown at this point."""
        return [s for s in dict.fromkeys(dims.symbols(t)) if not self._known(s)]

    def _one_branch(
        self, e: GraphExpr, slot: int, branch: GraphExpr, targets: Sequence[Place], fresh: Sequence[Symbol]
    ) -> None:
        """Emit child ``slot`` of ``e`` such that its value is stored at ``targets``."""
        self._claim(branch, targets, flat(e.type))
        self._block(e, slot)
        self._agree(e.type, branch.type, fresh)
        for source, target, t in zip(self.leaves(branch), targets, flat(branch.type), strict=True):
            if source is not target:
                self._copy(source, target, t)


def _known(size: ExprLike) -> int:
    """A size that is a number."""
    made = index(size)
    assert isinstance(made, Const)
    return int(made.value)
