"""Data of constants in text: written out, or generated from a name."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from weft.graph.types import TensorType
from weft.support.errors import ParseError


def made_up(name: str, t: TensorType) -> np.ndarray[Any, Any]:
    """Generated data for a constant whose data are missing: always the same for a name."""
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    rng = np.random.default_rng(seed)
    shape = tuple(d for d in t.shape if isinstance(d, int))
    if t.dtype.is_float:
        return (rng.standard_normal(shape) * 0.1).astype(t.dtype.numpy)
    return rng.integers(0, 2, shape).astype(t.dtype.numpy)


def array_of(values: list[Any], t: TensorType) -> np.ndarray[Any, Any]:
    """The tensor with these values. Raises ParseError if one is not a value of the dtype."""
    shape = tuple(d for d in t.shape if isinstance(d, int))
    if t.dtype.is_float:
        return np.asarray(values, np.float64).astype(t.dtype.numpy).reshape(shape)
    low, high = t.dtype.limits()
    bad = next((v for v in values if isinstance(v, float) or not low <= v <= high), None)
    if bad is not None:
        raise ParseError(f"{bad} is not a value of {t.dtype}", code="P006")
    whole = np.uint64 if max(values, default=0) > np.iinfo(np.int64).max else np.int64
    return np.asarray(values, whole).astype(t.dtype.numpy).reshape(shape)
