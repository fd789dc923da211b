"""Making tensors: ``weft.nd.array(values)``, ``weft.nd.empty(shape)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.runtime.devices import Device
from weft.runtime.elements import numpy_dtype
from weft.runtime.tensor import Tensor, empty_on, from_dlpack
from weft.support.errors import InputError

__all__ = ["array", "empty", "from_dlpack"]


def array(values: Any, device: Device = Device(), dtype: str | None = None) -> Tensor:  # noqa: B008 (immutable)
    """A new tensor with a copy of ``values`` (an array, a number, nested lists, or anything with ``__dlpack__``) in the
    memory of ``device``. Raises UserError if there is no such device or its memory is exhausted, InputError (I002) if
    the values are no array or ``dtype`` cannot hold them."""
    if isinstance(values, Tensor):
        values = values.numpy()
    if not isinstance(values, np.ndarray) and hasattr(values, "__dlpack__"):
        values = from_dlpack(values).numpy()
    wanted = numpy_dtype(dtype) if dtype is not None else None
    try:
        source = np.asarray(values, dtype=wanted)
    except Exception as error:  # lists of unequal lengths, and whatever the methods of other packages' objects raise
        what = f"{dtype}s" if dtype is not None else "one dtype"
        raise InputError(f"the values are no array of {what}: {error}", code="I002") from error
    made = empty(source.shape, source.dtype.name)
    made.numpy()[...] = source
    return made.to(device)


def empty(
    shape: Sequence[int],
    dtype: str = "float32",
    device: Device = Device(),  # noqa: B008 (immutable)
) -> Tensor:
    """An uninitialized tensor in the memory of ``device``. Raises UserError as :func:`array` does."""
    numpy_dtype(dtype)
    return empty_on(device, shape, dtype)
