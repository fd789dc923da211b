"""Types of graph expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from weft.expr.nodes import Const, Expr, ExprLike, Var, index
from weft.expr.visit import free_vars, substitute
from weft.support.dtypes import DType

Dim: TypeAlias = "int | Expr"
"""A size: a Python int if it is known, an INDEX expression if it is symbolic."""


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
        for d in self.shape:  # noqa: SIM110  # asked very often: a generator takes three times as long
            if not isinstance(d, int):
                return False
        return True

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


def tensors_in(t: Type) -> tuple[TensorType, ...]:
    """The tensor type itself, or those among the fields of a tuple."""
    parts = t.fields if isinstance(t, TupleType) else (t,)
    return tuple(part for part in parts if isinstance(part, TensorType))


def call_type(function: FunctionType, args: Sequence[Type], *, closed: bool) -> Type:
    """The type of a call: sizes that are whole dimensions of parameters become those of the arguments. With ``closed``
    the function uses no sizes from outside, so sizes that only the result mentions become new ones."""
    known: dict[Var, Dim] = {}
    for declared, actual in zip(function.params, args, strict=True):
        _match_sizes(declared, actual, known)
    told: set[Var] = set()

    def note(d: Dim) -> Dim:
        told.update(() if isinstance(d, int) else free_vars(d))
        return d

    for declared in function.params:
        map_sizes(declared, note)
    values: dict[Var, Expr] = {v: index(d) for v, d in known.items()}

    def size(d: Dim) -> Dim:
        if isinstance(d, int):
            return d
        for v in free_vars(d):
            if v not in values and v not in told and closed:
                values[v] = Var(v.name, v.dtype)
        return dim(substitute(d, values))

    return map_sizes(function.result, size)


def map_sizes(t: Type, size: Callable[[Dim], Dim]) -> Type:
    """The type with every dimension ``d`` replaced by ``size(d)``."""
    if isinstance(t, TensorType):
        return t if t.is_static else TensorType(tuple(map(size, t.shape)), t.dtype)
    if isinstance(t, TupleType):
        return TupleType(tuple(map_sizes(f, size) for f in t.fields))
    if isinstance(t, FunctionType):
        return FunctionType(tuple(map_sizes(p, size) for p in t.params), map_sizes(t.result, size))
    if isinstance(t, DataType):
        return DataType(t.name, tuple(map_sizes(a, size) for a in t.args))
    return t


def _match_sizes(declared: Type, actual: Type, known: dict[Var, Dim]) -> None:
    if isinstance(declared, TensorType) and isinstance(actual, TensorType) and declared.rank == actual.rank:
        for d, a in zip(declared.shape, actual.shape, strict=True):
            if isinstance(d, Var):
                known.setdefault(d, a)
    elif isinstance(declared, TupleType) and isinstance(actual, TupleType):
        for d_field, a_field in zip(declared.fields, actual.fields, strict=False):
            _match_sizes(d_field, a_field, known)
    elif isinstance(declared, DataType) and isinstance(actual, DataType):
        for d_part, a_part in zip(declared.args, actual.args, strict=False):
            _match_sizes(d_part, a_part, known)
