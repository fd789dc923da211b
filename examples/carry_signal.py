"""Scales random weights such that what a network computes depends on its input, layer by layer.

Random weights of a sane size still leave a deep network nearly constant: the outputs for two pictures differ by a
millionth of their size, and an error in the middle of the network cannot be seen at its end. Here pictures are sent
through the model one node at a time (with onnxruntime). Each product is scaled and shifted such that its results have
mean 0 and variance 1 over the pictures, and batch normalizations receive the statistics they would have measured.

Source of the idea: D. Mishkin, J. Matas, "All you need is a good init", 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray
PRODUCTS = {"Conv": 0, "Gemm": 0, "ConvTranspose": 1}
"""Operators with weights, and the axis of the weights that counts output channels."""
VIEWS = ("Reshape", "Unsqueeze", "Squeeze", "Identity")
LEAST = 1e-6
"""Standard deviation below which a channel counts as constant and is left alone."""


def pictures(count: int, shape: Sequence[int], seed: int = 0) -> list[Array]:
    """Seeded pictures [N, C, H, W] that differ as photographs do: in brightness, contrast and the size of what is on
    them. Float32 with mean about 0 and variance about 1."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        n, channels, height, width = shape
        cells = int(rng.choice([3, 6, 12, 24, 48]))
        coarse = rng.standard_normal((n, channels, cells, cells))
        rows, columns = (np.arange(size) * cells // max(size, 1) for size in (height, width))
        picture = coarse[:, :, rows][:, :, :, columns] * rng.uniform(0.4, 1.2, (1, channels, 1, 1))
        picture += rng.standard_normal((1, channels, 1, 1)) * 0.6 + rng.standard_normal(shape) * rng.uniform(0, 0.3)
        made.append(picture.astype(np.float32))
    return made


def carry_signal(model: Any, inputs: Sequence[dict[str, Array]], seed: int = 0) -> Any:
    """A copy of the ModelProto ``model`` whose float32 weights are scaled for the given inputs (by name, all of one
    shape). Weights that two nodes share are scaled for the first one."""
    from onnx import ModelProto, numpy_helper

    rng = np.random.default_rng(seed)
    made = ModelProto()
    made.CopyFrom(model)
    weights = {w.name: numpy_helper.to_array(w) for w in made.graph.initializer}
    values: list[dict[str, Array]] = [dict(one) for one in inputs]
    last_use = {name: i for i, node in enumerate(made.graph.node) for name in node.input}
    changed: set[str] = set()
    views: dict[str, str] = {}  # reshaped weight -> weight
    for i, node in enumerate(made.graph.node):
        if node.op_type in VIEWS and node.input[0] in weights:
            views[node.output[0]] = views.get(node.input[0], node.input[0])
        outputs = _evaluate(node, made, weights, values)
        if node.output[0] in views:
            weights[node.output[0]] = outputs[0][0]
        names = [views.get(n, n) for n in node.input[1:] if n in weights]
        if names and not changed & set(names):
            if node.op_type in PRODUCTS and _scale_product(node, weights, views, outputs, rng):
                changed.update(names)
                outputs = _evaluate(node, made, weights, values)
            elif node.op_type == "BatchNormalization":
                _measure(node, weights, values, rng)
                changed.update(names)
                outputs = _evaluate(node, made, weights, values)
        for known, results in zip(values, outputs, strict=True):
            known.update(zip(node.output, results, strict=False))
            for name in [n for n in node.input if n in known and last_use[n] == i]:
                del known[name]
    for tensor in made.graph.initializer:
        if tensor.name in changed:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    return made


def _evaluate(
    node: Any, model: Any, weights: dict[str, Array], values: Sequence[dict[str, Array]]
) -> list[list[Array]]:
    """The outputs of one node for each input."""
    import onnxruntime
    from onnx import helper

    def described(name: str, array: Array | None) -> Any:
        kind = 1 if array is None else helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, kind, None if array is None else array.shape)

    given = list(dict.fromkeys(n for n in node.input if n))
    first = {n: weights.get(n, values[0].get(n)) for n in given}
    outputs = [n for n in node.output if n]
    graph = helper.make_graph(
        [node],
        "node",
        [described(n, first[n]) for n in given],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
    )
    alone = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(alone.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [session.run(outputs, {n: weights.get(n, one.get(n)) for n in given}) for one in values]


def _statistics(results: Sequence[Array]) -> tuple[Array, Array]:
    """Mean and variance of each channel (axis 1) over all inputs and positions."""
    rows = [np.moveaxis(r, 1, 0).reshape(r.shape[1], -1) for r in results]
    joined = np.concatenate(rows, axis=1).astype(np.float64)
    return joined.mean(1), joined.var(1)


def _scale_product(
    node: Any, weights: dict[str, Array], views: dict[str, str], outputs: list[list[Array]], rng: np.random.Generator
) -> bool:
    """Scale weights and bias such that each channel has mean near 0 and variance 1. False where they are no weights."""
    kernel = weights.get(node.input[1])
    group = next((a.i for a in node.attribute if a.name == "group"), 1)
    if kernel is None or kernel.dtype != np.float32 or (node.op_type == "ConvTranspose" and group != 1):
        return False
    axis = PRODUCTS[node.op_type]
    if node.op_type == "Gemm" and not next((a.i for a in node.attribute if a.name == "transB"), 0):
        axis = 1
    mean, variance = _statistics([r[0] for r in outputs])
    if outputs[0][0].ndim == 2 or node.input[1] in views:  # few numbers for each channel, or channels hard to find
        variance = np.full_like(variance, variance.mean())
    factor = np.where(variance > LEAST**2, 1 / np.sqrt(np.maximum(variance, LEAST**2)), 1.0)
    shape = [1] * kernel.ndim
    shape[axis] = -1
    weights[node.input[1]] = (kernel * factor.reshape(shape)).astype(np.float32)
    if node.input[1] in views:
        source = views[node.input[1]]
        weights[source] = (weights[source] * factor[0]).astype(np.float32)
    if len(node.input) > 2 and node.input[2] in weights and node.input[2] not in views:
        bias = weights[node.input[2]].astype(np.float64)
        moved = (bias.reshape(-1) - mean) * factor + rng.normal(0, 0.3, mean.shape)
        weights[node.input[2]] = moved.reshape(bias.shape).astype(np.float32)
    return True


def _measure(
    node: Any, weights: dict[str, Array], values: Sequence[dict[str, Array]], rng: np.random.Generator
) -> None:
    """Give a batch normalization the statistics of its inputs, and shifts that matter."""
    mean, variance = _statistics([one[node.input[0]] for one in values])
    weights[node.input[3]] = mean.astype(np.float32)
    weights[node.input[4]] = np.maximum(variance, LEAST**2).astype(np.float32)
    weights[node.input[2]] = rng.normal(0, 0.3, mean.shape).astype(np.float32)
