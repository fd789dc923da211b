"""Joining and splitting tensors along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Expr, index, select
from weft.graph.layout import follow_concat, parse
from weft.graph.operator import REQUIRED, Attribute, Attrs, Joined, LayoutChoice
from weft.graph.types import Dim, TensorType, TupleType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array

AXIS = Attribute("axis", REQUIRED, "the axis; negative ones count from the back")


def _f(*shape: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return shape, dtype


def _one(op: str, types: Sequence[Type]) -> TensorType:
    return rel.tensors(op, types, 1)[0]


def _concat_infer(attrs: Attrs, *types: Type) -> TensorType:
    if not types:
        rel.fail("concat", "needs at least one operand", "T016")
    parts = rel.tensors("concat", types, 1, len(types))
    dtype = rel.same_dtype("concat", parts)
    axis = rel.axis_of("concat", attrs.axis, parts[0].rank)
    shape = list(parts[0].shape)
    for i, t in enumerate(parts[1:], 1):
        rel.want_rank("concat", t, len(shape), f"operand {i}")
        for d in range(len(shape)):
            if d != axis:
                shape[d] = rel.join_dim("concat", shape[d], t.shape[d], f"sizes of operands 0 and {i} in dimension {d}")
    shape[axis] = rel.add(*(t.shape[axis] for t in parts))
    return TensorType(tuple(shape), dtype)


def _concat_compute(attrs: Attrs, out: TensorType, *parts: te.Tensor) -> Any:
    axis = rel.axis_of("concat", attrs.axis, out.rank)
    starts: list[Dim] = [0]
    for t in parts:
        starts.append(rel.add(starts[-1], rel.simplified(t.shape[axis])))

    def element(*i: Expr) -> Expr:
        def load(p: int) -> Expr:
            return parts[p][(*i[:axis], i[axis] - index(starts[p]), *i[axis + 1 :])]

        value = load(len(parts) - 1)
        for p in range(len(parts) - 2, -1, -1):
            value = select(i[axis] < index(starts[p + 1]), load(p), value)
        return value

    return te.compute(out.shape, element, name="concat")


def _concat_joins(attrs: Attrs, types: tuple[TensorType, ...], result: Type) -> Joined | None:
    assert isinstance(result, TensorType)
    axis = rel.axis_of("concat", attrs.axis, result.rank)
    starts = _starts([t.shape[axis] for t in types], rel.stretch_of(result, axis, rows=True))
    return None if starts is None else Joined(axis, starts)


def _split_parts(attrs: Attrs, types: tuple[TensorType, ...], result: Type) -> tuple[int, ...] | None:
    row = rel.stretch_of(types[0], rel.axis_of("split", attrs.axis, types[0].rank))
    return _starts(attrs.sizes, row)


def _starts(sizes: Sequence[Dim], row: int | None) -> tuple[int, ...] | None:
    """Where stretches of so many rows start; None where a number is not known."""
    starts = [0]
    for size in sizes:
        if row is None or not isinstance(size, int):
            return None
        starts.append(starts[-1] + size * row)
    return tuple(starts[:-1])


CONCAT = OpDef(
    "concat",
    (AXIS,),
    _concat_infer,
    lambda attrs, *parts: np.concatenate(parts, attrs.axis),
    follows=follow_concat,
    moves=True,
    joins=_concat_joins,
    compute=_concat_compute,
    cases=(
        Case((_f(2, 3), _f(2, 1), _f(2, 4)), {"axis": 1}),
        Case((_f(2, 3), _f(1, 3)), {"axis": -2}),
        Case((_f(3),), {"axis": 0}),
        Case((_f(2, 0), _f(2, 2)), {"axis": 1}),
    ),
    doc="the operands one after the other along an axis",
    source="ONNX Concat-13",
)


def _split_infer(attrs: Attrs, *types: Type) -> TupleType:
    data = _one("split", types)
    axis = rel.axis_of("split", attrs.axis, data.rank)
    sizes = tuple(rel.simplified(s) for s in attrs.sizes)
    if not sizes or any(isinstance(s, int) and s < 0 for s in sizes):
        rel.fail("split", f"sizes must be a tuple of sizes, not {attrs.sizes!r}", "T015")
    rel.join_dim("split", data.shape[axis], rel.add(*sizes), f"the size of dimension {axis} and the sum of the parts")
    return TupleType(tuple(TensorType((*data.shape[:axis], s, *data.shape[axis + 1 :]), data.dtype) for s in sizes))


def _split_compute(attrs: Attrs, out: TupleType, data: te.Tensor) -> Any:
    axis = rel.axis_of("split", attrs.axis, data.ndim)
    made = []
    start: Dim = 0
    for p, t in enumerate(out.fields):
        assert isinstance(t, TensorType)
        begin = index(start)
        made.append(
            te.compute(
                t.shape,
                lambda *i, begin=begin: data[(*i[:axis], i[axis] + begin, *i[axis + 1 :])],
                name=f"split{p}",
            )
        )
        start = rel.add(start, t.shape[axis])
    return tuple(made)


def _split_reference(attrs: Attrs, data: Array) -> tuple[Array, ...]:
    cuts = np.cumsum(attrs.sizes)[:-1]
    return tuple(np.ascontiguousarray(p) for p in np.split(data, cuts, attrs.axis))


def _split_follows(attrs: Attrs, types: tuple[TensorType, ...], operand: int, layout: str) -> LayoutChoice | None:
    """Parts of a blocked dimension must be whole blocks, all but the last."""
    known, (data,) = parse(layout), types
    if known.rank != data.rank or [d for d, f in known.dims if f is None] != list(range(data.rank)):
        return None
    axis = rel.axis_of("split", attrs.axis, data.rank)
    factor = known.factor(axis)
    if factor > 1 and not all(isinstance(s, int) and s % factor == 0 for s in attrs.sizes[:-1]):
        return None
    sizes = tuple(rel.ceil_divide(rel.simplified(s), factor) for s in attrs.sizes)
    return LayoutChoice((layout,), (layout,) * len(sizes), attrs.replace(axis=axis, sizes=sizes))


SPLIT = OpDef(
    "split",
    (AXIS, Attribute("sizes", REQUIRED, "the sizes of the parts")),
    _split_infer,
    _split_reference,
    follows=_split_follows,
    moves=True,
    parts=_split_parts,
    compute=_split_compute,
    cases=(Case((_f(2, 6),), {"axis": 1, "sizes": (1, 3, 2)}), Case((_f(4, 2),), {"axis": -2, "sizes": (2, 2)})),
    doc="consecutive parts along an axis, as a tuple",
    source="ONNX Split-18",
)
