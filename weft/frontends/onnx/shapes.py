"""Shape rules: ONNX operators on small integer tensors whose elements are sizes, known or symbolic.

Each rule takes the node and the elements of its operands (object arrays; None for omitted operands). It returns
:class:`Sizes` (or a tuple of them), or None if the operator must be computed at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from weft.expr.folds import all_of, any_of
from weft.expr.nodes import Expr, logical_not
from weft.frontends.common.problems import Malformed
from weft.frontends.common.sizes import MAX_ELEMENTS, Sizes, arithmetic, choose, compare, divide_products, object_array
from weft.frontends.onnx.node import Node
from weft.frontends.onnx.tensors import dtype_of
from weft.support.dtypes import BOOL

Elements: TypeAlias = "np.ndarray[Any, Any]"
Rule: TypeAlias = Callable[[Node, "list[Any]"], "Sizes | tuple[Sizes, ...] | None"]


def _like(node: Node, elements: Elements, operand: int = 0) -> Sizes:
    return Sizes(np.asarray(elements, object), node.dtype(operand))


def _each(function: Callable[..., Any], *operands: Elements) -> Elements:
    """``function`` applied element by element, with broadcasting."""
    shape = np.broadcast_shapes(*(o.shape for o in operands))
    if int(np.prod(shape)) > MAX_ELEMENTS:
        raise Malformed("the arithmetic on shapes broadcasts to a large tensor")
    columns = [np.broadcast_to(o, shape).reshape(-1) for o in operands]
    return object_array([function(*row) for row in zip(*columns, strict=True)], shape)


def _arithmetic(op: str) -> Rule:
    def rule(node: Node, operands: list[Any]) -> Sizes:
        return _like(node, reduce(lambda a, b: _each(lambda x, y: arithmetic(op, x, y), a, b), operands))

    return rule


def _modulus(node: Node, operands: list[Any]) -> Sizes | tuple[Sizes, ...] | None:
    return None if node.flag("fmod") else _arithmetic("floormod")(node, operands)


def _comparison(op: str) -> Rule:
    def rule(node: Node, operands: list[Any]) -> Sizes | None:
        if node.dtype(0) == BOOL:
            return None
        return Sizes(_each(lambda a, b: compare(op, a, b), *operands), BOOL)

    return rule


def _logic(combine: Callable[..., Expr]) -> Rule:
    def rule(node: Node, operands: list[Any]) -> Sizes:
        def one(*values: Any) -> Any:
            made = combine(*values)
            return bool(made) if not made.children else made

        return Sizes(_each(one, *operands), BOOL)

    return rule


def _cast(node: Node, operands: list[Any]) -> Sizes | None:
    to = dtype_of(node.integer("to"))
    if to.is_integer and node.dtype(0).is_integer and to.bits >= 32:
        return Sizes(operands[0], to)
    return None


def _gather(node: Node, operands: list[Any]) -> Sizes | None:
    data, indices = operands
    if any(isinstance(i, Expr) for i in indices.flat):
        return None
    axis = node.axis(data.ndim, 0)
    return _like(node, np.take(data, indices.astype(np.int64), axis=axis))


def _slice_lists(node: Node, operands: list[Any]) -> list[Sequence[int]] | None:
    """Starts, ends, axes and steps; None if one of them is not known."""
    if len(operands) == 1:
        starts: Sequence[int] = node.integers("starts")
        given: list[Any] = [starts, node.integers("ends"), node.integers("axes", range(len(starts))), None]
    else:
        given = [None if o is None else o.reshape(-1) for o in (*operands[1:], None, None)[:4]]
        starts = given[0]
    if any(isinstance(e, Expr) for one in given if one is not None for e in one):
        return None
    defaults = (starts, starts, range(len(starts)), (1,) * len(starts))
    return [d if g is None else g for g, d in zip(given, defaults, strict=True)]


def _slice(node: Node, operands: list[Any]) -> Sizes | None:
    data, lists = operands[0], _slice_lists(node, operands)
    if lists is None:
        return None
    pick: list[Any] = [slice(None)] * data.ndim
    for start, end, axis, step in zip(*lists, strict=True):
        last = None if step < 0 and end < -data.shape[axis] else end
        pick[node.checked_axis(axis, data.ndim)] = slice(start, last, step)
    return _like(node, data[tuple(pick)])


def _concat(node: Node, operands: list[Any]) -> Sizes:
    return _like(node, np.concatenate(operands, axis=node.axis(operands[0].ndim)))


def _squeeze(node: Node, operands: list[Any]) -> Sizes:
    data, axes = operands[0], node.axes(1)
    return _like(node, np.squeeze(data) if axes is None else np.squeeze(data, tuple(axes)))


def _unsqueeze(node: Node, operands: list[Any]) -> Sizes:
    return _like(node, np.expand_dims(operands[0], node.axes(1) or ()))


def _reshape(node: Node, operands: list[Any]) -> Sizes | None:
    data = operands[0]
    target = node.integers("shape") if node.has_attribute("shape") else node.numbers(1, "shape")
    shape = [data.shape[i] if d == 0 and not node.flag("allowzero") else d for i, d in enumerate(target)]
    return _like(node, data.reshape(shape))


def _flatten(node: Node, operands: list[Any]) -> Sizes:
    data = operands[0]
    axis = node.integer("axis", 1) % (data.ndim + 1)
    return _like(node, data.reshape(int(np.prod(data.shape[:axis])), -1))


def _transpose(node: Node, operands: list[Any]) -> Sizes:
    data = operands[0]
    return _like(node, data.transpose(node.integers("perm", range(data.ndim)[::-1])))


def _where(node: Node, operands: list[Any]) -> Sizes:
    return _like(node, _each(choose, *operands), 1)


def _expand(node: Node, operands: list[Any]) -> Sizes | None:
    data, target = operands
    if any(isinstance(e, Expr) or e > MAX_ELEMENTS for e in target.flat):
        return None
    shape = np.broadcast_shapes(data.shape, tuple(target.flat))
    return None if int(np.prod(shape)) > MAX_ELEMENTS else _like(node, np.broadcast_to(data, shape).copy())


def _reduction(op: str, empty: int) -> Rule:
    def rule(node: Node, operands: list[Any]) -> Sizes | None:
        data, axes = operands[0], node.axes(1)
        if axes is None and node.flag("noop_with_empty_axes"):
            return None
        if data.ndim != 1 or axes not in (None, (0,), (-1,)):
            return None
        total = reduce(lambda a, b: arithmetic(op, a, b), data) if data.size else empty
        return _like(node, object_array([total], (1,) if node.flag("keepdims", True) else ()))

    return rule


def _divide(node: Node, operands: list[Any]) -> Sizes | tuple[Sizes, ...] | None:
    return _arithmetic("truncdiv")(node, operands) if node.dtype(0).is_integer else None


def _split(node: Node, operands: list[Any]) -> tuple[Sizes, ...] | None:
    data, axis = operands[0], node.axis(operands[0].ndim, 0)
    parts = node.axes(1, "split")
    if parts is None:
        count = node.output_count
        if data.shape[axis] % count:
            return None
        parts = (data.shape[axis] // count,) * count
    cuts = np.cumsum(parts)[:-1]
    return tuple(_like(node, piece) for piece in np.split(data, cuts, axis))


def _tile(node: Node, operands: list[Any]) -> Sizes | None:
    data, repeats = operands[0], node.numbers(1, "repeats")
    if any(r < 0 or r > MAX_ELEMENTS for r in repeats) or data.size * int(np.prod(repeats)) > MAX_ELEMENTS:
        return None
    return _like(node, np.tile(data, repeats))


def _range(node: Node, operands: list[Any]) -> Sizes | None:
    start, limit, delta = (o.reshape(-1)[0] for o in operands)
    if isinstance(delta, Expr) or delta == 0:
        return None
    distance = arithmetic("sub", limit, start)
    count = divide_products([arithmetic("add", distance, delta - 1)], [delta]) if delta > 0 else None
    if not isinstance(count, int) or count > MAX_ELEMENTS:
        return None
    return _like(node, object_array([arithmetic("add", start, i * delta) for i in range(max(count, 0))]))


def _identity(node: Node, operands: list[Any]) -> Sizes:
    return _like(node, operands[0])


def _negative(node: Node, operands: list[Any]) -> Sizes:
    return _like(node, _each(lambda e: arithmetic("sub", 0, e), operands[0]))


SHAPE_RULES: dict[str, Rule] = {
    "Add": _arithmetic("add"),
    "And": _logic(all_of),
    "Cast": _cast,
    "Concat": _concat,
    "Div": _divide,
    "Equal": _comparison("eq"),
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Greater": _comparison("gt"),
    "GreaterOrEqual": _comparison("ge"),
    "Identity": _identity,
    "Less": _comparison("lt"),
    "LessOrEqual": _comparison("le"),
    "Max": _arithmetic("max"),
    "Min": _arithmetic("min"),
    "Mod": _modulus,
    "Mul": _arithmetic("mul"),
    "Neg": _negative,
    "Not": _logic(lambda a: logical_not(a)),
    "Or": _logic(any_of),
    "Range": _range,
    "ReduceMax": _reduction("max", -(1 << 63)),
    "ReduceMin": _reduction("min", (1 << 63) - 1),
    "ReduceProd": _reduction("mul", 1),
    "ReduceSum": _reduction("add", 0),
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": _arithmetic("sub"),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
