"""Memory for large arrays: where it begins, and filling it by several threads."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.support.settings import num_threads

ALIGN = 64
_SHARED = 1 << 20  # bytes from which several threads copy
_MAX_THREADS = 4  # more do not make memory faster


def aligned_bytes(nbytes: int) -> NDArray[np.uint8]:
    """So many bytes, not initialized, that begin at a multiple of 64."""
    room = np.empty(nbytes + ALIGN, np.uint8)
    start = -room.ctypes.data % ALIGN
    return room[start : start + nbytes]


def compact(array: NDArray[Any]) -> NDArray[Any]:
    """``array`` in row-major order without gaps, at a multiple of 64: itself if it is, or else a copy, which several
    threads make where it is large."""
    if array.flags.c_contiguous and array.ctypes.data % ALIGN == 0:
        return array
    if array.dtype.hasobject:
        return np.ascontiguousarray(array)
    made = aligned_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    if array.nbytes < _SHARED or array.ndim == 0:
        np.copyto(made, array)
        return made
    axis = int(np.argmax(array.shape))
    parts = min(num_threads(), _MAX_THREADS, array.shape[axis])
    bounds = [array.shape[axis] * i // parts for i in range(parts + 1)]
    slices = [(slice(None),) * axis + (slice(a, b),) for a, b in pairwise(bounds)]
    threads = [threading.Thread(target=np.copyto, args=(made[s], array[s])) for s in slices[1:]]
    for thread in threads:
        thread.start()
    np.copyto(made[slices[0]], array[slices[0]])
    for thread in threads:
        thread.join()
    return made
