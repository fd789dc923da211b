"""The workspace of a kernel holds its large intermediate buffers, one after another.

In kernel form, an :class:`Allocate` of scope ``global`` outside parallel loops takes its memory from the workspace
pointer that the caller passes. Each buffer has its own part, because code generators promise that buffers do not
overlap.
"""

from __future__ import annotations

from weft.expr.folds import product
from weft.expr.nodes import Expr, const, maximum
from weft.expr.simplify import simplify
from weft.support.memory import ALIGN
from weft.tir.nodes import Allocate, Buffer, For, If, Let, Program, Seq, Stmt


def padded_bytes(buffer: Buffer) -> Expr:
    """Bytes of ``buffer``, rounded up to a multiple of 64."""
    total = product(buffer.shape) * buffer.dtype.nbytes
    return (total + (ALIGN - 1)) // ALIGN * ALIGN


def workspace_layout(program: Program) -> tuple[dict[Buffer, Expr], Expr]:
    """The byte offset of each workspace buffer, and the total size in bytes (a constant 0 if there are none).

    Two branches of a condition outside of loops use the same memory, as one call runs only one of them.
    """
    offsets: dict[Buffer, Expr] = {}
    return offsets, _laid_out(program.body, const(0), offsets, in_loop=False)


def _laid_out(s: Stmt, start: Expr, offsets: dict[Buffer, Expr], in_loop: bool) -> Expr:
    """Give the buffers in ``s`` offsets from ``start`` on; the end of the last."""
    end = start
    while isinstance(s, (Allocate, Let)):
        if isinstance(s, Allocate) and s.buffer.scope == "global" and s.buffer not in offsets:
            offsets[s.buffer] = end
            end = end + padded_bytes(s.buffer)
        s = s.body
    if isinstance(s, Seq):
        for part in s.stmts:
            end = _laid_out(part, end, offsets, in_loop)
    elif isinstance(s, For) and s.kind != "parallel":
        end = _laid_out(s.body, end, offsets, in_loop=True)
    elif isinstance(s, If):
        then = _laid_out(s.then, end, offsets, in_loop)
        if s.otherwise is None:
            return then
        if in_loop:  # the branches take turns, and what they keep must not overlap
            return _laid_out(s.otherwise, then, offsets, in_loop)
        end = simplify(maximum(then, _laid_out(s.otherwise, end, offsets, in_loop)))
    return end
