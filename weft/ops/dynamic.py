"""Sizes known only at run time."""

from __future__ import annotations

import numpy as np

from weft.expr.nodes import Var
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import OpDef
from weft.support.dtypes import BOOL


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

DYNAMIC: tuple[OpDef, ...] = (BIND_SIZES, REQUIRE_SIZES)
