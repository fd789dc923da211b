"""Quantization, expressed in float arithmetic, which the compiler fuses with the neighbouring operators."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.onnx.converters.elementwise import cast_to
from weft.frontends.onnx.converters.numbers import Traced, operand
from weft.frontends.onnx.node import Node, Result
from weft.frontends.onnx.tensors import dtype_of
from weft.graph.nodes import GraphExpr
from weft.support.dtypes import FLOAT32, DType


def _along(node: Node, parameter: GraphExpr, x: GraphExpr, axis: int) -> GraphExpr:
    """A scale or zero point shaped to broadcast against ``x``: one number, one for each place of an axis, or one for
    each block of an axis."""
    t, rank = parameter.tensor, x.tensor.rank
    if t.rank == 0 or t.shape == (1,):
        return node.call("reshape", parameter, shape=()) if t.rank else parameter
    place = node.checked_axis(axis, rank)
    if t.rank == 1:
        return node.call("reshape", parameter, shape=(*t.shape, *(1,) * (rank - 1 - place)))
    block = node.integer("block_size", 0)
    if t.rank != rank or block < 1:
        raise Malformed(f"its scale {t} does not fit the data {x.tensor}")
    shape = t.shape
    raised = node.call("unsqueeze", parameter, axes=(place + 1,))
    wide = node.call("broadcast_to", raised, shape=(*shape[: place + 1], block, *shape[place + 1 :]))
    size = x.tensor.shape[place]
    count = shape[place]
    if not isinstance(count, int) or size != count * block:
        raise Unsupported("blocks that do not fill the axis are not supported")
    return node.call("reshape", wide, shape=(*shape[:place], size, *shape[place + 1 :]))


def dequantized(node: Node, x: GraphExpr, scale: GraphExpr, zero: GraphExpr | None, axis: int) -> GraphExpr:
    """(x - zero) · scale, in the dtype of the scale."""
    scale = _along(node, scale, x, axis)
    wide = scale if scale.tensor.dtype.bits >= 32 else cast_to(node, scale, FLOAT32)
    value = cast_to(node, x, wide.tensor.dtype)
    if zero is not None:
        value = node.call("sub", value, cast_to(node, _along(node, zero, x, axis), wide.tensor.dtype))
    return cast_to(node, node.call("mul", value, wide), scale.tensor.dtype)


def quantized(node: Node, x: GraphExpr, scale: GraphExpr, zero: GraphExpr | None, axis: int, dtype: DType) -> GraphExpr:
    """round(x / scale) + zero, limited to the range of ``dtype``."""
    value = node.call("div", cast_to(node, x, FLOAT32), cast_to(node, _along(node, scale, x, axis), FLOAT32))
    if dtype.is_float:
        low, high = dtype.limits()
        return cast_to(node, node.call("clip", value, min=low, max=high), dtype)
    value = node.call("round", value)
    if zero is not None:
        value = node.call("add", value, cast_to(node, _along(node, zero, x, axis), FLOAT32))
    low, high = dtype.limits()
    return cast_to(node, node.call("clip", value, min=low, max=high), dtype)


def _dequantize(node: Node) -> Result:
    return dequantized(node, node.data(0), node.data(1), node.optional(2), node.integer("axis", 1))


def _quantize(node: Node) -> Result:
    dtype = node.dtype(2) if node.has(2) else DType("uint8")
    if node.integer("output_dtype", 0):
        dtype = dtype_of(node.integer("output_dtype"))
    return quantized(node, node.data(0), node.data(1), node.optional(2), node.integer("axis", 1), dtype)


def data_range(x: Traced) -> tuple[Traced, Traced]:
    """The smallest and the largest element, or 0 where that is beyond: the ends of a range that has 0."""
    axes = tuple(range(len(x.shape)))
    low, high = (Traced(x.node, t) for t in x.node.calls("reduce_min_max", x.x, axes=axes, keepdims=False))
    return low.call("minimum", 0.0), high.call("maximum", 0.0)


def _dynamically_quantize(node: Node) -> Result:
    """The function body of the operator, but one pass finds both ends of the range."""
    x = operand(node, 0)
    low, high = data_range(x)
    scale = (high - low) / 255.0
    zero = (low / scale).call("neg").call("clip", min=0.0, max=255.0).call("round").to("uint8")
    return quantized(node, x.x, scale.x, zero.x, 1, zero.dtype), scale.x, zero.x


QUANTIZATION: dict[str, Callable[[Node], Result]] = {
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamically_quantize,
    "QuantizeLinear": _quantize,
}
