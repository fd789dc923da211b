"""Builds element-wise operators from a scalar function and its NumPy counterpart, with NumPy broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft import tensor_expr as te
from weft.expr.nodes import Const, Expr, const, minimum
from weft.graph.layout import follow_elementwise
from weft.graph.operator import Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.support.dtypes import BOOL, FLOAT32, DType

Array: TypeAlias = "np.ndarray[Any, Any]"
NUMBER = "int uint float"
ANY = "bool int uint float"
SPECIALS = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.5, 2.5, -0.5, 1e30], np.float32)
"""Values where float functions go wrong."""


def read(tensor: te.Tensor, indices: Sequence[Expr], shape: Sequence[Any]) -> Expr:
    """The element of ``tensor``, broadcast to ``shape``, at ``indices``.

    Where it is not known whether a symbolic size is 1 or that of the result, the index is clamped.
    """
    offset = len(shape) - tensor.ndim
    at: list[Any] = []
    for d, extent in enumerate(tensor.shape):
        i, wanted = indices[offset + d], te.const(0) + shape[offset + d]
        if isinstance(extent, Const) and int(extent) == 1:
            at.append(0)
        elif extent is wanted or (isinstance(extent, Const) and isinstance(wanted, Const)):
            at.append(i)
        else:
            at.append(minimum(i, extent - 1))
    return tensor[tuple(at)]


def widened(function: Callable[..., Any], *, rounded: bool = True) -> Callable[..., Array]:
    """A reference that computes half precision in float32 and rounds once, at the end (if ``rounded``)."""

    def reference(attrs: Attrs, *arrays: Array) -> Array:
        half = next((a.dtype for a in arrays if DType(a.dtype).is_float and DType(a.dtype).bits <= 16), None)
        operands = [a.astype(np.float32) if half is not None and a.dtype == half else a for a in arrays]
        with np.errstate(all="ignore"):
            out = np.asarray(function(attrs, *operands))
        if rounded and half is not None and out.dtype == np.float32:
            out = out.astype(half)
        return out

    return reference


def elementwise(
    name: str,
    scalar: Callable[..., Expr],
    numpy: Callable[..., Any],
    *,
    operands: int = 1,
    kinds: str = "float",
    result: Callable[[Attrs, DType], DType] | None = None,
    attributes: tuple[Attribute, ...] = (),
    cases: tuple[Case, ...] = (),
    doc: str = "",
    source: str = "",
    cheap: bool = False,
    commutative: bool = False,
) -> OpDef:
    """An operator that applies ``scalar(attrs, *values)`` to every element; operands of one dtype broadcast.

    ``numpy(attrs, *arrays)`` is the reference, ``result(attrs, dtype)`` the dtype of the result (the operands' when
    left out). The layout trait is derived: the operator may run on padded channels if it maps zeros to zero.
    """

    def infer(attrs: Attrs, *types: Type) -> TensorType:
        given = rel.tensors(name, types, operands)
        dtype = rel.same_dtype(name, given)
        rel.want_kind(name, given[0], kinds)
        shape = rel.broadcast(name, *(t.shape for t in given))
        return TensorType(shape, result(attrs, dtype) if result else dtype)

    def compute(attrs: Attrs, out: TensorType, *inputs: te.Tensor) -> te.Tensor:
        made: te.Tensor = te.compute(
            out.shape,
            lambda *i: te.cast(scalar(attrs, *(read(t, i, out.shape) for t in inputs)), out.dtype),
            name=name,
        )
        return made

    wide = widened(numpy, rounded=False)

    def reference(attrs: Attrs, *arrays: Array) -> Array:
        dtype = DType(arrays[0].dtype)
        with np.errstate(all="ignore"):
            return wide(attrs, *arrays).astype((result(attrs, dtype) if result else dtype).numpy, copy=False)

    return OpDef(
        name,
        attributes,
        infer,
        reference,
        follows=follow_elementwise,
        cheap=cheap,
        elementwise=True,
        commutative=commutative,
        compute=compute,
        cases=cases,
        doc=doc,
        source=source,
    )


def unary_cases(low: float, high: float, exact: bool, kinds: str, attrs: dict[str, Any]) -> tuple[Case, ...]:
    """The usual cases of a function of one operand."""
    if "float" not in kinds:
        return (Case((((3, 5), "bool" if kinds == "bool" else "int32"),), attrs),)
    cases = [Case((((3, 5), "float32"),), attrs, low, high), Case((((0, 4), "float32"),), attrs, low, high)]
    cases.append(Case((((2, 3), "float16"),), attrs, low, high, 2e-3, 1e-3))
    if exact:
        cases.append(Case((SPECIALS,), attrs))
    if "int" in kinds:
        cases.append(Case((((7,), "int32"),), attrs, max(low, -5), 5))
    return tuple(cases)


def binary_cases(kinds: str, low: float = -2.0, high: float = 2.0) -> tuple[Case, ...]:
    """The usual cases of a function of two broadcast operands."""
    if kinds == "bool":
        return (Case((((2, 4), "bool"), ((4,), "bool")), {}),)
    dtypes = ("float32", "int32") if "float" in kinds else ("int32", "uint8")
    first, second = dtypes
    return (
        Case((((2, 3, 4), first), ((3, 1), first)), {}, low, high),
        Case((((), first), ((5,), first)), {}, low, high),
        Case((((4, 1), first), ((1, 3), first)), {}, low, high),
        Case((((6,), second), ((6,), second)), {}, 1, 7),
    )


def to_bool(attrs: Attrs, dtype: DType) -> DType:
    """The result of comparisons."""
    return BOOL


def number(value: Any, like: Expr) -> Expr:
    """A constant of the dtype of ``like``."""
    return const(value, like.dtype)


__all__ = [
    "ANY",
    "FLOAT32",
    "NUMBER",
    "SPECIALS",
    "binary_cases",
    "elementwise",
    "number",
    "read",
    "to_bool",
    "unary_cases",
    "widened",
]
