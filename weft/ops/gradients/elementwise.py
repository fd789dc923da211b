"""Derivatives of element-wise operators: what is multiplied with the adjoint, from operand ``x`` and result ``y``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.graph.operator import Attrs
from weft.ops.gradients.notation import T, Wide, fitted, full


def _sigmoid(x: T) -> T:
    return x.do("sigmoid")


def _gelu(x: T, a: Attrs) -> T:
    if a.approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        t = inner.do("tanh")
        slope = (x * x * (3 * 0.044715) + 1.0) * math.sqrt(2 / math.pi)
        return (t + 1.0) * 0.5 + x * 0.5 * (1.0 - t * t) * slope
    bell = (x * x * -0.5).do("exp") * (1 / math.sqrt(2 * math.pi))
    return ((x * (1 / math.sqrt(2))).do("erf") + 1.0) * 0.5 + x * bell


def _mish(x: T) -> T:
    t = x.do("softplus").do("tanh")
    return t + x * (1.0 - t * t) * _sigmoid(x)


def _ones(condition: T, like: T) -> T:
    """1 where the condition holds, else 0."""
    return condition.where(full(like, 1.0), 0.0)


def _clip(x: T, a: Attrs) -> T:
    inside = full(x, 1.0)
    if a.min is not None:
        inside = inside * _ones(x >= a.min, x)
    return inside if a.max is None else inside * _ones(x <= a.max, x)


SLOPES: dict[str, Callable[[T, T, Attrs], T]] = {
    "exp": lambda x, y, a: y,
    "log": lambda x, y, a: 1.0 / x,
    "sqrt": lambda x, y, a: 0.5 / y,
    "rsqrt": lambda x, y, a: y * y * y * -0.5,
    "sin": lambda x, y, a: x.do("cos"),
    "cos": lambda x, y, a: -x.do("sin"),
    "tan": lambda x, y, a: y * y + 1.0,
    "asin": lambda x, y, a: (1.0 - x * x).do("rsqrt"),
    "acos": lambda x, y, a: -(1.0 - x * x).do("rsqrt"),
    "atan": lambda x, y, a: 1.0 / (x * x + 1.0),
    "sinh": lambda x, y, a: x.do("cosh"),
    "cosh": lambda x, y, a: x.do("sinh"),
    "tanh": lambda x, y, a: 1.0 - y * y,
    "asinh": lambda x, y, a: (x * x + 1.0).do("rsqrt"),
    "acosh": lambda x, y, a: (x * x - 1.0).do("rsqrt"),
    "atanh": lambda x, y, a: 1.0 / (1.0 - x * x),
    "erf": lambda x, y, a: (-(x * x)).do("exp") * (2 / math.sqrt(math.pi)),
    "sigmoid": lambda x, y, a: y * (1.0 - y),
    "abs": lambda x, y, a: x.do("sign"),
    "neg": lambda x, y, a: full(x, -1.0),
    "reciprocal": lambda x, y, a: -(y * y),
    "identity": lambda x, y, a: full(x, 1.0),
    "dropout": lambda x, y, a: full(x, 1.0),
    "relu": lambda x, y, a: _ones(x > 0.0, x),
    "leaky_relu": lambda x, y, a: (x > 0.0).where(full(x, 1.0), a.alpha),
    "elu": lambda x, y, a: (x > 0.0).where(full(x, 1.0), x.do("exp") * a.alpha),
    "selu": lambda x, y, a: (x > 0.0).where(full(x, a.gamma), x.do("exp") * (a.alpha * a.gamma)),
    "celu": lambda x, y, a: (x > 0.0).where(full(x, 1.0), (x * (1 / a.alpha)).do("exp")),
    "thresholded_relu": lambda x, y, a: _ones(x > a.alpha, x),
    "softplus": lambda x, y, a: _sigmoid(x),
    "softsign": lambda x, y, a: 1.0 / ((x.do("abs") + 1.0) * (x.do("abs") + 1.0)),
    "silu": lambda x, y, a: _sigmoid(x) * (x * (1.0 - _sigmoid(x)) + 1.0),
    "gelu": lambda x, y, a: _gelu(x, a),
    "hard_sigmoid": lambda x, y, a: _ones(y > 0.0, x) * _ones(y < 1.0, x) * a.alpha,
    "hard_swish": lambda x, y, a: (x > 3.0).where(full(x, 1.0), _ones(x > -3.0, x) * (x * (1 / 3) + 0.5)),
    "mish": lambda x, y, a: _mish(x),
    "clip": lambda x, y, a: _clip(x, a),
}
"""Of operators with one operand: the derivative of the result by the operand."""

FLAT = frozenset(["floor", "ceil", "trunc", "round", "sign"])
"""Operators whose derivative is 0 wherever there is one."""


def sloped(slope: Callable[[T, T, Attrs], T]) -> Wide:
    """The rule of a slope."""
    return lambda a, args, given, call: [_g(given) * slope(args[0], T(call), a)]


def _g(given: list[T | None]) -> T:
    assert given[0] is not None
    return given[0]


def _cast(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    dtype = args[0].t.dtype
    return [_g(given).to(dtype) if dtype.is_float else None]


def _pow(g: T, x: T, y: T, result: T) -> tuple[T, T]:
    y = y.to(x.t.dtype)
    positive = x > 0.0
    log = positive.where(positive.where(x, 1.0).do("log"), 0.0)
    return g * y * x.do("pow", y - 1.0), g * result * log


def _chosen(g: T, x: T, y: T, first: T, second: T) -> tuple[T, T]:
    """Equal operands share the adjoint."""
    tie = x.same(y).where(full(g, 0.5), 0.0)
    return g * (_ones(first, g) + tie), g * (_ones(second, g) + tie)


BINARY: dict[str, Callable[[T, T, T, T, Attrs], tuple[T, T]]] = {
    "add": lambda g, x, y, r, a: (g, g),
    "sub": lambda g, x, y, r, a: (g, -g),
    "mul": lambda g, x, y, r, a: (g * y, g * x),
    "div": lambda g, x, y, r, a: (g / y, -(g * r / y)),
    "maximum": lambda g, x, y, r, a: _chosen(g, x, y, x > y, y > x),
    "minimum": lambda g, x, y, r, a: _chosen(g, x, y, x < y, y < x),
    "mod": lambda g, x, y, r, a: (g, -(g * (x / y).do("trunc" if a.fmod else "floor"))),
    "pow": lambda g, x, y, r, a: _pow(g, x, y, r),
    "prelu": lambda g, x, y, r, a: ((x > 0.0).where(g, g * y), (x > 0.0).where(full(g, 0.0), g * x)),
}
"""Of operators with two operands: both adjoints before what was broadcast is summed."""


def paired(rule: Callable[[T, T, T, T, Attrs], tuple[T, T]]) -> Wide:
    """The rule of a pair."""

    def both(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
        made = rule(_g(given), args[0], args[1], T(call), a)
        return [fitted(g, x) if x.t.dtype.is_float else None for g, x in zip(made, args, strict=True)]

    return both


def _where(a: Attrs, args: list[T], given: list[T | None], call: Any) -> list[T | None]:
    g, condition = _g(given), args[0]
    zero = full(g, 0.0)
    yes, no = condition.do("where", g, zero), condition.do("where", zero, g)
    return [None, fitted(yes, args[1]), fitted(no, args[2])]


ELEMENTWISE: dict[str, Wide] = {
    **{name: sloped(slope) for name, slope in SLOPES.items()},
    **{name: (lambda a, args, given, call: [None]) for name in FLAT},
    **{name: paired(rule) for name, rule in BINARY.items()},
    "cast": _cast,
    "where": _where,
}
