"""Checks a module. A valid module has these properties:

1. *Scope.* Every variable is bound exactly once in a function, and used only below its binder: a parameter in its
   function's body, a let's variable in the let's body, a pattern's in its clause. The functions of the module have no
   free variables, nor have primitive functions.
2. *Types.* The type of each operator call is what its relation infers from its operands and attributes, and the
   attributes are complete. Arguments of other calls have the types of the parameters, a let's value has the type of its
   variable, both branches of an ``if`` and all clauses of a ``match`` have the type of the whole; a condition is a bool
   scalar. What a loop starts with, what its body takes and what it gives next agree in type.
3. *Names.* A referenced function exists and has the type the reference says. The parameters of a function of the module
   have distinct names.
4. *Data types.* Constructors exist and are applied to the types of their fields; patterns have the right number of
   fields; a match has a clause for every value.
5. *Primitive functions* contain operator calls, tuples, projections, variables and constants only.

Symbolic sizes that are written differently count as equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.graph.build import constructor
from weft.graph.nodes import (
    Call,
    Constant,
    Constructor,
    DataDef,
    Function,
    GlobalVar,
    GraphExpr,
    If,
    Let,
    Loop,
    Match,
    Module,
    Pattern,
    Project,
    Tuple,
    Var,
)
from weft.graph.operator import Operator
from weft.graph.parser import compatible
from weft.graph.scope import Block, blocks
from weft.graph.types import DataType, FunctionType, TensorType, TupleType, Type
from weft.graph.visit import bound_vars, free_vars, pattern_vars, post_order
from weft.support.dtypes import BOOL
from weft.support.errors import InternalError, Place, WeftError


def verify(module: Module) -> None:
    """Raise InternalError (code W010) that names the function and the rule if ``module`` is not valid."""
    for name, function in module.functions.items():
        try:
            _Verifier(module, function).run()
        except InternalError as error:
            raise error.at(Place(node=f"@{name}")) from None


def _fail(message: str, e: GraphExpr | None = None) -> InternalError:
    where = f" (from {', '.join(e.origin.names)})" if e is not None and e.origin.names else ""
    return InternalError(f"invalid graph: {message}{where}", code="W010")


class _Verifier:
    def __init__(self, module: Module, function: Function) -> None:
        self.module, self.function = module, function

    def run(self) -> None:
        self._scopes()
        names = [p.name for p in self.function.params]
        if len(set(names)) != len(names):
            raise _fail("two parameters have the same name")
        for e in post_order(self.function):
            self._node(e)

    def _scopes(self) -> None:
        placed = blocks(self.function)
        binders: dict[Var, tuple[GraphExpr, int]] = {}
        for e in placed:
            slots: Sequence[tuple[Var, int]]
            if isinstance(e, Match):
                slots = [(v, i) for i, (p, _) in enumerate(e.clauses, 1) for v in pattern_vars(p)]
            else:
                slots = [(v, 1 if isinstance(e, Let) else 0) for v in bound_vars(e)]
            for v, slot in slots:
                if v in binders:
                    raise _fail(f"the variable '{v.name}' is bound twice", e)
                binders[v] = (e, slot)
        for e, block in placed.items():
            if isinstance(e, Var):
                if e not in binders:
                    raise _fail(f"the variable '{e.name}' is not bound", e)
                if not _inside(block, *binders[e]):
                    raise _fail(f"the variable '{e.name}' is used outside its scope", e)

    def _node(self, e: GraphExpr) -> None:
        if isinstance(e, Call):
            self._call(e)
        elif isinstance(e, Function) and e.is_primitive:
            self._primitive(e)
        elif isinstance(e, Let):
            _expect(e.value.type, e.var.type, f"the value of '{e.var.name}'", e)
        elif isinstance(e, If):
            _expect(e.condition.type, TensorType((), BOOL), "the condition of an if", e)
            for branch in (e.then, e.otherwise):
                _expect(branch.type, e.type, "a branch of an if", e)
        elif isinstance(e, Loop):
            self._loop(e)
        elif isinstance(e, Match):
            self._match(e)
        elif isinstance(e, GlobalVar):
            known = self.module.functions.get(e.name)
            if known is None:
                raise _fail(f"there is no function '{e.name}'", e)
            _expect(known.type, e.type, f"the function '{e.name}'", e)
        elif isinstance(e, Constructor):
            self._constructor(e)

    def _call(self, e: Call) -> None:
        if isinstance(e.target, Operator):
            try:
                full = e.target.complete(e.attrs)
                made = e.target.infer(full, *(a.type for a in e.args))
            except WeftError as error:
                raise _fail(f"a call of {e.target.name} does not fit its operands: {error.message}", e) from None
            if full != e.attrs:
                raise _fail(f"a call of {e.target.name} lacks attributes", e)
            _expect(e.type, made, f"a call of {e.target.name}", e)
            return
        t = e.target.type
        if not isinstance(t, FunctionType) or len(t.params) != len(e.args):
            raise _fail(f"a value of type {t} is called with {len(e.args)} arguments", e)
        for a, p in zip(e.args, t.params, strict=True):
            _expect(a.type, p, "an argument", e)
        _expect(e.type, t.result, "a call", e)

    def _primitive(self, e: Function) -> None:
        if free_vars(e):
            raise _fail(f"a primitive function captures '{free_vars(e)[0].name}'", e)
        for inner in post_order(e.body):
            allowed = isinstance(inner, (Tuple, Project, Var, Constant))
            if not allowed and not (isinstance(inner, Call) and isinstance(inner.target, Operator)):
                raise _fail(f"a primitive function contains a {type(inner).__name__}", e)

    def _constructor(self, e: Constructor) -> None:
        made = e.type.result if isinstance(e.type, FunctionType) else e.type
        if not isinstance(made, DataType) or made.name not in self.module.types:
            raise _fail(f"the constructor '{e.name}' makes no declared type", e)
        try:
            _expect(e.type, constructor(self.module.types[made.name], e.name, made.args).type, e.name, e)
        except WeftError as error:
            raise _fail(error.message, e) from None

    def _loop(self, e: Loop) -> None:
        if e.going is not None:
            _expect(e.going.type, TensorType((), BOOL), "the condition of a loop", e)
        for value, param, last in zip(e.state, e.body.params, e.results, strict=False):
            _expect(value.type, param.type, f"the first '{param.name}' of a loop", e)
            _expect(param.type, last, f"the last '{param.name}' of a loop", e)
        made = e.body.body.type
        assert isinstance(made, TupleType)
        rows = [TensorType(t.shape[1:], t.dtype) for t in e.results[len(e.state) :] if isinstance(t, TensorType)]
        wanted = (*([TensorType((), BOOL)] if e.going is not None else []), *(p.type for p in e.body.params), *rows)
        _expect(made, TupleType(wanted), "the result of the body of a loop", e)

    def _match(self, e: Match) -> None:
        for pattern, body in e.clauses:
            self._pattern(pattern, e.value.type, e)
            _expect(body.type, e.type, "a clause of a match", e)
        missing = _uncovered([p for p, _ in e.clauses], e.value.type, self.module.types)
        if missing is not None:
            raise _fail(f"a match has no clause for {missing}", e)

    def _pattern(self, pattern: Pattern, t: Type, e: Match) -> None:
        if pattern.var is not None:
            _expect(pattern.var.type, t, f"the variable '{pattern.var.name}' of a pattern", e)
        if pattern.constructor is None:
            return
        if not isinstance(t, DataType) or t.name not in self.module.types:
            raise _fail(f"a value of type {t} is matched with '{pattern.constructor}'", e)
        fields = _fields(self.module.types[t.name], pattern.constructor, t)
        if fields is None or len(fields) != len(pattern.fields):
            raise _fail(f"the pattern {pattern.constructor} does not fit {t}", e)
        for p, f in zip(pattern.fields, fields, strict=True):
            self._pattern(p, f, e)


def _inside(block: Block, owner: GraphExpr, slot: int) -> bool:
    """Whether ``block`` is the given child of ``owner`` or lies in it."""
    at: Block | None = block
    while at is not None:
        if at.owner is owner and at.slot == slot:
            return True
        at = at.parent
    return False


def _fields(declared: DataDef, name: str, t: DataType) -> tuple[Type, ...] | None:
    if all(n != name for n, _ in declared.constructors):
        return None
    made = constructor(declared, name, t.args).type
    assert isinstance(made, FunctionType)
    return made.params


def _uncovered(patterns: Sequence[Pattern], t: Type, types: Mapping[str, DataDef]) -> str | None:
    """A constructor of ``t`` that no pattern takes in all its forms (nested patterns: field by field), or None."""
    if any(p.constructor is None for p in patterns):
        return None
    if not isinstance(t, DataType) or t.name not in types:
        return str(t)
    for name, _ in types[t.name].constructors:
        rows = [p.fields for p in patterns if p.constructor == name]
        fields = _fields(types[t.name], name, t)
        if not rows or fields is None:
            return name
        missing = _uncovered_rows(rows, fields, types)
        if missing is not None:
            return f"{name}({missing})"
    return None


def _uncovered_rows(
    rows: Sequence[tuple[Pattern, ...]], fields: Sequence[Type], types: Mapping[str, DataDef]
) -> str | None:
    """The same for several values at once: those after the first are looked at in the rows that take the first."""
    if not fields:
        return None
    first = fields[0]
    whole = [r for r in rows if r[0].constructor is None]
    rest = _uncovered_rows([r[1:] for r in whole], fields[1:], types) if whole else "…"
    if rest is None:
        return None
    if not isinstance(first, DataType) or first.name not in types:
        return rest
    for name, _ in types[first.name].constructors:
        inner = _fields(types[first.name], name, first) or ()
        narrowed = [
            (r[0].fields if r[0].constructor == name else tuple(Pattern() for _ in inner)) + r[1:]
            for r in rows
            if r[0].constructor in (None, name)
        ]
        if not narrowed:
            return name
        missing = _uncovered_rows(narrowed, (*inner, *fields[1:]), types)
        if missing is not None:
            return f"{name}, {missing}"
    return None


def _expect(got: Type, wanted: Type, what: str, e: GraphExpr) -> None:
    if got != wanted and not compatible(got, wanted):
        raise _fail(f"{what} has type {got}, not {wanted}", e)
