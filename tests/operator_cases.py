"""The test cases of the operators of the catalogue: their operands as arrays."""

from __future__ import annotations

import pytest

from weft.graph.types import TensorType, TupleType
from weft.ops.catalogue import OPERATORS
from weft.plugins.check import operands

__all__ = ["CASES", "fields", "operands"]

CASES = [pytest.param(op, case, id=f"{op.name}-{i}") for op in OPERATORS.values() for i, case in enumerate(op.cases)]


def fields(result: TensorType | TupleType) -> tuple[TensorType, ...]:
    """The types of the results of an operator whose inferred type is ``result``."""
    return result.fields if isinstance(result, TupleType) else (result,)  # type: ignore[return-value]  # of tensors
