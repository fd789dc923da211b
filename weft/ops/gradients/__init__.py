"""Derivatives of operators, as data: a rule by name, or what the operator means in terms of others that have rules.

from weft.ops.gradients import differentiate, gradients
training = differentiate(module, by=("w", "b"))     # the module with d_w and d_b among its results
dx, dw = gradients(loss, [x, w])                    # the same on expressions
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.graph.nodes import Call, GraphExpr, Module
from weft.graph.passes import gradient
from weft.graph.passes.gradient import Adjoint, Gradient, Rule, Rules
from weft.graph.passes.inline import Inline
from weft.ops.definition import OpDef
from weft.ops.gradients.contraction import CONTRACTION
from weft.ops.gradients.elementwise import ELEMENTWISE
from weft.ops.gradients.movement import MOVEMENT
from weft.ops.gradients.normalization import EXPANSIONS, SOFTMAX
from weft.ops.gradients.notation import T, Wide, full
from weft.ops.gradients.reductions import REDUCTIONS
from weft.ops.gradients.resampling import RESAMPLING
from weft.ops.gradients.windows import WINDOWS

RULES: dict[str, Wide] = {**ELEMENTWISE, **REDUCTIONS, **MOVEMENT, **CONTRACTION, **WINDOWS, **RESAMPLING, **SOFTMAX}
DIFFERENTIABLE: frozenset[str] = frozenset((*RULES, *EXPANSIONS))
"""Names of Weft's operators that have derivatives; operators of plugins bring theirs (``OpDef.gradient``)."""


def rule(call: Call) -> Rule | None:
    """The rule of a call's operator: the operator's own, or that of the table."""
    name = getattr(call.target, "name", "")
    if isinstance(call.target, OpDef) and call.target.gradient is not None:
        return call.target.gradient
    if name in RULES:
        return _by_rule
    return _by_expansion if name in EXPANSIONS else None


def _by_rule(call: Call, given: Sequence[Adjoint]) -> Sequence[Adjoint]:
    adjoints = [None if g is None else T(g) for g in given]
    made = RULES[str(getattr(call.target, "name", ""))](call.attrs, [T(x) for x in call.args], adjoints, call)
    return [None if g is None else g.x for g in made]


def _by_expansion(call: Call, given: Sequence[Adjoint]) -> Sequence[Adjoint]:
    expanded = EXPANSIONS[str(getattr(call.target, "name", ""))](call.attrs, *map(T, call.args))
    floats = [x for x in dict.fromkeys(call.args) if x.tensor.dtype.is_float]
    found = dict(zip(floats, gradient.gradients(expanded.x, floats, DERIVATIVES, given[0]), strict=True))
    met: set[GraphExpr] = set()
    made: list[Adjoint] = []
    for x in call.args:  # an operand that stands twice has its whole adjoint at its first place
        made.append(None if x in met else found.get(x))
        met.add(x)
    return made


DERIVATIVES = Rules(rule, lambda a, b: (T(a) + T(b)).x, lambda like, value: full(T(like), value).x)
"""What differentiation asks of the operators."""


def gradients(result: GraphExpr, by: Sequence[GraphExpr], seed: GraphExpr | None = None) -> list[GraphExpr]:
    """The derivatives of (the sum of) ``result`` by each of ``by``: see
    :func:`weft.graph.passes.gradient.gradients`."""
    return gradient.gradients(result, by, DERIVATIVES, seed)


def differentiate(module: Module, by: Sequence[str] = (), output: int = 0) -> Module:
    """The module with the derivatives of (the sum of) an output by the inputs called ``by`` among its results, after
    the others; functions are inlined first. Raises ModelError (M030 to M033) where there are none."""
    return Gradient(DERIVATIVES, tuple(by), output).run(Inline().run(module))
