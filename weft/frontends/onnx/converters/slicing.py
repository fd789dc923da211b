"""Operators that take parts of a tensor: Slice and Split, and the cuts that other converters use too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from weft.expr.nodes import index, make
from weft.frontends.common.problems import Malformed
from weft.frontends.common.sizes import (
    Sizes,
    arithmetic,
    bounds,
    choose,
    compare,
    decide,
    divide_products,
    is_at_most,
    object_array,
    product,
)
from weft.frontends.onnx.converters.computed_axes import slice_computed, vector
from weft.frontends.onnx.converters.selection import runtime_bounds
from weft.frontends.onnx.node import Node, Result
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim
from weft.ops.slicing import is_endless
from weft.support.dtypes import INDEX

MAX_NODES_OF_A_PART = 32
"""Most nodes of the size of a part before it becomes a symbol of its own."""


@dataclass(frozen=True, slots=True)
class Cut:
    """``size`` elements from ``start`` on, ``step`` apart (backwards if negative)."""

    start: Dim
    size: Dim
    step: int = 1


def cut(node: Node, x: GraphExpr, cuts: Mapping[int, Cut]) -> GraphExpr:
    """The part of ``x`` that the cuts select; ``cuts`` maps axes to cuts."""
    shape = x.tensor.shape
    real = {axis: c for axis, c in cuts.items() if not _is_whole(c, shape[axis])}
    if not real:
        return x
    if any(_may_end_before_first(c) for c in real.values()):
        first, steps = (
            vector(node, dims) for dims in ([c.start for c in real.values()], [c.step for c in real.values()])
        )
        sizes = tuple(c.size for c in real.values())
        return node.call("dynamic_slice", x, first.x, steps.x, axes=tuple(real), sizes=sizes)
    return node.call(
        "slice",
        x,
        begin=tuple(c.start for c in real.values()),
        end=tuple(_end(c) for c in real.values()),
        strides=tuple(c.step for c in real.values()),
        axes=tuple(real),
        in_bounds=True,
    )


def _end(c: Cut) -> Dim | None:
    """The end of a cut; None if a backward cut includes element 0, because -1 would mean the last element."""
    end = arithmetic("add", c.start, arithmetic("mul", c.size, c.step))
    if c.step > 0 or bounds(end)[0] >= 0:
        return end
    return None


def _may_end_before_first(c: Cut) -> bool:
    """Whether a step backwards ends before the first element for some sizes, but not for all."""
    if c.step > 0:
        return False
    low, high = bounds(arithmetic("add", c.start, arithmetic("mul", c.size, c.step)))
    return low < 0 <= high


def _is_whole(c: Cut, size: Dim) -> bool:
    return c.step == 1 and bool(decide("eq", c.start, 0)) and bool(decide("eq", c.size, size))


def _bound(node: Node, value: Dim, size: Dim, low: Dim, high: Dim) -> Dim:
    """A start or end of a slice, counted from the front and limited to ``low … high``; negative where ``high`` is."""
    if isinstance(value, int):
        if isinstance(size, int) and isinstance(low, int) and isinstance(high, int):
            return min(max(value if value >= 0 else size + value, low), high)
        if is_endless(value):
            return high if value > 0 else low
        if value == -1 and high is not size:
            return high  # the last element
        counted = value if value >= 0 else arithmetic("add", size, value)
        return arithmetic("min", arithmetic("max", counted, low), high)
    exact = node.importer.readers.only_join(node.proto.output[0])
    least, most = bounds(value)
    if most < 0:
        value = arithmetic("add", size, value)
    elif least < 0:
        value = _from_front(node, value, size, low, exact)
    if decide("le", low, value) is None:
        value = arithmetic("max", value, low)
    if decide("le", value, high) is None and not exact:
        node.importer.assume("le", value, high, node.name)
        return value
    return arithmetic("min", value, high)


def _from_front(node: Node, value: Dim, size: Dim, low: Dim, exact: bool) -> Dim:
    """A bound that may be negative, and then counts from the end.

    Unless it must be ``exact``, a bound k elements before the end is assumed to be inside the axis: what it leaves then
    has a size that is known.
    """
    before_end = arithmetic("sub", size, value)
    if isinstance(before_end, int) and before_end >= 0:
        if not exact:
            node.importer.assume("ge", value, 0, node.name)
            return value
        if before_end <= 2 and low == 0:  # where it is negative, the axis ends before the place that it counts to
            return arithmetic("max", value, 0)
    return choose(compare("lt", value, 0), arithmetic("add", size, value), value)


def sliced(node: Node, size: Dim, start: Dim, end: Dim, step: int) -> Cut:
    """The elements of an axis that ``[start:end:step]`` selects. Where more than joins and operators on single elements
    reads them, symbolic bounds are assumed not to be beyond the end; this becomes a requirement of the model."""
    if step == 0:
        raise Malformed("its step is 0")
    if step > 0:
        if (start, end) == (0, 1) or (start == -1 and isinstance(end, int) and end > 0 and is_endless(end)):
            return _one(node, size, first=start == 0)
        first, last = _bound(node, start, size, 0, size), _bound(node, end, size, 0, size)
        if isinstance(start, int) and start >= 0 and last is size:  # the form in which counts of parts are compared
            distance = arithmetic("max", arithmetic("sub", size, start), 0)
        else:
            distance = arithmetic("max", arithmetic("sub", last, first), 0)
        count = distance if step == 1 else divide_products([arithmetic("add", distance, step - 1)], [step])
        return Cut(first, _short(node, count), step)
    top = arithmetic("sub", size, 1)
    first, last = _bound(node, start, size, 0, top), _bound(node, end, size, -1, top)
    distance = arithmetic("max", arithmetic("sub", first, last), 0)
    count = distance if step == -1 else divide_products([arithmetic("add", distance, -step - 1)], [-step])
    return Cut(0, 0) if count == 0 else Cut(first, _short(node, count), step)


def _short(node: Node, count: Dim) -> Dim:
    """``count``; a symbol whose value the run computes where the expression is long.

    Sums of parts of different sizes (the even and the odd elements of an axis) have a size that mentions both, so
    halving and adding again and again, as wavelets do, would double the expression each time.
    """
    if isinstance(count, int) or is_at_most(count, MAX_NODES_OF_A_PART):
        return count
    value = Sizes(object_array([count], (1,)), INDEX)
    return node.importer.bound(node.importer.materialize(node, value), "part")[0]


def _one(node: Node, size: Dim, first: bool) -> Cut:
    """The first or the last element of an axis; none of an axis of size 0.

    Where more than joins and operators on single elements reads the result, the axis is assumed to have an element, so
    that the size is known to be 1: models take the last token like this, and a size that may be 0 would cost all
    kernels behind it.
    """
    if decide("ge", size, 1) is None and node.importer.readers.only_join(node.proto.output[0]):
        count = arithmetic("min", size, 1)
        return Cut(0 if first else arithmetic("sub", size, count), count)
    if decide("ge", size, 1) is None:
        node.importer.assume("ge", size, 1, node.name)
    elif not decide("ge", size, 1):
        return Cut(0, 0)
    return Cut(0 if first else arithmetic("sub", size, 1), 1)


def _slice(node: Node) -> Result:
    x = node.data(0)
    rank = x.tensor.rank
    starts: Sequence[Dim]
    ends: Sequence[Dim]
    if node.opset < 10:
        starts, ends = node.integers("starts"), node.integers("ends")
        axes, steps = node.integers("axes", range(len(starts))), (1,) * len(starts)
    else:
        count = product(node.shape(1))
        if not isinstance(count, int) and not node.has(3):  # the first axes, as many as there are starts
            first = node.call("arange", start=0, step=1, count=count, dtype="int64")
            given = [*node.inputs[:3], first, *node.inputs[4:]]
            return _slice(node.altered(tuple(given)))
        axes = tuple(range(count if isinstance(count, int) else 0))
        if node.is_computed(3) or node.is_computed(4):
            known = node.numbers(3, "axes") if node.has(3) and not node.is_computed(3) else axes
            return slice_computed(node, x, None if node.is_computed(3) else known)
        axes = node.numbers(3, "axes") if node.has(3) else axes
        steps = node.numbers(4, "steps") if node.has(4) else (1,) * len(axes)
        if any(s < 0 for s in steps) and (node.is_computed(1) or node.is_computed(2)):
            return slice_computed(node, x, axes)
        starts, ends = (_slice_bounds(node, x, i, axes) for i in (1, 2))
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise Malformed("its starts, ends, axes and steps have different lengths")
    cuts = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = node.checked_axis(axis, rank)
        cuts[place] = sliced(node, x.tensor.shape[place], start, end, step)
    return cut(node, x, cuts)


def _slice_bounds(node: Node, x: GraphExpr, i: int, axes: Sequence[int]) -> Sequence[Dim]:
    """Starts (operand 1) or ends (operand 2)."""
    what = ("starts", "ends")[i - 1]
    if node.elements(i) is not None:
        return node.dims(i, what)
    sizes = [x.tensor.shape[node.checked_axis(a, x.tensor.rank)] for a in axes]
    return runtime_bounds(node, node.data(i), sizes, what, i)


def split_sizes(node: Node, x: GraphExpr, axis: int, parts: Sequence[Dim]) -> list[GraphExpr]:
    """``x`` split into consecutive parts of these sizes."""
    return [x] if len(parts) == 1 else list(node.calls("split", x, axis=axis, sizes=tuple(parts)))


def _split(node: Node) -> Result:
    x = node.data(0)
    axis = node.axis(x.tensor.rank, 0)
    size = x.tensor.shape[axis]
    if node.has_attribute("split"):
        return split_sizes(node, x, axis, node.integers("split"))
    if node.has(1):
        return split_sizes(node, x, axis, node.dims(1, "split"))
    count = node.integer("num_outputs", len(node.proto.output))
    if not 0 < count <= len(node.proto.output) + 1:
        raise Malformed(f"it has {len(node.proto.output)} outputs, but splits into {count}")
    even = divide_products([size], [count])
    if not node.has_attribute("num_outputs") or arithmetic("mul", even, count) == size:
        return split_sizes(node, x, axis, [even] * count)
    part = divide_products([arithmetic("add", size, count - 1)], [count])
    last = arithmetic("sub", size, arithmetic("mul", part, count - 1))
    message = f"{node.name}: {size} elements in dimension {axis} do not make {count} parts of {part}"
    node.importer.require(make("ge", index(last), index(0)), message)
    return split_sizes(node, x, axis, [*[part] * (count - 1), last])


SLICING: dict[str, Callable[[Node], Result]] = {"Slice": _slice, "Split": _split}
