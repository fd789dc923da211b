"""Symbolic dimensions inside types and attributes: finding, substituting and evaluating them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from weft.expr import visit
from weft.expr.nodes import Const, Expr, ExprLike, Var, index
from weft.graph.operator import Attrs
from weft.graph.types import DataType, Dim, FunctionType, TensorType, TupleType, Type, dim
from weft.support.dtypes import DType
from weft.support.errors import InputError, InternalError

Binding: TypeAlias = "Mapping[Var, ExprLike]"


def given_sizes(shapes: Mapping[str, Any]) -> dict[str, int | tuple[int | str | None, ...]]:
    """The sizes that a caller fixes, checked: sizes by the name of a dimension, and whole shapes by the name of an
    input (sizes, names, or None for dimensions that stay open). Raises InputError I020."""
    return {name: _given_size(name, value) for name, value in shapes.items()}


def _given_size(name: str, value: Any) -> int | tuple[int | str | None, ...]:
    one = _whole(value)
    if one is not None:
        return one
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        made = tuple(d if d is None or isinstance(d, str) else _whole(d) for d in value)
        if all(m is not None or d is None for m, d in zip(made, value, strict=True)):
            return made
    raise InputError(
        f"'{name}' cannot have the size {value!r}",
        code="I020",
        hint="give a whole number that is not negative, or the shape of an input",
    )


def _whole(value: Any) -> int | None:
    """The number, if it is a valid size."""
    whole = hasattr(value, "__index__") and not isinstance(value, bool) and value >= 0
    return int(value) if whole else None


def substitute(expr: Expr, values: Binding) -> Expr:
    """``expr`` with variables replaced and constants folded."""
    return visit.substitute(expr, {v: index(value) for v, value in values.items()})


def substitute_dim(d: Dim, values: Binding) -> Dim:
    return d if isinstance(d, int) else dim(substitute(d, values))


def substitute_type(t: Type, values: Binding) -> Type:
    """The type with symbolic dimensions replaced."""
    if isinstance(t, TensorType):
        return t if t.is_static else TensorType(tuple(substitute_dim(d, values) for d in t.shape), t.dtype)
    if isinstance(t, TupleType):
        return TupleType(tuple(substitute_type(f, values) for f in t.fields))
    if isinstance(t, FunctionType):
        return FunctionType(tuple(substitute_type(p, values) for p in t.params), substitute_type(t.result, values))
    if isinstance(t, DataType):
        return DataType(t.name, tuple(substitute_type(a, values) for a in t.args))
    return t


def substitute_attrs(attrs: Attrs, values: Binding) -> Attrs:
    """Attributes with symbolic dimensions replaced (constants become ints)."""
    return Attrs({k: _substitute_value(v, values) for k, v in attrs.items()})


def _substitute_value(value: Any, values: Binding) -> Any:
    if isinstance(value, Expr):
        return dim(substitute(value, values))
    if isinstance(value, tuple):
        return tuple(_substitute_value(v, values) for v in value)
    return value


def is_symbolic(value: Any) -> bool:
    """Whether an attribute value or a type mentions a symbolic dimension."""
    return next(symbols(value), None) is not None


def symbols(value: Any) -> Iterator[Var]:
    """Symbolic dimensions in a type, an expression, an attribute value or a mapping of them, with repetitions."""
    return iter(()) if _has_plain_values(value) else _symbols(value)


_PLAIN: Final = frozenset({int, float, bool, str, DType, type(None)})
"""Classes of values without symbolic dimensions."""


def _has_plain_values(value: Any) -> bool:
    """Whether ``value`` is one of the common ones without symbolic dimensions: a tensor type with known sizes, plain
    attributes. It need not recognize all of them."""
    kind = type(value)
    if kind is TensorType:
        parts: Iterable[Any] = value.shape
    elif kind is tuple:
        parts = value
    elif kind is Attrs:
        parts = value.values()
    else:
        return kind in _PLAIN
    for part in parts:
        inner = type(part)
        if inner not in _PLAIN and not (inner is tuple and _has_plain_values(part)):
            return False
    return True


def _symbols(value: Any) -> Iterator[Var]:
    stack = [value]
    while stack:
        v = stack.pop()
        if v is None or isinstance(v, (int, str, float)):
            continue
        if isinstance(v, Var):
            yield v
        elif isinstance(v, Expr):
            stack.extend(reversed(v.children))
        elif isinstance(v, TensorType):
            stack.extend(d for d in reversed(v.shape) if not isinstance(d, int))
        elif isinstance(v, TupleType):
            stack.extend(reversed(v.fields))
        elif isinstance(v, FunctionType):
            stack.extend((v.result, *reversed(v.params)))
        elif isinstance(v, DataType):
            stack.extend(reversed(v.args))
        elif isinstance(v, tuple):
            stack.extend(reversed(v))
        elif isinstance(v, Mapping):
            stack.extend(reversed(list(v.values())))


def evaluate(d: ExprLike, values: Binding) -> int:
    """The value of a dimension. Raises InternalError if a symbol has no value."""
    if isinstance(d, int):
        return d
    made = substitute(index(d), values)
    if not isinstance(made, Const):
        raise InternalError(f"the dimension {d} has no value: {made}")
    return int(made.value)


def bind(declared: TensorType, shape: Sequence[int], values: dict[Var, ExprLike], name: str = "input") -> None:
    """Bind symbolic dimensions to those of an actual shape, adding them to ``values``.

    Raises InputError if the rank or a known size differs. Dimensions that are compound expressions are not checked.
    """
    if len(shape) != declared.rank:
        raise InputError(f"'{name}' has rank {len(shape)}, not {declared.rank} as in {declared}", code="I002")
    for axis, (d, actual) in enumerate(zip(declared.shape, shape, strict=True)):
        size = values.setdefault(d, int(actual)) if isinstance(d, Var) else d
        if isinstance(size, int) and size != actual:
            raise InputError(
                f"'{name}' has size {actual} in dimension {axis}, not {size}",
                code="I003",
                hint=f"its type is {declared}",
            )
