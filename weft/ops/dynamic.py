"""Sizes known only at run time."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Const, Expr, Var, index, select
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.ops.elementwise import Array
from weft.support.dtypes import BOOL, FLOAT64, INT64


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
    (marks,) = rel.tensors("places", types, 1)
    rel.want_kind("places", marks, "bool")
    rel.want_rank("places", marks, 1)
    if not attrs.shape:
        rel.fail("places", "there must be an axis", "T015")
    rel.join_dim("places", marks.shape[0], rel.multiply(attrs.shape), "numbers of elements")
    return TensorType((len(attrs.shape), rel.simplified(attrs.size)), INT64)


def _places_compute(attrs: Attrs, out: TensorType, marks: te.Tensor) -> Any:
    """The places of the marks in row-major order are listed; from each, all of its indices follow."""
    if 0 in (*marks.shape, *out.shape):
        return te.compute(out.shape, lambda *i: te.const(0, out.dtype), name="places")
    nothing = te.const(False, BOOL)
    listed = te.order(
        (), out.shape[1], marks.shape[0], lambda a, b: nothing, name="places_listed", among=lambda a: marks[a]
    )

    def element(axis: Expr, j: Expr) -> Expr:
        place, value = listed[j], None
        for d in reversed(range(len(attrs.shape))):
            at = _quotient(place, index(rel.multiply(attrs.shape[d + 1 :])))
            if d:
                at = at - _quotient(place, index(rel.multiply(attrs.shape[d:]))) * index(attrs.shape[d])
            value = at if value is None else select(axis < d + 1, at, value)
        assert value is not None
        return value

    return te.compute(out.shape, element, name="places")


def _quotient(place: Expr, by: Expr) -> Expr:
    """``place`` divided by a size, rounded down. Code generators test at run time whether 64-bit numbers fit into
    float64, and only where the divisor is data. Places and sizes are below 2⁵³: the quotient is exact after rounding,
    as one that is no integer differs from the next one by more than that."""
    if isinstance(by, Const) and int(by) & (int(by) - 1) == 0:
        return place // by
    return te.cast(te.cast(place, FLOAT64) / te.cast(by, FLOAT64), INT64)


def _places_reference(attrs: Attrs, marks: Array) -> Array:
    found = np.flatnonzero(marks)[: int(attrs.size)]
    return np.stack(np.unravel_index(found, tuple(int(d) for d in attrs.shape))).astype(np.int64)


_SOME = np.array([True, False, True, True, False, True])

PLACES = OpDef(
    "places",
    (
        Attribute("size", REQUIRED, "how many marks there are"),
        Attribute("shape", REQUIRED, "the sizes along which a place has indices"),
    ),
    _places_infer,
    _places_reference,
    compute=_places_compute,
    cases=(
        Case((_SOME,), {"size": 4, "shape": (6,)}),
        Case((_SOME,), {"size": 4, "shape": (2, 3)}),
        Case((_SOME,), {"size": 4, "shape": (3, 1, 2)}),
        Case((np.zeros(6, np.bool_),), {"size": 0, "shape": (2, 3)}),
        Case((np.arange(5040) % 7 < 3,), {"size": 2160, "shape": (5, 7, 9, 16)}),
    ),
    doc="the indices of the true elements, one row for each axis of the shape that the elements have",
    source="ONNX NonZero-13",
)

DYNAMIC: tuple[OpDef, ...] = (BIND_SIZES, REQUIRE_SIZES, PLACES)
