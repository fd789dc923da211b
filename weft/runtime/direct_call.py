"""Calls one kernel directly, on plain arrays: for the search for wrong results, and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from weft.runtime import _native
from weft.support.errors import ProgramError
from weft.support.memory import ALIGN, aligned_bytes

PATTERN: Final = 0xA5
"""Every byte of memory that a kernel has not written yet."""


def unwritten(shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """An array in row-major order whose bytes are :data:`PATTERN`: elements that a kernel leaves out are noticed."""
    made = np.empty(shape, dtype)
    made.reshape(-1).view(np.uint8)[...] = PATTERN
    return made


def call_kernel(
    code: bytes,
    name: str,
    arrays: Sequence[NDArray[Any]],
    sizes: Sequence[int] = (),
    workspace: int | None = None,
    threads: int = 1,
) -> None:
    """Call the function ``name`` of the relocatable object ``code`` on ``arrays``, which are its parameters in order:
    inputs, then outputs.

    The kernel works on copies that are aligned as the executor aligns them. Afterwards every array, inputs included,
    gets the contents of its copy. ``workspace``: the bytes that the kernel asks for as a last parameter (None: it asks
    for none). Raises ProgramError if the kernel returns a status other than 0 or writes outside of its memory, and
    ValueError if the object cannot be loaded.
    """
    rooms = [_Guarded(a.nbytes) for a in arrays]
    for room, a in zip(rooms, arrays, strict=True):
        room.bytes[...] = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    if workspace is not None:
        rooms.append(_Guarded(workspace))
    status, _ = _native.Code(code).call(name, [r.bytes for r in rooms], list(sizes), threads)
    if status:
        raise ProgramError(f"the kernel '{name}' returned {status}", code="V918")
    for i, room in enumerate(rooms):
        if not room.is_intact():
            where = f"parameter {i}" if i < len(arrays) else "its workspace"
            raise ProgramError(f"the kernel '{name}' writes outside of {where}", code="V919")
    for room, a in zip(rooms, arrays, strict=False):
        a[...] = room.bytes.view(a.dtype).reshape(a.shape)


class _Guarded:
    """Aligned bytes, with :data:`ALIGN` bytes before and after them that nobody may write."""

    def __init__(self, nbytes: int) -> None:
        self._whole = aligned_bytes(nbytes + 2 * ALIGN)
        self._whole[...] = PATTERN
        self.bytes = self._whole[ALIGN : ALIGN + nbytes]

    def is_intact(self) -> bool:
        """Whether the bytes around are unchanged."""
        before, after = self._whole[:ALIGN], self._whole[ALIGN + self.bytes.size :]
        return bool((before == PATTERN).all() and (after == PATTERN).all())
