"""Memory for large arrays: allocation with alignment, and copies by several threads."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from weft.support.threads import MAX_THREADS, MIN_BYTES, for_each

ALIGN = 64
"""Bytes: constants, arenas and workspaces of kernels, and the results in them, start at multiples of it."""
_MAX_ITEM_BYTES = 256  # longer rows without gaps are copied fast, whatever their elements


def aligned_bytes(nbytes: int) -> NDArray[np.uint8]:
    """A number of bytes, not initialized, aligned to 64 bytes."""
    room = np.empty(nbytes + ALIGN, np.uint8)
    start = -room.ctypes.data % ALIGN
    return room[start : start + nbytes]


def aligned_empty(shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """An array in row-major order, not initialized, aligned to 64 bytes."""
    kind = np.dtype(dtype)
    return aligned_bytes(math.prod(shape) * kind.itemsize).view(kind).reshape(shape)


def compact(array: NDArray[Any]) -> NDArray[Any]:
    """``array`` in row-major order without gaps, aligned to 64 bytes: the array itself if it is, otherwise a copy."""
    if array.flags.c_contiguous and array.ctypes.data % ALIGN == 0:
        return array
    if array.dtype.hasobject:
        return np.ascontiguousarray(array)
    return _copied(array)


def own_memory(array: NDArray[Any]) -> NDArray[Any]:
    """``array`` in row-major order without gaps, aligned to 64 bytes, and not in a mapped file, which may change."""
    made = compact(array)
    return made if made is not array or not _is_mapped(array) else _copied(array)


def _is_mapped(array: NDArray[Any]) -> bool:
    owner: Any = array
    while owner is not None:
        if isinstance(owner, (np.memmap, mmap.mmap)):
            return True
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return False


def _copied(array: NDArray[Any]) -> NDArray[Any]:
    made = aligned_empty(array.shape, array.dtype)
    assign(made, array)
    return made


def assign(target: NDArray[Any], source: NDArray[Any]) -> None:
    """``target[...] = source`` (of one shape), by several threads where it is large."""
    target, source = _wide_items(target, source)
    if target.nbytes < MIN_BYTES or target.ndim == 0:
        np.copyto(target, source)
        return
    axis = int(np.argmax(target.shape))
    parts = min(MAX_THREADS, target.shape[axis])
    bounds = [target.shape[axis] * i // parts for i in range(parts + 1)]
    slices = [(slice(None),) * axis + (slice(a, b),) for a, b in pairwise(bounds)]
    for_each(lambda s: np.copyto(target[s], source[s]), slices)


def _wide_items(target: NDArray[Any], source: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both arrays with short rows as their elements, where rows have no gaps in either: NumPy copies an element at a
    time, so packing a matrix into panels of 64 bytes takes half the time."""
    kind = target.dtype
    if target.ndim < 2 or source.shape != target.shape or source.dtype != kind or kind.hasobject:
        return target, source
    row = target.shape[-1] * kind.itemsize
    if not kind.itemsize < row <= _MAX_ITEM_BYTES or {target.strides[-1], source.strides[-1]} != {kind.itemsize}:
        return target, source
    return target.view(f"V{row}")[..., 0], source.view(f"V{row}")[..., 0]
