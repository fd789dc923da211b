"""Moves views behind element-wise calls, so that these can join the kernel that computes what they read.

relu(reshape(matmul(x, w)))   →   reshape(relu(matmul(x, w)))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from weft.graph.nodes import Call, Constant, Function, GraphExpr, Module, call
from weft.graph.operator import Operator
from weft.graph.passes.aliases import is_view
from weft.graph.types import Dim, TensorType
from weft.graph.visit import map_functions, rewrite
from weft.support.errors import TypeRelationError

Shape: TypeAlias = "Sequence[Dim]"


@dataclass(frozen=True, slots=True)
class SinkViews:
    """Swap views of computed tensors with the calls (trait ``elementwise``) that use them.

    Done where the call keeps the shape of the view and each other operand is a scalar, has one dimension that the view
    keeps as the last one, or is a view of the same shape of a tensor of the same shape. With ``reshape``, a view with
    the attribute ``shape``, it is also done where the other operands can be reshaped so that they broadcast alike.
    """

    reshape: Operator | None = None
    name: str = "sink_views"

    def run(self, module: Module) -> Module:
        return map_functions(module, self._function)

    def _function(self, function: Function) -> Function:
        if function.is_primitive:
            return function
        made = rewrite(function, lambda e: _sunk(e, self.reshape))
        assert isinstance(made, Function)
        return made


def _sunk(expr: GraphExpr, reshape: Operator | None) -> GraphExpr | None:
    if not isinstance(expr, Call) or not isinstance(expr.target, Operator) or not expr.target.elementwise:
        return None
    view = next((a for a in expr.args if _of_computed(a) and a.type == a.tensor.with_shape(expr.tensor.shape)), None)
    if not isinstance(view, Call):
        return None
    inner = view.args[0].tensor
    args = [_before(a, view, inner, reshape) for a in expr.args]
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


def _before(operand: GraphExpr, view: Call, inner: TensorType, reshape: Operator | None) -> GraphExpr | None:
    """``operand`` in the shape from before the view; None where there is no such shape."""
    t = operand.tensor
    if t.rank == 0 or (isinstance(operand, Constant) and operand.data.size == 1 and t.rank <= inner.rank):
        return operand
    if t.rank == 1 and inner.rank > 0 and view.tensor.shape[-1] == inner.shape[-1]:
        return operand
    same_view = is_view(operand) and t.shape == view.tensor.shape
    if same_view and isinstance(operand, Call) and operand.args[0].tensor.shape == inner.shape:
        return operand.args[0]
    shape = _broadcast_before(t.shape, view.tensor.shape, inner.shape) if reshape is not None else None
    return call(reshape, [operand], {"shape": shape}) if shape is not None and reshape is not None else None


def _broadcast_before(operand: Shape, after: Shape, before: Shape) -> Shape | None:
    """The shape in which the same elements broadcast to ``before`` as ``operand`` does to ``after``;
    None where there is none."""
    padded = (1,) * (len(after) - len(operand)) + tuple(operand)
    found: list[Dim] = []
    for left, right in _runs(after, before):
        part = [padded[d] for d in left]
        if all(_is(p, 1) for p in part):
            found += [1] * len(right)
        elif all(_is(p, after[d]) for p, d in zip(part, left, strict=True)):
            found += [before[d] for d in right]
        else:
            return None
    return tuple(found)


def _runs(a: Shape, b: Shape) -> Iterator[tuple[range, range]]:
    """Both shapes cut into the shortest runs of dimensions that are known to hold equally many elements."""
    i = j = 0
    while i < len(a) and j < len(b):
        left, right = i + 1, j + 1
        if not _is(a[i], b[j]):
            have, want = a[i], b[j]
            while isinstance(have, int) and isinstance(want, int) and have != want:
                if have < want and left < len(a):
                    more, left = a[left], left + 1
                    have = have * more if isinstance(more, int) else more
                elif want < have and right < len(b):
                    more, right = b[right], right + 1
                    want = want * more if isinstance(more, int) else more
                else:
                    break
            if not (isinstance(have, int) and _is(have, want)):
                left, right = len(a), len(b)
        yield range(i, left), range(j, right)
        i, j = left, right
    if i < len(a) or j < len(b):
        yield range(i, len(a)), range(j, len(b))


def _is(a: Dim, b: Dim) -> bool:
    """Whether two sizes are certainly equal."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)
