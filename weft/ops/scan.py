"""Running totals along an axis."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Expr, minimum
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.ops.stages import accumulator
from weft.support.dtypes import DType

AXIS = Attribute("axis", REQUIRED, "the axis; negative ones count from the back")


def _f(*shape: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return shape, dtype


def _one(op: str, types: Sequence[Type]) -> TensorType:
    return rel.tensors(op, types, 1)[0]


def _infer(op: str) -> Callable[..., TensorType]:
    def infer(attrs: Attrs, *types: Type) -> TensorType:
        data = _one(op, types)
        rel.want_kind(op, data, "int uint float")
        rel.axis_of(op, attrs.axis, data.rank)
        return data

    return infer


def _compute(op: str, start: int, combine: Callable[[Expr, Expr], Expr]) -> Callable[..., Any]:
    def compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
        def first(term: Expr) -> Any:
            return te.const(start, term.dtype) if attrs.exclusive else term

        def step(before: Expr, now: tuple[Expr, ...], last: tuple[Expr, ...]) -> Expr:
            return combine(before, (last if attrs.exclusive else now)[0])

        return _steps(op, attrs, out, (data,), first, step)

    return compute


def _steps(
    op: str,
    attrs: Attrs,
    out: TensorType,
    operands: Sequence[te.Tensor],
    first: Callable[[Expr], Any],
    step: Callable[[Expr, tuple[Expr, ...], tuple[Expr, ...]], Expr],
) -> Any:
    """A recurrence over the axis, which stands first in its state: one step an element.

    ``first`` makes the first total from the first term of the last operand; ``step`` makes another from the total
    before it, the operands' terms in its place and those before it.
    """
    axis, dtype = rel.axis_of(op, attrs.axis, out.rank), accumulator(out.dtype)
    size = out.shape[axis]
    direct = axis == 0 and not attrs.reverse and dtype == out.dtype
    before, after = out.shape[:axis], out.shape[axis + 1 :]
    if not direct:  # the axes before and after are one each, so that vectors run along all of them
        before, after = (_joined(x) for x in (before, after))
    rest = (*before, *after)
    if 0 in out.shape:
        return te.compute(out.shape, lambda *i: operands[0][i], name=op)

    def term(of: te.Tensor) -> Any:
        def moved(t: Any, *i: Any) -> Expr:
            place = size - 1 - t if attrs.reverse else t
            outer, inner = i[: len(before)], i[len(before) :]
            if not direct:
                outer, inner = _parts(outer, out.shape[:axis]), _parts(inner, out.shape[axis + 1 :])
            return te.cast(of[(*outer, place, *inner)], dtype)

        return te.compute((size, *rest), moved, name=f"{op}_terms")

    terms = [term(of) for of in operands]

    def each(t: Expr, *i: Expr) -> Expr:
        now, last = (tuple(of[(place, *i)] for of in terms) for place in (t, t - 1))
        return step(state[(t - 1, *i)], now, last)

    state = te.placeholder((size, *rest), dtype, f"{op}_state")
    first_row = 1 if isinstance(size, int) else minimum(size, 1)  # an open size may be 0
    totals = te.scan(
        te.compute((first_row, *rest), lambda t, *i: first(terms[-1][(t, *i)]), name=f"{op}_first"),
        te.compute((size, *rest), each, name=f"{op}_step"),
        state,
        terms,
        name=f"{op}_scan",
    )
    if direct:
        return totals

    def element(*i: Expr) -> Expr:
        t = size - 1 - i[axis] if attrs.reverse else i[axis]
        outer, inner = _place(i[:axis], out.shape[:axis]), _place(i[axis + 1 :], out.shape[axis + 1 :])
        total: Expr = totals[(t, *outer, *inner)]
        return te.cast(total, out.dtype)

    return te.compute(out.shape, element, name=op)


def _joined(sizes: Sequence[Any]) -> tuple[Any, ...]:
    """The size of one axis instead of several."""
    return (reduce(operator.mul, sizes),) if sizes else ()


def _place(indices: Sequence[Any], sizes: Sequence[Any]) -> tuple[Any, ...]:
    """The index of the joined axis."""
    return (
        (reduce(lambda a, b: a * b[1] + b[0], zip(indices[1:], sizes[1:], strict=True), indices[0]),) if sizes else ()
    )


def _parts(joined: Sequence[Any], sizes: Sequence[Any]) -> tuple[Any, ...]:
    """The indices of the axes that were joined."""
    if not sizes:
        return ()
    rest, found = joined[0], []
    for size in reversed(sizes[1:]):
        found.append(rest % size)
        rest = rest // size
    return (rest, *reversed(found))


def _reference(start: int, accumulate: Callable[..., Array]) -> Callable[..., Array]:
    def reference(attrs: Attrs, data: Array) -> Array:
        wide = data.astype(np.float32) if DType(data.dtype).is_float and data.dtype.itemsize < 4 else data
        wide = np.moveaxis(np.flip(wide, attrs.axis) if attrs.reverse else wide, attrs.axis, 0)
        out = accumulate(wide, 0, dtype=wide.dtype)
        if attrs.exclusive and out.shape[0]:
            out = np.concatenate([np.full_like(out[:1], start), out[:-1]])
        out = np.moveaxis(out, 0, attrs.axis)
        return np.ascontiguousarray(np.flip(out, attrs.axis) if attrs.reverse else out).astype(data.dtype)

    return reference


def _recurrence_infer(attrs: Attrs, *types: Type) -> TensorType:
    op = "linear_recurrence"
    factors, terms = rel.tensors(op, types, 2)
    rel.want_kind(op, terms, "int uint float")
    rel.same_dtype(op, (factors, terms))
    rel.want_rank(op, factors, terms.rank, "the factors")
    rel.axis_of(op, attrs.axis, terms.rank)
    pairs = zip(factors.shape, terms.shape, strict=True)
    return TensorType(tuple(rel.join_dim(op, a, b, "sizes of factors and terms") for a, b in pairs), terms.dtype)


def _recurrence_compute(attrs: Attrs, out: TensorType, factors: te.Tensor, terms: te.Tensor) -> Any:
    def step(before: Expr, now: tuple[Expr, ...], last: tuple[Expr, ...]) -> Expr:
        return before * now[0] + now[1]

    return _steps("linear_recurrence", attrs, out, (factors, terms), lambda term: term, step)


def _recurrence_reference(attrs: Attrs, factors: Array, terms: Array) -> Array:
    dtype = np.dtype(np.float32) if DType(terms.dtype).is_float and terms.dtype.itemsize < 4 else terms.dtype
    a, b = (np.moveaxis(x.astype(dtype), attrs.axis, 0) for x in (factors, terms))
    out, places = np.empty_like(b), range(len(b))
    before = None
    for t in reversed(places) if attrs.reverse else places:
        before = out[t] = b[t] if before is None else before * a[t] + b[t]
    return np.ascontiguousarray(np.moveaxis(out, 0, attrs.axis)).astype(terms.dtype)


def _attributes(what: str) -> tuple[Attribute, ...]:
    return (
        AXIS,
        Attribute("exclusive", False, "whether an element's own value is left out"),
        Attribute("reverse", False, f"whether to {what} from the end"),
    )


CUMSUM = OpDef(
    "cumsum",
    _attributes("sum"),
    _infer("cumsum"),
    _reference(0, np.cumsum),
    compute=_compute("cumsum", 0, lambda a, b: a + b),
    cases=(
        Case((_f(2, 5),), {"axis": 1}),
        Case((_f(5),), {"axis": 0, "exclusive": True}),
        Case((_f(2, 5),), {"axis": -1, "reverse": True}),
        Case((_f(3, 4, 2),), {"axis": 1}),
        Case((_f(1),), {"axis": 0, "exclusive": True}),
        Case((_f(2, 0),), {"axis": 1}),
        Case((_f(3, 20, dtype="float16"),), {"axis": 1}, rtol=2e-3, atol=2e-3),
        Case((_f(4, 2, dtype="int64"),), {"axis": 0, "exclusive": True, "reverse": True}, -9, 9),
    ),
    doc="sums of all values up to each along an axis",
    source="ONNX CumSum-14",
)
CUMPROD = OpDef(
    "cumprod",
    _attributes("multiply"),
    _infer("cumprod"),
    _reference(1, np.cumprod),
    compute=_compute("cumprod", 1, lambda a, b: a * b),
    cases=(
        Case((_f(2, 5),), {"axis": 1}),
        Case((_f(5),), {"axis": 0, "exclusive": True}),
        Case((_f(2, 5),), {"axis": -1, "reverse": True}),
        Case((_f(3, 4, 2),), {"axis": 1}),
        Case((_f(0, 3),), {"axis": 0}),
        Case((_f(4, 2, dtype="int64"),), {"axis": 0, "exclusive": True, "reverse": True}, -9, 9),
    ),
    doc="products of all values up to each along an axis",
    source="ONNX CumProd-26",
)
LINEAR_RECURRENCE = OpDef(
    "linear_recurrence",
    (AXIS, Attribute("reverse", False, "whether to go from the end")),
    _recurrence_infer,
    _recurrence_reference,
    compute=_recurrence_compute,
    cases=(
        Case((_f(2, 5), _f(2, 5)), {"axis": 1}),
        Case((_f(5), _f(5)), {"axis": 0}),
        Case((_f(3, 4, 2), _f(3, 4, 2)), {"axis": -2, "reverse": True}),
        Case((_f(1), _f(1)), {"axis": 0, "reverse": True}),
        Case((_f(0, 3), _f(0, 3)), {"axis": 0}),
        Case((_f(3, 9, dtype="float16"), _f(3, 9, dtype="float16")), {"axis": 1}, rtol=2e-3, atol=2e-3),
        Case((_f(4, 2, dtype="int64"), _f(4, 2, dtype="int64")), {"axis": 0}, -9, 9),
    ),
    doc="totals each of which is the one before it times a factor, plus a term; the first is the first term",
    source="the form of state-space models, and of what cumprod's derivative adds up",
)
