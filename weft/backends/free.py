"""Free variables and buffers of a part of a kernel: those that an outlined function must capture."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.expr.nodes import Expr, Load, Var
from weft.support.errors import InternalError
from weft.tir.nodes import Allocate, Block, Buffer, For, Let, Stmt, Store
from weft.tir.visit import children, expressions


@dataclass(slots=True)
class Uses:
    """Free variables and buffers, in order of first use; and the allocations inside, outermost first."""

    variables: dict[Var, None] = field(default_factory=dict)
    buffers: dict[Buffer, None] = field(default_factory=dict)
    allocations: list[Buffer] = field(default_factory=list)


def uses_of(*roots: Stmt | Expr) -> Uses:
    """The variables and buffers that ``roots`` use but do not define."""
    found = Uses()
    defined: set[Var] = set()
    seen: set[Expr] = set()
    for root in roots:
        if isinstance(root, Expr):
            _expression(root, found, seen)
        else:
            _statement(root, found, seen, defined)
    for v in defined:
        found.variables.pop(v, None)
    for b in found.allocations:
        found.buffers.pop(b, None)
    return found


def _expression(root: Expr, found: Uses, seen: set[Expr]) -> None:
    stack = [root]
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if isinstance(e, Var):
            found.variables[e] = None
        elif isinstance(e, Load):
            assert isinstance(e.source, Buffer)
            found.buffers[e.source] = None
        stack.extend(reversed(e.children))


def _statement(root: Stmt, found: Uses, seen: set[Expr], defined: set[Var]) -> None:
    stack: list[Stmt] = [root]
    while stack:
        s = stack.pop()
        if isinstance(s, Allocate):
            found.allocations.append(s.buffer)
        elif isinstance(s, (For, Let)):
            defined.add(s.var)
        elif isinstance(s, Store):
            found.buffers[s.buffer] = None
        elif isinstance(s, Block):
            raise InternalError(f"the block '{s.name}' cannot stand in a kernel; lower the program first")
        for e in expressions(s):
            _expression(e, found, seen)
        stack.extend(reversed(children(s)))
