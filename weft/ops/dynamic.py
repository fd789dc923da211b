"""Sizes known only at run time."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.folds import all_of
from weft.expr.nodes import Expr, Var, index, maximum, minimum, select
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.support.dtypes import BOOL, INDEX


def _infer(attrs: Attrs, *types: Type) -> TensorType:
    (values,) = rel.tensors("bind_sizes", types, 1)
    sizes = attrs.sizes
    if not sizes or not all(isinstance(s, Var) for s in sizes) or len(set(sizes)) != len(sizes):
        rel.fail("bind_sizes", "sizes must be distinct symbolic sizes", "T015")
    if not values.dtype.is_integer or values.rank > 1 or (values.shape or (1,)) != (len(sizes),):
        rel.fail("bind_sizes", f"the operand must be {len(sizes)} integers, not {values}", "T012")
    return values


def _no_operands(attrs: Attrs, *types: Type) -> TensorType:
    rel.tensors("require_sizes", types, 0)
    if len(attrs.conditions) != len(attrs.messages):
        rel.fail("require_sizes", "there must be a message for each condition", "T015")
    return TensorType((0,), BOOL)


REQUIRE_SIZES = OpDef(
    "require_sizes",
    (
        Attribute("conditions", REQUIRED, "conditions on symbolic sizes that hold from here on"),
        Attribute("messages", REQUIRED, "what to say where one does not"),
    ),
    _no_operands,
    lambda attrs: np.zeros(0, np.bool_),
    pure=False,
    binds=True,
    doc="stops with an error unless all conditions hold; as the value of a let it guards the body",
    source="Weft",
)

BIND_SIZES = OpDef(
    "bind_sizes",
    (Attribute("sizes", REQUIRED, "the symbolic sizes that get the values, one an element"),),
    _infer,
    lambda attrs, values: values,
    pure=False,
    binds=True,
    doc="gives fresh symbolic sizes the values of a tensor, from which they hold; none may be negative",
    source="Weft",
)


def _places_infer(attrs: Attrs, *types: Type) -> TensorType:
    (counts,) = rel.tensors("places", types, 1)
    rel.want_kind("places", counts, "int uint")
    rel.want_rank("places", counts, 1)
    return TensorType((rel.simplified(attrs.size),), counts.dtype)


_PLACES_PER_PART = 1024
"""Places that are visited in order; parts of so many are independent."""


def _places_compute(attrs: Attrs, out: TensorType, counts: te.Tensor) -> Any:
    """Every place writes itself where the next mark belongs, and the mark is the last one to do so: a condition on
    marks would be guessed wrongly half of the time. Places after the last mark of their part write nothing."""
    start = te.compute(out.shape, lambda j: te.const(0, out.dtype), name="places_start")
    if 0 in (*counts.shape, *out.shape):
        return start
    last, size = index(out.shape[0]) - 1, index(counts.shape[0])

    def step(old: te.Tensor, part: Expr, more: Expr) -> Any:
        i = part * _PLACES_PER_PART + more
        end = minimum((part + 1) * _PLACES_PER_PART, size)
        before = select(i > 0, counts[minimum(maximum(i - 1, 0), size - 1)], te.const(0, counts.dtype))
        at = minimum(maximum(te.cast(before, INDEX), 0), last)
        return (at,), te.cast(i, out.dtype), all_of(i < size, before < counts[end - 1])

    extents = ((size + _PLACES_PER_PART - 1) // _PLACES_PER_PART, minimum(size, _PLACES_PER_PART))
    return te.update(start, extents, step, name="places", independent=(0,))


PLACES = OpDef(
    "places",
    (Attribute("size", REQUIRED, "how many places, the last count"),),
    _places_infer,
    lambda attrs, counts: np.searchsorted(counts, np.arange(int(attrs.size)), side="right").astype(counts.dtype),
    compute=_places_compute,
    cases=(
        Case((np.array([0, 1, 1, 2, 3, 3], np.int64),), {"size": 3}),
        Case((np.array([1, 2, 3], np.int32),), {"size": 3}),
        Case((np.array([0, 0, 1], np.int64),), {"size": 1}),
    ),
    doc="where running counts of marked elements increase: the places of the marks in order",
    source="ONNX NonZero-13",
)

DYNAMIC: tuple[OpDef, ...] = (BIND_SIZES, REQUIRE_SIZES, PLACES)
