"""Threads that share work: a loop of threads inside a loop of the same axis.

::

    for x in thread "threadIdx.x"(0, 8):
      for k in serial(0, 4):
        for y in thread "threadIdx.x"(0, 8): S[y] = A[k * 8 + y]      the threads fill S together
        C[x] = C[x] + S[0] + … + S[7]                                 and each reads all of it

The inner loop starts no threads. Iteration n runs in the thread with index n, once. All threads of the block wait
before the inner loop and after it, so they see what was stored in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.expr.nodes import Expr, Load, Var
from weft.tir.nodes import Block, Buffer, For, If, Let, Program, Stmt, Store
from weft.tir.visit import children, expressions, postorder, walk

PRIVATE = ("local", "register", "warp")
"""Scopes whose memory each thread has for itself."""


def starts_threads(loop: Stmt) -> bool:
    """Whether the loop is one over the threads of a block."""
    return isinstance(loop, For) and loop.kind == "thread" and loop.thread.startswith("threadIdx")


def shared_loops(program: Program) -> dict[For, For]:
    """Each loop of threads inside a loop of the same axis, with the outermost one."""
    return {inner: outer for inner, outer, _ in _inner_loops(program)}


@dataclass(frozen=True, slots=True)
class Misuse:
    """Why the threads cannot share the work of a loop."""

    loop: For
    reason: str


def misuse(program: Program) -> Misuse | None:
    """The first loop of threads inside a loop of the same axis that cannot be shared by these threads."""
    for inner, outer, path in _inner_loops(program):
        reason = _blocks_apart(inner, outer) or _lengths(inner, outer) or _divergent(path) or _private(program, inner)
        if reason is None and _depends(outer, inner, path):
            reason = f"what it runs depends on '{outer.var.name}', and iteration n runs in thread n only"
        if reason is not None:
            return Misuse(inner, reason)
    return None


def _inner_loops(program: Program) -> Iterator[tuple[For, For, list[Stmt]]]:
    """Loops inside a loop of the same axis: the inner loop, the outermost one of the axis, and the statements from the
    outermost loop of threads to the inner one."""
    if not any(isinstance(s, For) and s.kind == "thread" for s in walk(program.body)):
        return
    stack: list[tuple[Stmt, tuple[Stmt, ...]]] = [(program.body, ())]
    while stack:
        s, path = stack.pop()
        if isinstance(s, For) and s.kind == "thread":
            outer = next((x for x in path if isinstance(x, For) and x.thread == s.thread and x.kind == "thread"), None)
            if outer is not None:
                first = next(n for n, x in enumerate(path) if isinstance(x, For) and x.kind == "thread")
                yield s, outer, [*path[first:], s]
        stack.extend((c, (*path, s)) for c in reversed(children(s)))


def _blocks_apart(inner: For, outer: For) -> str | None:
    return None if starts_threads(inner) else f"'{outer.var.name}' runs over the same blocks, which do not wait"


def _lengths(inner: For, outer: For) -> str | None:
    if inner.extent is outer.extent:
        return None
    return f"it has {inner.extent} iterations but '{outer.var.name}' {outer.extent} threads"


def _uses(e: Expr, variables: set[Var]) -> bool:
    return any(isinstance(x, Var) and x in variables for x in postorder(e))


def _follow(s: Stmt, variables: set[Var]) -> None:
    """Add the variables that ``s`` defines and whose values depend on ``variables``."""
    if isinstance(s, Block):
        variables |= {it.var for it, v in zip(s.iters, s.values, strict=True) if _uses(v, variables)}
    elif isinstance(s, (Let, For)) and any(_uses(e, variables) for e in expressions(s)):
        variables.add(s.var)


def _divergent(path: list[Stmt]) -> str | None:
    """Whether some threads do not reach the end of the path."""
    variables: set[Var] = set()
    for s in path:
        conditions = [s.where] if isinstance(s, Block) else [s.condition] if isinstance(s, If) else []
        conditions += [s.start, s.extent] if isinstance(s, For) else []
        if any(_uses(e, variables) for e in conditions):
            return "not all threads reach it"
        _follow(s, variables)
        if starts_threads(s):
            assert isinstance(s, For)
            variables.add(s.var)
    return None


def _depends(outer: For, inner: For, path: list[Stmt]) -> bool:
    variables = {outer.var}
    for s in path[path.index(outer) + 1 :]:
        if s is not inner and isinstance(s, For) and s.thread == outer.thread:
            variables.add(s.var)  # the same thread's index
        _follow(s, variables)
    return any(_uses(e, variables) for s in walk(inner) for e in expressions(s))


def _accessed(s: Stmt) -> Iterator[Buffer]:
    if isinstance(s, Store):
        yield s.buffer
    if not isinstance(s, Block):
        for e in postorder(*expressions(s)):
            if isinstance(e, Load) and isinstance(e.source, Buffer):
                yield e.source


def _private(program: Program, inner: For) -> str | None:
    inside = set(walk(inner))
    stored = {s.buffer for s in inside if isinstance(s, Store) and s.buffer.scope in PRIVATE}
    if not stored:
        return None
    for s in walk(program.body):
        if s not in inside:
            found = next((b for b in _accessed(s) if b in stored), None)
            if found is not None:
                return f"each thread has a '{found.name}' of its own, and would fill only a part of it"
    return None
