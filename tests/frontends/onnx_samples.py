"""Small ONNX models that the frontend tests share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 21


def tensor_info(name: str, shape: Sequence[Any], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str | onnx.ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = OPSET,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: dict[str, int] | None = None,
) -> onnx.ModelProto:
    """A model; outputs given by name have no declared type."""
    infos = [onnx.ValueInfoProto(name=o) if isinstance(o, str) else o for o in outputs]
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items()]
    graph = helper.make_graph(nodes, "sample", inputs, infos, initializers)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in (domains or {}).items())]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)


def _weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def convolutional() -> onnx.ModelProto:
    """Convolution, batch normalization, pooling, a classifier."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "b", "s"], ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], auto_pad="SAME_UPPER"),
        helper.make_node("GlobalAveragePool", ["p"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "d"], ["logits"], transB=1, alpha=0.5),
        helper.make_node("Softmax", ["logits"], ["y"]),
    ]
    weights = {"w": _weights(4, 3, 3, 3), "b": np.zeros(4, np.float32), "s": np.ones(4, np.float32),
               "d": _weights(5, 4)}  # fmt: skip
    return model(nodes, [tensor_info("x", ["batch", 3, 8, 8])], ["y"], weights)


def shape_arithmetic() -> onnx.ModelProto:
    """Attention-like reshaping by sizes computed from Shape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Unsqueeze", ["batch", "axes"], ["b1"]),
        helper.make_node("Unsqueeze", ["length", "axes"], ["l1"]),
        helper.make_node("Concat", ["b1", "l1", "heads"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["split"]),
        helper.make_node("Transpose", ["split"], ["moved"], perm=[0, 2, 1, 3]),
        helper.make_node("Slice", ["table", "axes", "l1", "axes"], ["positions"]),
        helper.make_node("Add", ["moved", "positions"], ["sum"]),
        helper.make_node("Mul", ["length", "two"], ["double"]),
        helper.make_node("Cast", ["double"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["sum", "number"], ["y"]),
    ]
    weights = {"zero": np.int64(0), "one": np.int64(1), "two": np.int64(2), "axes": np.array([0], np.int64),
               "heads": np.array([2, 3], np.int64), "table": _weights(32, 3)}  # fmt: skip
    return model(nodes, [tensor_info("x", ["batch", "length", 6])], ["y"], weights)


def branches() -> onnx.ModelProto:
    """An If over a computed condition, whose branches use names of the graph around them."""
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["a"])], "then", [], [tensor_info("a", [2, 3])])
    other = helper.make_graph([helper.make_node("Mul", ["x", "x"], ["b"])], "else", [], [tensor_info("b", [2, 3])])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Less", ["total", "zero"], ["negative"]),
        helper.make_node("If", ["negative"], ["y"], then_branch=then, else_branch=other),
    ]
    return model(nodes, [tensor_info("x", [2, 3])], ["y"], {"zero": np.float32(0)})


def with_function() -> onnx.ModelProto:
    """A function of the model with an attribute parameter, called twice."""
    leaky = helper.make_node("LeakyRelu", ["t"], ["out"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    body = [helper.make_node("Add", ["a", "b"], ["t"]), leaky]
    function = helper.make_function("own", "AddLeaky", ["a", "b"], ["out"], body, [helper.make_opsetid("", OPSET)],
                                    attributes=["slope"])  # fmt: skip
    nodes = [
        helper.make_node("AddLeaky", ["x", "x"], ["h"], domain="own", slope=0.1),
        helper.make_node("AddLeaky", ["h", "x"], ["y"], domain="own", slope=0.3),
    ]
    return model(nodes, [tensor_info("x", [2, 3])], ["y"], functions=[function], domains={"own": 1})


def loop() -> onnx.ModelProto:
    """A loop of three iterations with a carried value and a scan output."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["again"]),
            helper.make_node("Add", ["v", "x"], ["v2"]),
            helper.make_node("Mul", ["v2", "v2"], ["square"]),
        ],
        "body",
        [tensor_info("i", [], TensorProto.INT64), tensor_info("going", [], TensorProto.BOOL), tensor_info("v", [2])],
        [tensor_info("again", [], TensorProto.BOOL), tensor_info("v2", [2]), tensor_info("square", [2])],
    )
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["last", "squares"], body=body)]
    return model(nodes, [tensor_info("x", [2])], ["last", "squares"], {"trips": np.int64(3)})


SAMPLES: dict[str, Callable[[], onnx.ModelProto]] = {
    "convolutional": convolutional,
    "shape_arithmetic": shape_arithmetic,
    "branches": branches,
    "with_function": with_function,
    "loop": loop,
}
