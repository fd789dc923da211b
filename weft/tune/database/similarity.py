"""Which kernels are alike: the structure of a program without its extents, and its extents as a vector.

Two programs have one signature if their loops and blocks are of the same kinds in the same order, their buffers have
the same dtypes and ranks, every index uses the same axes, and the same operations compute the values. So the signature
of a matrix product of 64 × 64 is that of one of 512 × 384, and not that of a product with a transposed operand.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence

from weft.expr.nodes import Binary, Call, Const, Expr, Load, Var
from weft.expr.visit import post_order
from weft.tir.nodes import Block, For, Program, Region, Store
from weft.tir.visit import blocks, expressions, walk


def signature(program: Program) -> str:
    """A hexadecimal digest of 32 characters: equal for programs that differ in names, extents and constants alone."""
    digest = hashlib.blake2b(digest_size=16)
    for piece in _Structure(program).pieces():
        digest.update(piece.encode() + b"\0")
    return digest.hexdigest()


def log_extents(program: Program) -> tuple[float, ...]:
    """The base-2 logarithms of the known extents of all blocks' axes, in order; open sizes are left out. Programs of
    one signature have equally many."""
    found = (axis.extent for block in blocks(program.body) for axis in block.iters)
    return tuple(math.log2(max(1, int(e))) for e in found if isinstance(e, Const))


def distance(a: Sequence[float], b: Sequence[float]) -> float:
    """The Euclidean distance of two vectors of logarithms: 1 if one extent is twice as large."""
    return math.dist(a, b)


class _Structure:
    """Writes the structure of a program as a sequence of words."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.buffers = {b: n for n, b in enumerate((*program.params, *program.allocs))}
        self.axes: dict[Expr, int] = dict.fromkeys(program.sizes, -1)

    def pieces(self) -> Iterator[str]:
        yield f"{len(self.program.params)} {self.program.outputs}"
        for buffer in self.buffers:
            yield f"{buffer.dtype} {len(buffer.shape)}"
        for stmt in walk(self.program.body):
            yield type(stmt).__name__
            if isinstance(stmt, For):
                self.axes[stmt.var] = len(self.axes)
                yield f"{stmt.kind} {_known(stmt.extent)}"
            elif isinstance(stmt, Block):
                yield from self._block(stmt)
            elif isinstance(stmt, Store):
                yield self._access(stmt.buffer, stmt.indices)
                yield from self._operations(stmt.value)
            else:
                for e in expressions(stmt):
                    yield from self._operations(e)

    def _block(self, block: Block) -> Iterator[str]:
        yield f"{block.init is not None} {isinstance(block.where, Const)}"
        for axis, value in zip(block.iters, block.values, strict=True):
            yield f"{axis.kind} {_known(axis.extent)} {self._used(value)}"
            self.axes[axis.var] = len(self.axes)
        for region in (*block.reads, *block.writes):
            yield self._region(region)

    def _region(self, region: Region) -> str:
        return self._access(region.buffer, [start for start, _ in region.ranges])

    def _access(self, source: object, indices: Sequence[Expr]) -> str:
        return f"{self.buffers.get(source, '?')}[{', '.join(map(self._used, indices))}]"  # type: ignore[call-overload]  # sources of loads are buffers here

    def _used(self, index: Expr) -> str:
        """The axes that an index uses, and the buffers that it looks up."""
        nodes = list(post_order(index))
        axes = sorted({self.axes.get(e, -2) for e in nodes if isinstance(e, Var)})
        return " ".join(map(str, [*axes, *("load" for e in nodes if isinstance(e, Load))]))

    def _operations(self, value: Expr) -> Iterator[str]:
        """The operations of a value, from its root; of indices, only which axes they use."""
        stack, seen = [value], {value}
        while stack:
            e = stack.pop()
            if isinstance(e, Load):
                yield self._access(e.source, e.indices)
                continue
            what = e.op if isinstance(e, Binary) else e.name if isinstance(e, Call) else type(e).__name__
            yield f"{what} {e.dtype} {self.axes.get(e, '')}"
            fresh = [c for c in reversed(e.children) if c not in seen]
            seen.update(fresh)
            stack.extend(fresh)


def _known(extent: Expr) -> str:
    return "known" if isinstance(extent, Const) else "open"
