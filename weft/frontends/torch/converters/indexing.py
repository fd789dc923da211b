"""Operators that read or write elements at places given by tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.frontends.common.problems import Unsupported
from weft.frontends.common.sizes import arithmetic, product
from weft.frontends.common.value_ranges import value_range, within
from weft.frontends.torch.converters.elementwise import truth
from weft.frontends.torch.converters.movement import place, slice_bounds, sliced
from weft.frontends.torch.converters.promotion import operand
from weft.frontends.torch.node import AtenNode, Result
from weft.graph.nodes import Constant, GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import BOOL, INDEX

Converter = Callable[[AtenNode], Result]


def indices(node: AtenNode, x: GraphExpr, size: Dim, *, wrap: bool = True) -> GraphExpr:
    """``x`` as indices into an axis of ``size``; those that are not certain to be inside are checked in a run."""
    x = node.cast(x, INDEX)
    low: Dim = arithmetic("sub", 0, size) if wrap else 0
    high = arithmetic("sub", size, 1)
    known, _ = value_range(x)
    if known is not None and within(known, low, high):
        return _wrapped(node, x, size)
    return node.call("in_range", x, low=(low,), high=(high,), what=f"the indices of {node.name}")


def _wrapped(node: AtenNode, x: GraphExpr, size: Dim) -> GraphExpr:
    """Known indices below 0 count from the end."""
    if not isinstance(x, Constant) or not isinstance(size, int) or not x.data.size or x.data.min() >= 0:
        return x
    return node.constant(np.where(x.data < 0, x.data + size, x.data))


def _index_select(node: AtenNode) -> Result:
    x, where = node.data("self"), node.data("index")
    if not x.tensor.rank:
        return x
    axis = node.axis("dim", x.tensor.rank)
    where = node.reshaped(where, (product(where.tensor.shape),))
    return node.call("gather", x, indices(node, where, x.tensor.shape[axis]), axis=axis)


def _gather(node: AtenNode) -> Result:
    x, where = node.data("self"), node.data("index")
    if not x.tensor.rank:
        return node.expanded(x, where.tensor.shape)
    axis = node.axis("dim", x.tensor.rank)
    if not where.tensor.rank:
        where = node.reshaped(where, (1,))
    for d, size in enumerate(where.tensor.shape):
        if d != axis and size != x.tensor.shape[d]:
            x = sliced(node, x, d, 0, size)
    made = node.call("gather_elements", x, indices(node, where, x.tensor.shape[axis]), axis=axis)
    return node.reshaped(made, node.shape)


def _embedding(node: AtenNode) -> Result:
    table, where = node.data("weight"), node.data("indices")
    return node.call("gather", table, indices(node, where, table.tensor.shape[0]), axis=0)


# --- indexing with tensors --------------------------------------------------------------------------------------------


def marked(node: AtenNode, x: GraphExpr, size: Dim | None = None) -> GraphExpr:
    """The indices of the elements that are not 0, a row for each axis; their number is known at run time."""
    shape = x.tensor.shape
    marks = node.reshaped(truth(node, x), (product(shape),))
    if marks.tensor.shape[0] == 0:
        return node.constant(np.zeros((len(shape), 0), np.int64))
    total = node.call("reduce_sum", node.cast(marks, INDEX), axes=(0,), keepdims=True)
    (count,) = node.importer.bound(total, "marked")
    return node.call("places", marks, size=count, shape=tuple(shape))


def _nonzero(node: AtenNode) -> Result:
    x = node.data("self")
    if not x.tensor.rank:
        raise Unsupported("nonzero of a tensor without dimensions is not supported")
    found = marked(node, x)
    node.table.learn(node.said.shape[0], found.tensor.shape[1])
    return node.call("transpose", found, perm=(1, 0))


def _masked_select(node: AtenNode) -> Result:
    x, mask = node.data("self"), node.data("mask")
    shape = node.call("where", mask, x, x).tensor.shape
    x, mask = node.expanded(x, shape), node.expanded(mask, shape)
    flat, marks = (node.reshaped(t, (product(shape),)) for t in (x, mask))
    found = marked(node, marks)
    node.table.learn(node.said.shape[0], found.tensor.shape[1])
    return node.call("gather", flat, node.reshaped(found, (found.tensor.shape[1],)), axis=0)


def _given_indices(node: AtenNode, x: GraphExpr) -> list[GraphExpr | None]:
    """The indices, one for each axis; masks become the places that they mark."""
    found: list[GraphExpr | None] = []
    for value in node.value("indices"):
        if value is None:
            found.append(None)
            continue
        tensor = node.as_data(value)
        if tensor.tensor.dtype in (BOOL, "uint8"):
            rows = marked(node, tensor)
            count = rows.tensor.shape[1]
            for axis in range(tensor.tensor.rank):
                found.append(node.reshaped(sliced(node, rows, 0, axis, axis + 1), (count,)))
        else:
            found.append(tensor)
    return [*found, *[None] * (x.tensor.rank - len(found))]


def _places(
    node: AtenNode, x: GraphExpr, found: Sequence[GraphExpr | None]
) -> tuple[list[int], GraphExpr, tuple[Dim, ...]]:
    """The axes that have indices, the rows of indices (a last axis has one for each of these), and their shape."""
    axes = [i for i, t in enumerate(found) if t is not None]
    checked = [indices(node, t, x.tensor.shape[i]) for i, t in enumerate(found) if t is not None]
    sized = (
        [_positive(node, t, x.tensor.shape[a]) for a, t in zip(axes, checked, strict=True)]
        if len(axes) > 1
        else checked
    )
    shape: tuple[Dim, ...] = sized[0].tensor.shape
    for t in sized[1:]:
        shape = node.call("add", node.filled(shape, 0, INDEX), t).tensor.shape
    columns = [node.call("unsqueeze", node.expanded(t, shape), axes=(len(shape),)) for t in sized]
    rows = columns[0] if len(columns) == 1 else node.call("concat", *columns, axis=len(shape))
    return axes, rows, shape


def _positive(node: AtenNode, x: GraphExpr, size: Dim) -> GraphExpr:
    """Indices counted from the front."""
    known, _ = value_range(x)
    if known is not None and isinstance(known[0], int) and known[0] >= 0:
        return x
    below = node.call("less", x, node.constant(0, INDEX))
    return node.call("where", below, node.call("add", x, node.as_data(size)), x)


def _index(node: AtenNode) -> Result:
    """``x[i, :, j]``. Axes with indices that are neighbours are replaced in place, others come to the front."""
    x = node.data("self")
    found = _given_indices(node, x)
    axes = [i for i, t in enumerate(found) if t is not None]
    if not axes:
        return x
    if len(axes) == 1:
        (axis,) = axes
        made = node.call("gather", x, indices(node, found[axis], x.tensor.shape[axis]), axis=axis)  # type: ignore[arg-type]  # not None
        return _learned(node, made)
    axes, rows, shape = _places(node, x, found)
    rank = x.tensor.rank
    rest = [i for i in range(rank) if i not in axes]
    first = node.call("transpose", x, perm=(*axes, *rest)) if axes != list(range(len(axes))) else x
    made = node.call("gather_nd", first, rows, batch_dims=0)
    if axes == list(range(axes[0], axes[-1] + 1)) and axes[0]:  # neighbours
        n, before = len(shape), axes[0]
        perm = (*range(n, n + before), *range(n), *range(n + before, made.tensor.rank))
        made = node.call("transpose", made, perm=perm)
    return _learned(node, made)


def _learned(node: AtenNode, made: GraphExpr) -> GraphExpr:
    """``made``, whose sizes tell what new symbols of the program are."""
    for said, size in zip(node.said.shape, made.tensor.shape, strict=True):
        node.table.learn(said, size)
    return made


def _index_put(node: AtenNode) -> Result:
    """``x[i, :, j] = values``, or added to what is there."""
    x, values = node.data("self"), node.data("values")
    how = "add" if node.arguments.get("accumulate") else "none"
    given = [v if v is None else node.as_data(v) for v in node.value("indices")]
    if len(given) == 1 and given[0] is not None and given[0].tensor.dtype == BOOL and how == "none" and \
            product(values.tensor.shape) == 1:  # fmt: skip
        mask = given[0]
        mask = node.reshaped(mask, (*mask.tensor.shape, *(1,) * (x.tensor.rank - mask.tensor.rank)))
        one = node.reshaped(node.cast(values, x.tensor.dtype), ())
        return node.call("where", mask, one, x)
    found = _given_indices(node, x)
    axes, rows, shape = _places(node, x, found)
    rest = [i for i in range(x.tensor.rank) if i not in axes]
    perm = (*axes, *rest)
    first = node.call("transpose", x, perm=perm) if axes != list(range(len(axes))) else x
    kept = tuple(x.tensor.shape[i] for i in rest)
    neighbours = axes == list(range(axes[0], axes[-1] + 1)) and axes[0] > 0
    values = node.cast(values, x.tensor.dtype)
    if neighbours:  # values have the indices' dimensions where the axes were
        whole = (*kept[: axes[0]], *shape, *kept[axes[0] :])
        values = node.expanded(values, whole)
        n, before = len(shape), axes[0]
        values = node.call("transpose", values, perm=(*range(before, before + n), *range(before),
                                                      *range(before + n, len(whole))))  # fmt: skip
    else:
        values = node.expanded(values, (*shape, *kept))
    made = node.call("scatter_nd", first, rows, values, reduction=how)
    back = tuple(int(i) for i in np.argsort(perm))
    return made if first is x else node.call("transpose", made, perm=back)


# --- scattering -------------------------------------------------------------------------------------------------------

_REDUCTIONS = {"add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scattered(node: AtenNode, x: GraphExpr, values: GraphExpr, how: str) -> GraphExpr:
    where = node.data("index")
    if not x.tensor.rank:
        x, where, values = (node.reshaped(t, (1,)) for t in (x, where, values))
    axis = node.axis("dim", x.tensor.rank)
    values = node.cast(values, x.tensor.dtype)
    for d, size in enumerate(where.tensor.shape):
        if values.tensor.shape[d] != size:
            values = sliced(node, values, d, 0, size)
    where = indices(node, where, x.tensor.shape[axis])
    made = node.call("scatter_elements", x, where, values, axis=axis, reduction=how)
    return node.reshaped(made, node.shape)


def _scatter(node: AtenNode) -> Result:
    x, where = node.data("self"), node.data("index")
    how = _REDUCTIONS[node.value("reduce")] if node.has("reduce") else "none"
    if "src" in node.arguments:
        return _scattered(node, x, node.data("src"), how)
    value = operand(node, node.value("value"), x.tensor.dtype)
    return _scattered(node, x, node.expanded(value, where.tensor.shape), how)


def _scatter_add(node: AtenNode) -> Result:
    return _scattered(node, node.data("self"), node.data("src"), "add")


def _scatter_reduce(node: AtenNode) -> Result:
    if not node.value("include_self") or node.value("reduce") not in _REDUCTIONS:
        raise Unsupported(f"scatter_reduce with '{node.value('reduce')}' and include_self={node.value('include_self')}")
    return _scattered(node, node.data("self"), node.data("src"), _REDUCTIONS[node.value("reduce")])


def _index_add(node: AtenNode) -> Result:
    x, source = node.data("self"), node.data("source")
    axis = node.axis("dim", x.tensor.rank)
    alpha = node.arguments.get("alpha", 1)
    if alpha != 1:
        source = node.call("mul", source, node.like(alpha, source))
    where = indices(node, node.data("index"), x.tensor.shape[axis])
    shape = [1] * x.tensor.rank
    column = node.reshaped(where, (*shape[:axis], where.tensor.shape[0], *shape[axis + 1 :]))
    wide = node.expanded(column, source.tensor.shape)
    return node.call("scatter_elements", x, wide, node.cast(source, x.tensor.dtype), axis=axis, reduction="add")


def _replaced(node: AtenNode, axis: int, start: Dim, end: Dim, step: int, values: GraphExpr) -> GraphExpr:
    """The operand with the elements of a slice of an axis replaced."""
    x = node.data("self")
    size = x.tensor.shape[axis]
    values = node.cast(values, x.tensor.dtype)
    if step != 1:
        count = values.tensor.shape[axis]
        where = node.call("arange", start=start, step=step, count=count, dtype=INDEX)
        shape = [1] * x.tensor.rank
        column = node.reshaped(where, (*shape[:axis], count, *shape[axis + 1 :]))
        return node.call("scatter_elements", x, node.expanded(column, values.tensor.shape), values, axis=axis,
                         reduction="none")  # fmt: skip
    before = sliced(node, x, axis, 0, start) if start != 0 else None
    after = sliced(node, x, axis, end, size) if end != size else None
    parts = [p for p in (before, values, after) if p is not None]
    return parts[0] if len(parts) == 1 else node.call("concat", *parts, axis=axis)


def _slice_scatter(node: AtenNode) -> Result:
    x = node.data("self")
    axis = node.axis("dim", x.tensor.rank)
    start, end, step = slice_bounds(node, x.tensor.shape[axis])
    return _replaced(node, axis, start, end, step, node.data("src"))


def _select_scatter(node: AtenNode) -> Result:
    x = node.data("self")
    axis = node.axis("dim", x.tensor.rank)
    at = place(node, "index", x.tensor.shape[axis])
    values = node.call("unsqueeze", node.data("src"), axes=(axis,))
    return _replaced(node, axis, at, arithmetic("add", at, 1), 1, values)


def _item(node: AtenNode) -> Result:
    """The number in a tensor. An integer becomes a size."""
    x = node.data("self")
    if isinstance(x, Constant):
        known: float = x.data.item()
        return known
    if not x.tensor.dtype.is_integer:
        return x  # a number that only other numbers are computed from
    value: Any = node.reshaped(node.cast(x, INDEX), (1,))
    (size,) = node.importer.bound(value, "item")
    node.table.learn(node.said, size)
    return size


def _one_hot(node: AtenNode) -> Result:
    x, classes = node.data("self"), int(node.number("num_classes"))
    if classes < 0:
        raise Unsupported("one_hot needs the number of classes")
    steps = node.call("arange", start=0, step=1, count=classes, dtype=INDEX)
    found = node.call("equal", node.call("unsqueeze", x, axes=(x.tensor.rank,)), steps)
    return node.cast(found, INDEX)


INDEXING: dict[str, Converter] = {
    **dict.fromkeys(("index", "_unsafe_index"), _index),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), _index_put),
    "_local_scalar_dense": _item,
    "embedding": _embedding,
    "gather": _gather,
    "index_add": _index_add,
    "index_select": _index_select,
    "masked_select": _masked_select,
    "nonzero": _nonzero,
    "one_hot": _one_hot,
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "scatter_reduce": _scatter_reduce,
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
}
