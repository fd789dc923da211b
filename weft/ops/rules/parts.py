"""Shared parts of rules: the operators they name, tests on constants, and evaluation of constant operands.

Numerics. Rules keep integers exact, and NaN and infinities appear in the same elements as before. Floats may change by
rounding only where a rule says so: constant factors and terms are folded into constants (evaluated in float64 and
rounded once), and decomposed forms become the operator that defines them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from weft.graph import dims
from weft.graph.nodes import Call, Constant, GraphExpr, call
from weft.graph.operator import Attrs, Operator
from weft.graph.pattern import ACall, GraphMatch, GraphPattern, constant, either, op
from weft.graph.types import TensorType
from weft.ops.catalogue import op as operator
from weft.support.dtypes import DType
from weft.support.errors import TypeRelationError

Array: TypeAlias = "np.ndarray[Any, Any]"

_ELEMENTS_AT_A_TIME = 1 << 16
"""Elements of a constant that are tested together: the answers stay in the cache."""

ADD, SUB, MUL, DIV = (operator(name) for name in ("add", "sub", "mul", "div"))
POW, NEG, SQRT, RSQRT, RECIPROCAL = (operator(name) for name in ("pow", "neg", "sqrt", "rsqrt", "reciprocal"))
EXP, LOG, ERF, TANH, SIGMOID = (operator(name) for name in ("exp", "log", "erf", "tanh", "sigmoid"))
MAXIMUM, MINIMUM, CLIP, RELU, WHERE, CAST = (
    operator(name) for name in ("maximum", "minimum", "clip", "relu", "where", "cast")
)
RESHAPE, SQUEEZE, UNSQUEEZE, TRANSPOSE = (operator(name) for name in ("reshape", "squeeze", "unsqueeze", "transpose"))
BROADCAST_TO, SLICE, GATHER, SPLIT, CONCAT, PAD, TILE, FLIP = (
    operator(name) for name in ("broadcast_to", "slice", "gather", "split", "concat", "pad", "tile", "flip")
)
MATMUL, EINSUM, CONV, CONV_TRANSPOSE = (operator(name) for name in ("matmul", "einsum", "conv", "conv_transpose"))
REDUCE_SUM, REDUCE_MEAN, REDUCE_MAX, REDUCE_MIN = (
    operator(name) for name in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min")
)
VIEWS = (RESHAPE, SQUEEZE, UNSQUEEZE)


def is_float(e: GraphExpr, *, wide: bool = False) -> bool:
    """Whether ``e`` is a tensor of floats; ``wide``: of at least 32 bits."""
    return isinstance(e.type, TensorType) and e.type.dtype.is_float and (not wide or e.type.dtype.bits >= 32)


def scalar(e: GraphExpr) -> Any:
    """The value of a constant of one element, else None."""
    return e.data.reshape(-1)[0].item() if isinstance(e, Constant) and e.data.size == 1 else None


def near(value: float) -> Callable[[Array], bool]:
    """A test on constants: floats that are ``value`` in their precision, or as far as exporters round it."""

    def test(data: Array) -> bool:
        if data.size != 1 or not DType(data.dtype).is_float:
            return False
        tolerance = 1e-5 if DType(data.dtype).bits >= 32 else 4e-3
        return abs(float(data.reshape(-1)[0]) - value) <= tolerance * abs(value)

    return test


def about(value: float) -> GraphPattern:
    """A constant of one element near ``value``."""
    return constant(test=near(value))


def times(x: GraphPattern, value: float) -> GraphPattern:
    """``x`` times a constant near ``value``, or divided by its reciprocal."""
    return either(op(MUL, x, about(value)), op(DIV, x, about(1 / value)))


def product(a: GraphPattern, b: GraphPattern, c: GraphPattern) -> GraphPattern:
    """The product of three factors in any order."""
    return either(op(MUL, op(MUL, a, b), c), op(MUL, op(MUL, a, c), b), op(MUL, op(MUL, b, c), a))


def square(x: GraphPattern) -> GraphPattern:
    return either(op(MUL, x, x), op(POW, x, constant(value=2)))


def cube(x: GraphPattern) -> GraphPattern:
    return either(op(MUL, op(MUL, x, x), x), op(POW, x, constant(value=3)))


def number(value: float, like: GraphExpr) -> Constant:
    """A scalar constant of the dtype of ``like``."""
    return Constant(np.asarray(value, like.tensor.dtype.numpy))


def fold(target: Operator, args: Iterable[GraphExpr], attrs: Attrs | dict[str, Any] | None = None) -> GraphExpr:
    """A call, or its value if all operands are constants."""
    made = call(target, list(args), attrs)
    known = [a.data for a in made.args if isinstance(a, Constant)]
    if len(known) < len(made.args) or dims.is_symbolic(made.attrs):
        return made
    with np.errstate(all="ignore"):
        return Constant(np.asarray(target.reference(made.attrs, *known)), made.args[0].origin)


def same_type(made: GraphExpr | None, root: GraphExpr) -> GraphExpr | None:
    """``made`` if it can replace ``root``: it has the same type."""
    return made if made is not None and made.type == root.type else None


def try_call(
    target: Operator, args: Iterable[GraphExpr], attrs: Attrs | dict[str, Any], root: GraphExpr
) -> GraphExpr | None:
    """A call that can replace ``root``; None if it has another type."""
    try:
        return same_type(call(target, list(args), attrs), root)
    except TypeRelationError:
        return None


def along(data: Array, rank: int, axis: int, size: Any) -> Array | None:
    """A constant operand of a call of ``rank`` dimensions as a float64 vector along ``axis``.

    None where it varies along another one, is not finite or does not fit ``size``.
    """
    if not isinstance(size, int) or data.ndim > rank:
        return None
    shape = (1,) * (rank - data.ndim) + data.shape
    if any(d != 1 for i, d in enumerate(shape) if i != axis) or shape[axis] not in (1, size):
        return None
    wide = data.astype(np.float64).reshape(-1)
    return np.broadcast_to(wide, (size,)) if bool(np.all(np.isfinite(wide))) else None


def rounded(values: Array, like: Constant) -> Constant | None:
    """``values`` in the dtype of ``like``; None if one becomes infinite."""
    with np.errstate(all="ignore"):
        data = values.astype(like.data.dtype, copy=False)
    return Constant(data, like.origin) if _all_finite(data) else None


def _all_finite(data: Array) -> bool:
    """Whether no element is infinite or not a number."""
    if not data.flags.c_contiguous:
        return bool(np.isfinite(data).all())
    flat = data.reshape(-1)
    parts = (flat[at : at + _ELEMENTS_AT_A_TIME] for at in range(0, flat.size, _ELEMENTS_AT_A_TIME))
    return all(bool(np.isfinite(part).all()) for part in parts)


def attrs_of(m: GraphMatch, name: str) -> Attrs:
    found: Call = m[name]
    return found.attrs


def plain_contraction(attrs: Attrs) -> bool:
    """Whether a contraction computes in the usual layouts and its operands' dtype."""
    return not any(
        attrs.get(key) for key in ("b_layout", "columns", "out_dtype", "data_layout", "kernel_layout", "out_layout")
    )


def contraction(target: Operator | tuple[Operator, ...], *args: GraphPattern, name: str, once: bool = True) -> ACall:
    """A call of a plain contraction."""
    return op(target, *args, name=name, once=once, attrs=plain_contraction)
