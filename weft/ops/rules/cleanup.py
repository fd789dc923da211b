"""Removes operators without effect, replaces chains by one operator, and arithmetic by equal but cheaper arithmetic.

All rules are exact, signs of zeros included, but for these, which change floats of 32 bits and more by rounding:
``multiply-twice`` and ``cube`` (1 unit in the last place). Divisions become products only where the divisor is a power
of two: values that quantization rounds to integers often lie halfway between two integers, and the last place decides.
Adding +0.0 is kept: it turns -0.0 into +0.0. Powers of 1/2 become roots only where the base is known not to be
negative: the power of minus infinity is infinity, its root NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.graph.nodes import Call, Constant, GraphExpr, call
from weft.graph.operator import Operator
from weft.graph.pattern import GraphMatch, GraphRule, anything, constant, op
from weft.ops.catalogue import op as operator
from weft.ops.rules.parts import (
    ADD,
    CAST,
    CLIP,
    DIV,
    MAXIMUM,
    MINIMUM,
    MUL,
    NEG,
    POW,
    RECIPROCAL,
    RELU,
    RSQRT,
    SQRT,
    SUB,
    WHERE,
    Array,
    attrs_of,
    fold,
    is_float,
    same_type,
    scalar,
)
from weft.support.dtypes import DType

_x, _y = anything("x"), anything("y")
_c, _d = constant("c"), constant("d")


def keep_x(m: GraphMatch) -> GraphExpr | None:
    """The operand ``x`` itself, if it has the type of the matched expression."""
    return same_type(m.x, m.root)


# Arithmetic.


def _normal(values: Array) -> bool:
    """Whether all values are finite and neither 0 nor denormal."""
    info = np.finfo(values.dtype) if values.dtype.kind == "f" else None
    magnitude = np.abs(values.astype(np.float64))
    return info is not None and bool(np.all((magnitude >= float(info.tiny)) & (magnitude <= float(info.max))))


def _reciprocal(m: GraphMatch) -> GraphExpr | None:
    """x / c → x · (1 / c) if that is exact: all elements of c are powers of two."""
    c = m.c.data
    if not _normal(c):
        return None
    with np.errstate(all="ignore"):
        inverse = (1.0 / c.astype(np.float64)).astype(c.dtype)
    exact = bool(np.all(np.frexp(c.astype(np.float64))[0] == 0.5 * np.sign(c)))
    if not (exact and _normal(inverse)):
        return None
    return call(MUL, [m.x, Constant(inverse, m.c.origin)])


def _negated_term(m: GraphMatch) -> GraphExpr | None:
    if m.root.tensor.dtype.kind not in ("float", "int"):
        return None
    return call(ADD, [m.x, fold(NEG, [m.c])])


def _integers(m: GraphMatch) -> bool:
    return m.root.tensor.dtype.kind in ("int", "uint")


def _joined(target: Operator) -> Callable[[GraphMatch], GraphExpr | None]:
    """(x ∘ c) ∘ d → x ∘ (c ∘ d)."""

    def build(m: GraphMatch) -> GraphExpr | None:
        return same_type(call(target, [m.x, fold(target, [m.c, m.d])]), m.root)

    return build


def _multiply_twice(m: GraphMatch) -> GraphExpr | None:
    factor = fold(MUL, [m.c, m.d])
    if not isinstance(factor, Constant) or not all(_normal(v) for v in (m.c.data, m.d.data, factor.data)):
        return None
    return same_type(call(MUL, [m.x, factor]), m.root) if m.c.data.size == 1 == m.d.data.size else None


def _squared(m: GraphMatch) -> GraphExpr | None:
    return same_type(call(MUL, [m.x, m.x]), m.root) if is_float(m.x) else None


def _cubed(m: GraphMatch) -> GraphExpr | None:
    return same_type(call(MUL, [call(MUL, [m.x, m.x]), m.x]), m.root) if is_float(m.x, wide=True) else None


def _power(target: Operator) -> Callable[[GraphMatch], GraphExpr | None]:
    return lambda m: same_type(call(target, [m.x]), m.root) if is_float(m.x) else None


_POSITIVE = tuple(operator(name) for name in ("exp", "sigmoid", "reduce_sum_square", "reduce_l2", "reduce_l1", "abs"))
_KEEPING = tuple(operator(name) for name in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "sqrt", "cast"))


def never_negative(e: GraphExpr, depth: int = 6) -> bool:
    """Whether no element is negative or -0.0 (NaN is possible)."""
    if isinstance(e, Constant):
        return not bool(np.any(np.signbit(e.data))) if e.data.dtype.kind == "f" else bool(np.all(e.data >= 0))
    if not isinstance(e, Call) or depth == 0:
        return False
    if e.target in _POSITIVE:
        return True
    if e.target in _KEEPING or (e.target in (ADD, DIV, MUL, MAXIMUM) and e.args[0] is not e.args[-1]):
        return all(never_negative(a, depth - 1) for a in e.args)
    return e.target is MUL and e.args[0] is e.args[1] and is_float(e)


def _of_positive(target: Operator) -> Callable[[GraphMatch], GraphExpr | None]:
    build = _power(target)
    return lambda m: build(m) if never_negative(m.x) else None


ARITHMETIC_RULES: tuple[GraphRule, ...] = (
    GraphRule("multiply-by-one", op(MUL, _x, constant(value=1)), keep_x),
    GraphRule("divide-by-one", op(DIV, _x, constant(value=1)), keep_x),
    GraphRule("add-zero", op(ADD, _x, constant(test=lambda c: _no_term(c, True))), keep_x),
    GraphRule("subtract-zero", op(SUB, _x, constant(test=lambda c: _no_term(c, False))), keep_x),
    GraphRule("negate-twice", op(NEG, op(NEG, _x)), keep_x),
    GraphRule("add-negative", op(ADD, _x, op(NEG, _y)), lambda m: call(SUB, [m.x, m.y])),
    GraphRule("subtract-negative", op(SUB, _x, op(NEG, _y)), lambda m: call(ADD, [m.x, m.y])),
    GraphRule("subtract-constant", op(SUB, _x, _c), _negated_term),
    GraphRule("divide-by-constant", op(DIV, _x, _c), _reciprocal, lambda m: is_float(m.root)),
    GraphRule("add-twice", op(ADD, op(ADD, _x, _c), _d), _joined(ADD), _integers),
    GraphRule("multiply-integers-twice", op(MUL, op(MUL, _x, _c), _d), _joined(MUL), _integers),
    GraphRule(
        "multiply-twice",
        op(MUL, op(MUL, _x, _c, once=True), _d),
        _multiply_twice,
        lambda m: is_float(m.root, wide=True),
    ),
    GraphRule("first-power", op(POW, _x, constant(value=1)), keep_x),
    GraphRule("square", op(POW, _x, constant(value=2)), _squared),
    GraphRule("cube", op(POW, _x, constant(value=3)), _cubed),
    GraphRule("power-of-minus-one", op(POW, _x, constant(value=-1)), _power(RECIPROCAL)),
    GraphRule("power-of-a-half", op(POW, _x, constant(value=0.5)), _of_positive(SQRT)),
    GraphRule("power-of-minus-a-half", op(POW, _x, constant(value=-0.5)), _of_positive(RSQRT)),
)


def _no_term(c: Array, added: bool) -> bool:
    """Whether adding (or subtracting) ``c`` changes nothing, not even the sign of zeros."""
    zero = c.size > 0 and bool(np.all(c == 0))
    return zero and (c.dtype.kind in "iu" or (c.dtype.kind == "f" and bool(np.all(np.signbit(c) == added))))


# Limits.


def _clip(m: GraphMatch, low: float | None, high: float | None) -> GraphExpr | None:
    if low == 0 and high is None:
        return same_type(call(RELU, [m.x]), m.root)
    return same_type(call(CLIP, [m.x], {"min": low, "max": high}), m.root)


def _limits(e: Call) -> tuple[float, float]:
    """Bounds of a clip or relu; infinities where there are none."""
    if e.target is RELU:
        return 0.0, np.inf
    low, high = e.attrs.min, e.attrs.max
    return -np.inf if low is None else low, np.inf if high is None else high


def _merge_limits(m: GraphMatch) -> GraphExpr | None:
    (a, b), (c, d) = _limits(m.inner), _limits(m.call)
    if a > b or c > d:
        return None
    low, high = min(max(a, c), d), min(max(b, c), d)
    if np.isinf(low) and np.isinf(high):
        return None
    return _clip(m, None if low == -np.inf else low, None if high == np.inf else high)


def _limit(e: GraphExpr, x: GraphExpr) -> Any:
    """The value of a constant that can be a bound of a clip of ``x``."""
    value = scalar(e)
    return None if value is None or np.isnan(value) or np.isinf(value) else value


def _upper(m: GraphMatch) -> GraphExpr | None:
    value = _limit(m.c, m.x)
    return None if value is None else _clip(m, None, value)


def _lower(m: GraphMatch) -> GraphExpr | None:
    value = _limit(m.c, m.x)
    return None if value is None else _clip(m, value, None)


def _clip_to_relu(m: GraphMatch) -> GraphExpr | None:
    return same_type(call(RELU, [m.x]), m.root)


LIMIT_RULES: tuple[GraphRule, ...] = (
    GraphRule("no-limits", op(CLIP, _x, attrs={"min": None, "max": None}), keep_x),
    GraphRule("clip-at-zero", op(CLIP, _x, attrs=lambda a: a.max is None and a.min == 0), _clip_to_relu),
    GraphRule("clip-twice", op((CLIP, RELU), op((CLIP, RELU), _x, name="inner")), _merge_limits),
    GraphRule("minimum-with-constant", op(MINIMUM, _x, _c), _upper),
    GraphRule("maximum-with-constant", op(MAXIMUM, _x, _c), _lower),
)


# Casts, choices, marks.


_WITHOUT_ZERO = DType("float8_e8m0fnu")


def _lossless(source: DType, target: DType) -> bool:
    """Whether every value of ``source`` is one of ``target``."""
    if source == target:
        return True
    if source.kind == "bool":  # 0 and 1
        if target.is_integer:
            return target.kind == "uint" or target.bits > 1  # one signed bit holds 0 and -1
        return target.is_float and target != _WITHOUT_ZERO
    if (source.kind == "int" and target.kind == "int") or (source.kind == "uint" and target.kind == "uint"):
        return source.bits <= target.bits
    if source.kind == "uint" and target.kind == "int":
        return source.bits < target.bits
    if source.is_float and target.is_float:
        return target == DType("float64") or (target == DType("float32") and source.bits <= 16)
    mantissa = {"float32": 24, "float64": 53, "float16": 11}.get(str(target), 0)
    return source.kind in ("int", "uint") and source.bits <= mantissa


def _cast_twice(m: GraphMatch) -> GraphExpr | None:
    inner: Call = m.inner
    if not _lossless(m.x.tensor.dtype, inner.tensor.dtype):
        return None
    return same_type(call(CAST, [m.x], attrs_of(m, "outer")), m.root)


def _chosen(m: GraphMatch) -> GraphExpr | None:
    condition = m.c.data
    if condition.size and bool(np.all(condition)):
        return same_type(m.x, m.root)
    return same_type(m.y, m.root) if condition.size and not bool(np.any(condition)) else None


_NOT = operator("logical_not")

OTHER_RULES: tuple[GraphRule, ...] = (
    GraphRule("identity", op((operator("identity"), operator("dropout")), _x), keep_x),
    GraphRule("cast-to-itself", op(CAST, _x), keep_x),
    GraphRule("cast-twice", op(CAST, op(CAST, _x, name="inner"), name="outer"), _cast_twice),
    GraphRule("known-choice", op(WHERE, _c, _x, _y), _chosen),
    GraphRule("equal-choices", op(WHERE, anything(), _x, _x), keep_x),
    GraphRule("and-true", op(operator("logical_and"), _x, constant(value=1)), keep_x),
    GraphRule("or-false", op(operator("logical_or"), _x, constant(value=0)), keep_x),
    GraphRule("not-twice", op(_NOT, op(_NOT, _x)), keep_x),
)

CLEANUP_RULES: tuple[GraphRule, ...] = (*OTHER_RULES, *LIMIT_RULES, *ARITHMETIC_RULES)
"""Rules on element-wise operators."""
