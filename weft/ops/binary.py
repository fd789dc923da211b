"""Element-wise functions of several broadcast operands: arithmetic, comparisons, logic, selection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.folds import all_of, any_of
from weft.expr.nodes import Call, Expr, logical_not, make, select
from weft.graph.layout import follow_elementwise
from weft.graph.operator import Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import ANY, NUMBER, Array, binary_cases, elementwise, number, read, to_bool
from weft.support.dtypes import FLOAT64, DType


@dataclass(frozen=True, slots=True)
class _Row:
    """``scalar(a, b)`` and ``numpy(a, b)`` say the same of two elements and of two arrays."""

    name: str
    scalar: Callable[[Expr, Expr], Expr]
    numpy: Callable[[Any, Any], Any]
    source: str
    doc: str
    kinds: str = NUMBER
    result: Callable[[Attrs, DType], DType] | None = None
    low: float = -2.0
    high: float = 2.0

    def define(self) -> OpDef:
        return elementwise(
            self.name,
            lambda attrs, a, b: self.scalar(a, b),
            lambda attrs, a, b: self.numpy(a, b),
            operands=2,
            kinds=self.kinds,
            result=self.result,
            cases=binary_cases(self.kinds, self.low, self.high),
            doc=self.doc,
            source=self.source,
            commutative=self.name in _COMMUTATIVE,
        )


_COMMUTATIVE = frozenset(
    [
        "add",
        "mul",
        "maximum",
        "minimum",
        "equal",
        "not_equal",
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    ]
)


def _arithmetic(name: str, op: str, numpy: Callable[[Any, Any], Any], source: str, doc: str, **more: Any) -> _Row:
    """A row for an operator of scalar expressions."""
    return _Row(name, lambda a, b: make(op, a, b), numpy, source, doc, **more)


def _bits(name: str, intrinsic: str, numpy: Callable[[Any, Any], Any], source: str, doc: str) -> _Row:
    return _Row(name, lambda a, b: Call(intrinsic, (a, b), a.dtype), numpy, source, doc, "int uint")


_SHIFT_DOC = "bits of a moved by b places; by fewer than none or all of them: nothing is left but the sign to the right"


def _shift(intrinsic: str) -> Callable[[Expr, Expr], Expr]:
    """A shift that is defined for every amount."""

    def scalar(a: Expr, b: Expr) -> Expr:
        last = number(a.dtype.bits - 1, b)
        within = b <= last if b.dtype.kind == "uint" else te.all(b >= number(0, b), b <= last)
        shifted = Call(intrinsic, (a, select(within, b, number(0, b))), a.dtype)
        left = number(0, a)
        if intrinsic == "shr" and a.dtype.kind == "int":
            left = Call("shr", (a, number(a.dtype.bits - 1, a)), a.dtype)
        return select(within, shifted, left)

    return scalar


def _np_shift(shift: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def numpy(a: Array, b: Array) -> Any:
        bits = a.dtype.itemsize * 8
        within = (b >= 0) & (b < bits)
        left = np.where(a < 0, -1, 0).astype(a.dtype) if shift is np.right_shift else np.zeros_like(a)
        return np.where(within, shift(a, np.where(within, b, 0).astype(b.dtype)), left).astype(a.dtype)

    return numpy


def _divide(a: Expr, b: Expr) -> Expr:
    return a / b if a.dtype.is_float else te.truncdiv(a, b)


def _np_divide(a: Array, b: Array) -> Any:
    if a.dtype.kind not in "iu":
        return a / b
    a, b = np.broadcast_arrays(a, b)
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    quotient = np.floor_divide(a, safe)
    inexact = np.remainder(a, safe) != 0
    return np.where(inexact & ((a < 0) != (safe < 0)), quotient + 1, quotient)


ARITHMETIC = (
    _arithmetic("add", "add", np.add, "ONNX Add-14", "a + b"),
    _arithmetic("sub", "sub", np.subtract, "ONNX Sub-14", "a - b"),
    _arithmetic("mul", "mul", np.multiply, "ONNX Mul-14", "a · b"),
    _Row(
        "div",
        _divide,
        _np_divide,
        "ONNX Div-14",
        "a / b; integers round toward zero",
        low=0.5,
        high=3.0,
    ),
    _arithmetic("maximum", "max", np.maximum, "ONNX Max-13", "the larger; NaN if either is"),
    _arithmetic("minimum", "min", np.minimum, "ONNX Min-13", "the smaller; NaN if either is"),
)

COMPARISONS = tuple(
    _arithmetic(name, op, numpy, source, doc, kinds=kinds, result=to_bool)
    for name, op, numpy, source, doc, kinds in (
        ("equal", "eq", np.equal, "ONNX Equal-19", "whether a = b", ANY),
        ("not_equal", "ne", np.not_equal, "", "whether a ≠ b", ANY),
        ("less", "lt", np.less, "ONNX Less-13", "whether a < b", NUMBER),
        ("less_equal", "le", np.less_equal, "ONNX LessOrEqual-16", "whether a ≤ b", NUMBER),
        ("greater", "gt", np.greater, "ONNX Greater-13", "whether a > b", NUMBER),
        ("greater_equal", "ge", np.greater_equal, "ONNX GreaterOrEqual-16", "whether a ≥ b", NUMBER),
    )
)

LOGIC = (
    _arithmetic("logical_and", "and", np.logical_and, "ONNX And-7", "a and b", kinds="bool"),
    _arithmetic("logical_or", "or", np.logical_or, "ONNX Or-7", "a or b", kinds="bool"),
    _arithmetic("logical_xor", "ne", np.logical_xor, "ONNX Xor-7", "exactly one of a, b", kinds="bool"),
    _bits("bitwise_and", "bitand", np.bitwise_and, "ONNX BitwiseAnd-18", "bits set in both"),
    _bits("bitwise_or", "bitor", np.bitwise_or, "ONNX BitwiseOr-18", "bits set in either"),
    _bits("bitwise_xor", "bitxor", np.bitwise_xor, "ONNX BitwiseXor-18", "bits set in exactly one"),
    _Row("shift_left", _shift("shl"), _np_shift(np.left_shift), "ONNX BitShift-28 LEFT", _SHIFT_DOC, "int uint"),
    _Row("shift_right", _shift("shr"), _np_shift(np.right_shift), "ONNX BitShift-28 RIGHT", _SHIFT_DOC, "int uint"),
)


def _modulus(attrs: Attrs, a: Expr, b: Expr) -> Expr:
    return te.truncmod(a, b) if attrs.fmod else a % b


MODULUS = elementwise(
    "mod",
    _modulus,
    lambda attrs, a, b: np.fmod(a, b) if attrs.fmod else np.mod(a, b),
    operands=2,
    kinds=NUMBER,
    attributes=(Attribute("fmod", False, "whether the sign follows a (as C's fmod) rather than b"),),
    cases=(
        Case((np.array([-4, 7, 5, 4, -7, 8], np.int32), np.array([2, -3, 8, -2, 3, 5], np.int32)), {}),
        Case((np.array([-4, 7, 5, 4, -7, 8], np.int64), np.array([2, -3, 8, -2, 3, 5], np.int64)), {"fmod": True}),
        Case((np.array([-4.3, 7.2, 5.0], np.float32), np.array([2.1, -3.4, 8.0], np.float32)), {"fmod": True}),
    ),
    doc="what remains of a / b",
    source="ONNX Mod-13",
)


def _pow_infer(attrs: Attrs, *types: Type) -> TensorType:
    base, exponent = rel.tensors("pow", types, 2)
    rel.want_kind("pow", base, NUMBER, "the base")
    rel.want_kind("pow", exponent, NUMBER, "the exponent")
    return TensorType(rel.broadcast("pow", base.shape, exponent.shape), base.dtype)


_WHOLE_POWER_TOLERANCE = 2.0**-24
"""A computed power of whole numbers that is this close to a whole number means that number: the function that computes
powers has rounded it."""


def _whole_power(a: Expr, b: Expr) -> Expr:
    """a to the power b by squaring, wrapping around as products do, as an unsigned number of the width of a or a wider
    one (of the dtype of sizes, products would be multiplied out). For negative b the result is 0 unless a is 1 or -1;
    from 64 on the last bits decide: the sign of -1, the value of 1.

    Factors are chosen by bits, and 0 is a factor too: a select reads its operands anew under its condition, so powers
    in selects would be computed again for each bit."""
    one = make("eq", a, number(1, a))
    one = any_of(one, make("eq", a, number(-1, a))) if a.dtype.kind == "int" else one
    hidden = all_of(make("ge", b, number(64, b)), make("eq", a, number(0, a)))
    if b.dtype.kind == "int":
        hidden = any_of(hidden, all_of(make("lt", b, number(0, b)), logical_not(one)))
    wide = DType(f"uint{max(32, a.dtype.bits)}")
    square, bits = te.cast(a, wide), te.cast(Call("bitand", (b, number(63, b)), b.dtype), wide)
    made = select(hidden, number(0, square), number(1, square))
    for bit in range(6):
        chosen = number(0, bits) - Call("bitand", (Call("shr", (bits, number(bit, bits)), wide), number(1, bits)), wide)
        made = made * (Call("bitand", (square - 1, chosen), wide) + 1)
        square = square * square
    return made


def _whole_power_reference(base: Array, exponent: Array) -> Array:
    a, b = np.broadcast_arrays(base.astype(np.int64), exponent.astype(np.int64))
    below = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 1, -1, 1), 0))
    large = np.power(a, np.where(b < 0, 0, b & 63))
    return np.where(b < 0, below, np.where(b >= 64, np.where(a == 0, 0, large), large)).astype(base.dtype)


def _pow_compute(attrs: Attrs, out: TensorType, base: te.Tensor, exponent: te.Tensor) -> Any:
    def element(*i: Expr) -> Expr:
        a, b = read(base, i, out.shape), read(exponent, i, out.shape)
        if a.dtype.is_float:
            return Call("pow", (a, te.cast(b, a.dtype)), a.dtype)
        if not b.dtype.is_float:
            return te.cast(_whole_power(a, b), a.dtype)
        power = Call("pow", (te.cast(a, FLOAT64), te.cast(b, FLOAT64)), FLOAT64)
        whole = te.round(power)
        return te.cast(select(te.abs(power - whole) < _WHOLE_POWER_TOLERANCE, whole, te.trunc(power)), a.dtype)

    return te.compute(out.shape, element, name="pow")


def _pow_reference(attrs: Attrs, base: Array, exponent: Array) -> Array:
    with np.errstate(all="ignore"):
        if DType(base.dtype).is_integer and not DType(exponent.dtype).is_float:
            return _whole_power_reference(base, exponent)
        if DType(base.dtype).is_integer:
            power = np.power(base.astype(np.float64), exponent.astype(np.float64))
            whole = np.rint(power)
            return np.where(np.abs(power - whole) < _WHOLE_POWER_TOLERANCE, whole, np.trunc(power)).astype(base.dtype)
        wide = np.float64 if base.dtype == np.float64 else np.float32
        return np.asarray(np.power(base.astype(wide), exponent.astype(wide)).astype(base.dtype))


POWER = OpDef(
    "pow",
    (),
    _pow_infer,
    _pow_reference,
    follows=follow_elementwise,
    elementwise=True,
    compute=_pow_compute,
    cases=(
        Case((((3, 4), "float32"), ((4,), "float32")), {}, 0.2, 3.0),
        Case((np.array([1.5, -2.0, 3.0], np.float32), np.array([2, 3, 0], np.int64)), {}),
        Case((np.array([2, 3, -2], np.int32), np.array([3, 2, 3], np.int32)), {}),
        Case((np.array([3, -1, 0, -3, 2, 1], np.int64), np.array([39, 65, 0, 39, -1, -7], np.int64)), {}),
        Case((np.array([2, 4, 10, 3], np.int32), np.array([1.5, 0.5, 3.0, 3.5], np.float32)), {}),
    ),
    doc="a to the power b, in the dtype of a",
    source="ONNX Pow-15",
)


def _where_infer(attrs: Attrs, *types: Type) -> TensorType:
    condition, then, otherwise = rel.tensors("where", types, 3)
    rel.want_kind("where", condition, "bool", "the condition")
    dtype = rel.same_dtype("where", (then, otherwise))
    return TensorType(rel.broadcast("where", condition.shape, then.shape, otherwise.shape), dtype)


def _where_compute(attrs: Attrs, out: TensorType, *inputs: te.Tensor) -> Any:
    return te.compute(out.shape, lambda *i: select(*(read(t, i, out.shape) for t in inputs)), name="where")


def _where_reference(attrs: Attrs, condition: Array, then: Array, otherwise: Array) -> Array:
    return np.where(condition.astype(bool), then, otherwise)


WHERE = OpDef(
    "where",
    (),
    _where_infer,
    _where_reference,
    follows=follow_elementwise,
    elementwise=True,
    compute=_where_compute,
    cases=(
        Case((((2, 3), "bool"), ((2, 3), "float32"), ((1,), "float32")), {}),
        Case((((3, 1), "bool"), ((), "int64"), ((4,), "int64")), {}, 0, 9),
    ),
    doc="a where the condition holds, else b",
    source="ONNX Where-16",
)


def _prelu_infer(attrs: Attrs, *types: Type) -> TensorType:
    data, slope = rel.tensors("prelu", types, 2)
    rel.same_dtype("prelu", (data, slope))
    rel.broadcast_onto("prelu", slope.shape, data.shape, "the slope")
    return data


def _prelu_compute(attrs: Attrs, out: TensorType, data: te.Tensor, slope: te.Tensor) -> Any:
    def element(*i: Expr) -> Expr:
        x = data[i]
        return select(x < number(0, x), x * read(slope, i, out.shape), x)

    return te.compute(out.shape, element, name="prelu")


def _prelu_reference(attrs: Attrs, data: Array, slope: Array) -> Array:
    return np.where(data < 0, data * slope, data).astype(data.dtype)


PRELU = OpDef(
    "prelu",
    (),
    _prelu_infer,
    _prelu_reference,
    follows=follow_elementwise,
    elementwise=True,
    compute=_prelu_compute,
    cases=(Case((((2, 3, 4), "float32"), ((3, 1), "float32")), {}), Case((((2, 3), "float32"), ((1,), "float32")), {})),
    doc="x, times a broadcast slope where negative",
    source="ONNX PRelu-16",
)

BINARY: tuple[OpDef, ...] = (
    *(row.define() for row in (*ARITHMETIC, *COMPARISONS, *LOGIC)),
    MODULUS,
    POWER,
    WHERE,
    PRELU,
)
