"""Large constants whose elements are all equal are made where they are read, instead of stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.graph.nodes import Call, Constant, Function, GraphExpr, Module, call
from weft.graph.operator import Operator
from weft.graph.visit import map_functions, rewrite

MIN_BYTES = 64 << 10
"""Smaller constants stay in the caches, and cost little in a file."""


@dataclass(frozen=True, slots=True)
class MakeUniformConstants:
    """Where element-wise calls read large constants of one value, as expanded scalars are after folding, or scatters
    change elements of them, ``full`` makes the value instead: an operator with the attributes ``shape``, ``value`` and
    ``dtype``.

    It joins the kernel that reads it. Other operators want their operands in memory, packed for them, and keep them.
    """

    full: Operator
    name: str = "make_uniform_constants"

    def run(self, module: Module) -> Module:
        return map_functions(module, self._function)

    def _function(self, function: Function) -> Function:
        if function.is_primitive:
            return function
        made: dict[Constant, GraphExpr] = {}

        def of(operand: GraphExpr) -> GraphExpr:
            if not isinstance(operand, Constant):
                return operand
            if operand not in made:
                made[operand] = self._made(operand)
            return made[operand]

        def changed(expr: GraphExpr) -> GraphExpr | None:
            if not isinstance(expr, Call) or not isinstance(expr.target, Operator):
                return None
            count = len(expr.args) if expr.target.elementwise else 1 if expr.target.changes else 0
            operands = (*map(of, expr.args[:count]), *expr.args[count:])
            if all(new is old for new, old in zip(operands, expr.args, strict=True)):
                return None
            return Call(expr.target, operands, expr.attrs, expr.type, expr.origin)

        found = rewrite(function, changed)
        assert isinstance(found, Function)
        return found

    def _made(self, constant: Constant) -> GraphExpr:
        """``constant``, or the call that makes it."""
        data = constant.data
        if data.nbytes < MIN_BYTES or not _is_uniform(data):
            return constant
        value = data.flat[0].item()
        if not isinstance(value, (int, float)) or not np.isfinite(value):  # graphs have no literals of these
            return constant
        if value == 0 and np.signbit(value):  # equal to 0 as an attribute
            return constant
        attrs = {"shape": constant.tensor.shape, "value": value, "dtype": str(constant.tensor.dtype)}
        return call(self.full, (), attrs, origin=constant.origin)


def _is_uniform(data: np.ndarray[Any, Any]) -> bool:
    """Whether all elements have the same bits. Others are mostly told by the first few."""
    flat = data.reshape(-1).view(np.uint8).reshape(-1, data.itemsize)
    return bool((flat[:64] == flat[0]).all() and (flat == flat[0]).all())
