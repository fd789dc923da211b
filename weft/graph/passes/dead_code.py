"""Removes what nothing uses. Unused calls need no work (a graph holds only what its result needs); what may be unused
are lets, parameters and tuple fields of inner functions, and functions of the module."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from weft.expr.nodes import Var as Symbol
from weft.graph.dims import symbols
from weft.graph.nodes import Call, Function, GlobalVar, GraphExpr, Let, Loop, Module, Project, Tuple, Var, apply
from weft.graph.operator import Operator
from weft.graph.scope import fresh_sizes
from weft.graph.types import TupleType
from weft.graph.visit import children, map_functions, post_order, rewrite


@dataclass(frozen=True, slots=True)
class DeadCode:
    """Drop unused lets whose value is pure, unused parameters and result fields of functions that are called directly,
    projections of tuples, and functions that the entry does not reach."""

    entry: str = "main"
    max_sweeps: int = 10
    name: str = "dead_code"

    def run(self, module: Module) -> Module:
        module = map_functions(module, self._function)
        return _reachable(module, self.entry)

    def _function(self, function: Function) -> Function:
        for _ in range(self.max_sweeps):  # each sweep may make the next thing unused; chains of these are short
            made = _sweep(function)
            if made is function:
                break
            function = made
        return function


def _sweep(function: Function) -> Function:
    used_vars, fields = _usage(function)
    pure = _purity(function)
    mentioned = cache(lambda: _mentioned(function))

    def clean(expr: GraphExpr) -> GraphExpr | None:
        if isinstance(expr, Project) and isinstance(expr.value, Tuple):
            return expr.value.fields[expr.index]
        if isinstance(expr, Let) and expr.var not in used_vars and pure.get(expr.value, False):
            return None if any(mentioned()[s] - {expr.value} for s in fresh_sizes(expr)) else expr.body
        if isinstance(expr, Call) and isinstance(expr.target, Function):
            return _without_params(expr, expr.target, used_vars)
        return None

    narrowed = _narrow_results(function, fields)
    made = rewrite(narrowed, clean) if narrowed is function else narrowed
    assert isinstance(made, Function)
    return made


def _usage(function: Function) -> tuple[set[Var], dict[GraphExpr, set[int] | None]]:
    """Variables that are used, and for each tuple value the fields that are taken (None: the whole is used)."""
    variables: set[Var] = set()
    fields: dict[GraphExpr, set[int] | None] = {function.body: None}
    for expr in post_order(function):
        if isinstance(expr, Var):
            variables.add(expr)
        for c in children(expr):
            if isinstance(expr, Project):
                taken = fields.setdefault(c, set())
                if taken is not None:
                    taken.add(expr.index)
            else:
                fields[c] = None
    return variables, fields


def _mentioned(function: Function) -> dict[Symbol, set[GraphExpr]]:
    """The nodes that mention each size: a size may be all that is used of a loop or a branch."""
    found: dict[Symbol, set[GraphExpr]] = defaultdict(set)
    for expr in post_order(function):
        own = expr.attrs if isinstance(expr, Call) else expr.trips if isinstance(expr, Loop) else ()
        if not isinstance(expr, (Var, Project, Tuple, Let)):
            for s in symbols((expr.type, own)):
                found[s].add(expr)
    return found


def _purity(function: Function) -> dict[GraphExpr, bool]:
    """Whether evaluating a node has no effect. A function value has none; calling an unknown one may."""
    pure: dict[GraphExpr, bool] = {}
    for expr in post_order(function):
        if isinstance(expr, Function):
            pure[expr] = True
            continue
        own = True
        if isinstance(expr, Call):
            target = expr.target
            if isinstance(target, Operator):
                own = target.pure
            elif isinstance(target, Function):
                own = pure[target.body]
            else:
                own = False
        pure[expr] = own and all(pure[c] for c in children(expr))
    return pure


def _without_params(expr: Call, target: Function, used: set[Var]) -> GraphExpr | None:
    keep = [i for i, p in enumerate(target.params) if p in used]
    if len(keep) == len(target.params):
        return None
    slim = Function(tuple(target.params[i] for i in keep), target.body, target.attrs, target.origin)
    return apply(slim, [expr.args[i] for i in keep], origin=expr.origin)


def _narrow_results(function: Function, fields: dict[GraphExpr, set[int] | None]) -> Function:
    """Drop result fields that no caller uses, of functions that are called directly and only once."""
    plans: dict[GraphExpr, list[int]] = {}
    for expr, taken in fields.items():
        if (
            taken is not None
            and isinstance(expr, Call)
            and isinstance(expr.target, Function)
            and isinstance(expr.target.body, Tuple)
            and isinstance(expr.type, TupleType)
            and len(taken) < len(expr.type.fields)
        ):
            plans[expr] = sorted(taken)
    if not plans:
        return function
    slim: dict[GraphExpr, GraphExpr] = {}
    memo: dict[GraphExpr, GraphExpr] = {}
    for expr in post_order(function):
        if isinstance(expr, Project) and expr.value in plans:
            call = expr.value
            assert isinstance(call, Call) and isinstance(call.target, Function)
            if call not in slim:
                slim[call] = _narrowed_call(call, call.target, plans[call], memo)
            keep = plans[call]
            memo[expr] = slim[call] if len(keep) == 1 else Project(slim[call], keep.index(expr.index), expr.origin)
    made = rewrite(function, lambda e: None, memo=memo)
    assert isinstance(made, Function)
    return made


def _narrowed_call(expr: Call, target: Function, keep: list[int], memo: dict[GraphExpr, GraphExpr]) -> Call:
    assert isinstance(target.body, Tuple)
    kept = [target.body.fields[i] for i in keep]
    body = kept[0] if len(kept) == 1 else Tuple(tuple(kept), target.body.origin)
    slim = Function(target.params, body, target.attrs, target.origin)
    new_target = rewrite(slim, lambda e: None, memo=memo)
    return apply(new_target, [rewrite(a, lambda e: None, memo=memo) for a in expr.args], origin=expr.origin)


def _reachable(module: Module, entry: str) -> Module:
    if entry not in module.functions:
        return module
    reached = {entry}
    waiting = [entry]
    while waiting:
        for expr in post_order(module.functions[waiting.pop()]):
            if isinstance(expr, GlobalVar) and expr.name not in reached:
                reached.add(expr.name)
                waiting.append(expr.name)
    if len(reached) == len(module.functions):
        return module
    return Module({n: f for n, f in module.functions.items() if n in reached}, module.types, module.attrs)
