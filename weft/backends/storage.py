"""Where a code generator allocates a buffer that is local to a kernel (on the stack, or in scratch memory), and which
buffers are too large for the target."""

from __future__ import annotations

from weft.expr.nodes import Const
from weft.lowering.kernel.common.allocate import MAX_STACK_BYTES
from weft.support.errors import TargetError
from weft.tir.nodes import Allocate, Buffer, Program
from weft.tir.visit import walk


def constant_bytes(buffer: Buffer) -> int | None:
    """Bytes of a buffer of constant size."""
    total = buffer.dtype.nbytes
    for extent in buffer.shape:
        if not isinstance(extent, Const):
            return None
        total *= int(extent.value)
    return total


def require_addressable(kernel: Program, pointer_bits: int) -> None:
    """Refuse kernels with a buffer, or all workspace together, that is larger than half of the address space: signed
    distances between its elements, which addresses are made from, would overflow.

    Raises TargetError G028. Sizes that are known only at run time are checked where memory is allocated.
    """
    limit = (1 << (pointer_bits - 1)) - 1
    local = [s.buffer for s in walk(kernel.body) if isinstance(s, Allocate)]
    sizes = {b.name: constant_bytes(b) for b in (*kernel.params, *local)}
    workspace = kernel.attrs.get("workspace")
    if isinstance(workspace, Const):
        sizes["workspace"] = int(workspace.value)
    for name, nbytes in sizes.items():
        if nbytes is not None and nbytes > limit:
            raise TargetError(
                f"the buffer '{name}' of the kernel '{kernel.name}' has {nbytes} bytes; "
                f"addresses of {pointer_bits} bits allow {limit}",
                code="G028",
                hint="use a smaller batch, or a machine with 64-bit addresses",
            )


def on_stack(buffer: Buffer) -> bool:
    """Whether a buffer becomes an alloca of the function that uses it."""
    size = constant_bytes(buffer)
    if buffer.scope == "register":
        if size is None:
            raise TargetError(
                f"the register buffer '{buffer.name}' has no constant size",
                code="G033",
                hint="compute it at a loop in which it has a known size, or use the scope 'local'",
            )
        return True
    return buffer.scope == "local" and size is not None and size <= MAX_STACK_BYTES
