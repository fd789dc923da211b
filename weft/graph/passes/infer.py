"""Types inferred anew, and symbolic sizes bound to numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from weft.expr.nodes import Const, Expr, ExprLike
from weft.expr.nodes import Var as Symbol
from weft.graph import dims
from weft.graph.nodes import (
    Call,
    Constructor,
    Function,
    GlobalVar,
    GraphExpr,
    If,
    Let,
    Loop,
    Match,
    Module,
    Pattern,
    Var,
    call,
)
from weft.graph.operator import Operator
from weft.graph.visit import children, post_order, rebuild, rebuild_loop
from weft.support.errors import UserError
from weft.support.words import did_you_mean


@dataclass(frozen=True, slots=True)
class BindSizes:
    """Give symbolic sizes values, by name, in the whole module; types are inferred anew, operands first.

    Raises UserError (T020) where the module has no such size, TypeRelationError where operands do not fit with it.
    """

    sizes: tuple[tuple[str, int], ...]
    name: str = "bind_sizes"

    def run(self, module: Module) -> Module:
        wanted = dict(self.sizes)
        found: dict[Symbol, ExprLike] = {}
        names: set[str] = set()
        for f in module.functions.values():
            for e in post_order(f):
                parts = (e.type, e.attrs) if isinstance(e, Call) else (e.type,)
                for s in (s for part in parts for s in dims.symbols(part)):
                    names.add(s.name)
                    if s.name in wanted:
                        found[s] = wanted[s.name]
        unknown = [n for n in wanted if n not in names]
        if unknown:
            raise UserError(
                f"there is no symbolic size '{unknown[0]}'",
                code="T020",
                hint=did_you_mean(unknown[0], names, f"there are: {', '.join(sorted(names)) or 'none'}"),
            )
        attrs = module.attrs
        if attrs.get("requires"):
            attrs = attrs.replace(requires=still_required(attrs.requires, found))
        return Module({n: specialize(f, found) for n, f in module.functions.items()}, module.types, attrs)


def still_required(
    stated: Iterable[tuple[Expr, str]], values: Mapping[Symbol, ExprLike]
) -> tuple[tuple[Expr, str], ...]:
    """What is still to be checked with these sizes."""
    left = ((dims.substitute(condition, values), message) for condition, message in stated)
    return tuple((c, m) for c, m in left if not (isinstance(c, Const) and c.value))


def specialize(function: Function, values: Mapping[Symbol, ExprLike], *, keep: Iterable[Var] | None = None) -> Function:
    """``function`` with symbolic sizes replaced in all types and attributes.

    With ``keep`` it is a copy in any case, with variables of its own but for those (the captured ones).
    """
    if not values and keep is None:
        return function
    variables: dict[Var, Var] = {v: v for v in keep or ()}
    made: dict[GraphExpr, GraphExpr] = {}

    def var(v: Var) -> Var:
        if v not in variables:
            variables[v] = Var(v.name, dims.substitute_type(v.type, values), v.origin)
        return variables[v]

    def pattern(p: Pattern) -> Pattern:
        return Pattern(p.constructor, tuple(map(pattern, p.fields)), None if p.var is None else var(p.var))

    for e in post_order(function):
        parts = [made[c] for c in children(e)]
        if isinstance(e, Var):
            made[e] = var(e)
        elif isinstance(e, Call) and isinstance(e.target, Operator):
            made[e] = call(e.target, parts, dims.substitute_attrs(e.attrs, values), origin=e.origin)
        elif isinstance(e, Function):
            made[e] = Function(tuple(map(var, e.params)), parts[0], e.attrs, e.origin)
        elif isinstance(e, Let):
            made[e] = Let(var(e.var), parts[0], parts[1], e.origin)
        elif isinstance(e, Match):
            clauses = tuple((pattern(p), b) for (p, _), b in zip(e.clauses, parts[1:], strict=True))
            made[e] = Match(parts[0], clauses, dims.substitute_type(e.type, values), e.origin)
        elif isinstance(e, If):
            made[e] = If(parts[0], parts[1], parts[2], dims.substitute_type(e.type, values), e.origin)
        elif isinstance(e, Loop):
            made[e] = _loop(e, parts, values)
        elif isinstance(e, (GlobalVar, Constructor)):
            made[e] = type(e)(e.name, dims.substitute_type(e.type, values), e.origin)
        else:
            made[e] = rebuild(e, parts)
    result = made[function]
    assert isinstance(result, Function)
    return result


def _loop(e: Loop, parts: Sequence[GraphExpr], values: Mapping[Symbol, ExprLike]) -> Loop:
    made = rebuild_loop(e, parts, dims.substitute_type(e.type, values))
    trips = None if e.trips is None else dims.substitute_dim(e.trips, values)
    index = values.get(e.index, e.index)
    assert isinstance(index, Symbol)
    return replace(made, trips=trips, count=dims.substitute_dim(e.count, values), index=index)
