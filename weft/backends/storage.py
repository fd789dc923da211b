"""Where a code generator allocates a buffer that is local to a kernel: on the stack, or in scratch memory."""

from __future__ import annotations

from weft.expr.nodes import Const
from weft.support.errors import InternalError
from weft.tir.nodes import Buffer

STACK_LIMIT = 16 << 10
"""Largest local buffer of constant size that is allocated on the stack, in bytes."""


def constant_bytes(buffer: Buffer) -> int | None:
    """Bytes of a buffer of constant size."""
    total = buffer.dtype.nbytes
    for extent in buffer.shape:
        if not isinstance(extent, Const):
            return None
        total *= int(extent.value)
    return total


def on_stack(buffer: Buffer) -> bool:
    """Whether a buffer becomes an alloca of the function that uses it."""
    size = constant_bytes(buffer)
    if buffer.scope == "register":
        if size is None:
            raise InternalError(f"the register buffer '{buffer.name}' has no constant size")
        return True
    return buffer.scope == "local" and size is not None and size <= STACK_LIMIT
