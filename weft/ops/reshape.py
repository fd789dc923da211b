"""Operators that keep elements and their order: reshape, squeeze, unsqueeze."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Expr, index
from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import Dim, TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef


def _f(*shape: int, dtype: str = "float32") -> tuple[tuple[int, ...], str]:
    return shape, dtype


def _one(op: str, types: Sequence[Type]) -> TensorType:
    return rel.tensors(op, types, 1)[0]


def _reshape_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("reshape", types)
    shape = tuple(rel.simplified(d) for d in attrs.shape)
    total = rel.multiply(data.shape)
    unknown = [i for i, d in enumerate(shape) if isinstance(d, int) and d == -1]
    if len(unknown) > 1:
        rel.fail("reshape", f"only one size may be -1 in {shape}", "T015")
    if any(isinstance(d, int) and d < -1 for d in shape):
        rel.fail("reshape", f"negative size in {shape}", "T015")
    if unknown:
        rest = rel.multiply(d for i, d in enumerate(shape) if i != unknown[0])
        if rest == 0 or (isinstance(total, int) and isinstance(rest, int) and total % rest):
            rel.fail("reshape", f"{data} does not reshape to {_text(shape)}", "T013", f"{total} elements over {rest}")
        shape = (*shape[: unknown[0]], _quotient(data.shape, shape), *shape[unknown[0] + 1 :])
    elif rel.equal_dims(total, rel.multiply(shape)) is False:
        rel.fail("reshape", f"{data} does not reshape to {_text(shape)}", "T013", "the number of elements must stay")
    else:
        rel.join_dim("reshape", total, rel.multiply(shape), "numbers of elements")
    return TensorType(shape, data.dtype)


def _text(shape: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _quotient(have: Sequence[Dim], want: Sequence[Dim]) -> Dim:
    """The size that -1 stands for; factors common to both sides cancel, so that symbolic sizes stay simple."""
    left, right = list(have), [d for d in want if not (isinstance(d, int) and d == -1)]
    for d in list(right):
        if d in left and not isinstance(d, int):
            left.remove(d)
            right.remove(d)
    return rel.divide(rel.multiply(left), rel.multiply(right))


def reshape_groups(have: Sequence[Dim], want: Sequence[Dim]) -> list[tuple[list[int], list[int]]]:
    """Split both shapes into runs of dimensions that hold equally many elements, as small as can be proved."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(have) or j < len(want):
        left, right = ([i], [j]) if i < len(have) and j < len(want) else ([], [])
        if not left:
            groups.append((list(range(i, len(have))), list(range(j, len(want)))))
            break
        while True:
            a, b = rel.multiply(have[k] for k in left), rel.multiply(want[k] for k in right)
            if rel.equal_dims(a, b):
                break
            more_left, more_right = left[-1] + 1 < len(have), right[-1] + 1 < len(want)
            smaller = isinstance(a, int) and isinstance(b, int) and a < b
            if not more_left and not more_right:
                break
            if (
                more_left
                and (smaller or not more_right or not isinstance(a, int) < isinstance(b, int))
                and not (isinstance(a, int) and isinstance(b, int) and a > b and more_right)
            ):
                left.append(left[-1] + 1)
            else:
                right.append(right[-1] + 1)
        groups.append((left, right))
        i, j = left[-1] + 1, right[-1] + 1
    return groups


def _reshape_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    have = TensorType.of(data.shape, data.dtype).shape
    groups = reshape_groups(have, out.shape) if 0 not in have else [(list(range(len(have))), list(range(out.rank)))]

    def element(*i: Expr) -> Expr:
        at: list[Any] = [te.const(0)] * len(have)
        for left, right in groups:
            flat: Expr = te.const(0)
            for d in right:
                flat = flat * index(out.shape[d]) + i[d]
            real = [d for d in left if have[d] != 1]
            for d in reversed(real[1:]):
                at[d] = flat % index(have[d])
                flat = flat // index(have[d])
            if real:
                at[real[0]] = flat
        return data[tuple(at)]

    return te.compute(out.shape, element, name="reshape")


RESHAPE = OpDef(
    "reshape",
    (Attribute("shape", REQUIRED, "the new sizes, symbolic ones included; one may be -1: what is left"),),
    _reshape_infer,
    lambda attrs, data: data.reshape(attrs.shape),
    cheap=True,
    view=True,
    moves=True,
    compute=_reshape_compute,
    cases=(
        Case((_f(2, 3, 4),), {"shape": (6, 4)}),
        Case((_f(2, 3, 4),), {"shape": (2, 2, 6)}),
        Case((_f(2, 6),), {"shape": (2, -1, 3)}),
        Case((_f(6, 4),), {"shape": (3, 8)}),
        Case((_f(1),), {"shape": ()}),
        Case((_f(),), {"shape": (1, 1)}),
        Case((_f(2, 3),), {"shape": (1, 2, 1, 3, 1)}),
        Case((_f(0, 3),), {"shape": (3, 0)}),
        Case((_f(4, 3, 2, dtype="int64"),), {"shape": (2, 6, 2)}, -9, 9),
    ),
    doc="the same elements in row-major order under another shape",
    source="ONNX Reshape-21",
)


def _squeeze_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("squeeze", types)
    if attrs.axes is None:
        axes = tuple(i for i, d in enumerate(data.shape) if d == 1)
    else:
        axes = rel.axes_of("squeeze", attrs.axes, data.rank)
    for a in axes:
        rel.join_dim("squeeze", data.shape[a], 1, f"the size of dimension {a} and 1")
    return TensorType(tuple(d for i, d in enumerate(data.shape) if i not in axes), data.dtype)


def _squeeze_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    if attrs.axes is None:
        axes = tuple(i for i, d in enumerate(data.shape) if d == 1)
    else:
        axes = rel.axes_of("squeeze", attrs.axes, data.ndim)

    def element(*i: Expr) -> Expr:
        kept = iter(i)
        return data[tuple(0 if d in axes else next(kept) for d in range(data.ndim))]

    return te.compute(out.shape, element, name="squeeze")


SQUEEZE = OpDef(
    "squeeze",
    (Attribute("axes", None, "the axes to drop, of size 1; None means all of size 1"),),
    _squeeze_infer,
    lambda attrs, data: np.squeeze(data, attrs.axes),
    cheap=True,
    view=True,
    moves=True,
    compute=_squeeze_compute,
    cases=(Case((_f(1, 3, 1, 2),), {"axes": (0, -2)}), Case((_f(1, 3, 1),), {})),
    doc="without dimensions of size 1",
    source="ONNX Squeeze-21",
)


def _unsqueeze_infer(attrs: Attrs, *types: Type) -> TensorType:
    data = _one("unsqueeze", types)
    rank = data.rank + len(attrs.axes)
    axes = rel.axes_of("unsqueeze", attrs.axes, rank)
    kept = iter(data.shape)
    return TensorType(tuple(1 if d in axes else next(kept) for d in range(rank)), data.dtype)


def _unsqueeze_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> Any:
    axes = rel.axes_of("unsqueeze", attrs.axes, out.rank)
    return te.compute(out.shape, lambda *i: data[tuple(v for d, v in enumerate(i) if d not in axes)], name="unsqueeze")


UNSQUEEZE = OpDef(
    "unsqueeze",
    (Attribute("axes", REQUIRED, "where in the result the new dimensions stand"),),
    _unsqueeze_infer,
    lambda attrs, data: np.expand_dims(data, attrs.axes),
    cheap=True,
    view=True,
    moves=True,
    compute=_unsqueeze_compute,
    cases=(Case((_f(3, 2),), {"axes": (0, -1)}), Case((_f(),), {"axes": (0,)})),
    doc="with new dimensions of size 1",
    source="ONNX Unsqueeze-21",
)
