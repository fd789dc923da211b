"""Values that differ between the branches of an If by more than their sizes: each branch is a :class:`Way` of its own.

Tensors of different rank or dtype, sequences and shapes of different length have no common type, so the If cannot give
one value. Its readers are converted once in each way instead, until their results have a common type again
(:mod:`weft.frontends.onnx.following`).
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.frontends.common.sizes import Sizes
from weft.frontends.onnx.node import MAX_SIZES_IN_TENSOR, Omitted, Value
from weft.graph.nodes import GraphExpr
from weft.graph.types import Dim
from weft.support.dtypes import INT32, INT64, DType


def have_common_type(values: Sequence[Value | Omitted | None]) -> bool:
    """Whether one tensor can stand for all of the values, with sizes known at run time where theirs differ."""
    found = {None if t is None else (len(t[0]), t[1]) for t in map(_type, values)}
    return len(found) == 1 and None not in found


def differ(values: Sequence[Value | Omitted | None]) -> bool:
    """Whether readers must be converted for each of the values: they have no common type, or they are shapes of
    different length, which give results of different rank."""
    if not have_common_type(values):
        return True
    lengths = []
    for t in map(_type, values):
        if t is None or len(t[0]) != 1 or t[1] not in (INT32, INT64):
            return False
        lengths.append(t[0][0])
    return len(set(lengths)) > 1 and all(isinstance(n, int) and n <= MAX_SIZES_IN_TENSOR for n in lengths)


def _type(value: Value | Omitted | None) -> tuple[tuple[Dim, ...], DType] | None:
    """The shape and the dtype of a tensor; None for what is no tensor of numbers."""
    if isinstance(value, Sizes):
        return tuple(value.elements.shape), value.dtype
    if not isinstance(value, GraphExpr) or value.tensor.dtype.kind == "string":
        return None
    return value.tensor.shape, value.tensor.dtype
