"""Operators that move elements: reshaping, joining, repeating, gathering, scattering; constants and ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.expr.nodes import Expr, index, make
from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.common.sizes import (
    Sizes,
    arithmetic,
    divide_products,
    object_array,
    product,
)
from weft.frontends.onnx.converters.computed_axes import (
    ComputedAxes,
    integers,
    squeeze_computed,
    unsqueeze_computed,
    vector,
)
from weft.frontends.onnx.converters.elementwise import cast_to
from weft.frontends.onnx.converters.index_range import index_tuples, indices
from weft.frontends.onnx.converters.joins import joined
from weft.frontends.onnx.converters.numbers import Traced
from weft.frontends.onnx.converters.selection import SELECTION, runtime_range, runtime_shape
from weft.frontends.onnx.converters.slicing import Cut, cut
from weft.frontends.onnx.node import Node, Result
from weft.frontends.onnx.tensors import dtype_of
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim
from weft.ops.relations import broadcast
from weft.support.dtypes import BOOL, INDEX, UINT8


def known_or_sizes(node: Node, dims: Sequence[Dim], dtype: str = INDEX, *, scalar: bool = False) -> Result:
    """A one-dimensional tensor of sizes (or a scalar with one size): a constant if all are known."""
    elements = object_array(list(dims), () if scalar else None)
    value = Sizes(elements, INDEX)
    return node.as_data(value) if value.is_known else value


def _shape(node: Node) -> Result:
    shape = node.shape(0)
    start, end = node.integer("start", 0), node.integer("end", len(shape))
    return known_or_sizes(node, shape[slice(start, end)])


def _size(node: Node) -> Result:
    return known_or_sizes(node, [product(node.shape(0))], scalar=True)


def reshaped(node: Node, x: GraphExpr, shape: Sequence[Dim]) -> GraphExpr:
    """``x`` in another shape; ``x`` itself if it has that shape."""
    return x if x.tensor.shape == tuple(shape) else node.call("reshape", x, shape=tuple(shape))


def _reshape(node: Node) -> Result:
    x = node.data(0)
    if node.opset >= 5 and node.elements(1) is None:
        return reshaped(node, x, runtime_shape(node, x, node.data(1)))
    target = node.integers("shape") if node.opset < 5 else node.dims(1, "shape")
    return reshaped(node, x, resolved_shape(x.tensor.shape, target, copy_zeros=not node.flag("allowzero")))


def resolved_shape(source: Sequence[Dim], target: Sequence[Dim], *, copy_zeros: bool = True) -> tuple[Dim, ...]:
    """The target of a Reshape with 0 (copy the size) and -1 (infer the size) replaced. Raises Malformed."""
    out = list(target)
    for i, d in enumerate(out):
        if isinstance(d, int) and d == 0 and copy_zeros:
            if i >= len(source):
                raise Malformed(
                    f"its shape {list(target)} copies dimension {i} of a tensor of {len(source)} dimensions"
                )
            out[i] = source[i]
        elif isinstance(d, int) and d < -1:
            raise Malformed(f"its shape {list(target)} has the size {d}")
    holes = [i for i, d in enumerate(out) if isinstance(d, int) and d == -1]
    if len(holes) > 1:
        raise Malformed(f"its shape {list(target)} has more than one -1")
    if holes:
        rest = [d for i, d in enumerate(out) if i != holes[0]]
        if product(rest) == 0:
            raise Malformed(f"its shape {list(target)} leaves -1 undetermined")
        out[holes[0]] = divide_products(source, rest)
    return tuple(out)


def _flatten(node: Node) -> Result:
    x = node.data(0)
    shape, axis = x.tensor.shape, node.integer("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise Malformed(f"its axis {axis} is out of range for a tensor of {len(shape)} dimensions")
    axis += len(shape) if axis < 0 else 0
    return reshaped(node, x, (product(shape[:axis]), product(shape[axis:])))


def _squeeze(node: Node) -> Result:
    x = node.data(0)
    if node.is_computed(1):
        return squeeze_computed(node, x)
    axes = node.axes(1)
    shape = x.tensor.shape
    if axes is None:
        gone = {i for i, d in enumerate(shape) if d == 1}
        for i, d in enumerate(shape):
            if not isinstance(d, int):
                text = f"{node.name}: dimension {i} ({d}) must not be 1, as it would then be removed"
                node.importer.require(make("ne", index(d), index(1)), text)
    else:
        gone = {node.checked_axis(a, len(shape)) for a in axes}
    for axis in gone:
        if isinstance(shape[axis], int) and shape[axis] != 1:
            raise Malformed(f"it removes dimension {axis} of size {shape[axis]}")
    return node.call("squeeze", x, axes=tuple(sorted(gone))) if gone else x


def _unsqueeze(node: Node) -> Result:
    x = node.data(0)
    if node.is_computed(1):
        return unsqueeze_computed(node, x)
    axes = node.axes(1)
    if axes is None:
        raise Malformed("it needs axes")
    rank = x.tensor.rank + len(axes)
    new = {node.checked_axis(a, rank) for a in axes}
    if len(new) != len(axes):
        raise Malformed(f"an axis appears twice in {list(axes)}")
    return node.call("unsqueeze", x, axes=tuple(sorted(new))) if new else x


def _transpose(node: Node) -> Result:
    x = node.data(0)
    return node.call("transpose", x, perm=node.integers("perm", tuple(range(x.tensor.rank))[::-1]))


def _concat(node: Node) -> Result:
    operands = node.all_data()
    if not operands:
        raise Malformed("it has no inputs")
    axis = node.axis(operands[0].tensor.rank, 1 if node.opset < 4 else None)
    full = [x for x in operands if not (x.tensor.rank == 1 and x.tensor.shape == (0,))]
    if len(full) == 1:
        return full[0]
    return joined(node, full or operands[:1], axis)


# --- repetition --------------------------------------------------------------------------------------------


def _tile(node: Node) -> Result:
    x = node.data(0)
    if node.opset < 6:
        return node.call("tile", x, repeats=_repeats_along(node, x.tensor.rank))
    return node.call("tile", x, repeats=node.dims(1, "repeats"))


def _repeats_along(node: Node, rank: int) -> tuple[Dim, ...]:
    """The repeats of Tile version 1: ``tiles`` (operand 1) along one ``axis`` (operand 2). Both may be floats."""
    tiles, axis = (Traced(node, node.data(i)).to(INDEX).x for i in (1, 2))
    numbers = node.altered((node.value(0), tiles, axis))
    if not numbers.is_computed(2):
        place = node.checked_axis(numbers.numbers(2, "axis")[0], rank)
        many = numbers.dims(1, "tiles")[0]
        return tuple(many if i == place else 1 for i in range(rank))
    chosen = ComputedAxes(numbers, 2, rank, "axis")
    return chosen.bound(chosen.spread(integers(numbers, 1), vector(node, [1] * rank)))


def _expand(node: Node) -> Result:
    x = node.data(0)
    shape = broadcast("Expand", x.tensor.shape, node.dims(1, "shape"))
    return x if shape == x.tensor.shape else node.call("broadcast_to", x, shape=shape)


# --- constants and ranges -------------------------------------------------------------------------------------------


def _constant(node: Node) -> Result:
    if node.has_attribute("value"):
        return node.constant(node.tensor("value"))
    scalars: dict[str, tuple[Callable[[str], Any], Any]] = {
        "value_float": (node.real, np.float32),
        "value_int": (node.integer, np.int64),
        "value_floats": (node.reals, np.float32),
        "value_ints": (node.integers, np.int64),
    }
    for name, (read, dtype) in scalars.items():
        if node.has_attribute(name):
            return node.constant(np.array(read(name), dtype))
    given = ", ".join(node.attributes) or "none"
    raise Unsupported(f"constants given by '{given}' are not supported")


def filled(node: Node, shape: Sequence[Dim], value: np.ndarray[Any, Any]) -> GraphExpr:
    """A tensor of one value."""
    return node.call("broadcast_to", node.constant(value.reshape(())), shape=tuple(shape))


def _constant_of_shape(node: Node) -> Result:
    value = node.tensor("value") if node.has_attribute("value") else np.zeros(1, np.float32)
    if value.size != 1:
        raise Malformed("its value must be a single number")
    shape = node.dims(0, "shape")
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise Malformed(f"its shape is {list(shape)}")
    known = [d for d in shape if isinstance(d, int)]
    if value.dtype.kind in "iub" and len(known) == len(shape) <= 1 and all(d <= 64 for d in known):
        return node.constant(np.full(known, value.reshape(-1)[0]))
    return filled(node, shape, value)


def _range(node: Node) -> Result:
    parts = [node.elements(i) for i in range(3)]
    if all(p is not None and p.size == 1 for p in parts):
        start, limit, step = (p.reshape(-1)[0] for p in parts if p is not None)
        if isinstance(step, int) and step == 0:
            raise Malformed("its step (input 'delta') is 0")
        if isinstance(step, Expr):
            return runtime_range(node)
        distance = arithmetic("sub", limit, start)
        if step < 0:
            distance = arithmetic("sub", 0, distance)
        size = abs(int(step))
        count = divide_products([arithmetic("add", distance, size - 1)], [size])
        count = arithmetic("max", count, 0)
        return node.call("arange", start=start, step=step, count=count, dtype=node.dtype(0))
    if any(p is None and node.array(i) is None for i, p in enumerate(parts)):
        return runtime_range(node)
    start, limit, step = (node.known(i, what).reshape(-1)[0] for i, what in enumerate(("start", "limit", "delta")))
    if not step:
        raise Malformed("its step (input 'delta') is 0")
    count = max(0, int(np.ceil((limit - start) / step)))
    if count > 1 << 24:
        raise Unsupported(f"a range of {count:,} numbers is too long")
    return node.constant((start + np.arange(count) * step).astype(node.dtype(0).numpy))


def _eye_like(node: Node) -> Result:
    shape = node.shape(0)
    if len(shape) != 2:
        raise Malformed("its input must be a matrix")
    dtype = dtype_of(node.integer("dtype")) if node.has_attribute("dtype") else node.dtype(0)
    return node.call("eye", rows=shape[0], columns=shape[1], k=node.integer("k", 0), dtype=dtype)


def _trilu(node: Node) -> Result:
    x, upper = node.data(0), node.flag("upper", True)
    if node.has(1) and node.array(1) is None:
        return _trilu_computed(node, Traced(node, x), upper)
    k = int(node.known(1, "k").reshape(-1)[0]) if node.has(1) else 0
    return node.call("trilu", x, upper=upper, k=k)


def _trilu_computed(node: Node, x: Traced, upper: bool) -> GraphExpr:
    """The part of matrices above or below a diagonal whose index is computed."""
    rows, columns = (Traced(node, node.call("arange", count=d, dtype=INDEX)) for d in x.shape[-2:])
    distance = columns - rows.reshape(x.shape[-2], 1)
    k = integers(node, 1).reshape()
    kept = distance >= k if upper else distance <= k
    return kept.choose(x, 0).x


# --- gathering and scattering ---------------------------------------------------------------------------------------


def _gather(node: Node) -> Result:
    x = node.data(0)
    axis = node.axis(x.tensor.rank, 0)
    return node.call("gather", x, indices(node, 1, x.tensor.shape[axis]), axis=axis)


def _gather_elements(node: Node) -> Result:
    x = node.data(0)
    axis = node.axis(x.tensor.rank, 0)
    return node.call("gather_elements", x, indices(node, 1, x.tensor.shape[axis]), axis=axis)


def _gather_nd(node: Node) -> Result:
    x, batch = node.data(0), node.integer("batch_dims", 0)
    return node.call("gather_nd", x, index_tuples(node, 1, x.tensor.shape[max(batch, 0) :]), batch_dims=batch)


def _reduction(node: Node) -> str:
    name = node.text("reduction", "none")
    if name not in ("none", "add", "mul", "max", "min"):
        raise Malformed(f"its reduction is '{name}'")
    return name


def _scattered(node: Node, name: str, places: GraphExpr, **attrs: Any) -> Result:
    """For bools, a sum is the maximum and a product the minimum; they are scattered as bytes."""
    x, update, how = node.data(0), node.data(2), _reduction(node)
    if how == "none" or x.tensor.dtype != BOOL:
        return node.call(name, x, places, update, reduction=how, **attrs)
    x, update = (cast_to(node, v, UINT8) for v in (x, update))
    how = {"add": "max", "mul": "min"}.get(how, how)
    return cast_to(node, node.call(name, x, places, update, reduction=how, **attrs), BOOL)


def _scatter_elements(node: Node) -> Result:
    x = node.data(0)
    axis = node.axis(x.tensor.rank, 0)
    return _scattered(node, "scatter_elements", indices(node, 1, x.tensor.shape[axis]), axis=axis)


def _scatter_nd(node: Node) -> Result:
    return _scattered(node, "scatter_nd", index_tuples(node, 1, node.data(0).tensor.shape))


def _one_hot(node: Node) -> Result:
    places, values = node.data(0), node.data(2)
    depth = node.dims(1, "depth")[0] if node.dtype(1).is_integer else _real_depth(node)
    rank = places.tensor.rank + 1
    axis = node.axis(rank, -1)
    places = cast_to(node, places, INDEX)
    wrapped = node.call("where", node.call("less", places, node.constant(0, "int64")),
                        node.call("add", places, _size_scalar(node, depth)), places)  # fmt: skip
    wrapped = reshaped(node, wrapped, (*wrapped.tensor.shape[:axis], 1, *wrapped.tensor.shape[axis:]))
    steps = node.call("arange", start=0, step=1, count=depth, dtype="int64")
    steps = reshaped(node, steps, (depth, *(1,) * (rank - 1 - axis)))
    off, on = (reshaped(node, cut(node, values, {0: Cut(i, 1)}), ()) for i in (0, 1))
    return node.call("where", node.call("equal", wrapped, steps), on, off)


def _real_depth(node: Node) -> Dim:
    """The depth of a OneHot, given as a float."""
    found = node.array(1)
    if found is not None:
        return int(found.reshape(-1)[0])
    return node.bound(cast_to(node, node.data(1), INDEX), "depth", 1)[0]


def _size_scalar(node: Node, size: Dim) -> GraphExpr:
    return node.as_data(Sizes(object_array([size], ()), INDEX))


def _reverse_sequence(node: Node) -> Result:
    x = node.data(0)
    time = node.axis(x.tensor.rank, 0, "time_axis")
    lengths = indices(node, 1, arithmetic("add", x.tensor.shape[time], 1), wrap=False)
    return node.call("reverse_sequence", x, lengths, batch_axis=node.integer("batch_axis", 1), time_axis=time)


def _compress(node: Node) -> Result:
    x = node.data(0)
    if node.array(1) is None:
        return SELECTION["Compress"](node)
    marks = node.known(1, "condition")
    axis = node.axis(x.tensor.rank) if node.has_attribute("axis") else 0
    if not node.has_attribute("axis"):
        x = reshaped(node, x, (product(x.tensor.shape),))
    node.importer.assume("ge", x.tensor.shape[axis], len(marks), f"{node.name}: its condition")
    return node.call("gather", x, node.constant(np.flatnonzero(marks)), axis=axis)


# --- rearranging ----------------------------------------------------------------------------------------------------


def _depth_to_space(node: Node) -> Result:
    x = node.data(0)
    if x.tensor.rank != 4:
        raise Malformed(f"it needs four dimensions, not {x.tensor.rank}")
    return node.call("depth_to_space", x, block_size=node.integer("blocksize"), mode=node.text("mode", "DCR"))


def _space_to_depth(node: Node) -> Result:
    x, block = node.data(0), node.integer("blocksize")
    if node.text("mode", "DCR") == "DCR":
        return node.call("space_to_depth", x, block_size=block)
    if x.tensor.rank != 4 or block < 1:
        raise Malformed("it needs four dimensions and a positive blocksize")
    n, c, h, w = x.tensor.shape
    rows, columns = divide_products([h], [block]), divide_products([w], [block])
    split = node.call("reshape", x, shape=(n, c, rows, block, columns, block))
    moved = node.call("transpose", split, perm=(0, 1, 3, 5, 2, 4))
    return node.call("reshape", moved, shape=(n, product([c, block, block]), rows, columns))


MOVEMENT: dict[str, Callable[[Node], Result]] = {
    "Compress": _compress,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "NonZero": SELECTION["NonZero"],
    "Range": _range,
    "Reshape": _reshape,
    "ReverseSequence": _reverse_sequence,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Shape": _shape,
    "Size": _size,
    "SpaceToDepth": _space_to_depth,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
