"""Normalizations and softmax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.frontends.common.problems import Unsupported
from weft.frontends.torch.converters.reduction import result_dtypes
from weft.frontends.torch.node import AtenNode, Result
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import FLOAT32

Converter = Callable[[AtenNode], Result]


def _softmax(name: str) -> Converter:
    def convert(node: AtenNode) -> Result:
        x = node.cast(node.data("self"), node.result_dtype)
        if not x.tensor.rank:
            return node.filled((), 1 if name == "softmax" else 0, x.tensor.dtype)
        return node.call(name, x, axis=node.axis("dim", x.tensor.rank))

    return convert


def _safe_softmax(node: AtenNode) -> Result:
    """0 where all elements of a row are minus infinity."""
    x = node.cast(node.data("self"), node.result_dtype)
    axis = node.axis("dim", x.tensor.rank)
    most = node.call("reduce_max", x, axes=(axis,), keepdims=True)
    gone = node.call("equal", most, node.like(float("-inf"), most))
    return node.call("where", gone, node.like(0, x), node.call("softmax", x, axis=axis))


def _parameter(node: AtenNode, name: str, shape: tuple[Dim, ...], value: float, x: GraphExpr) -> GraphExpr:
    """A factor or a summand of a normalization; without one, as many times ``value``."""
    found = node.optional(name)
    return node.filled(shape, value, x.tensor.dtype) if found is None else found


def _moments(node: AtenNode, x: GraphExpr, axes: tuple[int, ...], epsilon: float) -> tuple[GraphExpr, GraphExpr]:
    """Mean and reciprocal standard deviation, which few modules read."""
    wide = node.cast(x, FLOAT32) if x.tensor.dtype.bits < 32 else x
    mean = node.call("reduce_mean", wide, axes=axes, keepdims=True)
    centred = node.call("sub", wide, mean)
    variance = node.call("reduce_mean", node.call("mul", centred, centred), axes=axes, keepdims=True)
    return mean, node.call("rsqrt", node.call("add", variance, node.like(epsilon, variance)))


def _layer(node: AtenNode) -> GraphExpr:
    x = node.data("input")
    normalized = node.dims("normalized_shape")
    given: list[GraphExpr] = []
    if node.has("weight") or node.has("bias"):
        given = [_parameter(node, n, normalized, v, x) for n, v in (("weight", 1), ("bias", 0))]
    axis = x.tensor.rank - len(normalized)
    return node.call("layer_norm", x, *given, axis=axis, epsilon=float(node.number("eps")))


def _native_layer_norm(node: AtenNode) -> Result:
    x = node.data("input")
    axes = tuple(range(x.tensor.rank - len(node.dims("normalized_shape")), x.tensor.rank))
    return _layer(node), *_as_said(node, _moments(node, x, axes, float(node.number("eps"))))


def _as_said(node: AtenNode, moments: tuple[GraphExpr, GraphExpr]) -> tuple[GraphExpr, GraphExpr]:
    """Mean and deviation in the dtypes and shapes that PyTorch states."""
    dtypes = result_dtypes(node)[1:]
    made = [
        node.reshaped(node.cast(m, d), node.table.dims(s.shape))
        for m, d, s in zip(moments, dtypes, node.said[1:], strict=True)
    ]
    return made[0], made[1]


def _rms(node: AtenNode) -> GraphExpr:
    x = node.data("input")
    normalized = node.dims("normalized_shape")
    scale = [] if not node.has("weight") else [node.data("weight")]
    epsilon = node.arguments.get("eps")
    if epsilon is None:
        epsilon = float(np.finfo(np.float32 if x.tensor.dtype != "float64" else np.float64).eps)
    return node.call("rms_norm", x, *scale, axis=x.tensor.rank - len(normalized), epsilon=float(epsilon))


def _group(node: AtenNode, groups: str) -> GraphExpr:
    x = node.data("input")
    channels = (x.tensor.shape[1],)
    scale, bias = (_parameter(node, n, channels, v, x) for n, v in (("weight", 1), ("bias", 0)))
    epsilon = float(node.number("eps"))
    plain = node.call("unsqueeze", x, axes=(2,)) if x.tensor.rank == 2 else x
    made = node.call("group_norm", plain, scale, bias, num_groups=int(node.number(groups)), epsilon=epsilon)
    return node.reshaped(made, x.tensor.shape)


def _native_group_norm(node: AtenNode) -> Result:
    x, groups = node.data("input"), int(node.number("group"))
    batch = x.tensor.shape[0]
    lines = node.call("reshape", x, shape=(batch, groups, -1))
    return _group(node, "group"), *_as_said(node, _moments(node, lines, (2,), float(node.number("eps"))))


def _instance_norm(node: AtenNode) -> Result:
    x = node.data("input")
    channels = (x.tensor.shape[1],)
    scale, bias = (_parameter(node, n, channels, v, x) for n, v in (("weight", 1), ("bias", 0)))
    epsilon = float(node.number("eps"))
    if not node.value("use_input_stats"):
        return node.call("batch_norm", x, scale, bias, node.data("running_mean"), node.data("running_var"),
                         epsilon=epsilon)  # fmt: skip
    return node.call("instance_norm", x, scale, bias, epsilon=epsilon)


def _batch(node: AtenNode) -> GraphExpr:
    x = node.data("input")
    channels = (x.tensor.shape[1],)
    scale, bias = (_parameter(node, n, channels, v, x) for n, v in (("weight", 1), ("bias", 0)))
    if node.arguments.get("training"):
        raise Unsupported("the module is in training mode: module.eval() makes it use its running statistics")
    return node.call("batch_norm", x, scale, bias, node.data("running_mean"), node.data("running_var"),
                     epsilon=float(node.number("eps")))  # fmt: skip


def _native_batch_norm(node: AtenNode) -> Result:
    nothing = [node.filled(node.table.dims(s.shape), 0, d) for s, d in zip(node.said[1:], result_dtypes(node)[1:],
                                                                          strict=True)]  # fmt: skip
    return _batch(node), *nothing


NORMALIZATION: dict[str, Converter] = {
    **dict.fromkeys(("_softmax", "softmax"), _softmax("softmax")),
    **dict.fromkeys(("_log_softmax", "log_softmax"), _softmax("log_softmax")),
    "_fused_rms_norm": lambda node: (_rms(node), None),
    "_safe_softmax": _safe_softmax,
    "_native_batch_norm_legit_no_training": _native_batch_norm,
    "batch_norm": _batch,
    "group_norm": lambda node: _group(node, "num_groups"),
    "instance_norm": _instance_norm,
    "layer_norm": _layer,
    "native_group_norm": _native_group_norm,
    "native_layer_norm": _native_layer_norm,
    "rms_norm": _rms,
}
