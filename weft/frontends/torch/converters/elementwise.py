"""Element-wise operators: mathematics, activations, comparisons, logic, casts."""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.frontends.common.problems import Unsupported
from weft.frontends.torch.converters.promotion import in_result_dtype, operand, operands
from weft.frontends.torch.node import AtenNode, Result
from weft.graph.nodes import GraphExpr
from weft.support.dtypes import BOOL, DType

Converter = Callable[[AtenNode], Result]

_UNARY = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atanh": "atanh", "cos": "cos",
    "cosh": "cosh", "erf": "erf", "exp": "exp", "log": "log", "mish": "mish", "neg": "neg", "reciprocal": "reciprocal",
    "relu": "relu", "rsqrt": "rsqrt", "sigmoid": "sigmoid", "silu": "silu", "sin": "sin", "sinh": "sinh",
    "sqrt": "sqrt", "tan": "tan", "tanh": "tanh", "abs": "abs", "hardswish": "hard_swish",
}  # fmt: skip
"""Operators on one tensor, computed in the dtype of the result."""

_ROUNDING = {"ceil": "ceil", "floor": "floor", "trunc": "trunc", "fix": "trunc"}
_ARITHMETIC = {"mul": "mul", "maximum": "maximum", "minimum": "minimum", "pow": "pow"}
_ON_BOOL = {"mul": "logical_and", "maximum": "logical_or", "minimum": "logical_and", "add": "logical_or"}
_COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}  # fmt: skip
_LOGIC = {"logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor"}
_BITS = {
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "__and__": "and", "__or__": "or", "__xor__": "xor",
}  # fmt: skip
_SHIFTS = {
    "bitwise_left_shift": "shift_left", "bitwise_right_shift": "shift_right", "__lshift__": "shift_left",
    "__rshift__": "shift_right",
}  # fmt: skip


def _unary(name: str) -> Converter:
    return lambda node: node.call(name, *in_result_dtype(node, "self"))


def _rounding(name: str) -> Converter:
    def convert(node: AtenNode) -> Result:
        x = node.data("self")
        return node.call(name, x) if x.tensor.dtype.is_float else x

    return convert


def _round(node: AtenNode) -> Result:
    x = node.data("self")
    if not x.tensor.dtype.is_float:
        return x
    decimals = int(node.arguments.get("decimals") or 0)
    if not decimals:
        return node.call("round", x)
    factor = node.like(10.0 ** abs(decimals), x)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return node.call(back, node.call("round", node.call(there, x, factor)), factor)


def _arithmetic(name: str) -> Converter:
    def convert(node: AtenNode) -> Result:
        names = ("self", "exponent") if name == "pow" else ("self", "other")
        a, b = in_result_dtype(node, *names)
        return node.call(_ON_BOOL.get(name, name) if a.tensor.dtype == BOOL else name, a, b)

    return convert


def _sum(node: AtenNode, sign: str, a: GraphExpr, b: GraphExpr) -> GraphExpr:
    """``a + alpha · b`` or ``a - alpha · b``."""
    if a.tensor.dtype == BOOL:
        return node.call(_ON_BOOL[sign], a, b)
    alpha = node.arguments.get("alpha", 1)
    if alpha != 1:
        b = node.call("mul", b, operand(node, alpha, b.tensor.dtype))
    return node.call(sign, a, b)


def _add(node: AtenNode) -> Result:
    return _sum(node, "add", *in_result_dtype(node, "self", "other"))


def _sub(node: AtenNode) -> Result:
    return _sum(node, "sub", *in_result_dtype(node, "self", "other"))


def _rsub(node: AtenNode) -> Result:
    return _sum(node, "sub", *in_result_dtype(node, "other", "self"))


def _div(node: AtenNode) -> Result:
    a, b = in_result_dtype(node, "self", "other")
    mode = node.arguments.get("rounding_mode")
    if mode == "floor":
        return floor_divided(node, a, b)
    made = node.call("div", a, b)
    return node.call("trunc", made) if mode == "trunc" and made.tensor.dtype.is_float else made


def floor_divided(node: AtenNode, a: GraphExpr, b: GraphExpr) -> GraphExpr:
    """The quotient, rounded down. Quotients of integers in the graph are rounded to zero."""
    rest = node.call("mod", a, b)
    exact = node.call("sub", a, rest)
    made = node.call("div", exact, b)
    if not made.tensor.dtype.is_float:
        return made
    near = node.call("floor", node.call("add", made, node.like(0.5, made)))  # the quotient of exact is whole, nearly
    zero = node.call("equal", b, node.like(0, b))
    return node.call("where", zero, node.call("div", a, b), near)


def _floor_divide(node: AtenNode) -> Result:
    return floor_divided(node, *in_result_dtype(node, "self", "other"))


def _mod(fmod: bool) -> Converter:
    return lambda node: node.call("mod", *in_result_dtype(node, "self", "other"), fmod=fmod)


def _comparison(name: str) -> Converter:
    return lambda node: node.call(name, *operands(node, "self", "other"))


def truth(node: AtenNode, x: GraphExpr) -> GraphExpr:
    """Whether elements are not 0."""
    return x if x.tensor.dtype == BOOL else node.call("not_equal", x, node.like(0, x))


def _logic(name: str) -> Converter:
    return lambda node: node.call(name, *(truth(node, node.data(n)) for n in ("self", "other")))


def _bits(name: str) -> Converter:
    def convert(node: AtenNode) -> Result:
        a, b = in_result_dtype(node, "self", "other")
        return node.call(f"{'logical' if a.tensor.dtype == BOOL else 'bitwise'}_{name}", a, b)

    return convert


def _bitwise_not(node: AtenNode) -> Result:
    x = node.data("self")
    return node.call("logical_not" if x.tensor.dtype == BOOL else "bitwise_not", x)


def _shift(name: str) -> Converter:
    return lambda node: node.call(name, *in_result_dtype(node, "self", "other"))


def _same(node: AtenNode) -> Result:
    return node.data("self")


def _cast(node: AtenNode) -> Result:
    return node.cast(node.data("self"), node.result_dtype)


def _copy(node: AtenNode) -> Result:
    """``src`` in the dtype and shape of ``self``."""
    return node.expanded(node.cast(node.data("src"), node.result_dtype), node.shape)


def _sign(node: AtenNode) -> Result:
    """As PyTorch has it, 0 for NaN."""
    x = node.data("self")
    if x.tensor.dtype == BOOL or not x.tensor.dtype.is_float:
        return x if x.tensor.dtype == BOOL else node.call("sign", x)
    return node.call("where", node.call("isnan", x), node.like(0, x), node.call("sign", x))


def _is_negative(node: AtenNode, x: GraphExpr) -> GraphExpr:
    """Whether the sign bit is set, which tells zeros apart."""
    bits = DType(f"int{x.tensor.dtype.bits}")
    return node.call("less", node.call("bitcast", x, to=bits), node.constant(0, bits))


def _is(name: str) -> Converter:
    def convert(node: AtenNode) -> Result:
        x = node.data("self")
        if not x.tensor.dtype.is_float:
            return node.filled(node.shape, False, BOOL)
        return node.call(name, x)

    return convert


def _where(node: AtenNode) -> Result:
    a, b = in_result_dtype(node, "self", "other")
    return node.call("where", truth(node, node.data("condition")), a, b)


def _masked_fill(node: AtenNode) -> Result:
    x, mask = node.data("self"), node.data("mask")
    return node.call("where", truth(node, mask), operand(node, node.value("value"), x.tensor.dtype), x)


def _clamp(node: AtenNode) -> Result:
    (x,) = in_result_dtype(node, "self")
    low, high = (node.value(n) for n in ("min", "max"))
    numbers = {k: v for k, v in (("min", low), ("max", high)) if isinstance(v, (int, float))}
    if len(numbers) == (low is not None) + (high is not None):
        if len(numbers) == 2 and numbers["min"] > numbers["max"]:
            return node.filled(node.shape, numbers["max"], x.tensor.dtype)
        return node.call("clip", x, **numbers)
    for name, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            x = node.call(name, x, operand(node, bound, x.tensor.dtype))
    return x


def _clamp_to(name: str, argument: str) -> Converter:
    def convert(node: AtenNode) -> Result:
        x, bound = in_result_dtype(node, "self", argument)
        return node.call(name, x, bound)

    return convert


def _hardtanh(node: AtenNode) -> Result:
    return node.call("clip", node.data("self"), min=node.number("min_val"), max=node.number("max_val"))


def _formula(*parts: Callable[[AtenNode, GraphExpr], GraphExpr]) -> Converter:
    """A chain of formulas on the operand in the dtype of the result."""

    def convert(node: AtenNode) -> Result:
        (x,) = in_result_dtype(node, "self")
        for part in parts:
            x = part(node, x)
        return x

    return convert


def _gelu(node: AtenNode) -> Result:
    return node.call("gelu", node.data("self"), approximate=node.value("approximate"))


def _leaky_relu(node: AtenNode) -> Result:
    return node.call("leaky_relu", node.data("self"), alpha=float(node.number("negative_slope")))


def _elu(node: AtenNode) -> Result:
    """``scale · x`` above 0, ``scale · alpha · (exp(input_scale · x) - 1)`` below."""
    x = node.data("self")
    alpha, scale, inner = (float(node.number(n)) for n in ("alpha", "scale", "input_scale"))
    if inner == 1.0 and scale == 1.0:
        return node.call("elu", x, alpha=alpha)
    below = expm1(node, node.call("mul", x, node.like(inner, x)))
    below = node.call("mul", below, node.like(alpha * scale, x))
    above = node.call("mul", x, node.like(scale, x))
    return node.call("where", node.call("greater", x, node.like(0, x)), above, below)


def _selu(node: AtenNode) -> Result:
    return node.call("selu", node.data("self"))


def _celu(node: AtenNode) -> Result:
    return node.call("celu", node.data("self"), alpha=float(node.number("alpha")))


def _softplus(node: AtenNode) -> Result:
    x, beta, threshold = node.data("self"), float(node.number("beta")), float(node.number("threshold"))
    scaled = x if beta == 1.0 else node.call("mul", x, node.like(beta, x))
    made = node.call("softplus", scaled)
    made = made if beta == 1.0 else node.call("div", made, node.like(beta, x))
    return node.call("where", node.call("greater", scaled, node.like(threshold, x)), x, made)


def _hardsigmoid(node: AtenNode) -> Result:
    return node.call("hard_sigmoid", node.data("self"), alpha=1 / 6, beta=0.5)


def _prelu(node: AtenNode) -> Result:
    x, slope = node.data("self"), node.data("weight")
    if slope.tensor.rank == 1 and x.tensor.rank > 1:
        slope = node.reshaped(slope, (*slope.tensor.shape, *(1,) * (x.tensor.rank - 2)))
    return node.call("prelu", x, slope)


def expm1(node: AtenNode, x: GraphExpr) -> GraphExpr:
    """``exp(x) - 1``, exact near 0: ``tanh(x / 2) · (exp(x) + 1)``."""
    half = node.call("tanh", node.call("mul", x, node.like(0.5, x)))
    large = node.call("sub", node.call("exp", x), node.like(1, x))
    near = node.call("mul", half, node.call("add", node.call("exp", x), node.like(1, x)))
    inside = node.call("less", node.call("abs", x), node.like(0.5, x))
    return node.call("where", inside, near, large)


def log1p(node: AtenNode, x: GraphExpr) -> GraphExpr:
    """``log(1 + x)``, exact near 0: ``2 · atanh(x / (2 + x))``."""
    one = node.call("add", x, node.like(1, x))
    near = node.call("atanh", node.call("div", x, node.call("add", one, node.like(1, x))))
    near = node.call("add", near, near)
    inside = node.call("less", node.call("abs", x), node.like(0.5, x))
    return node.call("where", inside, near, node.call("log", one))


def _scaled(name: str, factor: float) -> Callable[[AtenNode, GraphExpr], GraphExpr]:
    return lambda node, x: node.call("mul", node.call(name, x), node.like(factor, x))


def _power_of(base: float) -> Callable[[AtenNode, GraphExpr], GraphExpr]:
    return lambda node, x: node.call("pow", node.like(base, x), x)


def _square(node: AtenNode, x: GraphExpr) -> GraphExpr:
    return node.call("mul", x, x)


def _fraction(node: AtenNode, x: GraphExpr) -> GraphExpr:
    return node.call("sub", x, node.call("trunc", x))


def _erfc(node: AtenNode, x: GraphExpr) -> GraphExpr:
    return node.call("sub", node.like(1, x), node.call("erf", x))


def _log_sigmoid(node: AtenNode, x: GraphExpr) -> GraphExpr:
    return node.call("neg", node.call("softplus", node.call("neg", x)))


def _atan2(node: AtenNode) -> Result:
    y, x = in_result_dtype(node, "self", "other")
    zero = node.like(0, x)
    half, right = node.like(math.pi / 2, x), node.call("logical_not", _is_negative(node, x))
    swap = node.call("greater", node.call("abs", y), node.call("abs", x))
    top, bottom = node.call("where", swap, x, y), node.call("where", swap, y, x)
    none = node.call("equal", bottom, zero)
    ratio = node.call("where", none, zero, node.call("div", top, node.call("where", none, node.like(1, x), bottom)))
    both = node.call("logical_and", node.call("isinf", y), node.call("isinf", x))
    ratio = node.call("where", both, node.call("mul", node.call("sign", y), node.call("sign", x)), ratio)
    angle = node.call("atan", ratio)
    below = _is_negative(node, y)
    turned = node.call("sub", node.call("where", below, node.call("neg", half), half), angle)
    straight = node.call("where", below, node.like(-math.pi, x), node.like(math.pi, x))
    plain = node.call("where", right, angle, node.call("add", angle, straight))
    made = node.call("where", swap, turned, plain)
    total = node.call("add", y, x)
    lost = node.call("logical_or", node.call("isnan", y), node.call("isnan", x))
    return node.call("where", lost, total, made)


def _nan_to_num(node: AtenNode) -> Result:
    x = node.data("self")
    if not x.tensor.dtype.is_float:
        return x
    low, high = x.tensor.dtype.limits()
    nan, top, bottom = (node.arguments.get(n) for n in ("nan", "posinf", "neginf"))
    made = node.call("where", node.call("isnan", x), node.like(nan or 0.0, x), x)
    for value, positive in ((high if top is None else top, True), (low if bottom is None else bottom, False)):
        found = node.call("isinf", x, detect_positive=positive, detect_negative=not positive)
        made = node.call("where", found, node.like(value, x), made)
    return made


def _addc(name: str) -> Converter:
    """``self + value · tensor1 (· or /) tensor2``."""

    def convert(node: AtenNode) -> Result:
        x, a, b = in_result_dtype(node, "self", "tensor1", "tensor2")
        value = node.number("value")
        if value != 1:
            a = node.call("mul", a, node.like(value, a))
        return node.call("add", x, node.call(name, a, b))

    return convert


def _lerp(node: AtenNode) -> Result:
    a, b, weight = in_result_dtype(node, "self", "end", "weight")
    return node.call("add", a, node.call("mul", weight, node.call("sub", b, a)))


def _threshold(node: AtenNode) -> Result:
    x = node.data("self")
    above = node.call("greater", x, node.like(node.number("threshold"), x))
    return node.call("where", above, x, node.like(node.number("value"), x))


def _shrink(soft: bool) -> Converter:
    def convert(node: AtenNode) -> Result:
        x = node.data("self")
        edge, zero = node.like(node.number("lambd"), x), node.like(0, x)
        over, under = node.call("greater", x, edge), node.call("less", x, node.call("neg", edge))
        if not soft:
            return node.call("where", node.call("logical_or", over, under), x, zero)
        below = node.call("where", under, node.call("add", x, edge), zero)
        return node.call("where", over, node.call("sub", x, edge), below)

    return convert


def _dropout(node: AtenNode) -> Result:
    if node.arguments.get("train") and float(node.arguments.get("p") or 0.0) > 0:
        raise Unsupported("the module is in training mode: module.eval() turns dropout off")
    (name,) = [n for n in ("input", "self") if n in node.arguments]
    return node.data(name)


def _hypot(node: AtenNode) -> Result:
    a, b = (node.call("abs", x) for x in in_result_dtype(node, "self", "other"))
    most, least = node.call("maximum", a, b), node.call("minimum", a, b)
    none = node.call("equal", most, node.like(0, most))
    ratio = node.call("div", least, node.call("where", none, node.like(1, most), most))
    return node.call("mul", most, node.call("sqrt", node.call("add", node.call("mul", ratio, ratio), node.like(1, a))))


def _copysign(node: AtenNode) -> Result:
    a, b = in_result_dtype(node, "self", "other")
    size = node.call("abs", a)
    return node.call("where", _is_negative(node, b), node.call("neg", size), size)


def _is_finite(node: AtenNode) -> Result:
    x = node.data("self")
    if not x.tensor.dtype.is_float:
        return node.filled(node.shape, True, BOOL)
    return node.call("logical_not", node.call("logical_or", node.call("isnan", x), node.call("isinf", x)))


def _xlogy(node: AtenNode) -> Result:
    a, b = in_result_dtype(node, "self", "other")
    made = node.call("mul", a, node.call("log", b))
    wrong = node.call("isnan", b)
    none = node.call("logical_and", node.call("equal", a, node.like(0, a)), node.call("logical_not", wrong))
    return node.call("where", none, node.like(0, a), made)


ELEMENTWISE: dict[str, Converter] = {
    **{aten: _unary(name) for aten, name in _UNARY.items()},
    **{aten: _rounding(name) for aten, name in _ROUNDING.items()},
    **{aten: _arithmetic(name) for aten, name in _ARITHMETIC.items()},
    **{aten: _comparison(name) for aten, name in _COMPARISONS.items()},
    **{aten: _logic(name) for aten, name in _LOGIC.items()},
    **{aten: _bits(name) for aten, name in _BITS.items()},
    **{aten: _shift(name) for aten, name in _SHIFTS.items()},
    **dict.fromkeys(("alias", "clone", "detach", "contiguous", "positive", "lift", "lift_fresh", "lift_fresh_copy",
                     "detach_copy", "alias_copy", "view_of"), _same),
    **dict.fromkeys(("_to_copy", "to", "type_as", "_to_dtype"), _cast),
    **dict.fromkeys(("add", "_add"), _add),
    **dict.fromkeys(("div", "true_divide", "divide"), _div),
    **dict.fromkeys(("dropout", "native_dropout", "alpha_dropout", "feature_dropout"), _dropout),
    "addcdiv": _addc("div"),
    "addcmul": _addc("mul"),
    "atan2": _atan2,
    "bitwise_not": _bitwise_not,
    "celu": _celu,
    "clamp": _clamp,
    "clamp_max": _clamp_to("minimum", "max"),
    "clamp_min": _clamp_to("maximum", "min"),
    "clip": _clamp,
    "copy": _copy,
    "copysign": _copysign,
    "elu": _elu,
    "erfc": _formula(_erfc),
    "exp2": _formula(_power_of(2.0)),
    "expm1": _formula(expm1),
    "floor_divide": _floor_divide,
    "fmod": _mod(fmod=True),
    "frac": _formula(_fraction),
    "gelu": _gelu,
    "hardshrink": _shrink(soft=False),
    "hardsigmoid": _hardsigmoid,
    "hardtanh": _hardtanh,
    "hypot": _hypot,
    "isfinite": _is_finite,
    "isinf": _is("isinf"),
    "isnan": _is("isnan"),
    "leaky_relu": _leaky_relu,
    "lerp": _lerp,
    "log10": _formula(_scaled("log", 1 / math.log(10))),
    "log1p": _formula(log1p),
    "log2": _formula(_scaled("log", 1 / math.log(2))),
    "log_sigmoid": _formula(_log_sigmoid),
    "logical_not": lambda node: node.call("logical_not", truth(node, node.data("self"))),
    "masked_fill": _masked_fill,
    "nan_to_num": _nan_to_num,
    "prelu": _prelu,
    "_prelu_kernel": _prelu,
    "relu6": lambda node: node.call("clip", node.data("self"), min=0.0, max=6.0),
    "remainder": _mod(fmod=False),
    "round": _round,
    "rsub": _rsub,
    "selu": _selu,
    "sgn": _sign,
    "sign": _sign,
    "softplus": _softplus,
    "softshrink": _shrink(soft=True),
    "square": _formula(_square),
    "sub": _sub,
    "threshold": _threshold,
    "where": _where,
    "xlogy": _xlogy,
}  # fmt: skip
