"""The test cases of the operators of the catalogue: their operands as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.graph.types import TensorType, TupleType
from weft.ops.catalogue import OPERATORS
from weft.ops.definition import Case
from weft.support.dtypes import DType

CASES = [pytest.param(op, case, id=f"{op.name}-{i}") for op in OPERATORS.values() for i, case in enumerate(op.cases)]


def operands(case: Case, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """The operands of a case: arrays as given, the others filled with seeded random values."""
    rng = np.random.default_rng(seed)
    out = []
    for entry in case.inputs:
        if isinstance(entry, np.ndarray):
            out.append(entry)
            continue
        shape, dtype = entry
        kind = DType(dtype).kind
        if kind == "bool":
            out.append(rng.integers(0, 2, shape).astype(bool))
        elif kind == "float":
            out.append(np.asarray(rng.uniform(case.low, case.high, shape)).astype(DType(dtype).numpy))
        else:
            low, high = int(np.ceil(case.low)), int(np.floor(case.high))
            limits = DType(dtype).limits()
            drawn = rng.integers(max(low, int(limits[0])), min(high, int(limits[1])) + 1, shape)
            out.append(np.asarray(drawn).astype(DType(dtype).numpy))
    return out


def fields(result: TensorType | TupleType) -> tuple[TensorType, ...]:
    """The types of the results of an operator whose inferred type is ``result``."""
    return result.fields if isinstance(result, TupleType) else (result,)  # type: ignore[return-value]  # of tensors
