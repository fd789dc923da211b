"""Operators that make tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.expr.nodes import Expr
from weft.frontends.torch.converters.promotion import operand
from weft.frontends.torch.node import AtenNode, Result
from weft.support.dtypes import INDEX

Converter = Callable[[AtenNode], Result]


def _constant(value: int) -> Converter:
    return lambda node: node.filled(node.shape, value, node.result_dtype)


def _full(node: AtenNode) -> Result:
    value = node.value("fill_value")
    if isinstance(value, (bool, int, float)):
        return node.filled(node.shape, value, node.result_dtype)
    return node.expanded(operand(node, value, node.result_dtype), node.shape)


def _fill(node: AtenNode) -> Result:
    return node.expanded(operand(node, node.value("value"), node.result_dtype), node.shape)


def _scalar_tensor(node: AtenNode) -> Result:
    return operand(node, node.value("s"), node.result_dtype)


def _arange(node: AtenNode) -> Result:
    """Numbers from ``start`` on; PyTorch states how many."""
    start, step = node.arguments.get("start") or 0, node.arguments.get("step") or 1
    (count,), dtype = node.shape, node.result_dtype
    if isinstance(start, (int, Expr)) and isinstance(step, int) and not isinstance(start, bool) and dtype.is_integer:
        return node.cast(node.call("arange", start=start, step=step, count=count, dtype=INDEX), dtype)
    wide = "float64"
    steps = node.cast(node.call("arange", start=0, step=1, count=count, dtype=INDEX), wide)
    made = node.call("mul", steps, operand(node, step, steps.tensor.dtype))
    return node.cast(node.call("add", made, operand(node, start, made.tensor.dtype)), dtype)


def _linspace(node: AtenNode) -> Result:
    start, end = node.number("start"), node.number("end")
    (count,) = node.shape
    steps = int(node.number("steps"))
    values = np.linspace(start, end, steps) if count == steps else np.zeros(0)
    return node.constant(values.astype(node.result_dtype.numpy))


def _eye(node: AtenNode) -> Result:
    rows, columns = node.shape
    return node.call("eye", rows=rows, columns=columns, k=0, dtype=node.result_dtype)


CREATION: dict[str, Converter] = {
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "empty_strided",
                     "new_empty_strided", "empty_permuted", "zero"), _constant(0)),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _constant(1)),
    **dict.fromkeys(("full", "full_like", "new_full"), _full),
    "arange": _arange,
    "eye": _eye,
    "fill": _fill,
    "linspace": _linspace,
    "scalar_tensor": _scalar_tensor,
}  # fmt: skip
