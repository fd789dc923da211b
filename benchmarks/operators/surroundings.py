"""A case between typical neighbours: after an embedding, before a normalization, in a loop's body, in a branch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.movement import Node
from benchmarks.operators.notation import Array, Made

PLACES = ("alone", "after an embedding", "before a normalization", "in a loop", "in a branch")
OPSET = 23
TRIPS = 4
"""Iterations of the loop."""
ENTRIES = 512
"""Rows of the embedding."""


@dataclass
class Parts:
    """What the graph of a model consists of."""

    nodes: list[Any]
    inputs: dict[str, Array]
    weights: dict[str, Array]
    outputs: tuple[str, ...]
    opened: dict[str, tuple[int, ...]] = field(default_factory=dict)


def model(made: Made, place: str = "alone", opened: bool = False) -> tuple[Any, dict[str, Array]] | None:
    """The ONNX model of a case and its inputs; None if there is no such form of it."""
    from onnx import ValueInfoProto, helper, numpy_helper, shape_inference

    if opened and not made.open:
        return None
    parts = _parts(made, place)
    if parts is None:
        return None
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), _shape(k, v, made, parts, opened))
        for k, v in parts.inputs.items()
    ]
    if opened and all(
        isinstance(d.dim_value, int) and d.HasField("dim_value") for i in inputs for d in i.type.tensor_type.shape.dim
    ):
        return None
    weights = [numpy_helper.from_array(v, k) for k, v in parts.weights.items()]
    outputs = [ValueInfoProto(name=o) for o in parts.outputs]
    graph = helper.make_graph(parts.nodes, "case", inputs, outputs, weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    proto = shape_inference.infer_shapes(proto)
    return proto, parts.inputs


def _shape(name: str, value: Array, made: Made, parts: Parts, opened: bool) -> list[int | str]:
    """Axes of one size get one name, so that operands of one shape stay of one shape."""
    axes = parts.opened.get(name, made.open) if opened else ()
    return [f"d{i}_{d}" if i in axes else d for i, d in enumerate(value.shape)]


def _parts(made: Made, place: str) -> Parts | None:
    from onnx import helper

    nodes = [helper.make_node(n.op, list(n.inputs), list(n.outputs), **n.attrs) for n in made.nodes]
    parts = Parts(nodes, dict(made.inputs), dict(made.weights), tuple(made.nodes[-1].outputs))
    if place == "alone":
        return parts
    x = next((k for k, v in made.inputs.items() if v.dtype == np.float32 and v.ndim >= 2 and v.size > 1), None)
    if x is None:
        return None
    return _SURROUND[place](made, parts, x)


def _after_embedding(made: Made, parts: Parts, x: str) -> Parts:
    from onnx import helper

    value = parts.inputs.pop(x)
    low, high = float(value.min()), float(value.max())
    rng = np.random.default_rng(3)
    parts.weights["table"] = rng.uniform(low, high, (ENTRIES, value.shape[-1])).astype(np.float32)
    parts.inputs["rows"] = rng.integers(0, ENTRIES, value.shape[:-1])
    parts.opened["rows"] = made.open
    parts.nodes.insert(0, helper.make_node("Gather", ["table", "rows"], [x]))
    return parts


def _before_normalization(made: Made, parts: Parts, x: str) -> Parts | None:
    from onnx import helper, shape_inference

    first = model(made)
    assert first is not None
    kind = shape_inference.infer_shapes(first[0], data_prop=True).graph.output[0].type.tensor_type
    dims = list(kind.shape.dim)
    if kind.elem_type != 1 or not dims or not dims[-1].HasField("dim_value"):
        return None
    parts.weights["norm_scale"] = np.ones(dims[-1].dim_value, np.float32)
    parts.nodes.append(helper.make_node("LayerNormalization", [parts.outputs[0], "norm_scale"], ["normed"], axis=-1))
    parts.outputs = ("normed",)
    return parts


def _in_loop(made: Made, parts: Parts, x: str) -> Parts | None:
    """Each iteration gets the operand plus a number that the loop carries; the results are stacked. The body's own
    names are longer than those of operands: it would hide an operand of the same name."""
    from onnx import ValueInfoProto, helper

    if len(parts.outputs) > 1:
        return None
    renamed = [Node(n.op, tuple("moved" if i == x else i for i in n.inputs), n.outputs, n.attrs) for n in made.nodes]
    body = [
        helper.make_node("Add", [x, "carried"], ["moved"]),
        *(helper.make_node(n.op, list(n.inputs), list(n.outputs), **n.attrs) for n in renamed),
        helper.make_node("Add", ["carried", "tiny"], ["next"]),
        helper.make_node("Identity", ["go"], ["still"]),
    ]
    takes = [helper.make_tensor_value_info(n, t, []) for n, t in (("iteration", 7), ("go", 9), ("carried", 1))]
    gives = [ValueInfoProto(name=n) for n in ("still", "next", *parts.outputs)]
    graph = helper.make_graph(body, "body", takes, gives)
    parts.weights |= {
        "trips": np.array(TRIPS),
        "begin": np.float32(0).reshape(()),
        "tiny": np.float32(1e-3).reshape(()),
    }
    parts.nodes = [helper.make_node("Loop", ["trips", "", "begin"], ["last", "stacked"], body=graph)]
    parts.outputs = ("stacked",)
    return parts


def _in_branch(made: Made, parts: Parts, x: str) -> Parts | None:
    from onnx import ValueInfoProto, helper

    if len(parts.outputs) > 1:
        return None

    def branch(name: str, first: str) -> Any:
        inner = {o for n in made.nodes for o in n.outputs}
        nodes = [helper.make_node(first, [x], [f"{name}_x"])]
        for n in made.nodes:
            names = [f"{name}_x" if i == x else f"{name}_{i}" if i in inner else i for i in n.inputs]
            nodes.append(helper.make_node(n.op, names, [f"{name}_{o}" for o in n.outputs], **n.attrs))
        result = ValueInfoProto(name=f"{name}_{parts.outputs[0]}")
        return helper.make_graph(nodes, name, [], [result])

    parts.inputs["which"] = np.array(True)
    parts.nodes = [
        helper.make_node(
            "If", ["which"], ["chosen"], then_branch=branch("then", "Identity"), else_branch=branch("other", "Abs")
        )
    ]
    parts.outputs = ("chosen",)
    return parts


_SURROUND = {
    "after an embedding": _after_embedding,
    "before a normalization": _before_normalization,
    "in a loop": _in_loop,
    "in a branch": _in_branch,
}
