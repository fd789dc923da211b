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

from collections.abc import Sequence

from weft.graph.build import constructor
from weft.graph.nodes import (
    Call,
    Constant,
    Constructor,
    Function,
    GlobalVar,
    GraphExpr,
    Let,
    Match,
    Module,
    Project,
    Tuple,
    Var,
)
from weft.graph.operator import Operator
from weft.graph.relations import check, expect
from weft.graph.scope import Scope, scopes
from weft.graph.types import DataType, FunctionType, Type
from weft.graph.visit import bound_vars, free_vars, pattern_vars, post_order
from weft.support.errors import InternalError, Location, TypeRelationError, WeftError


def verify(module: Module) -> None:
    """Raise InternalError (code W010) that names the function and the rule if ``module`` is not valid."""
    for name, function in module.functions.items():
        try:
            _Verifier(module, function).run()
        except InternalError as error:
            raise error.at(Location(node=f"@{name}")) from None


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
        placed = scopes(self.function)
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
        if isinstance(e, Call) and isinstance(e.target, Operator):
            self._call(e, e.target)
        elif isinstance(e, Function) and e.is_primitive:
            self._primitive(e)
        elif isinstance(e, Let):
            self._expect(e.value.type, e.var.type, f"the value of '{e.var.name}'", e)
        elif isinstance(e, GlobalVar):
            known = self.module.functions.get(e.name)
            if known is None:
                raise _fail(f"there is no function '{e.name}'", e)
            self._expect(known.type, e.type, f"the function '{e.name}'", e)
        elif isinstance(e, Constructor):
            self._constructor(e)
        else:
            try:
                check(e, self.module.types)
            except TypeRelationError as error:
                raise _fail(error.message, e) from None

    def _expect(self, got: Type, wanted: Type, what: str, e: GraphExpr) -> None:
        try:
            expect(got, wanted, what)
        except TypeRelationError as error:
            raise _fail(error.message, e) from None

    def _call(self, e: Call, op: Operator) -> None:
        try:
            full = op.complete(e.attrs)
            made = op.infer(full, *(a.type for a in e.args))
        except WeftError as error:
            raise _fail(f"a call of {op.name} does not fit its operands: {error.message}", e) from None
        if full != e.attrs:
            raise _fail(f"a call of {op.name} lacks attributes", e)
        self._expect(e.type, made, f"a call of {op.name}", e)

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
            self._expect(e.type, constructor(self.module.types[made.name], e.name, made.args).type, e.name, e)
        except WeftError as error:
            raise _fail(error.message, e) from None


def _inside(block: Scope, owner: GraphExpr, slot: int) -> bool:
    """Whether ``block`` is the given child of ``owner`` or lies in it."""
    at: Scope | None = block
    while at is not None:
        if at.owner is owner and at.slot == slot:
            return True
        at = at.parent
    return False
