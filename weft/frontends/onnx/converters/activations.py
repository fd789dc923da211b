"""Activation functions of recurrent layers, named in ``activations``, with their parameters alpha and beta.

A function that has such a parameter takes the next number of ``activation_alpha`` or ``activation_beta``, or its
default after the end of the list (ONNX LSTM-22).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.frontends.common.problems import Malformed
from weft.frontends.onnx.converters.numbers import Traced
from weft.frontends.onnx.node import Node
from weft.graph.nodes import GraphExpr

Function = Callable[[GraphExpr], GraphExpr]
_Formula = Callable[[Traced, float, float], Traced]

FORMULAS: dict[str, _Formula] = {
    "relu": lambda x, a, b: x.call("relu"),
    "sigmoid": lambda x, a, b: x.call("sigmoid"),
    "softplus": lambda x, a, b: x.call("softplus"),
    "softsign": lambda x, a, b: x.call("softsign"),
    "tanh": lambda x, a, b: x.call("tanh"),
    "affine": lambda x, a, b: x * a + b,
    "elu": lambda x, a, b: x.call("elu", alpha=a),
    "hardsigmoid": lambda x, a, b: x.call("hard_sigmoid", alpha=a, beta=b),
    "leakyrelu": lambda x, a, b: x.call("leaky_relu", alpha=a),
    "scaledtanh": lambda x, a, b: (x * b).call("tanh") * a,
    "thresholdedrelu": lambda x, a, b: x.call("thresholded_relu", alpha=a),
}
DEFAULTS: dict[str, tuple[float, ...]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0,),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0,),
}
"""Default of alpha and, if the function has it, of beta."""


def activations(node: Node, direction: int, defaults: Sequence[str]) -> list[Function]:
    """The functions of one direction of a recurrent layer. Each first clips its operand by the attribute ``clip``."""
    names = [name.lower() for name in node.texts("activations") or (*defaults, *defaults)]
    first, count = direction * len(defaults), len(defaults)
    if len(names) < first + count:
        raise Malformed(f"it needs {count} activations for each direction")
    alphas, betas = list(node.reals("activation_alpha", ())), list(node.reals("activation_beta", ()))
    limit = node.real("clip", 0.0)
    made = []
    for name in names:
        if name not in FORMULAS:
            raise Malformed(f"its activation '{name}' is none of {', '.join(sorted(FORMULAS))}")
        known = DEFAULTS.get(name, ())
        alpha, beta = (_next(given, i, known) for i, given in enumerate((alphas, betas)))
        made.append(_function(node, FORMULAS[name], alpha, beta, limit))
    return made[first : first + count]


def _next(given: list[float], i: int, known: tuple[float, ...]) -> float:
    if i >= len(known):
        return 0.0
    return float(np.float32(given.pop(0) if given else known[i]))


def _function(node: Node, formula: _Formula, alpha: float, beta: float, limit: float) -> Function:
    def apply(x: GraphExpr) -> GraphExpr:
        return formula(Traced(node, node.call("clip", x, min=-limit, max=limit) if limit else x), alpha, beta).x

    return apply
