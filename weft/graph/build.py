"""Short ways to make graph expressions, for frontends, rules and tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.expr.nodes import ExprLike
from weft.expr.nodes import Var as Symbol
from weft.graph.nodes import (
    NOWHERE,
    Constant,
    Constructor,
    DataDef,
    Function,
    GlobalVar,
    GraphExpr,
    Let,
    Origin,
    Tuple,
    Var,
)
from weft.graph.operator import Attrs
from weft.graph.types import DataType, FunctionType, TensorType, TupleType, Type
from weft.graph.visit import free_vars
from weft.support.dtypes import INDEX, DType
from weft.support.errors import TypeRelationError
from weft.support.words import did_you_mean


def size(name: str) -> Symbol:
    """A new symbolic dimension."""
    return Symbol(name, INDEX)


def var(name: str, shape: Iterable[ExprLike], dtype: str = "float32", *, origin: Origin = NOWHERE) -> Var:
    """A variable of tensor type."""
    return Var(name, TensorType.of(shape, dtype), origin)


def constant(value: Any, dtype: str | None = None, *, origin: Origin = NOWHERE) -> Constant:
    """A constant from anything NumPy understands; Python floats are float32, Python ints int64."""
    if dtype is None and not isinstance(value, (np.ndarray, np.generic)):
        guess = np.asarray(value).dtype
        dtype = "float32" if guess.kind == "f" else "int64" if guess.kind in "iu" else None
    data = np.asarray(value, None if dtype is None else DType(dtype).numpy)
    return Constant(data, origin)


def zeros(t: TensorType) -> Constant:
    """A constant of zeros of a static type."""
    return Constant(np.zeros(tuple(d for d in t.shape if isinstance(d, int)), t.dtype.numpy))


def tuple_of(values: Sequence[GraphExpr]) -> GraphExpr:
    """A tuple, or the value itself if there is only one."""
    return values[0] if len(values) == 1 else Tuple(tuple(values))


def function(
    params: Sequence[Var] | None, outputs: GraphExpr | Sequence[GraphExpr], attrs: Mapping[str, Any] | None = None
) -> Function:
    """A function with these outputs (several become a tuple). ``params`` None: the free variables in order of first
    use."""
    body = outputs if isinstance(outputs, GraphExpr) else tuple_of(list(outputs))
    return Function(tuple(free_vars(body) if params is None else params), body, Attrs(attrs or {}))


def primitive(params: Sequence[Var], body: GraphExpr, origin: Origin = NOWHERE) -> Function:
    """A fused group: a closed function that becomes one kernel."""
    return Function(tuple(params), body, Attrs(primitive=True), origin)


def let(bindings: Iterable[tuple[Var, GraphExpr]], body: GraphExpr) -> GraphExpr:
    """Nested lets, the first binding outermost."""
    for v, value in reversed(list(bindings)):
        body = Let(v, value, body)
    return body


def global_var(name: str, params: Sequence[Type], result: Type) -> GlobalVar:
    """A reference to a function of the module."""
    return GlobalVar(name, FunctionType(tuple(params), result))


def constructor(declared: DataDef, name: str, args: Sequence[Type] = ()) -> Constructor:
    """The constructor ``name`` of a data type whose parameters are ``args``."""
    if len(args) != len(declared.params):
        raise TypeRelationError(f"{declared.name} takes {len(declared.params)} type arguments, not {len(args)}")
    known = dict(zip((p.name for p in declared.params), args, strict=True))
    for found, fields in declared.constructors:
        if found == name:
            result = DataType(declared.name, tuple(args))
            return Constructor(name, FunctionType(tuple(instantiate(f, known) for f in fields), result))
    names = [known for known, _ in declared.constructors]
    hint = did_you_mean(name, names, f"it has: {', '.join(names)}")
    raise TypeRelationError(f"{declared.name} has no constructor '{name}'", hint=hint)


def instantiate(t: Type, known: Mapping[str, Type]) -> Type:
    """The type with type parameters replaced by name."""
    if isinstance(t, DataType):
        if not t.args and t.name in known:
            return known[t.name]
        return DataType(t.name, tuple(instantiate(a, known) for a in t.args))
    if isinstance(t, TupleType):
        return TupleType(tuple(instantiate(f, known) for f in t.fields))
    if isinstance(t, FunctionType):
        return FunctionType(tuple(instantiate(p, known) for p in t.params), instantiate(t.result, known))
    return t
