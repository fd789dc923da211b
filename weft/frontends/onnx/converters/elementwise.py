"""Element-wise operators: mathematics, activations, comparisons, logic, casts."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from weft.frontends.common.problems import Malformed
from weft.frontends.onnx.node import Node, Result
from weft.frontends.onnx.tensors import dtype_named, dtype_of
from weft.graph.nodes import Constant, GraphExpr
from weft.support.dtypes import FLOAT32, FLOAT64, UINT8, DType

Converter = Callable[[Node], Result]

_UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Exp": "exp",
    "Floor": "floor", "HardSwish": "hard_swish", "IsNaN": "isnan", "Log": "log", "Mish": "mish", "Neg": "neg",
    "Not": "logical_not", "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid",
    "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Softsign": "softsign", "Sqrt": "sqrt",
    "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip

_BINARY = {
    "Add": "add", "And": "logical_and", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "Div": "div", "Equal": "equal", "Greater": "greater",
    "GreaterOrEqual": "greater_equal", "Less": "less", "LessOrEqual": "less_equal", "Mul": "mul",
    "Or": "logical_or", "Pow": "pow", "Sub": "sub", "Xor": "logical_xor",
}  # fmt: skip

_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}

# Operator of the catalogue, and the float attributes with their defaults.
_PARAMETRIC: dict[str, tuple[str, dict[str, float]]] = {
    "Celu": ("celu", {"alpha": 1.0}),
    "Elu": ("elu", {"alpha": 1.0}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Selu": ("selu", {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": 1.0}),
}


def _unary(name: str) -> Converter:
    return lambda node: node.call(name, node.data(0))


def _binary(name: str) -> Converter:
    return lambda node: node.call(name, node.data(0), _aligned(node, node.data(0), node.data(1)))


def _aligned(node: Node, a: GraphExpr, b: GraphExpr) -> GraphExpr:
    """Before operator set 7, ``axis`` is the dimension of the first operand at which the shape of the second begins."""
    if node.opset >= 7 or not node.flag("broadcast") or not node.has_attribute("axis"):
        return b
    trailing = a.tensor.rank - node.axis(a.tensor.rank) - b.tensor.rank
    if trailing < 0:
        raise Malformed("its second operand has more dimensions than the first has from its attribute 'axis' on")
    return node.call("reshape", b, shape=(*b.tensor.shape, *(1,) * trailing)) if trailing else b


def _variadic(name: str) -> Converter:
    def convert(node: Node) -> Result:
        operands = node.all_data()
        if not operands:
            raise Malformed("it has no inputs")
        return reduce(lambda a, b: node.call(name, a, b), operands)

    return convert


def _parametric(name: str, defaults: dict[str, float]) -> Converter:
    return lambda node: node.call(name, node.data(0), **{k: node.real(k, v) for k, v in defaults.items()})


def _mean(node: Node) -> Result:
    total = _variadic("add")(node)
    assert isinstance(total, GraphExpr)
    return node.call("div", total, node.scalar(len(node.inputs), total))


def _mod(node: Node) -> Result:
    return node.call("mod", node.data(0), node.data(1), fmod=node.flag("fmod"))


def _bit_shift(node: Node) -> Result:
    names = {"LEFT": "shift_left", "RIGHT": "shift_right"}
    direction = node.text("direction")
    if direction not in names:
        raise Malformed(f"its attribute 'direction' is '{direction}', not LEFT or RIGHT")
    return node.call(names[direction], node.data(0), node.data(1))


def _is_inf(node: Node) -> Result:
    return node.call(
        "isinf",
        node.data(0),
        detect_positive=node.flag("detect_positive", True),
        detect_negative=node.flag("detect_negative", True),
    )


def _clip(node: Node) -> Result:
    x = node.data(0)
    if node.opset < 11:
        bounds = {k: node.real(k) for k in ("min", "max") if node.has_attribute(k)}
        return node.call("clip", x, **bounds)
    low, high = node.optional(1), node.optional(2)
    known = {k: b.data.reshape(-1)[0].item() for k, b in (("min", low), ("max", high)) if isinstance(b, Constant)}
    if len(known) == (low is not None) + (high is not None):
        return node.call("clip", x, **known)
    x = x if low is None else node.call("maximum", x, low)
    return x if high is None else node.call("minimum", x, high)


def cast_to(node: Node, x: GraphExpr, dtype: DType) -> GraphExpr:
    """``x`` in another dtype; ``x`` itself if it has that dtype."""
    return x if x.tensor.dtype == dtype else node.call("cast", x, to=dtype)


def _converted(node: Node, x: GraphExpr, to: DType) -> GraphExpr:
    """A cast as ONNX defines it. In casts to 8-bit floats, values out of range become the largest value by default."""
    if to.kind == "string":
        return x if x.tensor.dtype == to else node.call("text_show", x)
    if x.tensor.dtype.kind == "string":
        return _converted(node, node.call("text_parse", x, to="float32" if to.is_float and to.bits < 32 else to), to)
    if to == "float8_e8m0fnu":
        return _power_of_two(node, x)
    low, high = to.limits() if to.is_float and to.bits == 8 else (0.0, 0.0)
    beyond = x.tensor.dtype.is_float or x.tensor.dtype.limits()[1] > high
    if high and beyond and node.flag("saturate", True):
        x = node.call("clip", cast_to(node, x, FLOAT32), min=low, max=high)
    return cast_to(node, x, to)


def _power_of_two(node: Node, x: GraphExpr) -> GraphExpr:
    """``x`` as float8_e8m0fnu, a bare exponent: the magnitude rounded up, down or to nearest, halves up."""
    mode = node.text("round_mode", "up")
    if mode not in ("up", "down", "nearest"):
        raise Malformed(f"its rounding mode is '{mode}'")

    def number(value: int) -> GraphExpr:
        return node.constant(value, "int32")

    bits = node.call("bitcast", cast_to(node, x, FLOAT32), to="int32")
    exponent = node.call("bitwise_and", node.call("shift_right", bits, number(23)), number(0xFF))
    if mode != "down":
        fraction = node.call("bitwise_and", bits, number(0x7FFFFF))
        least = number(1 if mode == "up" else 1 << 22)
        if mode == "nearest":  # half of the smallest is no more than that
            least = node.call("where", node.call("equal", exponent, number(0)), number((1 << 22) + 1), least)
        more = node.call("greater_equal", fraction, least)
        last = 0xFE if node.flag("saturate", True) else 0xFF
        more = node.call("logical_and", more, node.call("less", exponent, number(last)))
        exponent = node.call("add", exponent, cast_to(node, more, DType("int32")))
    smallest = node.call("equal", exponent, number(0))
    bits = node.call("where", smallest, number(1 << 22), node.call("shift_left", exponent, number(23)))
    return node.call("cast", node.call("bitcast", bits, to=FLOAT32), to="float8_e8m0fnu")


def _cast(node: Node) -> Result:
    to = dtype_named(node.text("to")) if node.opset < 6 else dtype_of(node.integer("to"))
    return _converted(node, node.data(0), to)


def _cast_like(node: Node) -> Result:
    return _converted(node, node.data(0), node.dtype(1))


def _where(node: Node) -> Result:
    return node.call("where", node.data(0), node.data(1), node.data(2))


def _prelu(node: Node) -> Result:
    x, slope = node.data(0), node.data(1)
    if node.opset < 7 and slope.tensor.rank == 1 and x.tensor.rank > 2 and slope.tensor.shape != (1,):
        slope = node.call("reshape", slope, shape=(*slope.tensor.shape, *(1,) * (x.tensor.rank - 2)))
    return node.call("prelu", x, slope)


def _gelu(node: Node) -> Result:
    return node.call("gelu", node.data(0), approximate=node.text("approximate", "none"))


def _swish(node: Node) -> Result:
    x, alpha = node.data(0), node.real("alpha", 1.0)
    if alpha == 1.0:
        return node.call("silu", x)
    return node.call("mul", x, node.call("sigmoid", node.call("mul", x, node.scalar(alpha, x))))


def _shrink(node: Node) -> Result:
    given, edge, bias = node.data(0), node.real("lambd", 0.5), node.real("bias", 0.0)
    x = cast_to(node, given, FLOAT64) if given.tensor.dtype.is_integer else given  # the bias may have a fraction
    high = node.call("where", node.call("greater", x, node.scalar(edge, x)),
                     node.call("sub", x, node.scalar(bias, x)), node.scalar(0, x))  # fmt: skip
    made = node.call("where", node.call("less", x, node.scalar(-edge, x)),
                     node.call("add", x, node.scalar(bias, x)), high)  # fmt: skip
    return cast_to(node, made, given.tensor.dtype)


def _erf(node: Node) -> Result:
    """Erf. Version 9 also has integers; their result is rounded to an integer (-1, 0 or 1)."""
    x = node.data(0)
    if x.tensor.dtype.is_float:
        return node.call("erf", x)
    return cast_to(node, node.call("erf", cast_to(node, x, FLOAT64)), x.tensor.dtype)


def _identity(node: Node) -> Result:
    return node.value(0)


def _bitcast(node: Node) -> Result:
    x, to = node.data(0), dtype_of(node.integer("to"))
    if x.tensor.dtype == to:
        return x
    if x.tensor.dtype.kind == "bool":
        x = node.call("cast", x, to=UINT8)  # stored as 0 and 1
    if to.kind == "bool":
        return node.call("cast", node.call("bitcast", x, to=UINT8), to=to)
    return node.call("bitcast", x, to=to)


ELEMENTWISE: dict[str, Converter] = {
    **{onnx: _unary(name) for onnx, name in _UNARY.items()},
    **{onnx: _binary(name) for onnx, name in _BINARY.items()},
    **{onnx: _variadic(name) for onnx, name in _VARIADIC.items()},
    **{onnx: _parametric(name, defaults) for onnx, (name, defaults) in _PARAMETRIC.items()},
    "BitCast": _bitcast,
    "BitShift": _bit_shift,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Clip": _clip,
    "Erf": _erf,
    "Gelu": _gelu,
    "Identity": _identity,
    "IsInf": _is_inf,
    "Mean": _mean,
    "Mod": _mod,
    "PRelu": _prelu,
    "Shrink": _shrink,
    "Swish": _swish,
    "Where": _where,
}
