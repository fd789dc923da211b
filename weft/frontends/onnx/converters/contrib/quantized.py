"""Operators on 8-bit tensors with scales and zero points: computed in float arithmetic and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.frontends.common.problems import Malformed
from weft.frontends.onnx.converters.contrib.channels_last import channels_first, in_channels_first
from weft.frontends.onnx.converters.elementwise import cast_to
from weft.frontends.onnx.converters.integers import integer_product, matmul_integer, qlinear_conv, zero_point
from weft.frontends.onnx.converters.numbers import Traced, operand
from weft.frontends.onnx.converters.pooling import POOLING
from weft.frontends.onnx.converters.quantization import data_range, dequantized, quantized
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import GraphExpr
from weft.support.dtypes import FLOAT32, DType


def real(node: Node, i: int, axis: int = -1) -> Traced:
    """Operand ``i`` dequantized; its scale and zero point are the following operands."""
    return Traced(node, dequantized(node, node.data(i), node.data(i + 1), node.optional(i + 2), axis))


def rounded(node: Node, x: Traced, i: int, like: int = 0) -> Result:
    """``x`` quantized with the scale in operand ``i`` and the zero point in the next operand; without a zero point the
    dtype is that of operand ``like``."""
    zero = node.optional(i + 1)
    dtype = zero.tensor.dtype if zero is not None else node.dtype(like)
    return quantized(node, x.x, node.data(i), zero, -1, dtype)


def _binary(name: str) -> Callable[[Node], Result]:
    return lambda node: rounded(node, real(node, 0).call(name, real(node, 3)), 6)


def _unary(name: str) -> Callable[[Node], Result]:
    return lambda node: rounded(node, real(node, 0).call(name), 3)


def _leaky_relu(node: Node) -> Result:
    return rounded(node, real(node, 0).call("leaky_relu", alpha=node.real("alpha", 0.01)), 3)


def _softmax(node: Node) -> Result:
    """QLinearSoftmax. Before operator set 13, all axes from the given one on form one axis."""
    x = real(node, 0)
    shape, axis = x.shape, node.axis(len(x.shape), -1)
    if node.integer("opset") < 13:
        x = x.call("reshape", shape=(*shape[:axis], -1))
    made = x.call("softmax", axis=axis)
    return rounded(node, made.reshape(*shape), 3)


def _concat(node: Node) -> Result:
    """QLinearConcat: the operands are scale and zero point of the result, then data, scale and zero point of each."""
    count = len(node.inputs) - 2
    if count < 3 or count % 3:
        raise Malformed(f"it has {count} inputs behind its scale and zero point, not three for each tensor")
    parts = [real(node, i) for i in range(2, len(node.inputs), 3)]
    axis = node.axis(len(parts[0].shape))
    made = parts[0].call("concat", *parts[1:], axis=axis) if len(parts) > 1 else parts[0]
    return quantized(node, made.x, node.data(0), node.data(1), -1, node.dtype(1))


def _where(node: Node) -> Result:
    x, y = real(node, 1), real(node, 4)
    return rounded(node, operand(node, 0).choose(x, y), 7)


def _reduce_mean(node: Node) -> Result:
    x = real(node, 0)
    axes = node.integers("axes", ()) or tuple(range(len(x.shape)))
    return rounded(node, x.call("reduce_mean", axes=axes, keepdims=node.flag("keepdims", True)), 3)


def _global_average(node: Node) -> Result:
    x, last = real(node, 0), node.flag("channels_last")
    rank = len(x.shape)
    axes = tuple(range(1, rank - 1)) if last else tuple(range(2, rank))
    return rounded(node, x.call("reduce_mean", axes=axes, keepdims=True), 3)


def _average_pool(node: Node) -> Result:
    x, last = real(node, 0), node.flag("channels_last")
    pooled = POOLING["AveragePool"](node.altered((channels_first(x).x if last else x.x,)))
    assert isinstance(pooled, GraphExpr)
    made = Traced(node, pooled)
    return rounded(node, in_channels_first(made) if last else made, 3)


def _conv(node: Node) -> Result:
    if not node.flag("channels_last"):
        return qlinear_conv(node)
    first = channels_first(operand(node, 0))
    made = qlinear_conv(node.altered((first.x, *node.inputs[1:])))
    assert isinstance(made, GraphExpr)
    return in_channels_first(Traced(node, made)).x


def _mul_integer(node: Node) -> Result:
    parts = []
    for i in (0, 2):
        wide = operand(node, i).to("int32")
        parts.append(wide - operand(node, i + 1).to("int32") if node.has(i + 1) else wide)
    return (parts[0] * parts[1]).x


def _reduce_sum_integer(node: Node) -> Result:
    x = operand(node, 0)
    to = "int32" if x.dtype == "int8" else "uint32"
    return x.to(to).call("reduce_sum", axes=node.integers("axes"), keepdims=node.flag("keepdims", True)).x


# --- products ---------------------------------------------------------------------------------------------------------


def _along_columns(scale: Traced) -> Traced:
    """One scale, or one for each column, with a shape that broadcasts along columns."""
    return scale.reshape() if all(d == 1 for d in scale.shape) else scale


def _scaled(node: Node, product: GraphExpr, scales: Sequence[Traced], bias: int) -> Traced:
    """An integer product as floats: multiplied by its scales, plus the bias."""
    factor = _along_columns(scales[0])
    for scale in scales[1:]:
        factor = factor * _along_columns(scale)
    made = Traced(node, product).to(FLOAT32) * factor.to(FLOAT32)
    made = made.to(scales[0].dtype)
    return made + operand(node, bias) if node.has(bias) else made


def _matmul_to_float(node: Node) -> Result:
    """MatMulIntegerToFloat: the operands are A, B, their scales, their zero points and the bias."""
    product = matmul_integer(node, 0, 1, 4, 5)
    return _scaled(node, product, (operand(node, 2), operand(node, 3)), 6).x


def _dynamic_matmul(node: Node) -> Result:
    """DynamicQuantizeMatMul: the first operand is quantized to uint8 by its range, which includes 0."""
    a, b_scale = operand(node, 0), operand(node, 2)
    whole, scale, zero = dynamically_quantized(a)
    product = integer_product(node, whole.x, node.data(1), zero.x, zero_point(node, 3))
    return _scaled(node, product, (scale, b_scale), 4).x


def dynamically_quantized(x: Traced) -> tuple[Traced, Traced, Traced]:
    """``x`` as uint8 with scale and zero point from its range, as DynamicQuantizeLinear does it."""
    low, high = data_range(x)
    scale = (high - low) / 255.0
    scale = scale.equals(0.0).choose(scale * 0.0 + 1.0, scale)
    zero = (low.call("neg") / scale).limited(0.0, 255.0).call("round")
    made = ((x / scale).call("round") + zero).limited(0.0, 255.0)
    return made.to("uint8"), scale, zero.to("uint8")


def _gemm(node: Node) -> Result:
    """alpha · A · B + C, where C has the scale of the product. The result is quantized if it has a scale."""
    a = cast_to(node, node.data(0), DType("int32"))
    a = node.call("sub", a, cast_to(node, node.call("reshape", node.data(2), shape=()), DType("int32")))
    turn = node.flag("transB")
    b, b_zero = cast_to(node, node.data(3), DType("int32")), _along_columns(operand(node, 5)).to("int32")
    b_scale = _along_columns(operand(node, 4))
    if turn and len(b_zero.shape):
        b_zero = b_zero.call("unsqueeze", axes=(1,))
    b = node.call("sub", b, b_zero.x)
    product = node.call("matmul", a, b, transpose_a=node.flag("transA"), transpose_b=turn, out_dtype="int32")
    if node.has(6):
        product = node.call("add", product, node.data(6))
    factor = operand(node, 1).reshape() * b_scale * node.real("alpha", 1.0)
    made = Traced(node, product).to(FLOAT32) * factor
    return rounded(node, made, 7) if node.has(7) else made.x


def _matmul_integer16(node: Node) -> Result:
    unsigned = node.dtype(0) == "uint16" and node.dtype(1) == "uint16"
    to = "uint32" if unsigned else "int32"
    a, b = (operand(node, i).to(to) for i in (0, 1))
    return a.call("matmul", b, out_dtype=to).x


QUANTIZED: dict[str, Callable[[Node], Result]] = {
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "MatMulInteger16": _matmul_integer16,
    "MatMulIntegerToFloat": _matmul_to_float,
    "MulInteger": _mul_integer,
    "QGemm": _gemm,
    "QLinearAdd": _binary("add"),
    "QLinearAveragePool": _average_pool,
    "QLinearConcat": _concat,
    "QLinearConv": _conv,
    "QLinearGlobalAveragePool": _global_average,
    "QLinearLeakyRelu": _leaky_relu,
    "QLinearMul": _binary("mul"),
    "QLinearReduceMean": _reduce_mean,
    "QLinearSigmoid": _unary("sigmoid"),
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _where,
    "ReduceSumInteger": _reduce_sum_integer,
}
