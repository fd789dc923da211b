"""Gives a model whose weights were left out seeded random ones, such that activations keep a sane size.

The architectures that ship with the ``onnx`` package hold no weights: each is a ``ConstantOfShape`` node. Here every
such node becomes an initializer, drawn by the role that the tensor plays: He-style normal weights for convolutions and
matrix products, batch-normalization statistics as training would leave them, small biases.

    python examples/random_weights.py light_resnet50.onnx resnet50.onnx --seed 0
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def _normal(gain: float) -> Draw:
    """Normal values of variance ``gain`` over the number of inputs; 2 keeps activations through a rectifier."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        fan_in = math.prod(shape[1:]) if len(shape) > 1 else 1  # the layout of Conv and of Gemm with transB
        return rng.standard_normal(shape, np.float32) * np.float32(math.sqrt(gain / max(1, fan_in)))

    return draw


def _uniform(low: float, high: float) -> Draw:
    return lambda rng, shape: rng.uniform(low, high, shape).astype(np.float32)


# (operator, number of the operand) -> how that operand is drawn; what is not listed is a small bias
_ROLES: dict[tuple[str, int], Draw] = {
    ("Conv", 1): _normal(2.0),
    ("ConvTranspose", 1): _normal(2.0),
    ("Gemm", 1): _normal(1.0),
    ("MatMul", 1): _normal(1.0),
    ("BatchNormalization", 1): _uniform(0.5, 1.0),
    ("residual BatchNormalization", 1): _uniform(0.1, 0.3),
    ("BatchNormalization", 2): _uniform(-0.1, 0.1),
    ("BatchNormalization", 3): _uniform(-0.1, 0.1),
    ("BatchNormalization", 4): _uniform(0.5, 1.5),
    ("Mul", 1): _uniform(0.5, 1.0),
}
_bias = _uniform(-0.1, 0.1)


def randomize_weights(model: Any, seed: int = 0) -> Any:
    """A copy of the ModelProto ``model`` with every float32 ConstantOfShape of a known shape made a weight.

    The same seed gives the same weights. Weights are drawn by the first use of the tensor, looked up through
    reshaping operators (Unsqueeze, Reshape). Branches that are added to a residual are kept small, so that sums do not
    grow from block to block.
    """
    from onnx import ModelProto, TensorProto, numpy_helper

    rng = np.random.default_rng(seed)
    made = ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    shapes = {w.name: numpy_helper.to_array(w) for w in graph.initializer if w.data_type == TensorProto.INT64}
    uses = _first_uses(graph)
    kept = []
    for node in graph.node:
        is_weight = node.op_type == "ConstantOfShape" and node.input[0] in shapes and _is_float(node)
        if not is_weight:
            kept.append(node)
            continue
        name, shape = node.output[0], tuple(int(d) for d in shapes[node.input[0]])
        draw = _ROLES.get(_role(name, uses), _bias)
        graph.initializer.append(numpy_helper.from_array(draw(rng, shape), name))
    del graph.node[:]
    graph.node.extend(kept)
    _drop_unused(graph)
    return made


def _is_float(node: Any) -> bool:
    values = [a.t.data_type for a in node.attribute if a.name == "value"]
    return not values or values[0] == 1


def _first_uses(graph: Any) -> dict[str, tuple[Any, int]]:
    uses: dict[str, tuple[Any, int]] = {}
    for node in graph.node:
        for i, name in enumerate(node.input):
            uses.setdefault(name, (node, i))
    return uses


def _role(name: str, uses: dict[str, tuple[Any, int]]) -> tuple[str, int]:
    while name in uses:
        node, operand = uses[name]
        if node.op_type not in ("Unsqueeze", "Reshape"):
            follower = uses.get(node.output[0])
            residual = (
                (node.op_type, operand) == ("BatchNormalization", 1) and follower and follower[0].op_type == "Sum"
            )
            return f"residual {node.op_type}" if residual else node.op_type, operand
        name = node.output[0]
    return "", 0


def _drop_unused(graph: Any) -> None:
    """Remove the shapes that ConstantOfShape read, and list as inputs only what still exists."""
    needed = {name for node in graph.node for name in node.input} | {o.name for o in graph.output}
    weights = [w for w in graph.initializer if w.name in needed]
    gone = {w.name for w in graph.initializer} - needed
    del graph.initializer[:]
    graph.initializer.extend(weights)
    inputs = [i for i in graph.input if i.name not in gone]
    del graph.input[:]
    graph.input.extend(inputs)


def main() -> None:
    import onnx

    parser = argparse.ArgumentParser(description="Give a model random weights in place of ConstantOfShape nodes.")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    onnx.save(randomize_weights(onnx.load(options.source), options.seed), options.target)


if __name__ == "__main__":
    main()
