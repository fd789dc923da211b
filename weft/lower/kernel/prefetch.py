"""Software prefetch: what a loop reads some iterations ahead is asked for now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from weft.expr.affine import split_constant
from weft.expr.linear import simplify_index
from weft.expr.nodes import Call, Const, Expr, Load, Var, minimum
from weft.support.dtypes import INT32
from weft.tir.nodes import Evaluate, For, Program, Stmt, seq
from weft.tir.visit import children, expressions, postorder, substitution, transform

LINE = 64
"""Bytes that one prefetch brings."""
MOST = 64
"""Places below unrolled loops up to which each is asked for."""


def insert_prefetches(program: Program) -> Program:
    """Loops annotated ``prefetch = ((buffer name, distance), …)`` start each iteration by prefetching.

    Past the end of the loop the addresses are those of its last iteration.
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
    """The loads of ``buffer`` below the loop, ``distance`` iterations later, one for each cache line: each iteration of
    unrolled loops counts, other inner loops stand at their start."""
    later = minimum(loop.var + distance, loop.start + loop.extent - 1)
    found: dict[Expr, None] = {}
    _collect(loop.body, buffer, [{loop.var: later}], found)
    return _lines(found)


def _collect(s: Stmt, buffer: str, places: list[dict[Var, Expr]], found: dict[Expr, None]) -> None:
    """``places`` are the values of the loops around, for each of the iterations that count."""
    if isinstance(s, For):
        count = int(s.extent) if s.kind == "unrolled" and isinstance(s.extent, Const) else 1
        if count * len(places) > MOST:
            count = 1
        starts = [(at, substitution(at)(s.start)) for at in places]
        places = [{**at, s.var: start + n} for at, start in starts for n in range(count)]
    for e in postorder(*expressions(s)):
        if isinstance(e, Load) and e.source.name == buffer and not isinstance(s, Evaluate):
            plain = Load(e.source, e.indices)
            if not any(isinstance(i, Load) for i in postorder(*e.indices)):
                found.update((substitution(at)(plain), None) for at in places)
    for c in children(s):
        _collect(c, buffer, places, found)


def _lines(loads: Iterable[Expr]) -> list[Expr]:
    """One of the loads of each cache line, as far as that can be told: those of one row at constant distances."""
    rows: dict[tuple[object, ...], list[tuple[int, Expr]]] = {}
    for e in loads:
        assert isinstance(e, Load)
        *outer, last = e.indices or (Const(0),)
        variable, constant = split_constant(simplify_index(last))
        key = (tuple(simplify_index(i) for i in outer), variable)
        rows.setdefault(key, []).append((constant, e))
    chosen: list[Expr] = []
    for row in rows.values():
        at: int | None = None
        for constant, e in sorted(row, key=lambda pair: pair[0]):
            if at is None or (constant - at) * e.dtype.nbytes >= LINE:
                chosen.append(e)
                at = constant
    return chosen
