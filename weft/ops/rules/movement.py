"""Movement of elements: operators that move nothing are removed, chains become one operator, transposes cancel.

All rules are exact.

Transposes move behind element-wise calls and views that do not mix their dimensions, towards transposes and
contractions that they can be combined with::

    relu(transpose(x))                 →   transpose(relu(x))
    transpose(reshape(transpose(x)))   →   reshape(transpose(x))       if the permuted dimensions stay separate
    reshape(transpose(reshape(x)))     →   transpose(x)                where the views join dimensions and part them
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.graph.nodes import Call, Constant, GraphExpr, Project, Tuple, call
from weft.graph.operator import Attrs, Operator
from weft.graph.pattern import GraphMatch, GraphRule, anything, constant, op, project, rest
from weft.graph.types import Dim
from weft.ops import relations as rel
from weft.ops.catalogue import OPERATORS
from weft.ops.rules.cleanup import keep_x
from weft.ops.rules.parts import (
    BROADCAST_TO,
    CONCAT,
    FLIP,
    GATHER,
    MATMUL,
    PAD,
    REDUCE_MAX,
    REDUCE_MEAN,
    REDUCE_MIN,
    REDUCE_SUM,
    RESHAPE,
    SLICE,
    SPLIT,
    SQUEEZE,
    TILE,
    TRANSPOSE,
    UNSQUEEZE,
    VIEWS,
    same_type,
    try_call,
)

_x, _y = anything("x"), anything("y")
ELEMENTWISE = tuple(o for o in OPERATORS.values() if o.elementwise)
BROADCASTING = tuple(
    OPERATORS[name]
    for name in (
        *("add", "sub", "mul", "div", "maximum", "minimum", "pow", "mod", "equal", "not_equal", "less", "less_equal"),
        *("greater", "greater_equal", "logical_and", "logical_or", "logical_xor", "where"),
    )
)


# Views.


def _as_reshape(m: GraphMatch) -> GraphExpr | None:
    return try_call(RESHAPE, [m.x], {"shape": m.root.tensor.shape}, m.root)


def permutation(e: Call) -> tuple[int, ...]:
    """Which dimension of the operand becomes each dimension of a transpose's result."""
    rank = e.tensor.rank
    perm = e.attrs.perm
    return tuple(reversed(range(rank))) if perm is None else tuple(p % rank for p in perm)


def _transpose_as_view(m: GraphMatch) -> GraphExpr | None:
    """A transpose that moves only dimensions of size 1 past others."""
    root = m.call
    long = [p for p in permutation(root) if m.x.tensor.shape[p] != 1]
    return _as_reshape(m) if long == sorted(long) else None


def _transpose_twice(m: GraphMatch) -> GraphExpr | None:
    inner, outer = permutation(m.inner), permutation(m.call)
    return same_type(call(TRANSPOSE, [m.x], {"perm": tuple(inner[p] for p in outer)}), m.root)


def groups(have: Sequence[Dim], want: Sequence[Dim]) -> list[tuple[range, range]] | None:
    """The shortest runs of dimensions on both sides that hold equally many elements; None where that is not known.

    Dimensions of size 1 join the run before them (the first run: those in front, too).
    """
    made: list[tuple[range, range]] = []
    i = j = 0
    while i < len(have) and j < len(want):
        ends = next(
            (
                (i + a, j + total - a)
                for total in range(2, len(have) + len(want) - i - j + 1)
                for a in range(1, total)
                if i + a <= len(have)
                and j + total - a <= len(want)
                and rel.equal_dims(rel.multiply(have[i : i + a]), rel.multiply(want[j : j + total - a]))
            ),
            None,
        )
        if ends is None:
            return None
        made.append((range(i, ends[0]), range(j, ends[1])))
        i, j = ends
    if not made or any(d != 1 for d in (*have[i:], *want[j:])):
        return None
    left, right = made[-1]
    made[-1] = range(left.start, len(have)), range(right.start, len(want))
    return made


def _transpose_of_view(m: GraphMatch) -> GraphExpr | None:
    return _moved_view(m.y, m.view, m.call)


def _moved_view(y: GraphExpr, view: Call, root: Call) -> Call | None:
    """transpose(reshape(y)) → reshape(transpose(y)), where the permutation keeps each run together."""
    perm = permutation(root)
    runs = groups(y.tensor.shape, view.tensor.shape)
    if runs is None:
        return None
    order: list[int] = []
    place = 0
    while place < len(perm):
        run = next((k for k, (_, right) in enumerate(runs) if right.start == perm[place]), None)
        if run is None or tuple(perm[place : place + len(runs[run][1])]) != tuple(runs[run][1]):
            return None
        order.append(run)
        place += len(runs[run][1])
    source = tuple(d for run in order for d in runs[run][0])
    moved = call(TRANSPOSE, [y], {"perm": source})
    made = try_call(RESHAPE, [moved], {"shape": root.tensor.shape}, root)
    return made if isinstance(made, Call) else None


def _transpose_between_views(m: GraphMatch) -> GraphExpr | None:
    """reshape(transpose(reshape(y))) → transpose(y), where the views only join dimensions and part them again."""
    found = _moved_view(m.y, m.view, m.moved)
    return found.args[0] if found is not None and found.args[0].type == m.root.type else None


def _moved_constant(e: Constant, rank: int, perm: Sequence[int]) -> GraphExpr | None:
    """A constant as an operand before a transpose of ``rank`` dimensions."""
    if e.data.size == 1 and e.data.ndim <= rank:
        return e
    if e.data.ndim > rank:
        return None
    full = e.data.reshape((1,) * (rank - e.data.ndim) + e.data.shape)
    return Constant(np.ascontiguousarray(full.transpose(np.argsort(perm))), e.origin)


def _sink_transpose(m: GraphMatch) -> GraphExpr | None:
    """f(transpose(x), …) → transpose(f(x, …)); the others: the same transpose, or constants."""
    root = m.call
    assert isinstance(root.target, Operator)
    first = next((a for a in root.args if _is_transpose(a)), None)
    if first is None or not isinstance(first, Call) or first.tensor.shape != root.tensor.shape:
        return None
    perm = permutation(first)
    args: list[GraphExpr] = []
    for a in root.args:
        moved: GraphExpr | None = None
        if isinstance(a, Call) and _is_transpose(a) and permutation(a) == perm:
            moved = a.args[0]
        elif isinstance(a, Constant):
            moved = _moved_constant(a, len(perm), perm)
        if moved is None:
            return None
        args.append(moved)
    return same_type(call(TRANSPOSE, [call(root.target, args, root.attrs)], {"perm": perm}), root)


def _is_transpose(e: GraphExpr) -> bool:
    return isinstance(e, Call) and e.target is TRANSPOSE


VIEW_RULES: tuple[GraphRule, ...] = (
    GraphRule("view-of-nothing", op(VIEWS, _x), keep_x),
    GraphRule("view-twice", op(VIEWS, op(VIEWS, _x)), _as_reshape),
    GraphRule("squeeze-as-reshape", op((SQUEEZE, UNSQUEEZE), _x), _as_reshape),
)

TRANSPOSE_RULES: tuple[GraphRule, ...] = (
    GraphRule("transpose-of-nothing", op(TRANSPOSE, _x), keep_x, lambda m: _in_order(m.root)),
    GraphRule("transpose-as-view", op(TRANSPOSE, _x), _transpose_as_view),
    GraphRule("transpose-twice", op(TRANSPOSE, op(TRANSPOSE, _x, name="inner")), _transpose_twice),
    GraphRule(
        "transpose-of-view-of-transpose",
        op(TRANSPOSE, op(VIEWS, anything("y", _is_transpose), name="view", once=True)),
        _transpose_of_view,
    ),
    GraphRule(
        "transpose-between-views",
        op(VIEWS, op(TRANSPOSE, op(VIEWS, _y, name="view", once=True), name="moved", once=True)),
        _transpose_between_views,
    ),
    GraphRule("sink-transpose", op(ELEMENTWISE, op(TRANSPOSE, _x, once=True)), _sink_transpose),
    GraphRule("sink-transpose-binary", op(ELEMENTWISE, op(TRANSPOSE, _x, once=True), _y), _sink_transpose),
    GraphRule("sink-transpose-second", op(ELEMENTWISE, _y, op(TRANSPOSE, _x, once=True)), _sink_transpose),
)


def _in_order(e: GraphExpr) -> bool:
    assert isinstance(e, Call)
    perm = permutation(e)
    return perm == tuple(sorted(perm))


# Broadcasts and slices that change nothing.


def _steps_of_one(attrs: Attrs) -> bool:
    return all(step == 1 for step in attrs.strides or ())


def _all_zero(values: Any) -> bool:
    return all(isinstance(v, int) and v == 0 for v in values)


def _without_broadcast(m: GraphMatch) -> GraphExpr | None:
    """The call on the operands before they were broadcast; the call broadcasts them itself."""
    root = m.call
    assert isinstance(root.target, Operator)
    plain = [a.args[0] if isinstance(a, Call) and a.target is BROADCAST_TO else a for a in root.args]
    made = try_call(root.target, plain, root.attrs, root)
    if made is not None or len(plain) < 2:
        return made
    for i, value in enumerate(plain):
        if value is not root.args[i]:
            made = try_call(root.target, [*root.args[:i], value, *root.args[i + 1 :]], root.attrs, root)
            if made is not None:
                return made
    return None


def _joined_again(m: GraphMatch) -> GraphExpr | None:
    """concat of all parts of a split, in order."""
    root = m.call
    first = root.args[0]
    if not isinstance(first, Project) or not isinstance(first.value, Call) or first.value.target is not SPLIT:
        return None
    split = first.value
    rank = split.args[0].tensor.rank
    in_order = len(root.args) == len(split.attrs.sizes) and all(
        isinstance(a, Project) and a.value is split and a.index == i for i, a in enumerate(root.args)
    )
    same_axis = split.attrs.axis % rank == root.attrs.axis % rank
    return same_type(split.args[0], root) if in_order and same_axis else None


def _part_of_concat(m: GraphMatch) -> GraphExpr | None:
    root = m.call
    return same_type(root.args[0], root) if len(root.args) == 1 else _joined_again(m)


def _without_nothing(m: GraphMatch) -> GraphExpr | None:
    """concat without the operands that have no elements, but for one of them if there are no others."""
    root = m.call
    axis = root.attrs.axis % root.tensor.rank
    some = [a for a in root.args if a.tensor.shape[axis] != 0] or [root.args[0]]
    return try_call(CONCAT, some, root.attrs, root) if len(some) < len(root.args) else None


MAX_CONCAT_OPERANDS = 24
"""Most operands of one concat. Each element is compared with the ends of the operands before its own, so many operands
are slow."""


def _in_groups(m: GraphMatch) -> GraphExpr | None:
    """concat of very many operands → concat of concats of a few: each kernel has few operands."""
    root = m.call
    if len(root.args) <= MAX_CONCAT_OPERANDS:
        return None
    groups = [root.args[i : i + MAX_CONCAT_OPERANDS] for i in range(0, len(root.args), MAX_CONCAT_OPERANDS)]
    joined = [call(CONCAT, g, root.attrs, origin=root.origin) if len(g) > 1 else g[0] for g in groups]
    return try_call(CONCAT, joined, root.attrs, root)


MAX_SPLIT_RESULTS = 32
"""Most results of one split. A kernel has loops for each of them, and schedules look at all loops of a kernel again and
again."""


def _split_in_groups(m: GraphMatch) -> GraphExpr | None:
    """split into very many parts → splits of slices: each kernel makes a few of them. Parts that can be read in place
    need no kernel, nor do the slices then (see :mod:`weft.graph.passes.place_parts`)."""
    root = m.call
    sizes, axis = root.attrs.sizes, root.attrs.axis % m.x.tensor.rank
    if len(sizes) <= MAX_SPLIT_RESULTS:
        return None
    parts: list[GraphExpr] = []
    begin: Dim = 0
    for i in range(0, len(sizes), MAX_SPLIT_RESULTS):
        own = sizes[i : i + MAX_SPLIT_RESULTS]
        end = rel.add(begin, *own)
        attrs = {"begin": (begin,), "end": (end,), "axes": (axis,), "in_bounds": True}
        some = call(SPLIT, [call(SLICE, [m.x], attrs, origin=root.origin)], {"axis": axis, "sizes": own})
        parts += [Project(some, k, root.origin) for k in range(len(own))]
        begin = end
    return Tuple(tuple(parts), root.origin)


def _gather_one(m: GraphMatch) -> GraphExpr | None:
    """gather with one known index → a slice, which is plain addressing."""
    root = m.call
    axis, indices = root.attrs.axis % m.x.tensor.rank, m.index.data
    size = m.x.tensor.shape[axis]
    if indices.size == 0 or indices.ndim > 1 or not isinstance(size, int):
        return None
    flat = [int(i) for i in indices.reshape(-1)]
    start = flat[0] + size if flat[0] < 0 else flat[0]
    run = all((i + size if i < 0 else i) == start + k for k, i in enumerate(flat))
    if not run or start < 0 or start + len(flat) > size:
        return None
    part = call(SLICE, [m.x], {"begin": (start,), "end": (start + len(flat),), "axes": (axis,)})
    return try_call(RESHAPE, [part], {"shape": root.tensor.shape}, root)


def _reduce_nothing(m: GraphMatch) -> GraphExpr | None:
    """A sum, mean, maximum or minimum over dimensions of size 1."""
    root = m.call
    shape = m.x.tensor.shape
    axes = range(len(shape)) if root.attrs.axes is None else (a % len(shape) for a in root.attrs.axes)
    return _as_reshape(m) if all(shape[a] == 1 for a in axes) else None


PART_RULES: tuple[GraphRule, ...] = (
    GraphRule("slice-of-all", op(SLICE, _x, attrs=_steps_of_one), keep_x),
    GraphRule("pad-by-nothing", op(PAD, _x, attrs=lambda a: _all_zero(a.pads)), keep_x),
    GraphRule("tile-once", op(TILE, _x, attrs=lambda a: all(isinstance(r, int) and r == 1 for r in a.repeats)), keep_x),
    GraphRule("broadcast-to-itself", op(BROADCAST_TO, _x), keep_x),
    GraphRule("flip-of-nothing", op(FLIP, _x, attrs={"axes": ()}), keep_x),
    GraphRule("split-into-whole", project(op(SPLIT, _x)), keep_x),  # the other parts, if any, have no elements
    GraphRule("concat-with-nothing", op(CONCAT, anything(), rest), _without_nothing),
    GraphRule("concat-of-one", op(CONCAT, anything(), rest), _part_of_concat),
    GraphRule("concat-of-many", op(CONCAT, anything(), rest), _in_groups),
    GraphRule("gather-one", op(GATHER, _x, constant("index")), _gather_one),
    GraphRule("reduce-nothing", op((REDUCE_SUM, REDUCE_MEAN, REDUCE_MAX, REDUCE_MIN), _x), _reduce_nothing),
    GraphRule("broadcast-before-first", op((*BROADCASTING, MATMUL), op(BROADCAST_TO, _x), _y), _without_broadcast),
    GraphRule("broadcast-before-second", op((*BROADCASTING, MATMUL), _y, op(BROADCAST_TO, _x)), _without_broadcast),
)


def _field(m: GraphMatch) -> GraphExpr | None:
    root, parts = m.root, m["parts"]
    assert isinstance(root, Project) and isinstance(parts, Tuple)
    return parts.fields[root.index]


WIDE_RULES: tuple[GraphRule, ...] = (
    GraphRule("split-into-many", op(SPLIT, _x), _split_in_groups),
    GraphRule("part-of-many", project(anything("parts", lambda e: isinstance(e, Tuple))), _field),
)
"""Rules on operators with very many results, for graphs that are not simplified any more: other rules look for whole
splits."""

MOVEMENT_RULES: tuple[GraphRule, ...] = (*VIEW_RULES, *TRANSPOSE_RULES, *PART_RULES)
"""Rules on operators that only move elements."""
