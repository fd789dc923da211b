"""Sizes that only the data gives, where the data are constants after all."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.expr.nodes import ExprLike
from weft.expr.nodes import Var as Symbol
from weft.graph import dims
from weft.graph.nodes import Call, Constant, Function, GraphExpr, Let, Module
from weft.graph.operator import Operator
from weft.graph.passes.fold_constants import FoldConstants
from weft.graph.passes.infer import specialize, still_required
from weft.graph.visit import substitute
from weft.support.errors import TypeRelationError


@dataclass(frozen=True, slots=True)
class KnownSizes:
    """Replace sizes that a constant gives its value (by an operator that ``binds``) by that number, everywhere in the
    function; what follows from it is folded, which may make more sizes known.

    Only bindings that every run of the function reaches: those inside of branches and loops may never be reached, and a
    loop without iterations leaves its sizes 0. Sizes stay as they are where operands do not fit with them or where one
    would be negative: the check that fails belongs to the run.
    """

    fold: FoldConstants = field(default_factory=FoldConstants)
    entry: str = "main"
    name: str = "known_sizes"

    def run(self, module: Module) -> Module:
        functions, attrs = dict(module.functions), module.attrs
        for name, function in functions.items():
            while found := _constant_bindings(function):
                sizes: dict[Symbol, ExprLike] = {s: n for values in found.values() for s, n in values.items()}
                try:
                    made = specialize(_without(function, found), sizes)
                except TypeRelationError:
                    break
                folded = self.fold.run(Module({name: made}, module.types)).functions[name]
                if name != self.entry and folded.type != function.type:
                    break  # callers expect the type
                function = functions[name] = folded
                if attrs.get("requires"):
                    attrs = attrs.replace(requires=still_required(attrs.requires, sizes))
        if all(functions[name] is f for name, f in module.functions.items()):
            return module
        return Module(functions, module.types, attrs)


def _bindings(function: Function) -> list[Let]:
    """The definitions that every run of ``function`` reaches, from the outside."""
    found, at = [], function.body
    while isinstance(at, Let):
        found.append(at)
        at = at.body
    return found


def _constant_bindings(function: Function) -> dict[Let, dict[Symbol, int]]:
    """The sizes that constants give, by the definition that binds them."""
    declared = {s for p in function.params for s in dims.symbols(p.type)}
    found: dict[Let, dict[Symbol, int]] = {}
    for let in _bindings(function):
        value = let.value
        if not (isinstance(value, Call) and isinstance(value.target, Operator) and value.target.binds):
            continue
        (given,) = value.args or (None,)
        if isinstance(given, Constant):
            numbers = dict(zip(value.attrs.sizes, given.data.reshape(-1).tolist(), strict=True))
            if min(numbers.values()) >= 0 and declared.isdisjoint(numbers):
                found[let] = numbers
    return found


def _without(function: Function, removed: dict[Let, dict[Symbol, int]]) -> Function:
    """``function`` without these definitions: the values take the places of their variables."""
    lets = _bindings(function)
    body = lets[-1].body
    values: dict[GraphExpr, GraphExpr] = {}
    for let in reversed(lets):
        if let in removed:
            assert isinstance(let.value, Call)
            values[let.var] = let.value.args[0]
        else:
            body = Let(let.var, let.value, body, let.origin)
    made = substitute(Function(function.params, body, function.attrs, function.origin), values)
    assert isinstance(made, Function)
    return made
