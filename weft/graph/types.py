"""Types of graph expressions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from weft.expr.nodes import Const, Expr, ExprLike, index
from weft.support.dtypes import DType

Dim: TypeAlias = "int | Expr"
"""A size: a Python int where it is known, an INDEX expression where it is symbolic."""


def dim(value: ExprLike) -> Dim:
    """``value`` as a :data:`Dim`: constants become ints."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    made = index(value)
    return int(made.value) if isinstance(made, Const) else made


class Type:
    """Base of types. Types compare by content."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    """A tensor of known rank. Symbolic dimensions compare by expression identity."""

    shape: tuple[Dim, ...]
    dtype: DType

    @staticmethod
    def of(shape: Iterable[ExprLike], dtype: str) -> TensorType:
        return TensorType(tuple(dim(s) for s in shape), DType(dtype))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    def with_shape(self, shape: Iterable[ExprLike]) -> TensorType:
        return TensorType.of(shape, self.dtype)

    def with_dtype(self, dtype: str) -> TensorType:
        return TensorType(self.shape, DType(dtype))

    def __str__(self) -> str:
        return f"{self.dtype.short}[{', '.join(str(d) for d in self.shape)}]"


@dataclass(frozen=True, slots=True)
class TupleType(Type):
    fields: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))}{',' if len(self.fields) == 1 else ''})"


@dataclass(frozen=True, slots=True)
class FunctionType(Type):
    params: tuple[Type, ...]
    result: Type

    def __str__(self) -> str:
        return f"fn({', '.join(map(str, self.params))}) -> {self.result}"


@dataclass(frozen=True, slots=True)
class DataType(Type):
    """An algebraic data type of the module, applied to type arguments."""

    name: str
    args: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return self.name + (f"<{', '.join(map(str, self.args))}>" if self.args else "")
