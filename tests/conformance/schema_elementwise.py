"""Recipes for single nodes: operators that work element by element, and casts."""

from __future__ import annotations

from typing import Any

import numpy as np
from schema_cases import DTYPES, Made, Maker, Recipe, code_of


def one(low: float = -3, high: float = 3, **attrs: Any) -> Recipe:
    """One operand; attributes only where the version has them."""
    return lambda m: ([m.x(0, 2, 3, 5, low=low, high=high)], given(m, attrs))


def given(m: Maker, attrs: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in attrs.items() if k.startswith("_") or m.known(k)}


def needing(name: str, recipe: Recipe) -> Recipe:
    """Only for versions that have the attribute."""
    return lambda m: recipe(m) if m.known(name) else None


def two(low: float = -3, high: float = 3, low2: float | None = None) -> list[Recipe]:
    """Two operands of one shape, and broadcast as the version allows it."""
    second = low if low2 is None else low2

    def same(m: Maker) -> Made:
        return [m.x(0, 3, 5, low=low, high=high), m.x(1, 3, 5, low=second, high=high)], {}

    def broadcast(m: Maker) -> Made:
        x = m.x(0, 2, 3, 4, low=low, high=high)
        if m.known("axis"):
            return [x, m.x(1, 3, low=second, high=high)], {"broadcast": 1, "axis": 1}
        if m.known("broadcast"):
            return [x, m.x(1, 3, 4, low=second, high=high)], {"broadcast": 1}
        return [x, m.x(1, 3, 1, low=second, high=high)], {}

    def empty(m: Maker) -> Made:
        return [m.x(0, 0, 5, low=low, high=high), m.x(1, 0, 5, low=second, high=high)], {}

    return [same, broadcast, empty]


def several(m: Maker) -> Made:
    shapes = ((2, 3), (2, 3), (2, 3)) if m.version < 8 else ((2, 3), (3,), (2, 1))
    return [m.x(0, *s) for s in shapes], {}


def single(m: Maker) -> Made:
    return [m.x(0, 2, 3)], {}


def specials(m: Maker) -> Made | None:
    """Infinities, NaN, zeros of both signs, the largest and smallest numbers."""
    dtype = m.dtype(0)
    if dtype.name not in ("float16", "bfloat16", "float32", "float64"):
        return None
    tiny = float(np.nextafter(dtype.type(0), dtype.type(1)))
    values = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, -2.5, 1e4, -1e4, tiny, -tiny, 88.0, -88.0]
    return [m.of(0, values)], {}


def special_pairs(m: Maker) -> Made | None:
    made = specials(m)
    if made is None or m.known("broadcast"):
        return None
    (values,) = made[0]
    assert values is not None
    return [values[:, None], m.of(1, np.asarray(values, np.float64)[:11])[None]], {}


def integer_pairs(m: Maker) -> Made | None:
    """Extremes of whole numbers; nothing is divided by zero, and the lowest number not by -1."""
    if m.dtype(0).kind not in "iu" or m.known("broadcast"):
        return None
    limits = np.iinfo(m.dtype(0))
    values = np.array([limits.min, limits.max, limits.max - 1, 0, 1, 7], dtype=object)
    others = np.array([limits.max, 1, 2, 3, 7], dtype=object)
    return [m.of(0, values)[:, None], m.of(1, others)[None]], {}


def clip(m: Maker) -> Made:
    x = m.x(0, 4, 5)
    if m.known("min"):
        return [x], {"min": -1.0, "max": 1.5}
    return [x, m.of(1, 1 if m.dtype(0).kind == "u" else -1), m.of(2, 2)], {}


def clip_half(m: Maker) -> Made:
    x = m.x(0, 4, 5)
    return ([x], {"max": 1.5}) if m.known("min") else ([x, None, m.of(2, 1)], {})


def power(m: Maker) -> Made:
    return [m.x(0, 3, 4, low=0, high=4), m.x(1, 3, 4, low=0, high=3)], {}


def shifts(direction: str) -> Recipe:
    return lambda m: ([m.x(0, 4, 5, high=9), m.x(1, 4, 5, low=0, high=7)], {"direction": direction})


def shift_far(direction: str) -> Recipe:
    def make(m: Maker) -> Made | None:
        if m.dtype(0).kind == "i":
            return None
        bits = m.dtype(0).itemsize * 8
        return [m.of(0, [np.iinfo(m.dtype(0)).max] * 4), m.of(1, [0, 1, bits - 1, bits // 2])], {"direction": direction}

    return make


def cast_to(name: str, saturate: int | None = None) -> Recipe:
    def make(m: Maker) -> Made | None:
        target = next(c for c in m.schema.type_constraints if c.type_param_str == "T2")
        if name not in target.allowed_type_strs:
            return None
        kind = DTYPES[name]
        code: Any = code_of(kind)
        if m.version < 6:
            code = name[len("tensor(") : -1].upper()
        attrs = {"to": code, "_result": kind}
        if saturate is not None:
            if not m.known("saturate") or "float8" not in name:
                return None
            attrs["saturate"] = saturate
        source = m.dtype(0)
        if saturate is not None and source.name in ("float32", "float16", "bfloat16"):
            return [m.of(0, [500, -500, 448, 464, 465, 240, 248, 6e4, -6e4, np.inf, -np.inf, np.nan, 0.0, -0.0])], attrs
        low = 0 if kind.name in ("uint2", "uint4") or kind.kind == "u" or source.name == "float8_e8m0fnu" else -2
        return [m.x(0, 3, 7, low=low, high=1 if kind.name.endswith("int2") else 3)], attrs

    return make


def cast_like(m: Maker) -> Made:
    return [m.x(0, 3, 5, low=0, high=1), m.x(1, 1)], {"_result": m.dtype(1)}


def bit_cast(m: Maker) -> Made | None:
    sizes = {1: "tensor(uint8)", 2: "tensor(int16)", 4: "tensor(uint32)", 8: "tensor(int64)"}
    few = {"int4": "uint4", "uint4": "int4", "float4_e2m1fn": "uint4", "int2": "uint2", "uint2": "int2"}
    kind = DTYPES[f"tensor({few[name]})" if (name := m.dtype(0).name) in few else sizes[m.dtype(0).itemsize]]
    return [m.x(0, 3, 5)], {"to": code_of(kind), "_result": kind}


def where(m: Maker) -> Made:
    return [m.x(0, 2, 1, 3), m.x(1, 2, 4, 3), m.x(2, 4, 1)], {}


def prelu(m: Maker) -> Made:
    return [m.x(0, 2, 3, 4), m.x(1, 3) if m.version < 7 else m.x(1, 3, 1)], {}


UNARY = {
    name: [one(low, high), specials]
    for names, low, high in (
        ("Abs Ceil Floor Neg Relu Round Sign Sigmoid Tanh Softsign Softplus Erf HardSwish Mish", -3.0, 3.0),
        ("Atan Asinh Cos Sin Cosh Sinh Tan Exp", -3.0, 3.0),
        ("Acos Asin Atanh", -1.0, 1.0),
        ("Acosh", 1.0, 4.0),
        ("Log Sqrt Reciprocal", 0.25, 4.0),
    )
    for name in names.split()
}
ARITHMETIC = {
    "Add": two(),
    "Sub": two(low=0, high=3),
    "Mul": two(),
    "Div": two(low=1),
    "Pow": [power],
    "Mod": [*two(low2=1)],
    **{name: [*two(), special_pairs, integer_pairs] for name in ("Equal", "Greater", "Less")},
    **{name: [*two(), special_pairs, integer_pairs] for name in ("GreaterOrEqual", "LessOrEqual")},
    **{name: two() for name in ("And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor")},
}
ARITHMETIC["Add"] += [special_pairs, integer_pairs]
ARITHMETIC["Mul"] += [special_pairs, integer_pairs]
ARITHMETIC["Div"] += [integer_pairs]
ARITHMETIC["Mod"] += [needing("fmod", lambda m: ([m.x(0, 4, 5), m.x(1, 4, 5, low=1)], {"fmod": 1})), integer_pairs]
CAST_KINDS = tuple(DTYPES)

ELEMENTWISE: dict[str, list[Recipe]] = {
    **UNARY,
    **ARITHMETIC,
    **{name: [several, single] for name in ("Max", "Min", "Sum", "Mean")},
    "Not": [one()],
    "BitwiseNot": [one()],
    "BitShift": [shifts("LEFT"), shifts("RIGHT"), shift_far("LEFT"), shift_far("RIGHT")],
    "Elu": [one(), one(alpha=0.5)],
    "Celu": [one(), one(alpha=0.5)],
    "Selu": [one(), one(alpha=1.5, gamma=0.5)],
    "Gelu": [one(), one(approximate="tanh")],
    "Swish": [one(), one(alpha=0.5)],
    "SwiGLU": [*two()[:1], lambda m: ([m.x(0, 3, 4), m.x(1, 3, 4)], {"alpha": 0.5})],
    "LeakyRelu": [one(), one(alpha=0.3)],
    "HardSigmoid": [one(), one(alpha=0.3, beta=0.4)],
    "ThresholdedRelu": [one(), one(alpha=0.5)],
    "Shrink": [one(), one(bias=0.5, lambd=1.0)],
    "PRelu": [prelu],
    "Clip": [clip, clip_half],
    "IsInf": [one(), specials, lambda m: ([specials(m)[0][0]], {"detect_negative": 0}) if specials(m) else None],
    "IsNaN": [one(), specials],
    "Cast": [*(cast_to(n) for n in CAST_KINDS), *(cast_to(n, 0) for n in CAST_KINDS if "float8" in n)],
    "CastLike": [cast_like],
    "BitCast": [bit_cast],
    "Where": [where],
    "Dropout": [one(), one(is_test=1)],
}
