"""The interpreter's side of functions of other languages: their stand-ins get arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.expr.added import added
from weft.expr.nodes import Call
from weft.support.errors import ProgramError
from weft.tir.foreign import is_pointer, pointer_of


def write_call(writer: Any, e: Call) -> None:
    """Let a :class:`weft.tir.python_code.Writer` call the stand-in of a function of another language."""
    row = added().get(e.name)
    if row is None or row.evaluate is None:
        raise ProgramError(
            f"the interpreter cannot run the function '{e.name}'",
            code="V920",
            hint="give it a stand-in: te.extern_function(…, python=…)",
        )
    known = [pointer_of(a) if is_pointer(a) else None for a in e.args]
    roots = [(a,) if p is None else (*p.first.indices, *p.last.indices) for a, p in zip(e.args, known, strict=True)]
    codes = iter(writer.some([x for listed in roots for x in listed]))
    given = []
    for p, listed in zip(known, roots, strict=True):
        found = [next(codes) for _ in listed]
        if p is None:
            given.append(found[0])
            continue
        ends = (found[: len(found) // 2], found[len(found) // 2 :])
        first, last = (writer.flat(p.buffer, end) for end in ends)
        shared = writer.inside_parallel and p.buffer not in writer.own
        site = writer.site("load" if p.reads else "store", p.buffer)
        dtype = writer.constant(p.buffer.dtype.numpy, ("dtype", p.buffer.dtype))
        span = f"{writer.name(p.buffer)}, {first}, {last}, {dtype}, {p.reads}, {p.writes}, {shared}, {site}"
        given.append(f"support.span({span})")
    writer.emit(f"support.call({writer.constant(row.evaluate, ('foreign', e.name))}, [{', '.join(given)}])")


class Span:
    """The elements of a buffer from ``first`` to ``last``, which a function reads or writes: a copy as an array."""

    def __init__(
        self,
        support: Any,
        memory: list[Any],
        first: int,
        last: int,
        dtype: np.dtype[Any],
        reads: bool,
        writes: bool,
        shared: bool,
        site: int,
    ) -> None:
        self.support, self.memory, self.first, self.last = support, memory, first, last
        self.reads, self.writes, self.shared, self.site = reads, writes, shared, site
        part = memory[max(first, 0) : max(last + 1, 0)]
        self.array = np.frombuffer(bytes([0xA7]) * (len(part) * dtype.itemsize), dtype).copy()
        self.defined = [v is not None for v in part]
        for i, v in enumerate(part):
            if v is not None:
                self.array[i] = v
        self.before = self.array.view(np.uint8).reshape(len(part), dtype.itemsize).copy()

    def check(self) -> None:
        """Fail if the elements do not exist; record accesses of parallel iterations."""
        if self.last < self.first:
            return
        if self.first < 0 or self.last >= len(self.memory):
            self.support.fail(self.site, self.first if self.first < 0 else self.last)
        for at in range(self.first, self.last + 1) if self.shared else ():
            self.support.touch(self.memory, at, self.site, self.writes)

    def write_back(self) -> None:
        """Store what the function has changed, and all that was written before. Elements that were never written and
        did not change stay so: they may be gaps between rows."""
        if not self.writes:
            return
        after = self.array.view(np.uint8).reshape(self.before.shape)
        for i, known in enumerate(self.defined):
            if known or self.array.dtype.kind == "b" or (after[i] != self.before[i]).any():
                v = self.array[i]
                self.memory[self.first + i] = v.item() if v.dtype.kind == "b" or v.dtype == np.int64 else v
