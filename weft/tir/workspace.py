"""The workspace of a kernel holds its large intermediate buffers, one after another.

In kernel form, an :class:`Allocate` of scope ``global`` outside parallel loops takes its memory from the workspace
pointer that the caller passes. Each buffer has its own part, because code generators promise that buffers do not
overlap.
"""

from __future__ import annotations

from weft.expr.folds import product
from weft.expr.nodes import Expr, const
from weft.support.memory import ALIGN
from weft.tir.nodes import Allocate, Buffer, For, If, Let, Program, Seq, Stmt


def padded_bytes(buffer: Buffer) -> Expr:
    """Bytes of ``buffer``, rounded up to a multiple of 64."""
    total = product(buffer.shape) * buffer.dtype.nbytes
    return (total + (ALIGN - 1)) // ALIGN * ALIGN


def workspace_layout(program: Program) -> tuple[dict[Buffer, Expr], Expr]:
    """The byte offset of each workspace buffer, and the total size in bytes (a constant 0 if there are none)."""
    offsets: dict[Buffer, Expr] = {}
    total: Expr = const(0)
    stack: list[Stmt] = [program.body]
    while stack:
        s = stack.pop()
        if isinstance(s, Allocate) and s.buffer.scope == "global" and s.buffer not in offsets:
            offsets[s.buffer] = total
            total = total + padded_bytes(s.buffer)
        if isinstance(s, Seq):
            stack.extend(reversed(s.stmts))
        elif isinstance(s, (Allocate, Let)):
            stack.append(s.body)
        elif isinstance(s, For):
            if s.kind != "parallel":
                stack.append(s.body)
        elif isinstance(s, If):
            stack.extend([s.then] if s.otherwise is None else [s.otherwise, s.then])
    return offsets, total
