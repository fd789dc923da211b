"""Stages of which tensor expressions of operators are built: reductions over axes, padding, narrowing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import tensor_expr as te
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, index, select
from weft.graph.types import Dim
from weft.support.dtypes import FLOAT32, DType


def accumulator(dtype: DType) -> DType:
    """The dtype in which sums of values of ``dtype`` are kept: float32 for half precision and below."""
    return FLOAT32 if dtype.is_float and dtype.bits < 32 else dtype


def narrowed(t: te.Tensor, dtype: DType, name: str) -> te.Tensor:
    """``t`` in ``dtype``; a stage of its own where that differs."""
    return t if t.dtype == dtype else te.compute(t.shape, lambda *i: te.cast(t[i], dtype), name=name)


def reduce_axes(shape: Sequence[Any], axes: Sequence[int], prefix: str = "r") -> list[IterVar]:
    """A reduce axis for each of ``axes`` of ``shape``."""
    return [te.reduce_axis((0, shape[a]), name=f"{prefix}{a}") for a in axes]


def with_reduced(
    rank: int, axes: Sequence[int], kept: Sequence[Expr], reduced: Sequence[IterVar], keepdims: bool
) -> tuple[Any, ...]:
    """Indices into the operand of a reduction, from those of its result and the reduce axes."""
    inner = dict(zip(axes, reduced, strict=True))
    outer = iter(kept)
    out: list[Any] = []
    for d in range(rank):
        if d in inner:
            out.append(inner[d].var)
            if keepdims:
                next(outer)
        else:
            out.append(next(outer))
    return tuple(out)


def reduced_shape(shape: Sequence[Any], axes: Sequence[int], keepdims: bool) -> tuple[Any, ...]:
    """The shape of a reduction over ``axes``."""
    return tuple(1 if d in axes else s for d, s in enumerate(shape) if keepdims or d not in axes)


def reduced(
    t: te.Tensor,
    axes: Sequence[int],
    combine: Callable[..., Expr],
    element: Callable[[Expr, tuple[Any, ...]], Expr] = lambda x, at: x,
    *,
    where: Callable[[tuple[Any, ...]], Expr] | None = None,
    keepdims: bool = True,
    name: str = "reduce",
) -> te.Tensor:
    """``combine`` (te.sum, te.max, …) of ``element(value, indices)`` over ``axes``, where ``where(indices)`` holds."""
    over = reduce_axes(t.shape, axes)

    def body(*i: Expr) -> Expr:
        at = with_reduced(t.ndim, axes, i, over, keepdims)
        value = element(t[at], at)
        if not over:
            return value
        return combine(value, axis=over) if where is None else combine(value, axis=over, where=where(at))

    made: te.Tensor = te.compute(reduced_shape(t.shape, axes, keepdims), body, name=name)
    return made


def padded(
    t: te.Tensor,
    before: Sequence[Dim],
    after: Sequence[Dim],
    value: Any = 0,
    name: str = "pad",
) -> te.Tensor:
    """``t`` surrounded by ``value``; ``t`` itself where nothing is added. Negative amounts crop."""
    if all(isinstance(p, int) and p == 0 for p in (*before, *after)):
        return t
    shape = tuple(index(s) + index(b) + index(a) for s, b, a in zip(t.shape, before, after, strict=True))
    fill = value if isinstance(value, Expr) else te.const(value, t.dtype)

    def body(*i: Expr) -> Expr:
        inside: list[Expr] = []
        at: list[Expr] = []
        for d, v in enumerate(i):
            b, a = before[d], after[d]
            at.append(v - index(b))
            if not (isinstance(b, int) and b <= 0):
                inside.append(v >= index(b))
            if not (isinstance(a, int) and a <= 0):
                inside.append(v < t.shape[d] + index(b))
        return select(te.all(*inside), t[tuple(at)], fill) if inside else t[tuple(at)]

    made: te.Tensor = te.compute(shape, body, name=name)
    return made


def extent(shape: Sequence[Expr], axes: Sequence[int]) -> Expr:
    """The number of elements along ``axes``."""
    total: Expr = Const(1)
    for a in axes:
        total = total * shape[a]
    return total
