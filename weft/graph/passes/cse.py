"""Computes equal things once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.graph.nodes import Call, Constant, Function, GraphExpr, If, Module, Project, Tuple
from weft.graph.operator import Operator
from weft.graph.visit import map_functions, rewrite

_HASHED_ELEMENTS = 64
"""Elements of a constant that its hash looks at."""


@dataclass(frozen=True, slots=True)
class CommonSubexpressions:
    """Replace equal pure operator calls (same operands, same attributes) by one node; likewise constants, tuples,
    fields. What both branches of an ``if`` compute is its value.

    Operands of commutative operators are compared in any order. Inner functions are worked on by themselves, so that
    closed ones stay closed.
    """

    name: str = "cse"

    def run(self, module: Module) -> Module:
        return map_functions(module, self._function)

    def _function(self, function: Function) -> Function:
        table: dict[Hashable, GraphExpr] = {}

        def unify(expr: GraphExpr) -> GraphExpr | None:
            if isinstance(expr, Function) and expr is not function:
                return expr if expr.is_primitive else self._function(expr)
            if isinstance(expr, If) and expr.then is expr.otherwise and expr.type == expr.then.type:
                return expr.then
            key = _key(expr)
            return None if key is None else table.setdefault(key, expr)

        body = rewrite(function.body, unify, into_functions=False)
        return function if body is function.body else Function(function.params, body, function.attrs, function.origin)


class _Content:
    """The bytes of a constant as a key. The hash looks at a sample of the elements, and only constants of equal hash
    are compared in full: to read all weights of a model several times would take longer than everything else here."""

    __slots__ = ("data", "hashed")

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        self.data = data
        self.hashed = hash(
            data.flat[:: max(1, data.size // _HASHED_ELEMENTS)].tobytes()
        )  # reshape might copy all of it

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Content) or self.hashed != other.hashed:
            return False
        if self.data is other.data:
            return True
        a, b = np.ascontiguousarray(self.data), np.ascontiguousarray(other.data)
        return a.shape == b.shape and np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))


def _key(expr: GraphExpr) -> Hashable | None:
    """A key that equal expressions share; operands are compared by identity. None: ``expr`` equals no other."""
    if isinstance(expr, Constant):
        return expr.type, _Content(expr.data)
    if isinstance(expr, Tuple):
        return "tuple", expr.fields
    if isinstance(expr, Project):
        return "project", expr.value, expr.index
    if isinstance(expr, Call) and isinstance(expr.target, Operator) and expr.target.pure:
        args = expr.args
        if expr.target.commutative and len(args) == 2 and id(args[0]) > id(args[1]):
            args = args[::-1]
        return expr.target, args, _typed(expr.attrs)
    return None


def _typed(value: object) -> Hashable:
    """A key that tells ``1`` from ``1.0`` and from ``True``."""
    if isinstance(value, tuple):
        return tuple(_typed(v) for v in value)
    if hasattr(value, "items"):
        return tuple((k, _typed(v)) for k, v in value.items())
    if isinstance(value, float):
        return float, value.hex()
    return type(value), value
