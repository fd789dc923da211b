"""Networks of quantized convolutions, layer by layer: compiled code finds the integers that ONNX Runtime finds.

Compared as a whole, such networks may differ by percents and both be right: sums of floats depend on their order in the
last place, a value that close to a tie is rounded to the neighbour, and the layers behind amplify the step of an
integer. So every layer is judged by itself, from the same operands, and only next to a tie may integers differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft

Array = np.ndarray[Any, Any]

TIE = 1e-6
"""How near to a tie, relative to the largest value of the tensor, the order of a sum decides."""

SIZES = (3, 7, 7, 16)
"""Channels of the input and of each layer's result; 7 depthwise filters of 3 x 3 are an odd number of 4-bit weights."""

GEOMETRY: tuple[dict[str, Any], ...] = (
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "group": 7},
    {"kernel_shape": [1, 1]},
)
EXTENT = 20


@dataclass(frozen=True)
class Scheme:
    """Types and zero points of weights and activations; ``axis`` is given where each filter has a scale."""

    domain: str
    weight: str
    weight_zero: int
    activation: str
    zero: int
    axis: int | None = None

    def limits(self, kind: str) -> tuple[int, int]:
        bits = int(kind.lstrip("UINT"))
        return (0, 2**bits - 1) if kind[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    @property
    def scale(self) -> np.float32:
        low, high = self.limits(self.activation)
        return np.float32(6 / (high - low))


SCHEMES = {
    "4-bit weights": Scheme("com.microsoft", "INT4", 0, "UINT8", 100),
    "4-bit weights, scales of filters": Scheme("", "UINT4", 7, "INT8", -7, axis=0),
    "4 bits": Scheme("com.microsoft", "UINT4", 9, "UINT4", 6),
    "4 bits, signed": Scheme("", "INT4", 0, "INT4", -2),
    "16-bit activations": Scheme("com.microsoft", "INT4", -1, "UINT16", 32000),
}


def integers(name: str, kind: str, values: Array) -> Any:
    """A constant; the 4-bit ones are packed, two in a byte."""
    return helper.make_tensor(name, getattr(TensorProto, kind), values.shape, values.ravel().tolist())


def layer(scheme: Scheme, i: int) -> tuple[list[Any], list[Any]]:
    """Nodes and constants of layer ``i``: from ``a<i>`` to ``a<i+1>``, which is ``u<i+1>`` rounded to the integers.

    Filters that share a scale have 1/32, so that one sum in 32 is a tie but for its rounding errors.
    """
    rng = np.random.default_rng(i)
    groups = GEOMETRY[i].get("group", 1)
    shape = (SIZES[i + 1], SIZES[i] // groups, *GEOMETRY[i]["kernel_shape"])
    low, high = scheme.limits(scheme.weight)
    scale = np.float32(1 / 32 if scheme.axis is None else rng.uniform(0.02, 0.04, SIZES[i + 1]))
    bias = np.rint(rng.standard_normal(SIZES[i + 1]) / scheme.scale).astype(np.float32) * scheme.scale
    zeros = np.full(np.shape(scale), scheme.weight_zero)
    constants = [
        integers(f"w{i}", scheme.weight, rng.integers(low, high + 1, shape)),
        integers(f"wz{i}", scheme.weight, zeros),
        integers(f"z{i}", scheme.activation, np.asarray(scheme.zero)),
        numpy_helper.from_array(np.asarray(scale), f"ws{i}"),
        numpy_helper.from_array(np.asarray(scheme.scale), f"s{i}"),
        numpy_helper.from_array(bias, f"b{i}"),
    ]
    per = {} if scheme.axis is None else {"axis": scheme.axis}

    def node(op: str, result: str, *operands: str, **attrs: Any) -> Any:
        return helper.make_node(op, operands, [result], domain=scheme.domain, **attrs)

    nodes = [
        node("QuantizeLinear", f"q{i}", f"a{i}", f"s{i}", f"z{i}"),
        node("DequantizeLinear", f"x{i}", f"q{i}", f"s{i}", f"z{i}"),
        node("DequantizeLinear", f"wx{i}", f"w{i}", f"ws{i}", f"wz{i}", **per),
        helper.make_node("Conv", [f"x{i}", f"wx{i}", f"b{i}"], [f"u{i + 1}"], **GEOMETRY[i]),
        node("QuantizeLinear", f"r{i}", f"u{i + 1}", f"s{i}", f"z{i}"),
        node("DequantizeLinear", f"a{i + 1}", f"r{i}", f"s{i}", f"z{i}"),
    ]
    return nodes, constants


def model(scheme: Scheme, layers: range, outputs: list[str], extent: int) -> Any:
    """The given layers, as one graph."""
    nodes, constants = zip(*(layer(scheme, i) for i in layers), strict=True)
    first = helper.make_tensor_value_info(f"a{layers[0]}", TensorProto.FLOAT, [2, SIZES[layers[0]], extent, extent])
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([*chain(*nodes)], "layers", [first], results, [*chain(*constants)])
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def judged(scheme: Scheme, i: int, operand: Array) -> tuple[Array, Array]:
    """What ONNX Runtime computes node by node: the integers as numbers, and what they are rounded from."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    one = model(scheme, range(i, i + 1), [f"a{i + 1}", f"u{i + 1}"], operand.shape[2]).SerializeToString()
    rounded, unrounded = onnxruntime.InferenceSession(one, options).run(None, {f"a{i}": operand})
    return rounded, unrounded


def assert_rounded_alike(scheme: Scheme, got: Array, wanted: Array, unrounded: Array) -> None:
    """The same integers, but for values that lie on a tie as far as float32 can tell."""
    found, expected = (np.rint(a / np.float64(scheme.scale)) for a in (got, wanted))
    places = unrounded / np.float64(scheme.scale)
    differs = found != expected
    distance = np.abs(np.abs(places - np.trunc(places)) - 0.5)[differs]
    assert np.all(np.abs(found - expected) <= 1)
    assert np.all(distance <= TIE * np.abs(places).max())
    assert np.array_equal(got[~differs], wanted[~differs])


def start(scheme: Scheme) -> Array:
    low, high = scheme.limits(scheme.activation)
    steps = np.random.default_rng(9).integers(low, high + 1, (2, SIZES[0], EXTENT, EXTENT)) - scheme.zero
    return steps.astype(np.float32) * scheme.scale


@pytest.mark.parametrize("name", SCHEMES)
def test_each_layer_from_the_operands_of_onnxruntime(name: str) -> None:
    scheme, x = SCHEMES[name], start(SCHEMES[name])
    for i in range(len(GEOMETRY)):
        exe = weft.compile(model(scheme, range(i, i + 1), [f"a{i + 1}"], x.shape[2]))
        wanted, unrounded = judged(scheme, i, x)
        assert_rounded_alike(scheme, np.asarray(exe(x)), wanted, unrounded)
        ends = (np.array(scheme.limits(scheme.activation)) - scheme.zero) * np.float64(scheme.scale)
        saturated = np.isclose(wanted, ends[0]) | np.isclose(wanted, ends[1])
        assert saturated.mean() < 0.5 and (i > 0 or saturated.any())  # the limits are reached, not by most
        x = wanted


@pytest.mark.parametrize("name", SCHEMES)
def test_the_whole_network_from_its_own_operands(name: str) -> None:
    scheme, x = SCHEMES[name], start(SCHEMES[name])
    layers = range(len(GEOMETRY))
    exe = weft.compile(model(scheme, layers, [f"a{i + 1}" for i in layers], EXTENT))
    found = [x, *map(np.asarray, exe(x))]
    for i, (operand, got) in enumerate(pairwise(found)):
        assert_rounded_alike(scheme, got, *judged(scheme, i, operand))
