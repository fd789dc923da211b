"""Operators of com.microsoft, the domain that ONNX Runtime's optimizer writes."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontend.onnx.converters.contraction import MICROSOFT_CONTRACTION, scaled
from weft.frontend.onnx.converters.movement import MOVEMENT
from weft.frontend.onnx.converters.normalization import MICROSOFT_NORMALIZATION
from weft.frontend.onnx.converters.quantization import QUANTIZATION
from weft.frontend.onnx.node import Node, Result


def _gelu(approximate: str) -> Callable[[Node], Result]:
    """gelu(x + bias)."""

    def convert(node: Node) -> Result:
        x = node.data(0)
        if node.has(1):
            x = node.call("add", x, node.data(1))
        return node.call("gelu", x, approximate=approximate)

    return convert


def _quick_gelu(node: Node) -> Result:
    x = node.data(0)
    return node.call("mul", x, node.call("sigmoid", scaled(node, x, node.real("alpha", 1.702))))


def _bias_add(node: Node) -> Result:
    return node.call("add", node.call("add", node.data(0), node.data(1)), node.data(2))


MICROSOFT: dict[str, Callable[[Node], Result]] = {
    **MICROSOFT_CONTRACTION,
    **MICROSOFT_NORMALIZATION,
    "BiasAdd": _bias_add,
    "BiasGelu": _gelu("none"),
    "DequantizeLinear": QUANTIZATION["DequantizeLinear"],
    "FastGelu": _gelu("tanh"),
    "Gelu": _gelu("none"),
    "QuantizeLinear": QUANTIZATION["QuantizeLinear"],
    "QuickGelu": _quick_gelu,
    "Trilu": MOVEMENT["Trilu"],
}
