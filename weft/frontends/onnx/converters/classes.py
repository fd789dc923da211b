"""Scores of classes: transformations, and the chosen class. Where ONNX is not specific, the result is that of ONNX
Runtime."""

from __future__ import annotations

import math

import numpy as np

from weft.frontends.common.problems import Malformed
from weft.frontends.onnx.converters.numbers import Traced, constant
from weft.frontends.onnx.converters.text import selected
from weft.frontends.onnx.node import Node, Result
from weft.frontends.onnx.tensors import Array
from weft.support.dtypes import FLOAT32, INT64

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def post_transform(node: Node) -> str:
    """The transformation named by a node. Raises Malformed if it does not exist."""
    name = node.text("post_transform", "NONE")
    if name not in TRANSFORMS:
        raise Malformed(f"its attribute 'post_transform' is '{name}', not one of {', '.join(TRANSFORMS)}")
    return name


def transformed(scores: Traced, name: str) -> Traced:
    """Scores (rows × classes) through a transformation."""
    if name == "SOFTMAX":
        return scores.call("softmax", axis=-1)
    if name == "LOGISTIC":
        return scores.call("sigmoid")
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(scores)
    return _probit(scores) if name == "PROBIT" else scores


def _softmax_zero(scores: Traced) -> Traced:
    """Softmax in which scores of zero have no weight."""
    top = scores.call("reduce_max", axes=(-1,), keepdims=True)
    powers = (scores.call("abs") > 1e-7).choose((scores - top).call("exp"), scores * top.call("neg").call("exp"))
    return powers / powers.call("reduce_sum", axes=(-1,), keepdims=True)


def _probit(p: Traced) -> Traced:
    """The quantile of the normal distribution, by the approximation of Winitzki (2008) with a = 0.147."""
    x = p * 2.0 - 1.0
    log = ((1.0 - x) * (x + 1.0)).call("log")
    half = log * 0.5 + 2 / (math.pi * 0.147)
    size = ((half * half - log / 0.147).call("sqrt") - half).call("sqrt") * math.sqrt(2)
    return (x < 0.0).choose(size.call("neg"), size)


def class_labels(node: Node, *names: str) -> Array:
    """The labels of the classes: numbers, or strings (an array of dtype object)."""
    for name in names:
        if node.integers(name, ()):
            return np.array(node.integers(name), np.int64)
    if not node.texts("classlabels_strings", ()):
        raise Malformed("it names no classes")
    return np.array(node.texts("classlabels_strings"), object)


def named(node: Node, chosen: Traced, labels: Array) -> Traced:
    """Numbers of classes → their labels."""
    if labels.dtype == object:
        return Traced(node, selected(chosen, labels.tolist()))
    return constant(node, labels, INT64).call("gather", chosen, axis=0)


def best(scores: Traced) -> Traced:
    """The class of the highest score in each row, the first of equal ones."""
    return scores.call("argmax", axis=-1, keepdims=False)


def of_two(node: Node, score: Traced, labels: Array, threshold: float, *, complement: bool) -> Result:
    """Labels and both scores of two classes from the score of the second class (rows × 1). The score of the first is
    its negative, or 1 minus it (``complement``) if no transformation makes probabilities of them."""
    name = post_transform(node)
    chosen = (score > threshold).to(INT64).reshape(score.shape[0])
    plain = name in ("NONE", "PROBIT")
    first = 1.0 - score if complement and plain else score.call("neg")
    final = transformed(first.call("concat", score, axis=-1), name)
    return named(node, chosen, labels).x, final.to(FLOAT32).x


def of_many(node: Node, scores: Traced, labels: Array) -> Result:
    """Labels and scores if each class has a score."""
    final = transformed(scores, post_transform(node)).to(FLOAT32)
    return named(node, best(scores), labels).x, final.x
