"""The parts of a function that other programs do not have: values passed between functions, closures, data, ``match``,
and operators that run on the host.

Values passed between functions are objects. A kernel result that is passed on is allocated as an object from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.expr.nodes import Expr, ExprLike, index, make
from weft.expr.nodes import Var as Symbol
from weft.graph import dims
from weft.graph.assume import collect_assumptions
from weft.graph.nodes import (
    Call,
    Constant,
    Constructor,
    Function,
    GlobalVar,
    GraphExpr,
    If,
    Let,
    Loop,
    Match,
    Pattern,
)
from weft.graph.operator import Operator
from weft.graph.passes.aliases import Aliases, is_join, outside_of_groups
from weft.graph.types import DataType, FunctionType, TensorType, Type
from weft.graph.visit import group_of, post_order
from weft.lowering.captures import Scopes
from weft.lowering.control_loops import LoopEmitter
from weft.lowering.control_parts import Goto, Label, Opaque, Place, flat, is_object
from weft.lowering.function_table import Functions
from weft.lowering.pending import Pending
from weft.runtime.program import (
    Allocate,
    Box,
    CallHost,
    Check,
    Construct,
    Extent,
    Field,
    HostOperator,
    Invoke,
    NewView,
    Share,
    Tag,
)
from weft.support.dtypes import INDEX, DType

_NO_ELEMENTS = DType("uint8")


class ValueEmitter(LoopEmitter):
    """Emits the nodes of one function, besides what a :class:`LoopEmitter` emits."""

    def __init__(
        self,
        work: Functions,
        scopes: Scopes,
        function: Function,
        names: dict[Symbol, str],
        requires: Iterable[tuple[Expr, str]] = (),
    ) -> None:
        pending, aliases = Pending(scopes.wanted_in, scopes.pending), Aliases(outside_of_groups(function))
        super().__init__(scopes.members, pending, names, work.shared, requires, aliases)
        self.work, self.scopes, self.function = work, scopes, function
        self.recorded = {condition for condition, _ in self.requires}
        self.is_main = self.is_straight = False
        self.boxed: set[tuple[GraphExpr, int]] = set()

    # -- values that must be objects -----------------------------------------------------------------------------------

    def _demand_all(self, results: Iterable[GraphExpr]) -> None:
        """Find the kernel results that are passed to other functions. These are allocated as objects from the start."""
        for e in self.scopes.nodes(self.function):
            if isinstance(e, Let):
                self.bound.setdefault(e.var, e.value)
        for e in results:
            self._demand(e)
        for e in self.scopes.nodes(self.function):
            if isinstance(e, Call) and group_of(e) is None:
                if not isinstance(e.target, Operator) or e.target.host:
                    for a in e.args:
                        self._demand(a)
            elif self.scopes.is_closure(e):
                for c in self.scopes.captures(e):
                    self._demand(c)

    def _demand(self, e: GraphExpr) -> None:
        waiting = [(e, i) for i in range(len(flat(e.type)))]
        while waiting:
            key = self._maker(*waiting.pop())
            if key is None or key in self.boxed:
                continue
            self.boxed.add(key)
            if isinstance(key[0], If):
                waiting += [(key[0].then, key[1]), (key[0].otherwise, key[1])]
            elif isinstance(key[0], Match):
                waiting += [(body, key[1]) for _, body in key[0].clauses]

    def _claim(self, result: GraphExpr, places: Sequence[Place | None], types: Sequence[TensorType]) -> None:
        kept = []
        for i, place in enumerate(places):
            key = self._maker(result, i)
            free = key is not None and key not in self.boxed and isinstance(key[0], (Call, If, Loop, Match))
            own = free and key is not None and not (isinstance(key[0], Call) and not _in_memory(key[0]))
            kept.append(place if own and place is not None and place.kind != "object" else None)
        super()._claim(result, kept, types)

    def _results(self, e: GraphExpr, *, late: bool = False) -> list[Place]:
        if e in self.pending.places:
            return self.pending.places[e]
        found = []
        for i, t in enumerate(flat(e.type)):
            boxed = is_object(t) or ((e, i) in self.boxed and not isinstance(e, Loop))
            free = (e, i) not in self.wanted and self.aliases.home((e, i)) is None
            found.append(self.object(t) if boxed and free else self._result(e, i, t, late, self._space(e)))
        return found

    def _object(self, source: Place, t: TensorType) -> Place:
        """An object that holds the tensor or value at ``source``; a tensor has type ``t``."""
        if source.kind == "object" and (is_object(t) or (source.type is not None and source.type.shape == t.shape)):
            return source
        target = self.object(t)
        if source.kind in ("object", "input", "constant") and not source.space:
            shape = tuple(map(self._size, t.shape))
            self.emit(NewView(target.number, source.number, self._size(self._bytes(t)), shape))
        else:
            self._copy(source, target, t)
        return target

    def _objects(self, values: Iterable[GraphExpr]) -> list[Place]:
        return [self._object(place, t) for v in values for place, t in zip(self.leaves(v), flat(v.type), strict=True)]

    def _copy(self, source: Place, target: Place, t: TensorType) -> None:
        if (
            target.kind == "object"
            and source.kind == "object"
            and (is_object(t) or (source.type is not None and source.type.shape == t.shape))
        ):
            self.emit(Share(source.number, target.number))
        else:
            super()._copy(source, target, t)

    def _allocate(self, place: Place, nbytes: ExprLike) -> None:
        if place.kind == "arena" and not (self.is_main and not place.late):
            self.emit(Allocate(place.number, self._size(nbytes)))

    def _learn(self, tensors: Sequence[tuple[Place, TensorType]], what: str, *, whole: bool = False) -> None:
        """Bind the unknown sizes in the types to the actual sizes of the tensors; emit checks that the known ones are
        equal. With ``whole``, constant sizes are checked too."""
        left = []
        for place, t in tensors:
            for axis, d in enumerate(t.shape):
                if isinstance(d, Symbol) and not self._known(d):
                    self.emit(Extent(self._bind(d), place.number, axis))
                elif whole or not isinstance(d, int):
                    left.append((place, axis, d))
        for place, axis, d in left:
            if all(self._known(s) for s in dims.symbols(d)):
                self._must_be(place, axis, d, what)
        self._flush_requires()

    def _must_be(self, place: Place, axis: int, d: ExprLike, what: str) -> None:
        actual = self._name("extent")
        self.emit(Extent(actual, place.number, axis))
        message = f"dimension {axis} of {what} is not {d}, as its type says"
        self.emit(Check((actual, *self._size(d), "eq"), message))

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _other(self, e: GraphExpr) -> None:
        if isinstance(e, Match):
            self._match(e)
        elif self.scopes.is_closure(e):
            assert isinstance(e, Function)
            self._closure(e)
        elif isinstance(e, Call) and isinstance(e.target, Constructor):
            self._construct(e, e.target)
        elif isinstance(e, Call) and isinstance(e.target, Operator):
            if e.target.host:  # a non-host operator is here only because several fused groups share it
                self._host(e, e.target)
        elif isinstance(e, Call):
            self._invoke(e, tail=False)
        else:
            super()._other(e)

    def _atom(self, e: GraphExpr) -> list[Place]:
        if isinstance(e, (GlobalVar, Constructor)):
            place = self.object(Opaque((), _NO_ELEMENTS, e.type))
            if isinstance(e, GlobalVar):
                number = self.work.global_function(e.name)
            else:
                number = self.work.constructor_function(e)
            self.emit(Construct(place.number, number, ()))
            return [place]
        return super()._atom(e)

    def _constant(self, e: Constant) -> Place:
        if not is_object(e.tensor):
            return super()._constant(e)
        place = self.object(e.tensor)
        attrs = {"values": e.data.reshape(-1).tolist(), "shape": list(e.data.shape)}
        self._call_host("constant", attrs, (), [place], ())
        return place

    def _closure(self, e: Function) -> None:
        captured = self.scopes.captures(e)
        sizes = [s for s in self.scopes.sizes(e) if self._known(s)]
        fields = self._objects(captured)
        for s in sizes:
            place = self.object(TensorType((), INDEX))
            self.emit(Box(place.number, self._size(s)))
            fields.append(place)
        number = self.work.closure(e, self.scopes, captured, sizes)
        self.made[e] = [self.object(Opaque((), _NO_ELEMENTS, e.type))]
        self.emit(Construct(self.made[e][0].number, number, tuple(p.number for p in fields)))

    def _construct(self, e: Call, target: Constructor) -> None:
        assert isinstance(e.type, DataType) and isinstance(target.type, FunctionType)
        fields = self._objects(e.args)
        self._check_arguments(e.args, target.type.params, f"a field of {target.name}")
        self.made[e] = [self.object(Opaque((), _NO_ELEMENTS, e.type))]
        tag = self.work.tag(e.type, target.name)
        self.emit(Construct(self.made[e][0].number, tag, tuple(p.number for p in fields)))

    def _invoke(self, e: Call, tail: bool) -> None:
        target = e.target
        assert isinstance(target, GraphExpr) and isinstance(target.type, FunctionType)
        function, closure, known = None, None, None
        params = target.type.params
        if isinstance(target, GlobalVar):
            function = self.work.global_function(target.name)
            called = self.work.module.functions[target.name]
            params, known = tuple(p.type for p in called.params), called.body.type
        else:
            closure = self.leaves(target)[0].number
        arguments = tuple(p.number for p in self._objects(e.args))
        self._check_arguments(e.args, params, "an argument")
        results = [self.object(t) for t in flat(e.type)]
        label = target.name if isinstance(target, GlobalVar) else ""
        numbers = tuple(p.number for p in results)
        self.emit(Invoke(function, closure, arguments, numbers, tail, label))
        self.made[e] = results
        if not tail:
            self._learn_results(results, e.type, known)

    def _learn_results(self, places: Sequence[Place], t: Type, known: Type | None) -> None:
        """Bind the sizes of a call's results. A size is checked if the type states it but the function's own type does
        not."""
        actual = flat(known) if known is not None else [None] * len(places)
        for place, declared, own in zip(places, flat(t), actual, strict=True):
            certain = own is not None and all(isinstance(d, int) for d in own.shape)
            self._learn([(place, declared)], "a result", whole=not certain)

    def _check_arguments(self, args: Sequence[GraphExpr], params: Sequence[Type], what: str) -> None:
        """Emit checks that the arguments have the constant sizes that the parameters state. The function binds all
        other sizes."""
        declared = [t for p in params for t in flat(p)]
        for d, a in zip(declared, [t for x in args for t in flat(x.type)], strict=True):
            for x, y in zip(d.shape, a.shape, strict=True):
                if isinstance(x, int) and not isinstance(y, int):
                    self.emit(Check(self._size(make("eq", index(x), index(y))), f"a size of {what} is not {x}"))

    def _call(self, e: Call) -> None:
        if not self.is_straight:  # a straight program checks all its assumptions at its start
            self._check_assumptions(e)
        super()._call(e)

    def _check_assumptions(self, e: Call) -> None:
        """Emit checks for the assumptions that the operators of a group make about sizes, unless the module already
        states them."""
        for inner in post_order(e.target) if isinstance(e.target, Function) else ():
            if not isinstance(inner, Call) or not isinstance(inner.target, Operator):
                continue
            types = [a.type for a in inner.args]
            if not dims.is_symbolic(inner.attrs) and not any(dims.is_symbolic(t) for t in types):
                continue
            with collect_assumptions() as assumed:
                inner.target.infer(inner.attrs, *types)
            for condition, message in assumed:
                if condition not in self.recorded and condition not in self.checked:
                    self.checked.add(condition)
                    self.emit(Check(self._size(condition), str(message)))

    # -- host operators ------------------------------------------------------------------------------------------------

    def _host(self, e: Call, op: Operator) -> None:
        arguments = self._objects(e.args)
        results = [self.object(t) for t in flat(e.type)]
        attrs = {k: _plain(v) for k, v in e.attrs.items() if not dims.is_symbolic(v)}
        dtypes = tuple(str(t.dtype) for a in e.args for t in flat(a.type))
        self._call_host(op.name, attrs, dtypes, results, arguments, "+".join(e.origin.names) or op.name)
        self.made[e] = results
        self._learn(paired(results, e.type), f"a result of {op.name}", whole=True)

    def _call_host(
        self,
        name: str,
        attrs: dict[str, Any],
        dtypes: tuple[str, ...],
        results: Sequence[Place],
        arguments: Sequence[Place],
        label: str = "",
    ) -> None:
        made = HostOperator(name, attrs, dtypes, tuple(p.dtype for p in results))
        given, taken = tuple(p.number for p in arguments), tuple(p.number for p in results)
        self.emit(CallHost(self.work.host(made), given, taken, label))

    # -- match ---------------------------------------------------------------------------------------------------------

    def _match(self, e: Match) -> None:
        begin, end = len(self.items), Label()
        fresh = self._fresh(e.type)
        targets = self._results(e)
        for slot, (pattern, body) in enumerate(e.clauses, 1):
            missed = Label()
            with self._branch(fresh):
                fails = self._pattern(e.value, pattern, missed)
                self._one_branch(e, slot, body, targets, fresh)
            self.emit(Goto(end))
            self.emit(missed)
            if not fails:
                break
        else:
            self.emit(Check((0,), "no clause of a match fits"))
        self.emit(end)
        self.stale.difference_update(fresh)
        self.ranges.append((begin, len(self.items) - 1))
        self.made[e] = targets

    def _pattern(self, value: GraphExpr, pattern: Pattern, missed: Label) -> bool:
        """Jump to ``missed`` unless the value matches, and bind the pattern's variables. False if the pattern always
        matches."""
        return self._fits(self.leaves(value), value.type, pattern, missed)

    def _fits(self, places: list[Place], t: Type, pattern: Pattern, missed: Label, whole: bool = False) -> bool:
        if pattern.var is not None:
            self.made[pattern.var] = places
            known = [x for x in paired(places, pattern.var.type) if x[0].kind == "object"]
            self._learn(known, f"'{pattern.var.name}'", whole=whole)
        if pattern.constructor is None:
            return False
        assert isinstance(t, DataType)
        tag = self._name("tag")
        self.emit(Tag(tag, places[0].number))
        self.emit(Goto(missed, (tag, self.work.tag(t, pattern.constructor), "eq")))
        generic = bool(self.work.module.types[t.name].params)  # the fields may have been created with another type
        at = 0
        for inner, of in zip(pattern.fields, self.work.fields(t, pattern.constructor), strict=True):
            parts = flat(of)
            if inner.constructor is not None or (inner.var is not None and inner.var in self.scopes.used):
                found = [self.object(part) for part in parts]
                for i, place in enumerate(found):
                    self.emit(Field(place.number, places[0].number, at + i))
                self._fits(found, of, inner, missed, generic)
            at += len(parts)
        return True


def paired(places: Sequence[Place], t: Type) -> list[tuple[Place, TensorType]]:
    return list(zip(places, flat(t), strict=True))


def _in_memory(e: Call) -> bool:
    """Whether a call writes its result to memory provided by the caller: a kernel does, and so does a join of kernel
    results."""
    return is_join(e) or (isinstance(e.target, Function) and e.target.is_primitive)


def _plain(value: Any) -> Any:
    """An attribute as a JSON value."""
    return [_plain(v) for v in value] if isinstance(value, tuple) else str(value) if isinstance(value, DType) else value
