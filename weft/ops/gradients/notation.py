"""Arithmetic on graph tensors in the usual notation, in which the rules are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from weft.graph.nodes import Call, Constant, GraphExpr, Project, call
from weft.graph.operator import Attrs
from weft.graph.types import Dim, TensorType, TupleType

Operand: TypeAlias = "T | float"


@dataclass(frozen=True, slots=True, eq=False)
class T:
    """A tensor; plain numbers take the dtype of the other operand."""

    x: GraphExpr

    @property
    def t(self) -> TensorType:
        return self.x.tensor

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.t.shape

    def do(self, name: str, *others: Operand, **attrs: Any) -> T:
        """An operator of the catalogue on this tensor and others."""
        from weft.ops.catalogue import op

        args = [o.x if isinstance(o, T) else Constant(np.asarray(o, self.t.dtype.numpy)) for o in others]
        return T(call(op(name), [self.x, *args], attrs))

    def many(self, name: str, *others: Operand, **attrs: Any) -> list[T]:
        """The results of an operator that has several."""
        made = self.do(name, *others, **attrs).x
        assert isinstance(made.type, TupleType)
        return [T(Project(made, i)) for i in range(len(made.type.fields))]

    def __add__(self, o: Operand) -> T:
        return self.do("add", o)

    def __sub__(self, o: Operand) -> T:
        return self.do("sub", o)

    def __mul__(self, o: Operand) -> T:
        return self.do("mul", o)

    def __truediv__(self, o: Operand) -> T:
        return self.do("div", o)

    def __neg__(self) -> T:
        return self.do("neg")

    def __rsub__(self, o: float) -> T:
        return -self + o

    def __rtruediv__(self, o: float) -> T:
        return self.do("reciprocal") * o

    __radd__ = __add__
    __rmul__ = __mul__

    def __gt__(self, o: Operand) -> T:
        return self.do("greater", o)

    def __lt__(self, o: Operand) -> T:
        return self.do("less", o)

    def __ge__(self, o: Operand) -> T:
        return self.do("greater_equal", o)

    def __le__(self, o: Operand) -> T:
        return self.do("less_equal", o)

    def same(self, o: Operand) -> T:
        return self.do("equal", o)

    def where(self, yes: T, no: Operand) -> T:
        """``yes`` where this holds, else ``no``."""
        return self.do("where", yes, no if isinstance(no, T) else number(yes, no))

    def to(self, dtype: str) -> T:
        return self if self.t.dtype == dtype else self.do("cast", to=dtype)

    def reshape(self, shape: Sequence[Dim]) -> T:
        return self if tuple(shape) == self.shape else self.do("reshape", shape=tuple(shape))

    def transpose(self, *perm: int) -> T:
        return self if list(perm) == sorted(perm) else self.do("transpose", perm=perm)

    def spread(self, shape: Sequence[Dim]) -> T:
        """Broadcast to a shape."""
        return self if tuple(shape) == self.shape else self.do("broadcast_to", shape=tuple(shape))

    def sum(self, axes: Sequence[int], keep: bool = True) -> T:
        return self.do("reduce_sum", axes=tuple(axes), keepdims=keep) if axes else self

    def mean(self, axes: Sequence[int]) -> T:
        return self.do("reduce_mean", axes=tuple(axes), keepdims=True)

    def part(self, axis: int, begin: Dim, end: Dim) -> T:
        return self.do("slice", begin=(begin,), end=(end,), axes=(axis,))

    def pad(self, pads: Sequence[Dim]) -> T:
        return self.do("pad", pads=tuple(pads)) if any(not isinstance(p, int) or p for p in pads) else self


def number(like: T, value: float) -> T:
    """A scalar of the dtype of another tensor."""
    return T(Constant(np.asarray(value, like.t.dtype.numpy)))


def full(like: T, value: float) -> T:
    """A tensor of that shape and dtype."""
    return number(like, value).spread(like.shape)


def numbered(count: Dim) -> T:
    """The int64 numbers 0, 1, … up to ``count``."""
    from weft.ops.catalogue import op

    return T(call(op("arange"), [], {"count": count, "dtype": "int64"}))


def fitted(g: T, like: T) -> T:
    """The adjoint of a tensor that was broadcast: summed over what it was repeated along."""
    extra = len(g.shape) - len(like.shape)
    axes = list(range(extra))
    for i, (d, own) in enumerate(zip(g.shape[extra:], like.shape, strict=True), extra):
        if own is not d and isinstance(own, int) and own == 1 and d != 1:
            axes.append(i)
    return g.sum(axes).reshape(like.shape)


def known_axes(attrs: Attrs, rank: int, name: str = "axes") -> tuple[int, ...]:
    """Axes counted from the front; None means all."""
    axes = attrs[name]
    return tuple(range(rank)) if axes is None else tuple(a % rank for a in axes)


Wide = Callable[[Attrs, "list[T]", "list[T | None]", Call], "Sequence[T | None]"]
"""A rule in this notation: from attributes, operands, adjoints of the results, and the call."""
