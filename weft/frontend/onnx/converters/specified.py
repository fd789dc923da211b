"""Operators whose functions in the specification take one dtype where their schemas allow several: operands are cast
before the function is expanded."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontend.onnx import functions
from weft.frontend.onnx.converters.elementwise import cast_to
from weft.frontend.onnx.node import Node, Result, Value
from weft.frontend.onnx.problems import Malformed
from weft.graph.nodes import GraphExpr
from weft.support.dtypes import INDEX, DType


def _expanded(node: Node, dtypes: dict[int, DType]) -> list[Value | None]:
    """The outputs of the specification's function for operands (by number) of these dtypes."""
    inputs = [
        cast_to(node, node.data(i), dtypes[i]) if i in dtypes and value is not None else value
        for i, value in enumerate(node.inputs)
    ]
    node = node.altered(tuple(inputs))
    body = functions.specified_body(node)
    if body is None:
        raise Malformed("the specification defines it by no function for these operands")
    return functions.expand(node, body, node.importer)


def _center_crop_pad(node: Node) -> Result:
    return _expanded(node, {1: INDEX})  # type: ignore[return-value]  # tensor


def _attention(node: Node) -> Result:
    """Values of another dtype than queries and keys; what is returned of them keeps it."""
    common, values = node.dtype(0), node.dtype(2)
    if common == values:
        return _expanded(node, {})  # type: ignore[return-value]  # tensor
    made = _expanded(node, {2: common, 5: common})
    if len(made) > 2 and isinstance(made[2], GraphExpr):
        made[2] = cast_to(node, made[2], values)
    return made  # type: ignore[return-value]  # tensor


SPECIFIED: dict[str, Callable[[Node], Result]] = {"Attention": _attention, "CenterCropPad": _center_crop_pad}
