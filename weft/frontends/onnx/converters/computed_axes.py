"""Axes, bounds and steps that the model computes: one executable works for all their values.

A computed axis decides only sizes, and sizes may be known at run time only. The tensor is reshaped to *outer × axis ×
inner*, or each dimension is reshaped to *kept × removed* (one of the two is 1). Only the sizes of these dimensions
depend on the axis, so ordinary operators on fixed dimensions can be used.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.expr.nodes import index, make
from weft.frontends.common.sizes import Sizes, object_array, product
from weft.frontends.onnx.converters.numbers import Traced, constant
from weft.frontends.onnx.node import Node
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import INDEX

_MAX_STEP = 1 << 40
"""Larger steps are limited to this number, so that nothing overflows; no dimension is as large."""


def vector(node: Node, dims: Sequence[Dim]) -> Traced:
    """Sizes as a vector of int64."""
    return Traced(node, node.as_data(Sizes(object_array(list(dims)), INDEX)))


def integers(node: Node, i: int) -> Traced:
    """Operand ``i`` as a vector of int64."""
    x = Traced(node, node.data(i))
    return x.to(INDEX).reshape(product(x.shape))


def _places(node: Node, rank: int) -> Traced:
    return constant(node, range(rank), INDEX)


def _total(x: Traced, axis: int = 0, name: str = "reduce_sum") -> Traced:
    return x.call(name, axes=(axis,), keepdims=False)


def require(node: Node, holds: Traced, message: str) -> None:
    """Raise an error at run time if an element of a bool vector is false."""
    (every,) = node.importer.bound(_total(holds.to(INDEX), name="reduce_min").reshape(1).x, "valid")
    node.importer.require(make("eq", every, index(1)), f"{node.name}: {message}")


class ComputedAxes:
    """Operand ``i`` of a node: axes of a tensor of ``rank`` dimensions. A check at run time ensures that they differ.

    ``rows`` (axes × dimensions) is 1 if the axis names the dimension; ``flags`` (dimensions) is 1 if any axis names it.
    ``count`` is the number of axes, symbolic if it is not known. Negative axes count from ``counted`` (default: rank).
    """

    def __init__(self, node: Node, i: int, rank: int, what: str = "axes", counted: int | None = None) -> None:
        if rank == 0:
            raise node.needs(f"its input '{what}' is computed by the model, but there are no dimensions", i)
        self.node, self.rank = node, rank
        axes = integers(node, i)
        self.count = axes.shape[0]
        counted = rank if counted is None else counted
        wrapped = (axes < 0).to(INDEX) * counted + axes
        self.rows = wrapped.reshape(self.count, 1).equals(_places(node, rank).reshape(1, rank)).to(INDEX)
        self.flags = _total(self.rows, name="reduce_sum").call("minimum", 1)
        hits = _total(self.flags).reshape(1)
        wanted = "axis must be" if what == "axis" else f"{what} must differ and be"
        require(node, hits.equals(vector(node, [self.count])), f"its {wanted} from {-counted} to {rank - 1}")

    def all_if_none(self) -> Traced:
        """The flags, or 1 for all dimensions if there are no axes."""
        if isinstance(self.count, int):
            return self.flags
        none = vector(self.node, [self.count]).equals(0).to(INDEX)
        return self.flags.call("maximum", none)

    def spread(self, values: Traced, default: Traced) -> Traced:
        """A vector over the dimensions: ``values`` at the axes, ``default`` (a vector) elsewhere."""
        given = _total(self.rows * values.reshape(self.count, 1))
        return self.flags.equals(1).choose(given, default)

    def bound(self, sizes: Traced) -> tuple[Dim, ...]:
        return self.node.bound(sizes.x, "size")

    def around(self, x: Traced) -> Traced:
        """``x`` as outer × axis × inner, for a single axis."""
        node, sizes = self.node, vector(self.node, x.shape[: self.rank])
        places = _places(node, self.rank)
        place = _total(self.flags * places).reshape(1)
        outer = (places < place).choose(sizes, 1)
        inner = (places > place).choose(sizes, 1)
        axis = self.flags.equals(1).choose(sizes, 1)
        three = [_total(t, name="reduce_prod").reshape(1).x for t in (outer, axis, inner)]
        return x.reshape(*self.bound(Traced(node, node.call("concat", *three, axis=0))), *x.shape[self.rank :])

    def in_order(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """The sizes of all other dimensions, then those of the axes."""
        order = self.flags.call("argsort", axis=0)
        return self.bound(vector(self.node, shape).call("gather", order, axis=0))


def reduce_computed(node: Node, name: str, x: GraphExpr, *, keepdims: bool, empty: bool) -> GraphExpr:
    """``x`` reduced over the axes in operand 1. With ``empty``, no axes mean no dimensions, else all."""
    data, rank = Traced(node, x), x.tensor.rank
    axes = ComputedAxes(node, 1, rank)
    if not keepdims and not isinstance(axes.count, int):
        raise node.needs("the number of axes in its input 'axes' is not known, so neither is the rank of the result", 1)
    flags = axes.flags if empty else axes.all_if_none()
    sizes = vector(node, data.shape)
    if axes.count == 1:
        made = axes.around(data).call(name, axes=(1,), keepdims=False)
    else:
        kept, gone = flags.equals(1).choose(sizes * 0 + 1, sizes), flags.equals(1).choose(sizes, 1)
        both = kept.reshape(rank, 1).call("concat", gone.reshape(rank, 1), axis=1).reshape(2 * rank)
        made = data.reshape(*axes.bound(both)).call(name, axes=tuple(range(1, 2 * rank, 2)), keepdims=False)
    if keepdims:
        return made.reshape(*axes.bound(flags.equals(1).choose(sizes * 0 + 1, sizes))).x
    assert isinstance(axes.count, int)
    return made.reshape(*axes.in_order(data.shape)[: rank - axes.count]).x


def along_computed(node: Node, name: str, x: GraphExpr, **attrs: object) -> GraphExpr:
    """An operator along the single axis in operand 1; it keeps the shape."""
    axes = ComputedAxes(node, 1, x.tensor.rank, "axis")
    return axes.around(Traced(node, x)).call(name, axis=1, **attrs).reshape(*x.tensor.shape).x


def squeeze_computed(node: Node, x: GraphExpr) -> GraphExpr:
    """``x`` without the dimensions in operand 1."""
    axes = ComputedAxes(node, 1, x.tensor.rank)
    if not isinstance(axes.count, int):
        raise node.needs("the number of axes in its input 'axes' is not known, so neither is the rank of the result", 1)
    sizes = axes.in_order(x.tensor.shape)
    left = x.tensor.rank - axes.count
    for gone in sizes[left:]:
        node.importer.assume("eq", gone, 1, f"{node.name}: a dimension that it removes")
    return node.call("reshape", x, shape=sizes[:left])


def unsqueeze_computed(node: Node, x: GraphExpr) -> GraphExpr:
    """``x`` with additional dimensions of size 1 at the positions in operand 1."""
    count = product(node.shape(1))
    if not isinstance(count, int):
        raise node.needs("the number of axes in its input 'axes' is not known, so neither is the rank of the result", 1)
    axes = ComputedAxes(node, 1, x.tensor.rank + count)
    old = axes.flags * -1 + 1
    taken = (old.call("cumsum", axis=0) - 1).call("maximum", 0)
    sizes = vector(node, (*x.tensor.shape, 1)).call("gather", taken, axis=0)
    return node.call("reshape", x, shape=axes.bound(axes.flags.equals(1).choose(sizes * 0 + 1, sizes)))


def slice_computed(node: Node, x: GraphExpr, axes: Sequence[int] | None) -> GraphExpr:
    """A slice whose starts, ends or steps are computed. If ``axes`` is None, the axes are computed too."""
    starts, ends = integers(node, 1), integers(node, 2)
    steps = integers(node, 4) if node.has(4) else starts * 0 + 1
    if axes is not None:
        where = tuple(node.checked_axis(a, x.tensor.rank) for a in axes)
        sizes = vector(node, [x.tensor.shape[a] for a in where])
    else:
        where = tuple(range(x.tensor.rank))
        sizes = vector(node, x.tensor.shape)
        named = ComputedAxes(node, 3, x.tensor.rank)
        starts, ends = named.spread(starts, sizes * 0), named.spread(ends, sizes)
        steps = named.spread(steps, sizes * 0 + 1)
    return strided(node, x, where, starts, ends, steps)


def strided(node: Node, x: GraphExpr, axes: Sequence[int], starts: Traced, ends: Traced, steps: Traced) -> GraphExpr:
    """``[start:end:step]`` of each of ``axes``: vectors of their starts, ends and steps, all known at run time only."""
    sizes = vector(node, [x.tensor.shape[a] for a in axes])
    require(node, steps.equals(0).call("logical_not"), "its steps must not be 0")
    steps = steps.limited(-_MAX_STEP, _MAX_STEP)
    forwards = steps > 0
    starts, ends = ((b < 0).choose(sizes + b, b) for b in (starts, ends))
    first = starts.call("maximum", 0).call("minimum", forwards.choose(sizes, sizes - 1))
    low = forwards.choose(sizes * 0, sizes * 0 - 1)
    last = ends.call("maximum", low).call("minimum", forwards.choose(sizes, sizes - 1))
    room = forwards.choose(last - first, first - last).call("maximum", 0)
    width = steps.call("abs")
    counts = node.bound(((room + width - 1) / width).x, "size")
    return node.call("dynamic_slice", x, first.x, steps.x, axes=tuple(axes), sizes=counts)
