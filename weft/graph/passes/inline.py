"""Puts the bodies of functions where they are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from weft.expr.nodes import ExprLike
from weft.expr.nodes import Var as Symbol
from weft.graph import dims
from weft.graph.nodes import Call, Function, GlobalVar, GraphExpr, Let, Loop, Module
from weft.graph.passes.infer import specialize
from weft.graph.types import FunctionType, TensorType, TupleType, Type
from weft.graph.visit import free_vars, map_functions, post_order, rewrite, substitute


@dataclass(frozen=True, slots=True)
class Inline:
    """Replace calls of functions that are not recursive by their bodies, and variables bound to functions by the
    function.

    Each copy has its own variables and sizes; the sizes of the parameters become those of the arguments. Primitive
    functions stay, and so do calls of recursive functions and functions that are used as values.
    """

    max_sweeps: int = 100
    name: str = "inline"

    def run(self, module: Module) -> Module:
        recursive = _recursive(module)
        bodies = {name: f for name, f in module.functions.items() if name not in recursive}
        return map_functions(module, lambda f: self._function(f, bodies))

    def _function(self, function: Function, bodies: Mapping[str, Function]) -> Function:
        for _ in range(self.max_sweeps):  # one sweep for each level of calls
            if not any(_is_candidate(e, bodies) for e in post_order(function)):
                break
            outside = _symbols_outside(function)

            def put(e: GraphExpr, outside: frozenset[Symbol] = outside) -> GraphExpr | None:
                if isinstance(e, Let) and isinstance(e.var.type, FunctionType) and isinstance(e.value, Function):
                    return substitute(e.body, {e.var: e.value})
                if isinstance(e, Call) and _is_candidate(e, bodies):
                    target = bodies[e.target.name] if isinstance(e.target, GlobalVar) else e.target
                    assert isinstance(target, Function)
                    return _body(target, e.args, frozenset() if isinstance(e.target, GlobalVar) else outside)
                return None

            made = rewrite(function, put)
            assert isinstance(made, Function)
            function = made
        return function


def _is_candidate(e: GraphExpr, bodies: Mapping[str, Function]) -> bool:
    if isinstance(e, Let):
        return isinstance(e.var.type, FunctionType) and isinstance(e.value, Function)
    if not isinstance(e, Call):
        return False
    if isinstance(e.target, GlobalVar):
        return e.target.name in bodies
    return isinstance(e.target, Function) and not e.target.is_primitive


def _body(target: Function, args: Iterable[GraphExpr], outside: frozenset[Symbol]) -> GraphExpr:
    """A copy of the body, over the arguments."""
    arguments = tuple(args)
    values: dict[Symbol, ExprLike] = {}
    for p, a in zip(target.params, arguments, strict=True):
        _match(p.type, a.type, values)
    inside = dict.fromkeys(s for e in post_order(target) for s in _mentioned(e))
    for s in inside:
        if s not in values and s not in outside:
            values[s] = Symbol(s.name, s.dtype)
    copy = specialize(target, values, keep=free_vars(target))
    return substitute(copy.body, dict(zip(copy.params, arguments, strict=True)))


def _match(declared: Type, actual: Type, values: dict[Symbol, ExprLike]) -> None:
    if isinstance(declared, TensorType) and isinstance(actual, TensorType):
        for d, a in zip(declared.shape, actual.shape, strict=True):
            if isinstance(d, Symbol):
                values.setdefault(d, a)
    elif isinstance(declared, TupleType) and isinstance(actual, TupleType):
        for d_field, a_field in zip(declared.fields, actual.fields, strict=True):
            _match(d_field, a_field, values)


def _mentioned(e: GraphExpr) -> Iterable[Symbol]:
    yield from dims.symbols(e.type)
    if isinstance(e, Call):
        yield from dims.symbols(e.attrs)
    if isinstance(e, Loop):
        yield from dims.symbols((e.index, e.trips, e.count))


def _symbols_outside(function: Function) -> frozenset[Symbol]:
    """Sizes known outside of the functions that are called where they stand."""
    called = [e.target for e in post_order(function) if isinstance(e, Call) and isinstance(e.target, Function)]
    called += [e.value for e in post_order(function) if isinstance(e, Let) and isinstance(e.value, Function)]
    inner = {e for f in called for e in post_order(f)}
    found = {s for p in function.params for s in dims.symbols(p.type)}
    return frozenset(found | {s for e in post_order(function) if e not in inner for s in _mentioned(e)})


def _recursive(module: Module) -> frozenset[str]:
    """Functions that can reach themselves through calls."""
    direct = {
        name: {e.name for e in post_order(f) if isinstance(e, GlobalVar)} & module.functions.keys()
        for name, f in module.functions.items()
    }
    reached = {name: set(names) for name, names in direct.items()}
    changed = True
    while changed:
        changed = False
        for names in reached.values():
            more = {m for n in names for m in reached[n]} - names
            names |= more
            changed = changed or bool(more)
    return frozenset(name for name, names in reached.items() if name in names)
