"""Element-wise functions of one operand: mathematics, activations, rounding, casts. One row of a table each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.evaluate import convert
from weft.expr.nodes import Call, Expr, Not, make, maximum, minimum, select
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import ANY, NUMBER, elementwise, number, to_bool, unary_cases
from weft.support.dtypes import BOOL, FLOAT32, DType

_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True, slots=True)
class _Row:
    """``scalar(attrs, x)`` and ``numpy(attrs, x)`` compute the same function of one element and of an array. ``low``
    and ``high`` bound the operands in tests; ``exact`` rows are also tested at infinities and NaN."""

    name: str
    scalar: Callable[[Attrs, Expr], Expr]
    numpy: Callable[[Attrs, Any], Any]
    source: str
    doc: str
    low: float = -2.0
    high: float = 2.0
    exact: bool = False
    kinds: str = "float"
    attributes: tuple[Attribute, ...] = ()
    result: Callable[[Attrs, DType], DType] | None = None
    variants: tuple[dict[str, Any], ...] = field(default=({},))

    def define(self) -> OpDef:
        cases: tuple[Case, ...] = ()
        for attrs in self.variants:
            cases += unary_cases(self.low, self.high, self.exact, self.kinds, attrs)
        return elementwise(
            self.name,
            self.scalar,
            self.numpy,
            kinds=self.kinds,
            attributes=self.attributes,
            result=self.result,
            cases=cases,
            doc=self.doc,
            source=self.source,
        )


def _function(
    name: str,
    numpy: Callable[[Any], Any],
    source: str,
    doc: str,
    low: float = -2.0,
    high: float = 2.0,
    *,
    kinds: str = "float",
    exact: bool = False,
) -> _Row:
    """A row for a function that is an intrinsic of the same name."""

    def scalar(attrs: Attrs, x: Expr) -> Expr:
        return Call(name, (x,), x.dtype) if x.dtype.is_float else x

    return _Row(name, scalar, lambda a, x: numpy(x), source, doc, low, high, exact, kinds)


MATHEMATICS = (
    _function("exp", np.exp, "ONNX Exp-13", "e to the power x"),
    _function("log", np.log, "ONNX Log-13", "natural logarithm", 0.1, 4),
    _function("sqrt", np.sqrt, "ONNX Sqrt-13", "square root", 0, 4),
    _function("rsqrt", lambda x: 1 / np.sqrt(x), "", "reciprocal of the square root", 0.1, 4),
    _function("sin", np.sin, "ONNX Sin-22", "sine"),
    _function("cos", np.cos, "ONNX Cos-22", "cosine"),
    _function("tan", np.tan, "ONNX Tan-22", "tangent", -1.4, 1.4),
    _function("asin", np.arcsin, "ONNX Asin-22", "arc sine", -0.99, 0.99),
    _function("acos", np.arccos, "ONNX Acos-22", "arc cosine", -0.99, 0.99),
    _function("atan", np.arctan, "ONNX Atan-22", "arc tangent"),
    _function("sinh", np.sinh, "ONNX Sinh-22", "hyperbolic sine"),
    _function("cosh", np.cosh, "ONNX Cosh-22", "hyperbolic cosine"),
    _function("tanh", np.tanh, "ONNX Tanh-13", "hyperbolic tangent"),
    _function("asinh", np.arcsinh, "ONNX Asinh-22", "inverse hyperbolic sine"),
    _function("acosh", np.arccosh, "ONNX Acosh-22", "inverse hyperbolic cosine", 1.1, 4),
    _function("atanh", np.arctanh, "ONNX Atanh-22", "inverse hyperbolic tangent", -0.95, 0.95),
    _function("erf", lambda x: _erf(x).astype(x.dtype), "ONNX Erf-13", "error function"),
    _function("sigmoid", lambda x: 1 / (1 + np.exp(-x)), "ONNX Sigmoid-13", "1 / (1 + exp(-x))"),
    _function("floor", np.floor, "ONNX Floor-13", "largest integer not above x", kinds=NUMBER, exact=True),
    _function("ceil", np.ceil, "ONNX Ceil-13", "smallest integer not below x", kinds=NUMBER, exact=True),
    _function("trunc", np.trunc, "", "x rounded toward zero", kinds=NUMBER, exact=True),
    _function("round", np.rint, "ONNX Round-22", "nearest integer, halves to even", kinds=NUMBER, exact=True),
    _Row("abs", lambda a, x: te.abs(x), lambda a, x: np.abs(x), "ONNX Abs-13", "magnitude", exact=True, kinds=NUMBER),
    _Row("neg", lambda a, x: -x, lambda a, x: np.negative(x), "ONNX Neg-13", "x with the other sign", kinds=NUMBER),
    _Row("reciprocal", lambda a, x: number(1, x) / x, lambda a, x: 1 / x, "ONNX Reciprocal-13", "1 / x", 0.5, 4),
    _Row(
        "sign",
        lambda a, x: select(x > 0, number(1, x), x if x.dtype.kind == "uint" else select(x < 0, number(-1, x), x)),
        lambda a, x: np.sign(x),
        "ONNX Sign-13",
        "-1, 0 or 1; NaN stays",
        exact=True,
        kinds=NUMBER,
    ),
    _Row("identity", lambda a, x: x, lambda a, x: x.copy(), "ONNX Identity", "x itself", exact=True, kinds=ANY),
    _Row(
        "dropout",
        lambda a, x: x,
        lambda a, x: x.copy(),
        "ONNX Dropout-22, inference",
        "x itself; marks where training would drop values",
    ),
    _Row(
        "isnan",
        lambda a, x: te.isnan(x),
        lambda a, x: np.isnan(x),
        "ONNX IsNaN-20",
        "whether x is not a number",
        exact=True,
        result=to_bool,
    ),
    _Row(
        "isinf",
        lambda a, x: _infinite(a, x),
        lambda a, x: np.isinf(x) & ((a.detect_positive & (x > 0)) | (a.detect_negative & (x < 0))),
        "ONNX IsInf-20",
        "whether x is an infinity",
        exact=True,
        result=to_bool,
        attributes=(
            Attribute("detect_positive", True, "whether plus infinity counts"),
            Attribute("detect_negative", True, "whether minus infinity counts"),
        ),
        variants=({}, {"detect_negative": False}, {"detect_positive": False}),
    ),
    _Row("logical_not", lambda a, x: Not(x), lambda a, x: ~x, "ONNX Not-1", "negation", kinds="bool"),
    _Row(
        "bitwise_not",
        lambda a, x: number(-1, x) - x,
        lambda a, x: ~x,
        "ONNX BitwiseNot-18",
        "every bit inverted",
        kinds="int uint",
    ),
)


def _infinite(attrs: Attrs, x: Expr) -> Expr:
    if attrs.detect_positive and attrs.detect_negative:
        return te.isinf(x)
    if not attrs.detect_positive and not attrs.detect_negative:
        return te.const(False)
    return te.all(te.isinf(x), x > 0 if attrs.detect_positive else x < 0)


def _half_line(x: Expr, value: Expr) -> Expr:
    """``value`` for negative x, else x."""
    return select(x < 0, value, x)


def _unit_clamp(x: Expr) -> Expr:
    return maximum(minimum(x, 1.0), 0.0)


def _np_unit_clamp(x: Any) -> Any:
    return np.maximum(np.minimum(x, 1), 0)


def _softplus(x: Expr) -> Expr:
    return maximum(x, 0.0) + te.log1p(te.exp(-te.abs(x)))


def _np_softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


_TANH_SCALE = math.sqrt(2 / math.pi)


def _gelu(attrs: Attrs, x: Expr) -> Expr:
    if attrs.approximate == "tanh":
        return x * 0.5 * (te.tanh((x + x * x * x * 0.044715) * _TANH_SCALE) + 1.0)
    return x * 0.5 * (te.erf(x * math.sqrt(0.5)) + 1.0)


def _np_gelu(attrs: Attrs, x: Any) -> Any:
    wide = x.astype(np.float64)
    if attrs.approximate == "tanh":
        out = 0.5 * wide * (1 + np.tanh(_TANH_SCALE * (wide + 0.044715 * wide**3)))
    else:
        out = 0.5 * wide * (1 + _erf(wide * math.sqrt(0.5)))
    return out.astype(x.dtype)


def _in_single(scalar: Callable[[Attrs, Expr], Expr]) -> Callable[[Attrs, Expr], Expr]:
    """``scalar`` with operands of 16 bits or fewer in float32, so that its constants are not rounded to their type.

    A constant beside a float16 becomes float16: with 1/sqrt(2) rounded so, results of Gelu were several units off.
    PyTorch and onnxruntime compute in float32, with constants of float32, and round the result.
    """

    def wide(attrs: Attrs, x: Expr) -> Expr:
        return scalar(attrs, te.cast(x, FLOAT32) if x.dtype.is_float and x.dtype.bits <= 16 else x)

    return wide


def _alpha(default: float) -> Attribute:
    return Attribute("alpha", default, "slope or scale of the negative side")


ACTIVATIONS = (
    _Row(
        "relu",
        lambda a, x: maximum(x, number(0, x)),
        lambda a, x: np.maximum(x, 0),
        "ONNX Relu-14",
        "max(x, 0)",
        exact=True,
        kinds=NUMBER,
    ),
    _Row(
        "leaky_relu",
        _in_single(lambda a, x: _half_line(x, x * a.alpha)),
        lambda a, x: np.where(x < 0, x * x.dtype.type(a.alpha), x),
        "ONNX LeakyRelu-16",
        "x, times alpha where negative",
        exact=True,
        attributes=(_alpha(0.01),),
        variants=({}, {"alpha": 0.3}),
    ),
    _Row(
        "elu",
        _in_single(lambda a, x: _half_line(x, te.expm1(x) * a.alpha)),
        lambda a, x: np.where(x < 0, a.alpha * np.expm1(np.minimum(x, 0)), x),
        "ONNX Elu-22",
        "x, alpha·(exp(x) - 1) where negative",
        attributes=(_alpha(1.0),),
        variants=({}, {"alpha": 2.0}),
    ),
    _Row(
        "selu",
        _in_single(lambda a, x: _half_line(x, te.expm1(x) * a.alpha) * a.gamma),
        lambda a, x: a.gamma * np.where(x < 0, a.alpha * np.expm1(np.minimum(x, 0)), x),
        "ONNX Selu-22",
        "gamma·x, gamma·alpha·(exp(x) - 1) where negative",
        attributes=(_alpha(1.67326319217681884765625), Attribute("gamma", 1.05070102214813232421875, "scale")),
    ),
    _Row(
        "celu",
        _in_single(lambda a, x: maximum(x, 0.0) + minimum(te.expm1(x / a.alpha) * a.alpha, 0.0)),
        lambda a, x: np.maximum(x, 0) + np.minimum(a.alpha * np.expm1(x / a.alpha), 0),
        "ONNX Celu-12",
        "max(0, x) + min(0, alpha·(exp(x / alpha) - 1))",
        attributes=(_alpha(1.0),),
        variants=({}, {"alpha": 2.0}),
    ),
    _Row(
        "thresholded_relu",
        lambda a, x: select(x > a.alpha, x, number(0, x)),
        lambda a, x: np.where(x > a.alpha, x, 0),
        "ONNX ThresholdedRelu-22",
        "x where above alpha, else 0",
        exact=True,
        attributes=(Attribute("alpha", 1.0, "threshold"),),
    ),
    _Row("softplus", lambda a, x: _softplus(x), lambda a, x: _np_softplus(x), "ONNX Softplus-22", "log(1 + exp(x))"),
    _Row(
        "softsign",
        lambda a, x: x / (te.abs(x) + 1.0),
        lambda a, x: x / (1 + np.abs(x)),
        "ONNX Softsign-22",
        "x / (1 + |x|)",
    ),
    _Row(
        "silu",
        lambda a, x: x * te.sigmoid(x),
        lambda a, x: x / (1 + np.exp(-x)),
        "ONNX Swish-24",
        "x · sigmoid(x)",
    ),
    _Row(
        "gelu",
        _in_single(_gelu),
        _np_gelu,
        "ONNX Gelu-20",
        "x · P(X ≤ x) for a standard normal X; approximate is none (by erf) or tanh",
        attributes=(Attribute("approximate", "none", "none or tanh"),),
        variants=({}, {"approximate": "tanh"}),
    ),
    _Row(
        "hard_sigmoid",
        _in_single(lambda a, x: _unit_clamp(x * a.alpha + a.beta)),
        lambda a, x: _np_unit_clamp(x * x.dtype.type(a.alpha) + x.dtype.type(a.beta)),
        "ONNX HardSigmoid-22",
        "max(0, min(1, alpha·x + beta))",
        attributes=(Attribute("alpha", 0.2, "slope"), Attribute("beta", 0.5, "offset")),
        variants=({}, {"alpha": 0.5, "beta": 0.25}),
    ),
    _Row(
        "hard_swish",
        _in_single(lambda a, x: x * _unit_clamp(x * (1 / 6) + 0.5)),
        lambda a, x: x * _np_unit_clamp(x * x.dtype.type(1 / 6) + x.dtype.type(0.5)),
        "ONNX HardSwish-22",
        "x · max(0, min(1, x / 6 + 1/2))",
        low=-4.0,
        high=4.0,
    ),
    _Row(
        "mish",
        lambda a, x: x * te.tanh(_softplus(x)),
        lambda a, x: x * np.tanh(_np_softplus(x)),
        "ONNX Mish-22",
        "x · tanh(softplus(x))",
    ),
)


def _clip(attrs: Attrs, x: Expr) -> Expr:
    if attrs.min is not None:
        x = maximum(x, number(attrs.min, x))
    if attrs.max is not None:
        x = minimum(x, number(attrs.max, x))
    return x


def _np_clip(attrs: Attrs, x: Any) -> Any:
    if attrs.min is not None:
        x = np.maximum(x, x.dtype.type(attrs.min))
    return x if attrs.max is None else np.minimum(x, x.dtype.type(attrs.max))


def _cast(attrs: Attrs, x: Expr) -> Expr:
    if DType(attrs.to) == BOOL and x.dtype != BOOL:
        return make("ne", x, number(0, x))
    return te.cast(x, attrs.to)


OTHERS = (
    _Row(
        "clip",
        _clip,
        _np_clip,
        "ONNX Clip-13",
        "x limited to min … max; None leaves a side open",
        exact=True,
        kinds=NUMBER,
        attributes=(Attribute("min", None, "lower bound"), Attribute("max", None, "upper bound")),
        variants=({"min": -1, "max": 1}, {"min": 0}, {"max": 1}),
    ),
    _Row(
        "cast",
        _cast,
        lambda a, x: np.asarray(convert(x, DType(a.to))),
        "ONNX Cast-21",
        "x in another dtype: floats truncate toward zero into integers; anything but 0 is true",
        kinds=ANY,
        attributes=(Attribute("to", REQUIRED, "the dtype of the result"),),
        result=lambda a, d: DType(a.to),
        variants=({"to": "float32"}, {"to": "int64"}, {"to": "bool"}, {"to": "float16"}),
    ),
)

UNARY: tuple[OpDef, ...] = tuple(row.define() for row in (*MATHEMATICS, *ACTIVATIONS, *OTHERS))
