"""Evaluates what is known at compile time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.graph import dims
from weft.graph.nodes import Call, Constant, Function, GraphExpr, If, Module, Project, Tuple
from weft.graph.operator import Operator
from weft.graph.passes.reach import results_of_blocks
from weft.graph.types import TensorType, TupleType, Type
from weft.graph.visit import map_functions, rewrite
from weft.support.errors import InputError


@dataclass(frozen=True, slots=True)
class FoldConstants:
    """Replace pure calls of constants by their values, projections of known tuples by the field, and ``if`` with a
    known condition by its branch.

    A result of more than ``max_bytes`` is folded only if it is not much larger than its operands together (packing adds
    some padding), so that a broadcast constant does not fill the memory. A result that is made of no tensor is left to
    a kernel, which writes it faster than a constant is copied. Primitive functions are left alone: constants are their
    parameters."""

    max_bytes: int = 16 << 20
    name: str = "fold_constants"

    def run(self, module: Module) -> Module:
        return map_functions(module, self._function)

    def _function(self, function: Function) -> Function:
        if function.is_primitive:
            return function
        leaving = set(results_of_blocks(function))
        made = rewrite(function, lambda e: None if e in leaving and _is_fill(e) else self._fold(e))
        assert isinstance(made, Function)
        return made

    def _fold(self, expr: GraphExpr) -> GraphExpr | None:
        if isinstance(expr, Project) and isinstance(expr.value, Tuple):
            return expr.value.fields[expr.index]
        if isinstance(expr, If) and isinstance(expr.condition, Constant):
            return expr.then if bool(expr.condition.data) else expr.otherwise
        if isinstance(expr, Call) and isinstance(expr.target, Operator) and self._foldable(expr, expr.target):
            return _evaluate(expr, expr.target)
        return None

    def _foldable(self, expr: Call, op: Operator) -> bool:
        if not op.pure or not all(isinstance(a, Constant) for a in expr.args):
            return False
        size = _nbytes(expr.type)
        if size is None or dims.is_symbolic(expr.attrs):
            return False
        operands = sum(a.data.nbytes for a in expr.args if isinstance(a, Constant))
        return size <= max(self.max_bytes, operands * 5 // 4)


def _is_fill(e: GraphExpr) -> bool:
    """Whether ``e`` is a tensor that is better computed than stored, and is made of no other."""
    return isinstance(e, Call) and isinstance(e.target, Operator) and e.target.cheap and not e.args


def _evaluate(expr: Call, op: Operator) -> GraphExpr | None:
    try:
        with np.errstate(all="ignore"):
            result = op.reference(expr.attrs, *(a.data for a in expr.args if isinstance(a, Constant)))
    except InputError:  # a check that fails when it is reached
        return None
    if isinstance(expr.type, TupleType):
        assert isinstance(result, (tuple, list))
        return Tuple(tuple(Constant(np.asarray(r), expr.origin) for r in result), expr.origin)
    made = Constant(np.asarray(result), expr.origin)
    return made if made.type == expr.type else None


def _nbytes(t: Type) -> int | None:
    """Bytes of a value of static type, None if it is not."""
    if isinstance(t, TupleType):
        parts = [_nbytes(f) for f in t.fields]
        return None if any(p is None for p in parts) else sum(p or 0 for p in parts)
    if not isinstance(t, TensorType):
        return None
    total = t.dtype.nbytes
    for d in t.shape:
        if not isinstance(d, int):
            return None
        total *= d
    return total
