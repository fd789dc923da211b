"""The text of one function while it grows: lines, names in use, and which expressions already have a variable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from weft.backends.c_like.spelling import KEYWORDS, Spelling
from weft.backends.c_like.text import CText
from weft.expr.nodes import Expr, Var
from weft.tir.nodes import Buffer

_INDENT = "    "


class CFunction:
    """Lines of a function and what is known at the point of emission.

    A variable may be used until the braces around its declaration close. A variable with a value read from memory may
    only be used until that memory may have changed.
    """

    def __init__(self, spelling: Spelling, taken: frozenset[str] = frozenset()) -> None:
        self.spelling = spelling
        self.lines: list[str] = []
        self.depth = 1
        self.pointers: dict[Buffer, str] = {}
        self.elements: dict[tuple[Buffer, int], str] = {}
        """Parts of buffers that have their own variables, by their offset."""
        self.split: set[Buffer] = set()
        """Buffers all of whose parts have their own variables."""
        self.memo: dict[Expr, CText] = {}
        self.uses: dict[Expr, int] = {}
        """How often each expression occurs in the statements that are being emitted."""
        self.data: set[Var] = set()
        """Variables whose values come from data, so that arithmetic on them may wrap around."""
        self.streamed: set[str] = set()
        """Names of the buffers that are written with non-temporal stores."""
        self.streams = False
        """Whether such a store was emitted: the function must wait for them before it returns."""
        self._reads: dict[Expr, frozenset[Buffer]] = {}
        self._readers: dict[Buffer, list[Expr]] = {}
        self._bound: list[Expr] = []
        self._names: set[str] = set(KEYWORDS | taken)
        self._named: list[str] = []
        self._counters: dict[str, int] = {}

    def line(self, text: str) -> None:
        self.lines.append(f"{_INDENT * self.depth}{text}")

    def bare(self, text: str) -> None:
        """A line without indentation, for directives."""
        self.lines.append(text)

    def name(self, wished: str) -> str:
        """A name similar to ``wished`` that nothing else in scope has."""
        clean = re.sub(r"\W", "_", wished, flags=re.ASCII)
        clean = f"v{clean}" if not clean or clean[0].isdigit() or clean[0] == "_" else clean
        found, n = clean, 1
        while found in self._names:
            n += 1
            found = f"{clean}_{n}"
        self._names.add(found)
        self._named.append(found)
        return found

    def number(self, stem: str) -> str:
        """A name made of ``stem`` and a number, unique in the function."""
        while True:
            self._counters[stem] = self._counters.get(stem, 0) + 1
            made = f"{stem}{self._counters[stem]}"
            if made not in self._names:
                return made

    def bind(self, e: Expr, piece: CText, reads: frozenset[Buffer] = frozenset()) -> None:
        """Remember how the value of ``e`` is written until the scope ends."""
        self.memo[e] = piece
        self._bound.append(e)
        if reads:
            self._reads[e] = reads
            for b in reads:
                self._readers.setdefault(b, []).append(e)

    def reads(self, e: Expr) -> frozenset[Buffer]:
        return self._reads.get(e, frozenset()) if e in self.memo else frozenset()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Braces: what is declared between them is not visible after them."""
        named, uses = len(self._named), self.uses
        self.depth += 1
        try:
            with self.forgetting():
                yield
        finally:
            self.depth -= 1
            self.uses = uses
            self._names.difference_update(self._named[named:])
            del self._named[named:]

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """A region whose values are forgotten at its end: a program variable that it binds may later be bound to
        another value."""
        bound = len(self._bound)
        try:
            yield
        finally:
            for e in self._bound[bound:]:
                self.memo.pop(e, None)
            del self._bound[bound:]

    def wrote(self, buffer: Buffer) -> None:
        """Forget what was read from ``buffer``."""
        for e in self._readers.pop(buffer, ()):
            self.memo.pop(e, None)

    def forget_reads(self) -> None:
        """Forget all that was read from memory (at a loop, whose body may write it)."""
        for buffer in list(self._readers):
            self.wrote(buffer)
