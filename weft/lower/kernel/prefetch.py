"""Software prefetch: what a loop reads some iterations ahead is asked for now."""

from __future__ import annotations

from dataclasses import replace

from weft.expr.nodes import Call, Expr, Load, Var, minimum
from weft.support.dtypes import INT32
from weft.tir.nodes import Evaluate, For, Program, Stmt, seq
from weft.tir.visit import expressions, postorder, substitution, transform, walk


def insert_prefetches(program: Program) -> Program:
    """Loops annotated ``prefetch = ((buffer name, distance), …)`` start each iteration by prefetching.

    The address is that of the first access of each kind in the iteration; past the end it is the last iteration's.
    """

    def visit(s: Stmt) -> Stmt | None:
        if not isinstance(s, For) or "prefetch" not in s.annotations:
            return None
        asked: list[Stmt] = []
        for name, distance in s.annotations["prefetch"]:
            asked += [Evaluate(Call("prefetch", (e,), INT32)) for e in _ahead(s, str(name), int(distance))]
        return replace(s, body=seq(*asked, s.body), annotations=s.annotations.without("prefetch"))

    return replace(program, body=transform(program.body, visit))


def _ahead(loop: For, buffer: str, distance: int) -> list[Expr]:
    """The loads of ``buffer`` below the loop, ``distance`` iterations later, inner loops standing at their start."""
    later = minimum(loop.var + distance, loop.start + loop.extent - 1)
    starts: dict[Var, Expr] = {loop.var: later}
    found: dict[Expr, None] = {}
    for s in walk(loop.body):
        if isinstance(s, For):
            starts[s.var] = substitution(starts)(s.start)
        for e in postorder(*expressions(s)):
            if isinstance(e, Load) and e.source.name == buffer and not isinstance(s, Evaluate):
                plain = Load(e.source, e.indices)
                if not any(isinstance(i, Load) for i in postorder(*e.indices)):
                    found[substitution(starts)(plain)] = None
    return list(found)
