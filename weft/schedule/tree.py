"""An index of one program version: parents of statements, places of blocks and loops, writers and readers of buffers.

A :class:`Tree` is built by one walk over the statements (never over expressions) and discarded when the program
changes. Primitives look things up in it instead of searching the program. Rewriting copies the path from the changed
statement to the root and shares everything else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from weft.expr.nodes import Var
from weft.support.errors import InternalError
from weft.tir.nodes import Allocate, Block, Buffer, For, If, Let, Program, Seq, Stmt
from weft.tir.visit import children

STAGES = "pipeline_stages"
"""Annotation of a loop whose statements run in different iterations: for each statement, how many iterations late it
runs."""


def statements_of(loop: For) -> tuple[Stmt, ...]:
    """The statements of a loop's body, one after another."""
    return loop.body.stmts if isinstance(loop.body, Seq) else (loop.body,)


def with_loop(loop: For, **changes: Any) -> For:
    """A copy of ``loop`` with the given fields changed."""
    return dataclasses.replace(loop, **changes)


def with_block(block: Block, **changes: Any) -> Block:
    """A copy of ``block`` with the given fields changed."""
    return dataclasses.replace(block, **changes)


def nest(loops: Iterable[For], body: Stmt) -> Stmt:
    """``body`` inside copies of ``loops``, the first outermost."""
    for loop in reversed(list(loops)):
        body = with_loop(loop, body=body)
    return body


def is_empty(stmt: Stmt) -> bool:
    return isinstance(stmt, Seq) and not stmt.stmts


class Tree:
    """The index of ``program``. Statements are compared by identity."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.parent: dict[Stmt, Stmt] = {}
        self.position: dict[Stmt, int] = {}
        self.blocks: dict[str, Block] = {}
        self.loops: dict[Var, For] = {}
        stack: list[Stmt] = [program.body]
        while stack:
            stmt = stack.pop()
            self.position[stmt] = len(self.position)
            if isinstance(stmt, Block):
                self.blocks[stmt.name] = stmt
            elif isinstance(stmt, For):
                self.loops[stmt.var] = stmt
            below = children(stmt)
            for child in below:
                self.parent[child] = stmt
            stack.extend(reversed(below))
        self._writers: dict[Buffer, list[Block]] | None = None
        self._readers: dict[Buffer, list[Block]] = {}

    # -- places ---------------------------------------------------------------------------------------------

    def ancestors(self, stmt: Stmt) -> Iterator[Stmt]:
        """The statements around ``stmt``, innermost first."""
        above = self.parent.get(stmt)
        while above is not None:
            yield above
            above = self.parent.get(above)

    def is_under(self, stmt: Stmt, root: Stmt) -> bool:
        """Whether ``stmt`` is ``root`` or below it."""
        return stmt is root or any(a is root for a in self.ancestors(stmt))

    def enclosing_block(self, stmt: Stmt) -> Block | None:
        """The block whose body holds ``stmt``: the scope in which it is scheduled. None at the top."""
        return next((a for a in self.ancestors(stmt) if isinstance(a, Block)), None)

    def loops_around(self, stmt: Stmt) -> list[For]:
        """Loops around ``stmt`` up to the enclosing block, outermost first."""
        found: list[For] = []
        for above in self.ancestors(stmt):
            if isinstance(above, Block):
                break
            if isinstance(above, For):
                found.append(above)
        return found[::-1]

    def all_loops_around(self, stmt: Stmt) -> list[For]:
        """Loops around ``stmt`` through all enclosing blocks, outermost first."""
        return [a for a in self.ancestors(stmt) if isinstance(a, For)][::-1]

    def child_toward(self, root: Stmt | None, stmt: Stmt) -> Stmt:
        """The direct child of ``root`` that holds ``stmt`` (the program's body when ``root`` is None)."""
        below = stmt
        for above in self.ancestors(stmt):
            if above is root:
                return below
            below = above
        if root is None:
            return below
        raise InternalError("child_toward: the statement is not below the given root")

    def blocks_under(self, stmt: Stmt) -> list[Block]:
        """Outermost blocks at or below ``stmt``; blocks inside those are not listed."""
        found: list[Block] = []
        stack = [stmt]
        while stack:
            top = stack.pop()
            if isinstance(top, Block):
                found.append(top)
            else:
                stack.extend(reversed(children(top)))
        return found

    # -- accesses -------------------------------------------------------------------------------------------

    def _index_accesses(self) -> dict[Buffer, list[Block]]:
        if self._writers is None:
            self._writers = {}
            for block in self.blocks.values():
                for table, regions in ((self._writers, block.writes), (self._readers, block.reads)):
                    for buffer in dict.fromkeys(r.buffer for r in regions):
                        table.setdefault(buffer, []).append(block)
        return self._writers

    def writers(self, buffer: Buffer, scope: Block | None = None) -> list[Block]:
        """Blocks directly in ``scope`` that write ``buffer``, in program order."""
        return [b for b in self._index_accesses().get(buffer, ()) if self.enclosing_block(b) is scope]

    def readers(self, buffer: Buffer, scope: Block | None = None) -> list[Block]:
        """Blocks directly in ``scope`` that read ``buffer`` and do not write it (an accumulator reads itself)."""
        self._index_accesses()
        return [
            b
            for b in self._readers.get(buffer, ())
            if self.enclosing_block(b) is scope and all(w.buffer is not buffer for w in b.writes)
        ]

    def accessors(self, buffer: Buffer) -> list[Block]:
        """All blocks, at any depth, whose regions mention ``buffer``."""
        writers = self._index_accesses().get(buffer, [])
        return [*writers, *(b for b in self._readers.get(buffer, ()) if b not in writers)]

    def without(self, stmt: Stmt) -> Tree:
        """The index of the program with ``stmt`` removed."""
        return Tree(dataclasses.replace(self.program, body=self.replace({stmt: None})))

    # -- rewriting ------------------------------------------------------------------------------------------

    def replace(self, changes: Mapping[Stmt, Stmt | None]) -> Stmt:
        """The program's body with each key replaced by its value. None removes the statement, and any statement that
        becomes empty.

        No key may lie below another key.
        """
        touched: set[Stmt] = set()
        for stmt in changes:
            touched.add(stmt)
            for above in self.ancestors(stmt):
                if above in touched:
                    break
                touched.add(above)
        made = _rebuild(self.program.body, changes, touched)
        return made if made is not None else Seq(())


def _rebuild(stmt: Stmt, changes: Mapping[Stmt, Stmt | None], touched: set[Stmt]) -> Stmt | None:
    if stmt in changes:
        return changes[stmt]
    if stmt not in touched:
        return stmt
    if isinstance(stmt, Seq):
        made = [m for m in (_rebuild(s, changes, touched) for s in stmt.stmts) if m is not None]
        flat = [t for m in made for t in (m.stmts if isinstance(m, Seq) else (m,))]
        if not flat:
            return None
        return flat[0] if len(flat) == 1 else Seq(tuple(flat))
    if isinstance(stmt, (For, Let, Allocate)):
        body = _rebuild(stmt.body, changes, touched)
        return None if body is None else dataclasses.replace(stmt, body=body)
    if isinstance(stmt, Block):
        init = None if stmt.init is None else _rebuild(stmt.init, changes, touched)
        body = _rebuild(stmt.body, changes, touched)
        return None if body is None else dataclasses.replace(stmt, body=body, init=init)
    if isinstance(stmt, If):
        then = _rebuild(stmt.then, changes, touched)
        otherwise = None if stmt.otherwise is None else _rebuild(stmt.otherwise, changes, touched)
        if then is None and otherwise is None:
            return None
        return dataclasses.replace(stmt, then=then if then is not None else Seq(()), otherwise=otherwise)
    raise InternalError(f"a {type(stmt).__name__} has no statements below it")
