"""Virtual threads → interleaved code: one loop over the threads around each statement.

::

    virtual v in 2:                      alloc P[2, 4]
      alloc P[4]                         for k in 8:
      for k in 8:                  →       unrolled v in 2: P[v, …] = f(v, k)
        P[…] = f(v, k)                     unrolled v in 2: C[v, k] = g(P[v, …])
        C[v, k] = g(P[…])

A buffer that is allocated inside and written differently by the threads has a copy for each of them. A statement that
is the same for all threads runs once. A statement stays whole, with one loop over the threads around it, if its loop
bounds or its condition differ between the threads, or if it is a vectorized loop.

:func:`interleaved` makes one statement for each thread in place of the loops over threads, and one buffer for each in
place of the copies. There all loops stay whole: each thread reads what it reads in the order of memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from weft.expr.nodes import Const, Expr, Load, Var, integer
from weft.ir.text import Names
from weft.tir.nodes import Allocate, Buffer, For, Let, Program, Seq, Stmt, Store, seq
from weft.tir.visit import (
    children,
    expressions,
    map_expr,
    map_expressions,
    postorder,
    substitute,
    transform,
    walk,
    with_children,
)


def interleave(program: Program) -> Program:
    """The program without virtual loops. Runs after buffers have their final sizes."""
    if not any(isinstance(s, For) and s.kind == "virtual" for s in walk(program.body)):
        return program

    def visit(s: Stmt) -> Stmt | None:
        return _Threads(s).interleaved(s.body) if isinstance(s, For) and s.kind == "virtual" else None

    return replace(program, body=transform(program.body, visit))


def interleaved(threads: For, names: Names) -> Stmt:
    """The body of a virtual loop over a known number of threads, interleaved, without loops over the threads: each has
    loops, statements and buffers of its own. ``names`` are those of all buffers of the program."""
    return _Threads(threads, names).interleaved(threads.body)


@dataclass
class _Threads:
    """The virtual threads of one loop, and what differs between them."""

    loop: For
    names: Names | None = None
    """The names of all buffers of the program, if each thread gets statements and buffers of its own."""
    own: set[Buffer] = field(init=False)
    """Buffers allocated inside the loop."""
    variables: set[Var] = field(init=False)
    """Variables whose values differ between the threads."""
    private: set[Buffer] = field(init=False)
    """Buffers of which each thread has a copy."""
    differing: set[Stmt] = field(init=False)
    """Statements that are not the same for all threads, or contain such a statement."""
    copies: dict[Buffer, Buffer] = field(default_factory=dict)
    """For each private buffer the buffer that holds the copies of all threads."""
    apart: dict[Buffer, list[Buffer]] = field(default_factory=dict)
    """For each private buffer the buffers of all threads."""

    def __post_init__(self) -> None:
        self.own = {s.buffer for s in walk(self.loop.body) if isinstance(s, Allocate)}
        self.variables, self.private, self.differing = {self.loop.var}, set(), set()
        known = -1
        while known != (known := len(self.variables) + len(self.private)):
            self._find(self.loop.body, False)

    def _differs(self, parts: Iterable[Expr]) -> bool:
        return any(
            e in self.variables if isinstance(e, Var) else isinstance(e, Load) and e.source in self.private
            for e in postorder(*parts)
        )

    def _find(self, s: Stmt, inside: bool) -> bool:
        """Note what differs between the threads in ``s``, which is ``inside`` a loop or condition that does. Returns
        whether anything does."""
        written = isinstance(s, Store) and s.buffer in self.private  # also where all threads store the same
        here = inside or written or self._differs(expressions(s))
        if here and isinstance(s, (For, Let)):
            self.variables.add(s.var)
        if here and isinstance(s, Store) and s.buffer in self.own:
            self.private.add(s.buffer)
        below = here and not isinstance(s, Let)
        found = [self._find(c, below) for c in children(s)]
        if here or any(found):
            self.differing.add(s)
            return True
        return False

    def interleaved(self, s: Stmt) -> Stmt:
        """``s`` for all threads."""
        if s not in self.differing:
            return s
        if isinstance(s, Seq):
            return seq(*map(self.interleaved, s.stmts))
        if isinstance(s, Allocate):
            if s.buffer in self.private and self.names is not None:
                self.apart[s.buffer] = own = [self._named_apart(s.buffer, n) for n in range(self._count)]
                made = self.interleaved(s.body)
                for b in reversed(own):
                    made = Allocate(b, made)
                return made
            if s.buffer in self.private:
                copies = s.buffer.replace(shape=(self.loop.extent, *s.buffer.shape), strides=None)
                self.copies[s.buffer] = copies
                return Allocate(copies, self.interleaved(s.body))
            return replace(s, body=self.interleaved(s.body))
        whole = isinstance(s, For) and (s.kind == "vectorized" or self.names is not None)
        if children(s) and not whole and not self._differs(expressions(s)):
            return with_children(s, tuple(map(self.interleaved, children(s))))
        return self._for_each(s)

    @property
    def _count(self) -> int:
        """The number of threads, which is known."""
        assert isinstance(self.loop.extent, Const)
        return int(self.loop.extent.value)

    def _named_apart(self, buffer: Buffer, thread: int) -> Buffer:
        """The buffer of one thread in place of ``buffer``."""
        assert self.names is not None
        return buffer.replace(name=self.names.fresh(f"{buffer.name}_{thread}"))

    def _for_each(self, s: Stmt) -> Stmt:
        """``s`` once for each thread, on the thread's own copies of buffers."""
        if self.names is not None:
            parts = []
            for n in range(self._count):
                own = {b: apart[n] for b, apart in self.apart.items()}
                parts.append(substitute(s, {self.loop.var: self.loop.start + integer(n)}, own))
            return seq(*parts)
        thread = self.loop.var - self.loop.start
        memo: dict[Expr, Expr] = {}

        def load(e: Expr) -> Expr | None:
            copies = self.copies.get(e.source) if isinstance(e, Load) and isinstance(e.source, Buffer) else None
            return None if copies is None or not isinstance(e, Load) else Load(copies, (thread, *e.indices), e.mask)

        def each(x: Stmt) -> Stmt:
            x = map_expressions(x, lambda e: map_expr(e, load, memo))
            if isinstance(x, Store) and x.buffer in self.copies:
                return Store(self.copies[x.buffer], (thread, *x.indices), x.value, x.mask)
            return x

        var = Var(self.loop.var.name, self.loop.var.dtype)
        made = substitute(transform(s, each), {self.loop.var: var})
        return For(var, self.loop.start, self.loop.extent, made, "unrolled")
