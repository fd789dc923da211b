"""How element types, literals and processors are spelled in LLVM IR.

``float16`` and ``bfloat16`` values are represented by their bits (``i16``): kernels compute in float32, so these values
are only moved and converted. A bool is ``i1`` in a register and ``i8`` in memory.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from weft.expr.nodes import Const, Expr
from weft.support.dtypes import DType
from weft.support.errors import TargetError

_VALUE: Final = {
    "bool": "i1",
    "int8": "i8",
    "uint8": "i8",
    "int16": "i16",
    "uint16": "i16",
    "int32": "i32",
    "uint32": "i32",
    "int64": "i64",
    "uint64": "i64",
    "float16": "i16",
    "bfloat16": "i16",
    "float32": "float",
    "float64": "double",
}

_GENERIC: Final = {"riscv64": ("generic-rv64", "lp64d")}
"""Architectures where LLVM ends the process if it does not know the name of a processor: the name and the calling
convention to use instead. Code depends only on the features."""


def processor(triple: str, cpu: str) -> tuple[str, str]:
    """The name of the processor and of the calling convention (empty: the default) for LLVM."""
    return _GENERIC.get(triple.split("-", 1)[0], (cpu, ""))


def scalar_type(dtype: DType) -> str:
    """The type of one element in a register. Raises TargetError G020 for types without arithmetic in LLVM."""
    found = _VALUE.get(dtype)
    if found is None:
        raise TargetError(
            f"code generation for {dtype} is not supported", code="G020", hint="cast to float32 or int8 in the graph"
        )
    return found


def memory_type(dtype: DType) -> str:
    """The type of one element in memory."""
    return "i8" if dtype == "bool" else scalar_type(dtype)


def vector(element: str, lanes: int) -> str:
    """``element`` itself, or a vector of it."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def type_of(e: Expr) -> str:
    """The type of the value of ``e``."""
    return vector(scalar_type(e.dtype), e.lanes)


def literal(value: float | int | bool, dtype: DType) -> str:
    """A scalar constant."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.kind != "float":
        return str(int(value))
    if dtype.bits == 16:
        return str(int(np.asarray(float(value)).astype(dtype.numpy).view(np.int16)))
    return f"0x{struct.pack('>d', float(value)).hex().upper()}"


def splat(value: float | int | bool, dtype: DType, lanes: int) -> str:
    """A constant in all lanes."""
    text = literal(value, dtype)
    return text if lanes == 1 else f"splat ({scalar_type(dtype)} {text})"


def constant(e: Const) -> str:
    return literal(e.value, e.dtype)
