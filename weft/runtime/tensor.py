"""Tensors: typed memory that NumPy, PyTorch, JAX and others share without a copy (buffer protocol and DLPack)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from weft.runtime import _native
from weft.runtime.devices import Device, opened
from weft.runtime.elements import EXTENDED, numpy_dtype
from weft.support.errors import InputError
from weft.support.html import facts_table, preformatted

# The unsigned integer type used for a type that the buffer protocol does not support.
_RAW = {1: np.uint8, 2: np.uint16}
SHOWN: Final = 200
"""Notebooks show the elements of longer tensors in part."""


class Tensor(_native.Tensor):
    """An n-dimensional array in main memory or, compact, in that of another device.

    ``Tensor(shape, dtype)`` is uninitialized main memory aligned to 64 bytes; :func:`empty_on` allocates memory of a
    device, :func:`from_dlpack` and :func:`as_tensor` share the memory of other objects. ``shape``, ``strides`` (bytes),
    ``dtype`` (a name), ``nbytes``, ``readonly`` and ``contiguous`` describe it.
    """

    __slots__ = ()

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def device(self) -> Device:
        """The device that stores the elements."""
        home = self.home
        return Device("cpu", 0) if home is None else Device(home.kind, home.index)

    def to(self, device: Device) -> Tensor:
        """The tensor on a device: itself if it is there, else a copy. Raises UserError if the device fails."""
        if self.device == device:
            return self
        source = self if self.contiguous else as_tensor(self.numpy())
        made = empty_on(device, self.shape, self.dtype)
        made.fill(source)
        return made

    def numpy(self) -> NDArray[Any]:
        """A view as a NumPy array (no copy); for a tensor on another device, a copy in main memory."""
        if self.home is not None:
            return self.to(Device("cpu", 0)).numpy()
        dtype = numpy_dtype(self.dtype)
        if self.contiguous:
            return np.ndarray(self.shape, dtype, cast(Any, self))
        return np.asarray(memoryview(self)).view(dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"a tensor of {self.dtype} cannot become {dtype} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def _repr_html_(self) -> str:
        shape = " × ".join(map(str, self.shape)) or "one number"
        facts = {"dtype": self.dtype, "shape": shape, "bytes": self.nbytes, "device": self.device}
        made = facts_table("tensor", facts)
        if self.home is not None:  # showing a tensor copies nothing from a device
            return made
        return made + preformatted(np.array2string(self.numpy(), threshold=SHOWN, edgeitems=3))

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}{list(self.shape)} on {self.device})"


def empty_on(device: Device, shape: Sequence[int], dtype: str) -> Tensor:
    """Uninitialized memory of a device. Raises UserError if the device is unknown or its memory exhausted."""
    if device == Device("cpu", 0):
        return cast(Tensor, Tensor(tuple(shape), dtype))
    return cast(Tensor, Tensor.on(opened(device), tuple(shape), dtype))


def from_dlpack(producer: Any) -> Tensor:
    """A tensor that shares the memory of an object with ``__dlpack__``, or of a DLPack capsule.

    Raises InputError if the producer refuses or its memory is not main memory.
    """
    try:
        if not hasattr(producer, "__dlpack__"):
            return cast(Tensor, Tensor.from_capsule(producer))
        try:
            capsule = producer.__dlpack__(max_version=(1, 0))
        except TypeError:  # a producer from before DLPack 1.0
            capsule = producer.__dlpack__()
        return cast(Tensor, Tensor.from_capsule(capsule))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"cannot share the memory of a {type(producer).__name__}: {error}", code="I006") from error


def as_tensor(array: NDArray[Any]) -> Tensor:
    """A tensor that shares the memory of a compact NumPy array."""
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    raw = array.view(_RAW[array.itemsize]) if array.dtype.name in EXTENDED else array
    return cast(Tensor, Tensor.wrap(raw.reshape(-1), array.shape, array.dtype.name))
