"""Recipes of operators that work element by element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.operators.notation import FLOATS, INTEGERS, Made, Make, Maker, Recipe, node

RANKS = (1, 2, 4)
_CODES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11}
_UNARY = (
    ("Abs Ceil Floor Neg Relu Round Sign Sigmoid Tanh Softsign Softplus Erf HardSwish Mish", -3.0, 3.0),
    ("Atan Asinh Cos Sin Cosh Sinh Tan Exp Elu Celu Selu LeakyRelu HardSigmoid ThresholdedRelu Shrink", -3.0, 3.0),
    ("Gelu Swish IsInf IsNaN Identity", -3.0, 3.0),
    ("Acos Asin Atanh", -0.99, 0.99),
    ("Acosh", 1.0, 4.0),
    ("Log Sqrt Reciprocal", 0.25, 4.0),
)


def _every(rank: int) -> tuple[int, ...]:
    return tuple(range(rank))


def unary(op: str, low: float, high: float, **attrs: Any) -> Make:
    return lambda m: node(op, {"x": m.x(*m.dims(), low=low, high=high)}, open=_every(m.rank), **attrs)


def same(op: str, low: float = -2.0, **attrs: Any) -> Make:
    """Two operands of one shape."""

    def make(m: Maker) -> Made:
        dims = m.dims()
        return node(op, {"a": m.x(*dims), "b": m.x(*dims, low=low)}, open=_every(m.rank), **attrs)

    return make


def by_row(op: str, low: float = -2.0, **attrs: Any) -> Make:
    """The second operand has the last axis only."""

    def make(m: Maker) -> Made:
        dims = m.dims()
        return node(op, {"a": m.x(*dims)}, {"b": m.x(dims[-1], low=low)}, **attrs)

    return make


def by_column(op: str, low: float = -2.0, **attrs: Any) -> Make:
    """The second operand has all axes but the last one."""

    def make(m: Maker) -> Made:
        dims = m.dims()
        return node(op, {"a": m.x(*dims), "b": m.x(*dims[:-1], 1, low=low)}, open=_every(m.rank - 1), **attrs)

    return make


def by_number(op: str, value: float) -> Make:
    def make(m: Maker) -> Made:
        return node(op, {"a": m.x(*m.dims())}, {"b": np.array(value, m.dtype)}, open=_every(m.rank))

    return make


def several(op: str) -> Make:
    def make(m: Maker) -> Made:
        dims = m.dims()
        return node(op, {k: m.x(*dims) for k in "abc"}, open=_every(m.rank))

    return make


def clip(m: Maker) -> Made:
    low, high = (0, 1) if m.dtype == "uint8" else (-1, 1)
    bounds = {"low": np.array(low, m.dtype), "high": np.array(high, m.dtype)}
    return node("Clip", {"x": m.x(*m.dims())}, bounds, open=_every(m.rank))


def where(m: Maker) -> Made:
    dims = m.dims()
    inputs = {"c": m.x(*dims, dtype="bool"), "a": m.x(*dims), "b": m.x(*dims)}
    return node("Where", inputs, open=_every(m.rank))


def masked(m: Maker) -> Made:
    """A mask of the last axes, a number elsewhere: as in attention."""
    dims = m.dims()
    inputs = {"c": m.x(*dims[-2:], dtype="bool"), "a": m.x(*dims)}
    return node("Where", inputs, {"b": np.array(-1e4, m.dtype)}, open=())


def prelu(m: Maker) -> Made:
    c, h, w = m.image()
    return node("PRelu", {"x": m.x(1, c, h, w)}, {"slope": m.x(c, 1, 1)}, open=(0, 2, 3))


def cast(target: str) -> Make:
    def make(m: Maker) -> Made | None:
        if m.dtype == target:
            return None
        return node("Cast", {"x": m.x(*m.dims(), low=0, high=3)}, open=_every(m.rank), to=_CODES[target])

    return make


def cast_like(m: Maker) -> Made:
    return node("CastLike", {"x": m.x(*m.dims(), low=0, high=3)}, {"t": np.zeros(1, np.int32)}, open=_every(m.rank))


def bit_cast(m: Maker) -> Made:
    return node("BitCast", {"x": m.x(*m.dims())}, open=_every(m.rank), to=_CODES["int32"])


def shifted(direction: str) -> Make:
    def make(m: Maker) -> Made:
        dims = m.dims()
        inputs = {"a": m.x(*dims, low=0, high=100), "b": m.x(*dims, low=0, high=3)}
        return node("BitShift", inputs, open=_every(m.rank), direction=direction)

    return make


def _scales(m: Maker, count: int = 0) -> dict[str, Any]:
    shape = (count,) if count else ()
    return {"scale": np.full(shape, 0.05, np.float32), "zero": np.full(shape, 3, np.int8)}


def quantize(m: Maker) -> Made:
    return node("QuantizeLinear", {"x": m.x(*m.dims())}, _scales(m), open=_every(m.rank))


def quantize_rows(m: Maker) -> Made:
    dims = m.dims()
    return node("QuantizeLinear", {"x": m.x(*dims)}, _scales(m, dims[-1]), axis=m.rank - 1)


def dequantize(m: Maker) -> Made:
    return node("DequantizeLinear", {"x": m.x(*m.dims(), high=100, dtype="int8")}, _scales(m), open=_every(m.rank))


def dequantize_rows(m: Maker) -> Made:
    dims = m.dims()
    return node("DequantizeLinear", {"x": m.x(*dims, dtype="int8")}, _scales(m, dims[-1]), axis=m.rank - 1)


def dynamic_quantize(m: Maker) -> Made:
    return node("DynamicQuantizeLinear", {"x": m.x(*m.dims())}, outputs=("y", "scale", "zero"), open=_every(m.rank))


def recipes() -> Iterator[Recipe]:
    for names, low, high in _UNARY:
        for op in names.split():
            dtypes = (
                (*FLOATS, "int32") if op in ("Abs", "Neg", "Sign", "Relu") else FLOATS[:1] if op[0] == "I" else FLOATS
            )
            yield Recipe(op, "", unary(op, low, high), RANKS, dtypes)
    yield Recipe("Gelu", "tanh", unary("Gelu", -3, 3, approximate="tanh"), RANKS, FLOATS)
    for op in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mod"):
        low = 1.0 if op in ("Div", "Mod") else 0.0 if op == "Pow" else -2.0
        attrs = {"fmod": 1} if op == "Mod" else {}
        dtypes = FLOATS[:1] if op in ("Pow", "Mod") else (*FLOATS, *INTEGERS)
        forms = (("", same), ("by row", by_row), ("by column", by_column))
        for variant, form in forms:
            yield Recipe(op, variant, form(op, low, **attrs), RANKS if not variant else (2, 4), dtypes)
    for value in (0.5, 2.0, 3.0, -1.0, 0.3):
        yield Recipe("Pow", f"of {value:g}", by_number("Pow", value), (1, 2))
    yield Recipe("Mod", "integers", same("Mod", 1.0), RANKS, ("int32", "int64", "uint8"))
    yield Recipe("Mod", "by 7", by_number("Mod", 7), (1, 2), ("int32", "int64"))
    yield Recipe("Div", "by 7", by_number("Div", 7), (1, 2), ("int32", "int64", "float32"))
    for op in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"):
        yield Recipe(op, "", same(op), RANKS, ("float32", "int64", "int32"))
    for op in ("And", "Or", "Xor"):
        yield Recipe(op, "", same(op), RANKS, ("bool",))
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield Recipe(op, "", same(op), RANKS, ("int32", "uint8"))
    yield Recipe("Not", "", unary("Not", 0, 1), RANKS, ("bool",))
    yield Recipe("BitwiseNot", "", unary("BitwiseNot", 0, 9), RANKS, ("int32", "uint8"))
    yield Recipe("Dropout", "inference", unary("Dropout", -2, 2), (2,))
    for op in ("Sum", "Mean"):
        yield Recipe(op, "three", several(op), RANKS)
    for direction in ("LEFT", "RIGHT"):
        yield Recipe("BitShift", direction.lower(), shifted(direction), (1, 2), ("uint8", "uint32", "uint64"))
    yield Recipe("Clip", "", clip, RANKS, (*FLOATS, "int32", "uint8"))
    yield Recipe("Where", "", where, RANKS, ("float32", "int64", "uint8"))
    yield Recipe("Where", "mask", masked, (4,))
    yield Recipe("PRelu", "channels", prelu)
    for target in _CODES:
        yield Recipe("Cast", f"to {target}", cast(target), (1, 4), tuple(_CODES))
    yield Recipe("CastLike", "", cast_like, (2,))
    yield Recipe("BitCast", "", bit_cast, (2,))
    for make in (quantize, quantize_rows, dequantize, dequantize_rows):
        op = "QuantizeLinear" if make in (quantize, quantize_rows) else "DequantizeLinear"
        yield Recipe(op, "by row" if "rows" in make.__name__ else "", make, (2, 4))
    yield Recipe("DynamicQuantizeLinear", "", dynamic_quantize, (2, 4))
