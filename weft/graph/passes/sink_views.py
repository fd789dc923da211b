"""Moves views behind element-wise calls, so that these can join the kernel that computes what they read.

relu(reshape(matmul(x, w)))   →   reshape(relu(matmul(x, w)))
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.graph.nodes import Call, Constant, Function, GraphExpr, Module, call
from weft.graph.operator import Operator
from weft.graph.passes.memory import is_view
from weft.graph.types import TensorType
from weft.graph.visit import map_functions, rewrite
from weft.support.errors import TypeRelationError


@dataclass(frozen=True, slots=True)
class SinkViews:
    """Swap views of computed tensors with the calls (trait ``elementwise``) that use them.

    Done where the call keeps the shape of the view and each other operand is a scalar, has one dimension that the view
    keeps as the last one, or is a view of the same shape of a tensor of the same shape.
    """

    name: str = "sink_views"

    def run(self, module: Module) -> Module:
        return map_functions(module, _function)


def _function(function: Function) -> Function:
    if function.is_primitive:
        return function
    made = rewrite(function, _sunk)
    assert isinstance(made, Function)
    return made


def _sunk(expr: GraphExpr) -> GraphExpr | None:
    if not isinstance(expr, Call) or not isinstance(expr.target, Operator) or not expr.target.elementwise:
        return None
    view = next((a for a in expr.args if _of_computed(a) and a.type == a.tensor.with_shape(expr.tensor.shape)), None)
    if not isinstance(view, Call):
        return None
    inner = view.args[0].tensor
    args = [_before(a, view, inner) for a in expr.args]
    assert isinstance(view.target, Operator)
    try:
        below = call(expr.target, [a for a in args if a is not None], expr.attrs, origin=expr.origin)
        made = call(view.target, [below, *view.args[1:]], view.attrs, origin=view.origin)
    except TypeRelationError:
        return None
    fits = None not in args and made.type == expr.type and below.tensor.shape == inner.shape
    return made if fits else None


def _of_computed(e: GraphExpr) -> bool:
    """Whether ``e`` is a view of what a kernel computes."""
    return is_view(e) and isinstance(e, Call) and isinstance(e.args[0], Call) and isinstance(e.type, TensorType)


def _before(operand: GraphExpr, view: Call, inner: TensorType) -> GraphExpr | None:
    """What ``operand`` is, seen from before the view; None where it cannot be said."""
    t = operand.tensor
    if t.rank == 0 or (isinstance(operand, Constant) and operand.data.size == 1 and t.rank <= inner.rank):
        return operand
    if t.rank == 1 and inner.rank > 0 and view.tensor.shape[-1] == inner.shape[-1]:
        return operand
    if is_view(operand) and isinstance(operand, Call) and t.shape == view.tensor.shape:
        return operand.args[0] if operand.args[0].tensor.shape == inner.shape else None
    return None
