"""Operators on the bits of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Call
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.support.dtypes import DType


def _infer(attrs: Attrs, *types: Type) -> TensorType:
    (data,) = rel.tensors("bitcast", types, 1)
    to = DType(attrs.to)
    for dtype in (data.dtype, to):
        if dtype.kind in ("bool", "string"):
            rel.fail("bitcast", f"bits of {dtype} are not to be had", "T011")
    if data.dtype.bits != to.bits:
        rel.fail("bitcast", f"{data.dtype} and {to} differ in width", "T011")
    return TensorType(data.shape, to)


def _compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    return te.compute(out.shape, lambda *i: Call("reinterpret", (data[i],), out.dtype), name="bitcast")


BITCAST = OpDef(
    "bitcast",
    (Attribute("to", REQUIRED, "the dtype of the result, of the same width"),),
    _infer,
    lambda attrs, data: np.ascontiguousarray(data).view(DType(attrs.to).numpy).reshape(data.shape),
    elementwise=True,
    compute=_compute,
    cases=(
        Case((((3, 4), "float32"),), {"to": "int32"}),
        Case((((5,), "int64"),), {"to": "float64"}, 0, 9),
        Case((((2, 3), "int8"),), {"to": "uint8"}, -9, 9),
        Case((((2, 5), "float16"),), {"to": "uint16"}, -9, 9),
        Case((((2, 5), "bfloat16"),), {"to": "float16"}, 1, 2),
        Case((((2, 5), "uint8"),), {"to": "float8_e4m3fn"}, 0, 126),
        Case((((2, 5), "float8_e5m2"),), {"to": "int8"}, -9, 9),
        Case((((3, 5), "int4"),), {"to": "uint4"}, -8, 7),
    ),
    doc="the same bits as another dtype",
    source="ONNX BitCast-26",
)

BITS: tuple[OpDef, ...] = (BITCAST,)
