"""Making tensors: ``weft.nd.array(values)``, ``weft.nd.empty(shape)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.runtime.devices import Device
from weft.runtime.elements import numpy_dtype
from weft.runtime.tensor import Tensor, from_dlpack

__all__ = ["array", "empty", "from_dlpack"]


def array(values: Any, device: Device = Device(), dtype: str | None = None) -> Tensor:  # noqa: B008 (immutable)
    """A new tensor with a copy of ``values`` (an array, a number, nested lists, or anything with ``__dlpack__``)."""
    if not isinstance(values, np.ndarray) and hasattr(values, "__dlpack__"):
        values = from_dlpack(values).numpy()
    source = np.asarray(values, dtype=numpy_dtype(dtype) if dtype is not None else None)
    made = empty(source.shape, source.dtype.name, device)
    made.numpy()[...] = source
    return made


def empty(
    shape: Sequence[int],
    dtype: str = "float32",
    device: Device = Device(),  # noqa: B008 (immutable)
) -> Tensor:
    """An uninitialized tensor."""
    numpy_dtype(dtype)
    made: Tensor = Tensor(tuple(shape), dtype)
    return made
