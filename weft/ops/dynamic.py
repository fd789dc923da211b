"""Sizes known only at run time."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import tensor_expr as te
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


def _places_compute(attrs: Attrs, out: TensorType, counts: te.Tensor) -> Any:
    """Every place at which the count grows says so where it belongs."""
    start = te.compute(out.shape, lambda j: te.const(0, out.dtype), name="places_start")
    if 0 in (*counts.shape, *out.shape):
        return start
    last = index(out.shape[0]) - 1

    def step(old: te.Tensor, i: Expr) -> Any:
        before = select(i > 0, counts[maximum(i - 1, 0)], te.const(0, counts.dtype))
        rank = te.cast(counts[i], INDEX) - 1
        return (minimum(maximum(rank, 0), last),), te.cast(i, out.dtype), counts[i] > before

    return te.update(start, counts.shape, step, name="places", independent=(0,))


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
