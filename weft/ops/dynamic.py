"""Sizes known only at run time."""

from __future__ import annotations

from weft.expr.nodes import Var
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import OpDef


def _infer(attrs: Attrs, *types: Type) -> TensorType:
    (values,) = rel.tensors("bind_sizes", types, 1)
    sizes = attrs.sizes
    if not sizes or not all(isinstance(s, Var) for s in sizes) or len(set(sizes)) != len(sizes):
        rel.fail("bind_sizes", "sizes must be distinct symbolic sizes", "T015")
    if not values.dtype.is_integer or values.rank > 1 or (values.shape or (1,)) != (len(sizes),):
        rel.fail("bind_sizes", f"the operand must be {len(sizes)} integers, not {values}", "T012")
    return values


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
