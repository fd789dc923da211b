"""Support vector machines: scores by the similarity to support vectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.expr.nodes import Var as Symbol
from weft.frontends.common.problems import Malformed
from weft.frontends.onnx.converters.classes import (
    best,
    class_labels,
    named,
    of_many,
    of_two,
    post_transform,
    transformed,
)
from weft.frontends.onnx.converters.loops import repeat
from weft.frontends.onnx.converters.numbers import Traced, constant, operand
from weft.frontends.onnx.node import Node, Result
from weft.frontends.onnx.tensors import Array
from weft.graph.nodes import GraphExpr
from weft.support.dtypes import FLOAT32, INT64

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
ROUNDS = 100
"""Least number of iterations that combine the probabilities of pairs of classes."""


def _reals(node: Node, name: str) -> Array:
    return np.array(node.reals(name, ()), np.float32)


def _similarity(node: Node, x: Traced, vectors: Array) -> Traced:
    """The kernel of each row and each vector: rows × vectors."""
    kind = node.text("kernel_type", "LINEAR")
    if kind not in KERNELS:
        raise Malformed(f"its attribute 'kernel_type' is '{kind}', not one of {', '.join(KERNELS)}")
    gamma, offset, degree = (*node.reals("kernel_params", ()), 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":
        gap = x.call("unsqueeze", axes=(1,)) - constant(node, vectors)
        return (gap.call("reduce_sum_square", axes=(2,), keepdims=False) * -gamma).call("exp")
    dot = x.call("matmul", constant(node, np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return dot
    moved = dot * gamma + offset
    return moved.call("tanh") if kind == "SIGMOID" else moved.call("pow", degree)


def _data(node: Node) -> Traced:
    x = operand(node, 0).to(FLOAT32)
    if len(x.shape) == 1:
        return x.reshape(1, x.shape[0])
    if len(x.shape) != 2:
        raise Malformed(f"its input {x.x.tensor} must be a matrix")
    return x


def _regressor(node: Node) -> Result:
    x, factors, rho = _data(node), _reals(node, "coefficients"), _reals(node, "rho")
    count = node.integer("n_supports", 0)
    if not rho.size:
        raise Malformed("it needs the attribute 'rho'")
    if count > 0:
        vectors = _reals(node, "support_vectors")
        if vectors.size % count or factors.size != count:
            raise Malformed(f"its {vectors.size} support values and {factors.size} coefficients fit no {count} vectors")
        made = _similarity(node, x, vectors.reshape(count, -1)).call("matmul", constant(node, factors[:, None]))
    else:
        made = x.call("matmul", constant(node, factors[:, None]))
    made = made + float(rho[0])
    if node.flag("one_class"):
        return (made > 0.0).choose(made * 0.0 + 1.0, -1.0).x
    return transformed(made, post_transform(node)).x


def _classifier(node: Node) -> Result:
    x, factors = _data(node), _reals(node, "coefficients")
    labels, rho = class_labels(node, "classlabels_ints"), _reals(node, "rho")
    per_class = np.array(node.integers("vectors_per_class", ()), np.int64)
    total, classes = int(per_class.sum()), len(labels)
    if not rho.size or not factors.size:
        raise Malformed("it needs the attributes 'rho' and 'coefficients'")
    if not total:
        return _linear(node, x, factors, labels, float(rho[0]))
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    if len(per_class) != classes or len(rho) < len(pairs) or factors.size != (classes - 1) * total:
        raise Malformed(f"its coefficients fit no {total} vectors of {classes} classes")
    vectors = _reals(node, "support_vectors")
    if vectors.size % total:
        raise Malformed(f"its {vectors.size} support values are no {total} vectors")
    similar = _similarity(node, x, vectors.reshape(total, -1))
    table = _pair_table(factors.reshape(classes - 1, total), per_class, pairs)
    scores = similar.call("matmul", constant(node, table)) + constant(node, rho[: len(pairs)])
    return _decided(node, scores, pairs, labels, bool(np.all(factors >= 0)))


def _linear(node: Node, x: Traced, factors: Array, labels: Array, rho: float) -> Result:
    """Linear scores: one hyperplane for each class."""
    scores = x.call("matmul", constant(node, np.ascontiguousarray(factors.reshape(len(labels), -1).T))) + rho
    return of_many(node, scores, labels)


def _pair_table(factors: Array, per_class: Array, pairs: list[tuple[int, int]]) -> Array:
    """The weight of each vector in the decision between two classes: vectors × pairs."""
    starts = np.concatenate([[0], np.cumsum(per_class)])
    table = np.zeros((factors.shape[1], len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        first, second = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        table[first, column], table[second, column] = factors[j - 1, first], factors[i, second]
    return table


def _decided(node: Node, scores: Traced, pairs: list[tuple[int, int]], labels: Array, positive: bool) -> Result:
    """Labels by votes of the pairs, and scores: of the pairs, or probabilities if there are parameters for them."""
    classes = len(labels)
    sides = np.array([[[c == j, c == i] for c in range(classes)] for i, j in pairs], np.int64)
    first = (scores > 0.0).to(INT64).call("unsqueeze", axes=(2,))
    votes = (first * constant(node, sides[:, :, 1], INT64) + (1 - first) * constant(node, sides[:, :, 0], INT64)).call(
        "reduce_sum", axes=(1,), keepdims=False
    )
    given, slopes, shifts = post_transform(node), _reals(node, "prob_a"), _reals(node, "prob_b")
    if slopes.size:
        if slopes.size < len(pairs) or shifts.size < len(pairs):
            raise Malformed(f"its attributes prob_a and prob_b must hold {len(pairs)} numbers each")
        margin = scores * constant(node, slopes[: len(pairs)]) + constant(node, shifts[: len(pairs)])
        chances = _agreed(1.0 - margin.call("sigmoid"), pairs, classes)
        return named(node, best(votes), labels).x, transformed(chances, given).x
    if classes == 2:
        return _pair(node, scores, votes, labels, positive)
    return named(node, best(votes), labels).x, transformed(scores, given).x


def _pair(node: Node, score: Traced, votes: Traced, labels: Array, positive: bool) -> Result:
    _, final = of_two(node, score, labels, 0.0, complement=positive)  # type: ignore[misc]  # pair
    return named(node, best(votes), labels).x, final


def _agreed(pair_chances: Traced, pairs: list[tuple[int, int]], classes: int) -> Traced:
    """Probabilities of classes from those of pairs, by the second method of Wu, Lin and Weng (2004)."""
    node, rows = pair_chances.node, pair_chances.shape[0]
    chances = pair_chances.limited(1e-7, 1 - 1e-7)
    column = {p: chances.part(1, k) for k, p in enumerate(pairs)}
    column |= {(j, i): 1.0 - c for (i, j), c in list(column.items())}

    def entry(t: int, u: int) -> Traced:
        if t != u:
            return column[u, t].call("neg") * column[t, u]
        squares = [column[j, t] * column[j, t] for j in range(classes) if j != t]
        total = squares[0]
        for other in squares[1:]:
            total = total + other
        return total

    q = [_columns([entry(t, u) for u in range(classes)]) for t in range(classes)]
    start = constant(node, 1.0 / classes).expand(rows, classes)
    done = constant(node, 0.0).expand(rows, 1)

    def step(_: Symbol, state: list[GraphExpr]) -> tuple[None, list[GraphExpr], list[GraphExpr]]:
        p, settled = (Traced(node, s) for s in state)
        products = _columns([_dot(q[t], p).reshape(rows) for t in range(classes)])
        total = _dot(p, products)
        error = (products - total).call("abs").call("reduce_max", axes=(1,), keepdims=True)
        now = settled.call("maximum", (error < 0.005 / classes).to(FLOAT32))
        after = p
        for t in range(classes):
            diagonal, mine = q[t].part(1, t, t + 1), products.part(1, t, t + 1)
            change = (total - mine) / diagonal
            here = constant(node, np.eye(classes)[t])
            total = (total + change * (change * diagonal + mine * 2.0)) / ((change + 1.0) * (change + 1.0))
            after = (after + change * here) / (change + 1.0)
            products = (products + change * q[t]) / (change + 1.0)
        return None, [(now > 0.0).choose(p, after).x, now.x], []

    (found, _), _ = repeat(node, [start.x, done.x], step, trips=max(ROUNDS, classes))
    return Traced(node, found)


def _columns(parts: list[Traced]) -> Traced:
    raised = [p.call("unsqueeze", axes=(1,)) for p in parts]
    return raised[0].call("concat", *raised[1:], axis=1)


def _dot(a: Traced, b: Traced) -> Traced:
    return (a * b).call("reduce_sum", axes=(1,), keepdims=True)


VECTORS: dict[str, Callable[[Node], Result]] = {"SVMClassifier": _classifier, "SVMRegressor": _regressor}
