"""Reverse-mode differentiation of graphs.

From the result backwards every node gets its *adjoint*, the derivative of the result with respect to the node: the sum,
over its users, of what the rule of each user computes from the user's adjoint. The rules come with the operators
(``weft.ops.gradients``). They build ordinary nodes, so gradients can be differentiated again. Griewank and Walther,
"Evaluating Derivatives", chapter 3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from weft.graph.nodes import Call, Constant, Function, GraphExpr, If, Let, Module, Project, Tuple, Var
from weft.graph.operator import Operator
from weft.graph.passes.infer import specialize
from weft.graph.relations import compatible
from weft.graph.scope import Scope, scopes
from weft.graph.types import TensorType, TupleType, Type
from weft.graph.visit import children, free_vars, post_order, substitute
from weft.support.errors import ModelError

Adjoint = GraphExpr | None
Rule = Callable[[Call, Sequence[Adjoint]], Sequence[Adjoint]]
"""From a call and the adjoints of its results to those of its operands; None stands for zeros."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What differentiation asks the operators: ``rule(call)`` (None: there is none), and how to add two tensors and to
    make one of ones or zeros of the type of another."""

    rule: Callable[[Call], Rule | None]
    add: Callable[[GraphExpr, GraphExpr], GraphExpr]
    full: Callable[[GraphExpr, float], GraphExpr]


def gradients(
    result: GraphExpr, by: Sequence[GraphExpr], rules: Rules, seed: GraphExpr | None = None
) -> list[GraphExpr]:
    """The derivatives of the sum of ``result`` (or of its product with ``seed``) by each of ``by``, in their types.

    The derivative of an ``if`` is an ``if``, that of a ``let`` a ``let``. Raises ModelError: M030 where an operator on
    the way has no rule, M031 for loops, matches, functions and branches of different sizes on the way, M032 where
    something is no tensor of floats."""
    for e in (result, *by):
        if not isinstance(e.type, TensorType) or not e.type.dtype.is_float:
            raise ModelError(f"there are no derivatives of or by a value of type {e.type}", code="M032")
    return _backwards(result, [rules.full(result, 1.0) if seed is None else seed], by, rules)


def _backwards(result: GraphExpr, seeds: Sequence[Adjoint], by: Sequence[GraphExpr], rules: Rules) -> list[GraphExpr]:
    """The derivatives by each of ``by`` of the results of ``result``, weighted with ``seeds``."""
    order = list(post_order(result, into_functions=False))
    active = _active(order, set(by))
    found: dict[tuple[GraphExpr, int], GraphExpr] = {}
    if result in active:
        found.update(((result, i), g) for i, g in enumerate(seeds) if g is not None)
    placed: dict[GraphExpr, Scope] = {}
    for e in reversed(order):
        given = [found.get((e, i)) for i in range(_width(e.type))]
        if e not in active or all(g is None for g in given):
            continue
        if isinstance(e, (If, Let)) and e not in by:
            placed = placed or scopes(result)
            passed = _through_blocks(e, given, by, rules, active, placed)
        else:
            passed = _passed_on(e, given, rules, active)
        for target, adjoint in passed:
            before = found.get(target)
            found[target] = adjoint if before is None else rules.add(before, adjoint)
    return [found.get((e, 0)) or rules.full(e, 0.0) for e in by]


def _through_blocks(
    e: If | Let,
    given: Sequence[Adjoint],
    by: Sequence[GraphExpr],
    rules: Rules,
    active: set[GraphExpr],
    placed: Mapping[GraphExpr, Scope],
) -> list[tuple[tuple[GraphExpr, int], GraphExpr]]:
    """The adjoints of the values that a branch or a let reads from outside: a new branch or let that computes the
    derivatives of its blocks with respect to them. It computes again what the blocks compute."""
    bodies = [e.then, e.otherwise] if isinstance(e, If) else [e.body]
    if any(body.type != e.type for body in bodies):
        raise ModelError("branches of different sizes cannot be differentiated", code="M031")
    outside = _taken(e, bodies, placed, frozenset(by))
    stand_ins: dict[GraphExpr, GraphExpr] = {x: Var("taken", x.type) for x in outside}
    if isinstance(e, Let):
        stand_ins[e.var] = Var(e.var.name, e.var.type)
    chosen = [x for x in outside if x in active]
    if isinstance(e, Let) and e.value in active:
        chosen.append(e.var)
    for x in chosen:
        if not isinstance(x.type, TensorType):
            raise ModelError(f"a value of type {x.type} that a branch takes cannot be differentiated", code="M031")
    chosen = [x for x in chosen if x.tensor.dtype.is_float]
    variables = [stand_ins[x] for x in chosen]
    back = {v: x for x, v in stand_ins.items() if not isinstance(e, Let) or x is not e.var}
    made = []
    for body in bodies:
        derived = Tuple(tuple(_backwards(substitute(body, stand_ins), given, variables, rules)))
        made.append(substitute(_copied(derived), back))
    if isinstance(e, If):
        whole: GraphExpr = If(e.condition, made[0], made[1], made[0].type, e.origin)
    else:
        var = stand_ins[e.var]
        assert isinstance(var, Var)
        whole = Let(var, e.value, made[0], e.origin)
    targets = [e.value if isinstance(e, Let) and x is e.var else x for x in chosen]
    return [((target, 0), Project(whole, i)) for i, target in enumerate(targets)]


def _copied(root: GraphExpr) -> GraphExpr:
    """``root`` with variables of its own: each is bound once."""
    copy = specialize(Function((), root), {}, keep=free_vars(root))
    return copy.body


def _taken(
    e: GraphExpr, bodies: Sequence[GraphExpr], placed: Mapping[GraphExpr, Scope], by: frozenset[GraphExpr]
) -> list[GraphExpr]:
    """What the blocks of a node read that is computed outside of them (or one of ``by``), but for constants."""
    own = {e.var} if isinstance(e, Let) else set()

    def is_inside(x: GraphExpr) -> bool:
        at: Scope | None = None if x in by else placed[x]
        while at is not None:
            if at.owner is e:
                return True
            at = at.parent
        return False

    found: dict[GraphExpr, None] = {}
    waiting, seen = list(bodies), set(bodies)
    while waiting:
        x = waiting.pop()
        if not is_inside(x) or (isinstance(x, Project) and not is_inside(x.value)):
            if not isinstance(x, Constant) and x not in own:
                found[x] = None
            continue
        more = [c for c in children(x) if c not in seen]
        seen.update(more)
        waiting.extend(more)
    return list(found)


def _active(order: Sequence[GraphExpr], by: set[GraphExpr]) -> set[GraphExpr]:
    """The nodes that depend on ``by``."""
    active: set[GraphExpr] = set()
    for e in order:
        if e in by or any(c in active for c in children(e)):
            active.add(e)
    return active


def _width(t: Type) -> int:
    return len(t.fields) if isinstance(t, TupleType) else 1


def _passed_on(
    e: GraphExpr, given: Sequence[Adjoint], rules: Rules, active: set[GraphExpr]
) -> list[tuple[tuple[GraphExpr, int], GraphExpr]]:
    """The adjoints that a node hands to its operands."""
    if isinstance(e, (Var, Constant)):
        return []
    if isinstance(e, Tuple):
        return [((f, 0), g) for f, g in zip(e.fields, given, strict=True) if g is not None]
    if isinstance(e, Project) and given[0] is not None:
        return [((e.value, e.index), given[0])]
    if not isinstance(e, Call) or not isinstance(e.target, Operator):
        what = "a call of a function" if isinstance(e, Call) else f"a {type(e).__name__.lower()}"
        hint = "only operators, branches and lets have derivatives; unroll loops with a known number of iterations"
        if isinstance(e, Call):
            hint = "inline functions that are not recursive (weft.graph.passes.inline); recursion has no derivative"
        raise ModelError(f"{what} cannot be differentiated", code="M031", hint=hint)
    rule = rules.rule(e)
    if rule is None:
        where = f" ({', '.join(e.origin.names)})" if e.origin.names else ""
        hint = "an operator of your own brings its derivative: OpDef(…, gradient=…)"
        raise ModelError(f"there is no derivative of {e.target.name}{where}", code="M030", hint=hint)
    made = rule(e, given)
    _check_adjoints(e, e.target, made)
    return [((a, 0), g) for a, g in zip(e.args, made, strict=True) if g is not None and a in active]


def _check_adjoints(e: Call, target: Operator, made: Sequence[Adjoint]) -> None:
    """Each operand gets an adjoint of its type: rules may come from plugins."""
    if len(made) != len(e.args):
        what = f"{len(made)} adjoints for {len(e.args)} operands"
        raise ModelError(f"the derivative of {target.name} gives {what}", code="M034")
    for number, (operand, adjoint) in enumerate(zip(e.args, made, strict=True)):
        if adjoint is not None and not compatible(adjoint.type, operand.type):
            what = f"a {adjoint.type} for operand {number}, which is a {operand.type}"
            raise ModelError(f"the derivative of {target.name} gives {what}", code="M034")


@dataclass(frozen=True, slots=True)
class Gradient:
    """Append to the results of ``main`` the derivatives of (the sum of) result number ``output`` by the parameters
    called
    ``by``, in that order (empty: by all parameters of floats)."""

    rules: Rules
    by: tuple[str, ...] = ()
    output: int = 0
    name: str = "gradient"

    def run(self, module: Module) -> Module:
        main = module.main
        results = main.body.fields if isinstance(main.body, Tuple) else (main.body,)
        known = {p.name: p for p in main.params}
        missing = [n for n in self.by if n not in known]
        if missing or not 0 <= self.output < len(results):
            what = f"input '{missing[0]}'" if missing else f"output {self.output}"
            raise ModelError(f"there is no {what} to differentiate", code="M033", hint="inputs: " + ", ".join(known))
        floats = [p for p in main.params if isinstance(p.type, TensorType) and p.type.dtype.is_float]
        chosen = [known[n] for n in self.by] or floats
        made = gradients(results[self.output], chosen, self.rules)
        body = Tuple((*results, *made))
        labels = module.attrs.get("outputs", ()) or [f"output{i}" for i in range(len(results))]
        attrs = module.attrs.replace(outputs=(*labels, *(f"d_{p.name}" for p in chosen)))
        return Module(
            {**module.functions, "main": Function(main.params, body, main.attrs, main.origin)}, module.types, attrs
        )
