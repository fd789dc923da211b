"""Loops that threads share → one iteration for each thread, and barriers where threads exchange data.

::

    for x in thread "threadIdx.x"(0, 8):                    for x in thread "threadIdx.x"(0, 8):
      for k in serial(0, 4):                                  for k in serial(0, 4):
        for y in thread "threadIdx.x"(0, 8):           →        S[x] = A[k * 8 + x]
          S[y] = A[k * 8 + y]                                   barrier
        C[x] = C[x] + S[0] + … + S[7]                           C[x] = C[x] + S[0] + … + S[7]
                                                                barrier

Threads exchange data in buffers of scope ``shared`` and in those that a shared loop fills. A barrier stands between two
statements if one stores to such a buffer and the other accesses it, and at the end of a loop that does both. There is
none where only some of the threads would reach it: schedules refuse threads that exchange data there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from weft.expr.nodes import Expr, Load, Var
from weft.tir.nodes import Barrier, Buffer, For, If, Let, Program, Seq, Stmt, Store
from weft.tir.threads import shared_loops, starts_threads
from weft.tir.visit import children, expressions, postorder, substitute, walk, with_children


def exchange_with_barriers(program: Program) -> Program:
    """The program, which has no blocks, with explicit barriers and without loops inside loops of the same axis."""
    shared = shared_loops(program)
    exchanged = {s.buffer for loop in shared for s in walk(loop) if isinstance(s, Store)}
    exchanged |= {s.buffer for s in walk(program.body) if isinstance(s, Store) and s.buffer.scope == "shared"}
    if not exchanged:
        return program
    return replace(program, body=_Exchange(exchanged).visit(_unnested(program.body, shared), False))


def _unnested(s: Stmt, shared: Mapping[For, For]) -> Stmt:
    """``s`` with each shared loop replaced by its iteration for the present thread."""
    made = with_children(s, tuple(_unnested(c, shared) for c in children(s))) if children(s) else s
    if not isinstance(s, For) or s not in shared:
        return made
    assert isinstance(made, For)
    threads = shared[s]
    return substitute(made.body, {s.var: s.start + (threads.var - threads.start)})


@dataclass
class _Accesses:
    """The exchanged buffers that a statement reads and writes."""

    reads: set[Buffer] = field(default_factory=set)
    writes: set[Buffer] = field(default_factory=set)

    def conflicts(self, later: _Accesses) -> bool:
        return bool(self.writes & (later.reads | later.writes) or self.reads & later.writes)

    def add(self, other: _Accesses) -> None:
        self.reads |= other.reads
        self.writes |= other.writes


@dataclass
class _Exchange:
    """Places barriers. ``differing`` are variables whose values differ between the threads."""

    exchanged: set[Buffer]
    differing: set[Var] = field(default_factory=set)

    def accesses(self, root: Stmt) -> _Accesses:
        found = _Accesses()
        for s in walk(root):
            if isinstance(s, Store) and s.buffer in self.exchanged:
                found.writes.add(s.buffer)
            for e in postorder(*expressions(s)):
                if isinstance(e, Load) and isinstance(e.source, Buffer) and e.source in self.exchanged:
                    found.reads.add(e.source)
        return found

    def visit(self, s: Stmt, together: bool) -> Stmt:
        """``s`` with barriers; ``together``: it is inside of the threads' loops, and all threads reach it."""
        if isinstance(s, (If, For, Let)) and self._differs(expressions(s)):
            if isinstance(s, If):
                return s  # only some threads are here
            self.differing.add(s.var)
            if isinstance(s, For):
                return s
        if isinstance(s, For) and s.kind == "thread":
            if starts_threads(s):
                self.differing.add(s.var)
            return replace(s, body=self.visit(s.body, True))
        parts = tuple(self.visit(c, together) for c in children(s))
        if isinstance(s, Seq) and together:
            return _flat(self._apart(parts))
        made = with_children(s, parts) if parts else s
        if isinstance(made, For) and together:
            inside = self.accesses(made.body)
            if inside.reads & inside.writes and not _ends_with_barrier(made.body):
                return replace(made, body=_flat([made.body, Barrier()]))
        return made

    def _differs(self, parts: tuple[Expr, ...]) -> bool:
        return any(isinstance(e, Var) and e in self.differing for e in postorder(*parts))

    def _apart(self, parts: tuple[Stmt, ...]) -> list[Stmt]:
        """The statements with barriers between those that exchange data."""
        made: list[Stmt] = []
        since = _Accesses()
        for s in parts:
            own = self.accesses(s)
            if since.conflicts(own):
                made.append(Barrier())
                since = _Accesses()
            made.append(s)
            since.add(own)
        return made


def _flat(parts: list[Stmt]) -> Stmt:
    flat = [t for s in parts for t in (s.stmts if isinstance(s, Seq) else (s,))]
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def _ends_with_barrier(s: Stmt) -> bool:
    return isinstance(s, Seq) and bool(s.stmts) and isinstance(s.stmts[-1], Barrier)
