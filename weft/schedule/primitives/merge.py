"""The primitive that joins loops of neighbouring nests: merge."""

from __future__ import annotations

from collections.abc import Sequence

from weft.expr.iter_var import IterVar
from weft.expr.linear import linear
from weft.schedule.dependence import flows_within, inherit_carried, pairs_of, stays_apart
from weft.schedule.ranges import loop_range
from weft.schedule.refs import LoopRef
from weft.schedule.rewrite import rebind, uses
from weft.schedule.state import State
from weft.schedule.tree import with_loop
from weft.tir.nodes import Block, For, Seq, Stmt, seq


def merge(state: State, loops: Sequence[LoopRef]) -> LoopRef:
    """Merge loops of equal length that stand one after another into one loop; returns it.

    ::

        for i in 8: for j: P[i, j] = …             for i in 8:
        for i in 8: for j: C[i, j] = f(P[i, j])  →   for j: P[i, j] = …
                                                     for j: C[i, j] = f(P[i, j])

    The loops must be serial neighbours (S013) with equal bounds (S012). What a later nest reads must have been computed
    completely in the same iteration, and an earlier nest must not read what a later one writes (S015), unless each
    iteration works on elements of its own, such as a strip of columns.
    """
    old = [state.loop(ref) for ref in loops]
    if len(old) < 2 or len(set(old)) != len(old):
        raise state.refuse("S004", "give two or more different loops")
    parent = _neighbours(state, old)
    for loop in old[1:]:
        _check_bounds(state, old[0], loop)
    first = old[0]
    parts: list[Stmt] = [first.body]
    for loop in old[1:]:
        ranges = {**state.ranges(first), first.var: loop_range(first)}
        parts.append(rebind(loop.body, {loop.var: first.var}, ranges))
    made = with_loop(first, body=seq(*parts))
    at = [n for n, s in enumerate(parent.stmts) if s is first]
    others: tuple[Stmt, ...] = tuple(made if n == at[0] else s for n, s in enumerate(parent.stmts) if s not in old[1:])
    before = state.program
    state.commit(state.tree.replace({parent: others[0] if len(others) == 1 else Seq(others)}))
    try:
        _check_flow(state, state.loop(LoopRef(first.var)))
    except Exception:  # the check needs the merged program
        state.restore(before)
        raise
    state.consume([ref for ref in loops if ref.var is not first.var], [LoopRef(first.var)])
    inherit_carried(state, [loop.var for loop in old], [LoopRef(first.var)])
    return LoopRef(first.var)


def _neighbours(state: State, loops: Sequence[For]) -> Seq:
    """The sequence in which the loops stand directly after one another, in the given order."""
    for loop in loops:
        if loop.kind != "serial" or loop.annotations:
            raise state.refuse(
                "S011",
                f"loop '{loop.var.name}' is {loop.kind} or annotated",
                at=loop,
                hint="merge first, then mark the resulting loop",
            )
    parent = state.tree.parent.get(loops[0])
    if isinstance(parent, Seq):
        at = next(n for n, s in enumerate(parent.stmts) if s is loops[0])
        if list(parent.stmts[at : at + len(loops)]) == list(loops):
            return parent
    raise state.refuse(
        "S013",
        f"'{', '.join(loop.var.name for loop in loops)}' do not stand directly after one another",
        at=loops[0],
        hint="merge the loops around them first",
    )


def _check_bounds(state: State, first: For, other: For) -> None:
    same = all(linear(a).key == linear(b).key for a, b in ((first.start, other.start), (first.extent, other.extent)))
    if not same:
        raise state.refuse(
            "S012",
            f"'{first.var.name}' has {first.extent} iterations from {first.start}, "
            f"'{other.var.name}' {other.extent} from {other.start}",
            at=other,
            hint="only loops of equal bounds are merged",
        )


def _check_flow(state: State, loop: For) -> None:
    """Refuse unless each iteration uses only what it, or a statement before the loop, has computed completely."""
    for writer, other in pairs_of(state.tree.blocks_under(loop.body)):
        if _same_part(state, loop, writer, other):
            continue
        if stays_apart(state.tree, loop, writer, other):
            continue
        incomplete = any(writer.iters[n].kind != IterVar.SPATIAL for n in uses(writer, loop))
        if incomplete or not flows_within(state.tree, loop, writer, other):
            raise state.refuse(
                "S015",
                f"'{other.name}' would use what '{writer.name}' computes in other iterations of '{loop.var.name}'",
                at=loop,
            )


def _same_part(state: State, loop: For, writer: Block, other: Block) -> bool:
    """Whether the two stood in one iteration before: then nothing changes between them."""
    a, b = (state.tree.child_toward(loop, x) for x in (writer, other))
    if isinstance(loop.body, Seq):
        a, b = (state.tree.child_toward(loop.body, x) for x in (writer, other))
    return a is b
