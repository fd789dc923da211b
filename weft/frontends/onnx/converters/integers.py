"""Products and convolutions of 8-bit integers: exact sums in int32, and their rounding to 8 bits.

Processors add products of unsigned and signed bytes four at a time. Operands therefore stay bytes: with zero points p
and q, and x' and w' the unsigned and signed forms of the operands,

    Σ (x - p)·(w - q)  =  Σ x'·w'  -  p'·Σ w'  -  q'·Σ x'  +  K·p'·q'

where p' and q' are the zero points shifted as the operands were (by 128, or not at all). All sums wrap around at 32
bits, so both sides are equal to the bit. What has no such form is computed from operands that are widened first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weft.frontends.onnx.converters.contraction import convolution, kernel_sizes, with_bias
from weft.frontends.onnx.converters.elementwise import cast_to
from weft.frontends.onnx.converters.numbers import Traced
from weft.frontends.onnx.converters.windows import window
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import Constant, GraphExpr
from weft.ops.layouts import BYTE_GROUP, BYTE_TILE
from weft.support.dtypes import FLOAT32, INT32, DType

_SHIFT = 128
"""The distance between a signed byte and the unsigned byte of the same order."""


@dataclass(frozen=True, slots=True)
class Shifted:
    """Bytes of the wanted signedness, and the zero point in their numbers (int32; None if it is 0)."""

    data: GraphExpr
    zero: GraphExpr | None

    @property
    def number(self) -> int | None:
        """The zero point where it is one known number."""
        if self.zero is None:
            return 0
        if isinstance(self.zero, Constant) and self.zero.data.size == 1:
            return int(self.zero.data.reshape(()))
        return None


def _shifted(node: Node, x: GraphExpr, zero: GraphExpr | None, wanted: str) -> Shifted:
    """``x`` as bytes of the dtype ``wanted``, with the zero point that belongs to it."""
    wide = node.constant(0, "int32") if zero is None else cast_to(node, zero, INT32)
    if x.tensor.dtype != wanted:
        step = node.constant(_SHIFT if wanted == "uint8" else -_SHIFT, "int32")
        x = cast_to(node, node.call("add", cast_to(node, x, INT32), step), DType(wanted))
        wide = node.call("add", wide, step)
    nothing = isinstance(wide, Constant) and not np.any(wide.data)
    return Shifted(x, None if nothing else wide)


def zero_point(node: Node, i: int, behind: int = 0) -> GraphExpr | None:
    """Operand ``i``: one number without dimensions, or a vector with ``behind`` dimensions of one element behind it;
    None if it is not given."""
    zero = node.optional(i)
    if zero is None or zero.tensor.rank != 1:
        return zero
    return node.call("reshape", zero, shape=() if zero.tensor.shape == (1,) else (-1, *(1,) * behind))


def _bytes(x: GraphExpr) -> bool:
    return x.tensor.dtype in ("int8", "uint8")


# --- matrices ---------------------------------------------------------------------------------------------------------


def matmul_integer(node: Node, a: int, b: int, a_zero: int, b_zero: int) -> GraphExpr:
    """The int32 product of two 8-bit operands minus their zero points; the arguments are operand numbers."""
    x, w = node.data(a), node.data(b)
    return integer_product(node, x, w, zero_point(node, a_zero, 1), zero_point(node, b_zero))


def integer_product(node: Node, x: GraphExpr, w: GraphExpr, p: GraphExpr | None, q: GraphExpr | None) -> GraphExpr:
    """The int32 product of the integers ``x`` minus ``p`` by ``w`` minus ``q`` (None: 0), which broadcast."""
    made = _byte_product(node, x, w, p, q)
    if made is not None:
        return made
    return node.call("matmul", centred(node, x, p), centred(node, w, q), out_dtype="int32")


def centred(node: Node, x: GraphExpr, zero: GraphExpr | None) -> GraphExpr:
    """``x`` minus its zero point, in int32."""
    wide = cast_to(node, x, INT32)
    return wide if zero is None else node.call("sub", wide, cast_to(node, zero, INT32))


def _byte_product(node: Node, x: GraphExpr, w: GraphExpr, p: GraphExpr | None, q: GraphExpr | None) -> GraphExpr | None:
    """The product of matrices by groups of bytes; None if an operand is a vector or the sums have no groups."""
    depth = x.tensor.shape[-1] if x.tensor.rank else None
    if min(x.tensor.rank, w.tensor.rank) < 2 or not (_bytes(x) and _bytes(w)):
        return None
    if not isinstance(depth, int) or depth <= BYTE_GROUP or w.tensor.shape[-2] != depth:
        return None
    left, right = _shifted(node, x, p, "uint8"), _shifted(node, w, q, "int8")
    more = -depth % BYTE_GROUP
    if more and -depth % BYTE_TILE <= depth // 8:  # as the operands are copied anyway
        more = -depth % BYTE_TILE
    operands = [_longer(node, left.data, -1, more), _longer(node, right.data, -2, more)]
    total = Traced(node, node.call("matmul", *operands, out_dtype="int32"))
    if left.zero is not None:
        columns = Traced(node, cast_to(node, right.data, INT32)).call("reduce_sum", axes=(-2,), keepdims=True)
        total = total - columns * Traced(node, left.zero)
    if right.zero is not None:
        rows = Traced(node, cast_to(node, left.data, INT32)).call("reduce_sum", axes=(-1,), keepdims=True)
        if left.zero is not None:
            rows = rows - Traced(node, left.zero) * depth
        total = total - rows * Traced(node, right.zero)
    return total.x


def _longer(node: Node, x: GraphExpr, axis: int, more: int) -> GraphExpr:
    """``x`` with ``more`` zeros behind ``axis``, counted from the end."""
    if more == 0:
        return x
    pads = [0] * (2 * x.tensor.rank)
    pads[axis] = more
    return node.call("pad", x, pads=tuple(pads), value=0)


def quantized_matmul(node: Node) -> Result:
    """QLinearMatMul: the product in integers, then one rounding to the scale of the result."""
    made = matmul_integer(node, 0, 3, 2, 5)
    first, second = (_scale(node, i) for i in (1, 4))
    if first.tensor.rank == 1:
        first = node.call("reshape", first, shape=(-1, 1))
    return requantized(node, made, node.call("mul", first, second), 6)


def _scale(node: Node, i: int) -> GraphExpr:
    """The scale in operand ``i``, in float32 at least; without dimensions if it is one number."""
    scale = node.data(i)
    scale = scale if scale.tensor.dtype.bits >= FLOAT32.bits else cast_to(node, scale, FLOAT32)
    return node.call("reshape", scale, shape=()) if scale.tensor.shape == (1,) else scale


def requantized(node: Node, total: GraphExpr, scale: GraphExpr, result: int) -> GraphExpr:
    """The sums ``total`` times ``scale``, rounded with the scale in operand ``result`` and the zero point behind it."""
    to = node.dtype(result + 1)
    scale = node.call("div", scale, _scale(node, result))
    real = node.call("mul", cast_to(node, total, scale.tensor.dtype), scale)
    zero = cast_to(node, node.data(result + 1), real.tensor.dtype)
    real = node.call("add", node.call("round", real), zero)
    low, high = to.limits()
    return cast_to(node, node.call("clip", real, min=low, max=high), to)


# --- convolutions -----------------------------------------------------------------------------------------------------


def integer_convolution(node: Node, weight: int, data_zero: int, weight_zero: int) -> GraphExpr:
    """The int32 convolution of operand 0 with operand ``weight``, both minus their zero points."""
    x, w = node.data(0), node.data(weight)
    p, q = zero_point(node, data_zero), zero_point(node, weight_zero, w.tensor.rank - 1)
    made = _byte_convolution(node, x, w, p, q)
    return convolution(node, centred(node, x, p), centred(node, w, q), "int32") if made is None else made


def _byte_convolution(
    node: Node, x: GraphExpr, w: GraphExpr, p: GraphExpr | None, q: GraphExpr | None
) -> GraphExpr | None:
    """The convolution by groups of bytes; None if it has groups of few channels, or edges without a known zero
    point."""
    shown = window(node, *kernel_sizes(node, x, w))
    taps = tuple(n for n in w.tensor.shape[1:] if isinstance(n, int))
    groups = node.integer("group", 1)
    if not (_bytes(x) and _bytes(w)) or len(taps) < w.tensor.rank - 1 or (groups > 1 and taps[0] < 2 * BYTE_GROUP):
        return None
    left, right = _shifted(node, x, p, "uint8"), _shifted(node, w, q, "int8")
    if (right.zero is not None and groups > 1) or (left.number is None and any(n != 0 for n in shown.pads)):
        return None
    data, n = left.data, len(shown.kernel)
    if any(pad != 0 for pad in shown.pads):
        pads = (0, 0, *shown.pads[:n], 0, 0, *shown.pads[n:])
        data = node.call("pad", data, pads=pads, value=left.number)
    steps = {"strides": shown.strides, "dilations": shown.dilations, "out_dtype": "int32"}
    total = Traced(node, node.call("conv", data, right.data, groups=groups, **steps))
    if left.zero is not None:
        sums = Traced(node, cast_to(node, right.data, INT32)).call("reduce_sum", axes=tuple(range(1, n + 2)))
        total = total - sums.reshape(-1, *(1,) * n) * Traced(node, left.zero)
    if right.zero is not None:
        wide = Traced(node, cast_to(node, data, INT32)).call("reduce_sum", axes=(1,), keepdims=True)
        ones = node.constant(np.ones((1, 1, *taps[1:])), "int32")
        windows = Traced(node, node.call("conv", wide.x, ones, **steps))
        if left.zero is not None:
            windows = windows - Traced(node, left.zero) * math.prod(taps)
        factor = Traced(node, right.zero)
        total = total - windows * (factor.reshape(-1, *(1,) * n) if right.zero.tensor.rank else factor)
    return total.x


def _conv_integer(node: Node) -> Result:
    return integer_convolution(node, 1, 2, 3)


def qlinear_conv(node: Node) -> GraphExpr:
    """The convolution in integers, then one rounding to the scale of the result."""
    made = with_bias(node, integer_convolution(node, 3, 2, 5), node.optional(8))
    scale = node.call("mul", _scale(node, 1), _scale(node, 4))
    if scale.tensor.rank:
        scale = node.call("reshape", scale, shape=(-1, *(1,) * (made.tensor.rank - 2)))
    return requantized(node, made, scale, 6)


INTEGERS: dict[str, Callable[[Node], Result]] = {
    "ConvInteger": _conv_integer,
    "MatMulInteger": lambda node: matmul_integer(node, 0, 1, 2, 3),
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": quantized_matmul,
}
