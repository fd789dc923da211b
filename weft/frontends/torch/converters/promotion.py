"""The dtype in which operands of different dtypes meet, as PyTorch has it."""

from __future__ import annotations

from typing import Any

from weft.expr.nodes import Expr
from weft.frontends.torch.node import AtenNode
from weft.graph.nodes import GraphExpr
from weft.support.dtypes import DType

_KINDS = {"bool": 0, "int": 1, "uint": 1, "float": 2}
_DEFAULT = {0: DType("bool"), 1: DType("int64"), 2: DType("float32")}


def _of_number(value: Any) -> DType:
    if isinstance(value, bool):
        return _DEFAULT[0]
    return _DEFAULT[1] if isinstance(value, (int, Expr)) else _DEFAULT[2]


def common_dtype(*values: Any) -> DType:
    """The dtype of an operation on tensors and numbers. Tensors with dimensions decide before those without, and these
    before numbers, unless what comes later is of a higher kind (bool, integer, float)."""
    groups: list[list[DType]] = [[], [], []]
    for v in values:
        if isinstance(v, GraphExpr):
            groups[0 if v.tensor.rank else 1].append(v.tensor.dtype)
        else:
            groups[2].append(_of_number(v))
    found: DType | None = None
    for group in groups:
        if not group:
            continue
        own = group[0]
        for dtype in group[1:]:
            own = _joined(own, dtype)
        if found is None or _KINDS[own.kind] > _KINDS[found.kind]:
            found = own if found is None or group is not groups[2] else _DEFAULT[_KINDS[own.kind]]
    assert found is not None
    return found


def _joined(a: DType, b: DType) -> DType:
    """The smallest dtype that PyTorch joins two of equal rank to."""
    if a == b:
        return a
    if _KINDS[a.kind] != _KINDS[b.kind]:
        return a if _KINDS[a.kind] > _KINDS[b.kind] else b
    if a.kind == "float":
        return DType("float32") if a.bits == b.bits else max(a, b, key=lambda d: d.bits)
    if a.kind == b.kind:
        return max(a, b, key=lambda d: d.bits)
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    return signed if signed.bits > unsigned.bits else DType(f"int{min(64, 2 * unsigned.bits)}")


def operand(node: AtenNode, value: Any, dtype: DType) -> GraphExpr:
    """A tensor or a number as a tensor of a dtype."""
    if isinstance(value, (bool, int, float)):
        return node.constant(value, dtype)
    return node.cast(node.as_data(value), dtype)


def operands(node: AtenNode, *names: str) -> list[GraphExpr]:
    """Arguments in their common dtype."""
    values = [node.value(n) for n in names]
    dtype = common_dtype(*values)
    return [operand(node, v, dtype) for v in values]


def in_result_dtype(node: AtenNode, *names: str) -> list[GraphExpr]:
    """Arguments in the dtype of the result."""
    return [operand(node, node.value(n), node.result_dtype) for n in names]
