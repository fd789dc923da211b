"""Normalizations and softmax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.common.sizes import product
from weft.frontends.onnx.converters.elementwise import cast_to
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import GraphExpr
from weft.support.dtypes import FLOAT32


def coerced(node: Node, function: Callable[[GraphExpr, int], GraphExpr]) -> GraphExpr:
    """``function(x, axis)``. Before operator set 13, these operators flatten ``x`` to a matrix; all axes from ``axis``
    on form its rows."""
    x = node.data(0)
    shape = x.tensor.shape
    axis = node.axis(len(shape), -1 if node.opset >= 13 else 1)
    if node.opset >= 13 or all(d == 1 for d in shape[axis + 1 :]):
        return function(x, axis)
    matrix = node.call("reshape", x, shape=(product(shape[:axis]), product(shape[axis:])))
    return node.call("reshape", function(matrix, 1), shape=shape)


def _softmax(name: str) -> Callable[[Node], Result]:
    return lambda node: coerced(node, lambda x, axis: node.call(name, x, axis=axis))


def _batch_norm(node: Node) -> Result:
    if node.opset < 7 and not node.flag("is_test"):
        raise Unsupported("it runs in training mode")
    if node.flag("training_mode"):
        return _training_batch_norm(node)
    if not node.flag("spatial", True):
        raise Unsupported("statistics for every position (spatial=0) are not supported")
    return node.call("batch_norm", *(node.data(i) for i in range(5)), epsilon=node.real("epsilon", 1e-5))


def _training_batch_norm(node: Node) -> Result:
    """BatchNormalization in training mode: it uses the statistics of the batch and updates the running statistics."""
    x, momentum = node.data(0), node.real("momentum", 0.9)
    axes = (0, *range(2, x.tensor.rank))
    wide = cast_to(node, x, FLOAT32) if x.tensor.dtype.bits < 32 else x
    mean = node.call("reduce_mean", wide, axes=axes, keepdims=True)
    centred = node.call("sub", wide, mean)
    variance = node.call("reduce_mean", node.call("mul", centred, centred), axes=axes, keepdims=False)
    mean = node.call("squeeze", mean, axes=axes)

    def moved(running: GraphExpr, now: GraphExpr) -> GraphExpr:
        now = cast_to(node, now, running.tensor.dtype)
        kept = node.call("mul", running, node.scalar(momentum, running))
        return node.call("add", kept, node.call("mul", now, node.scalar(1 - momentum, now)))

    stats = (cast_to(node, t, x.tensor.dtype) for t in (mean, variance))
    made = node.call("batch_norm", x, node.data(1), node.data(2), *stats, epsilon=node.real("epsilon", 1e-5))
    return made, moved(node.data(3), mean), moved(node.data(4), variance)


def _instance_norm(node: Node) -> Result:
    return node.call("instance_norm", *(node.data(i) for i in range(3)), epsilon=node.real("epsilon", 1e-5))


def _group_norm(node: Node) -> Result:
    x, groups = node.data(0), node.integer("num_groups")
    scale, bias = (_by_channel(node, x, node.data(i), groups) for i in (1, 2))
    return node.call("group_norm", x, scale, bias, num_groups=groups, epsilon=node.real("epsilon", 1e-5))


def _by_channel(node: Node, x: GraphExpr, parameter: GraphExpr, groups: int) -> GraphExpr:
    """The parameters by channel. Before operator set 21 they are given by group."""
    channels = x.tensor.shape[1]
    if node.opset >= 21 or parameter.tensor.shape == (channels,) or groups < 1:
        return parameter
    if not isinstance(channels, int) or channels % groups or parameter.tensor.shape != (groups,):
        raise Malformed(f"{channels} channels do not split into {groups} groups")
    column = node.call("reshape", parameter, shape=(groups, 1))
    return node.call(
        "reshape", node.call("broadcast_to", column, shape=(groups, channels // groups)), shape=(channels,)
    )


def _layer_norm(node: Node) -> Result:
    x, parameters = node.data(0), [node.data(i) for i in (1, 2) if node.has(i)]
    axis, epsilon = node.axis(x.tensor.rank, -1), node.real("epsilon", 1e-5)
    made = node.call("layer_norm", x, *parameters, axis=axis, epsilon=epsilon)
    return (made, *_moments(node, x, axis, epsilon)) if node.output_count > 1 else made


def _moments(node: Node, x: GraphExpr, axis: int, epsilon: float) -> tuple[GraphExpr, GraphExpr]:
    """Mean and reciprocal standard deviation over the last axes."""
    wide = cast_to(node, x, FLOAT32) if x.tensor.dtype.bits < 32 else x
    axes = tuple(range(axis, x.tensor.rank))
    mean = node.call("reduce_mean", wide, axes=axes, keepdims=True)
    centred = node.call("sub", wide, mean)
    variance = node.call("reduce_mean", node.call("mul", centred, centred), axes=axes, keepdims=True)
    return mean, node.call("rsqrt", node.call("add", variance, node.scalar(epsilon, variance)))


def _rms_norm(node: Node) -> Result:
    x, scale = node.data(0), node.data(1)
    axis = node.axis(x.tensor.rank, -1)
    return node.call("rms_norm", x, scale, axis=axis, epsilon=node.real("epsilon", 1e-5))


def _skip_norm(name: str, parameters: int) -> Callable[[Node], Result]:
    """com.microsoft: the normalization of input + skip (+ bias); the last output is that sum."""

    def convert(node: Node) -> Result:
        total = node.call("add", node.data(0), node.data(1))
        if node.has(2 + parameters):
            total = node.call("add", total, node.data(2 + parameters))
        given = [node.data(i) for i in range(2, 2 + parameters) if node.has(i)]
        made = node.call(name, total, *given, axis=-1, epsilon=node.real("epsilon", 1e-12))
        if node.output_count <= 1:
            return made
        last = total.tensor.rank - 1
        return (made, *_moments(node, total, last, node.real("epsilon", 1e-12)), total)

    return convert


def _lrn(node: Node) -> Result:
    return node.call(
        "lrn",
        node.data(0),
        size=node.integer("size"),
        alpha=node.real("alpha", 1e-4),
        beta=node.real("beta", 0.75),
        bias=node.real("bias", 1.0),
    )


def _lp_norm(node: Node) -> Result:
    x = node.data(0)
    return node.call("lp_normalize", x, axis=node.axis(x.tensor.rank, -1), p=node.integer("p", 2))


def _mean_variance(node: Node) -> Result:
    x, axes = node.data(0), node.integers("axes", (0, 2, 3))
    centred = node.call("sub", x, node.call("reduce_mean", x, axes=axes, keepdims=True))
    variance = node.call("reduce_mean", node.call("mul", centred, centred), axes=axes, keepdims=True)
    deviation = node.call("add", node.call("sqrt", variance), node.scalar(float(np.float32(1e-9)), x))
    return node.call("div", centred, deviation)


NORMALIZATION: dict[str, Callable[[Node], Result]] = {
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _softmax("log_softmax"),
    "LpNormalization": _lp_norm,
    "LRN": _lrn,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms_norm,
    "SimplifiedLayerNormalization": _rms_norm,
    "Softmax": _softmax("softmax"),
}

MICROSOFT_NORMALIZATION: dict[str, Callable[[Node], Result]] = {
    "LayerNormalization": _layer_norm,
    "SimplifiedLayerNormalization": _rms_norm,
    "SkipLayerNormalization": _skip_norm("layer_norm", 2),
    "SkipSimplifiedLayerNormalization": _skip_norm("rms_norm", 1),
}
