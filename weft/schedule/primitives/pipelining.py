"""Software pipelining: the statements of different iterations overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Var
from weft.schedule.primitives.kinds import annotate
from weft.schedule.refs import LoopRef
from weft.schedule.rewrite import uses
from weft.schedule.state import State
from weft.schedule.tree import STAGES, Tree, statements_of
from weft.tir.nodes import Block, Buffer, For

ORDER = "pipeline_order"
"""Annotation of a pipelined loop: the position of each statement."""


def pipeline(state: State, loop: LoopRef, stages: tuple[int, ...], order: tuple[int, ...]) -> None:
    """Overlap iterations: the n-th statement of the body runs ``stages[n]`` iterations late, as number ``order[n]``.

    ::

        for i in n: P = f(i); C[i] = g(P)        (stages 0, 1; order 0, 1)

        P[0] = f(0)                                            the first iterations fill the pipeline
        for i in 1..n: P[i % 2] = f(i); C[i-1] = g(P[(i-1) % 2])
        C[n-1] = g(P[(n-1) % 2])                               the last ones empty it

    Lowering gives each buffer that is passed to a later stage one copy for each iteration in flight. Iterations of the
    loop must not depend on each other through more than one statement (S015). A statement must not come before one
    that it depends on (S064). Buffers passed between stages must not be used outside of the loop (S065). Afterwards the
    statements of the loop cannot be changed (S066).
    """
    found = state.loop(loop)
    body = statements_of(found)
    count = len(body)
    if len(stages) != count or sorted(order) != list(range(count)) or any(s < 0 for s in stages):
        raise state.refuse(
            "S004", f"the body of '{loop.name}' has {count} statements; give a stage and a position to each", at=found
        )
    if found.kind != "serial":
        raise state.refuse("S015", f"'{loop.name}' is {found.kind}: its iterations do not run in order", at=found)
    if _in_lanes(state.tree, found):
        raise state.refuse(
            "S015", f"'{loop.name}' is inside a vectorized loop, whose lanes share its statements", at=found
        )
    if found.var in state.carried:
        raise state.refuse("S015", f"iterations of '{loop.name}' may depend on earlier ones", at=found)
    touched = [_touched(state.tree, state.tree.blocks_under(s)) for s in body]
    for first, second in combinations(range(count), 2):
        for buffer in touched[first]:
            if buffer in touched[second] and (touched[first][buffer] or touched[second][buffer]):
                _check_passed(state, found, buffer, (first, second), stages, order)
    annotate(state, loop, STAGES, tuple(stages))
    annotate(state, loop, ORDER, tuple(order))
    state.pipelined = pipelined_loops(state.tree)


def _touched(tree: Tree, blocks: Sequence[Block]) -> Mapping[Buffer, bool]:
    """The buffers that blocks access, and whether the blocks write them."""
    found: dict[Buffer, bool] = {}
    for block in blocks:
        found.update((r.buffer, found.get(r.buffer, False)) for r in block.reads)
        found.update((r.buffer, True) for r in block.writes)
    return found


def _check_passed(
    state: State, loop: For, buffer: Buffer, pair: tuple[int, int], stages: Sequence[int], order: Sequence[int]
) -> None:
    """Refuse unless the second statement of a pair that shares ``buffer`` still follows the first, and iterations that
    overlap can have copies of it."""
    first, second = pair
    if (stages[first], order[first]) > (stages[second], order[second]):
        raise state.refuse(
            "S064", f"statement {second} of '{loop.var.name}' uses '{buffer.name}' of statement {first}", at=loop
        )
    if stages[first] == stages[second]:
        return
    outside = [b for b in state.tree.accessors(buffer) if not state.tree.is_under(b, loop)]
    if outside or buffer in state.program.params:
        raise state.refuse(
            "S065",
            f"'{buffer.name}', which passes from stage {stages[first]} to {stages[second]}, is used outside of "
            f"'{loop.var.name}'",
            at=outside[0] if outside else loop,
            hint="cache_read or cache_write makes a copy for the loop",
        )
    if _kept_around(state, buffer, loop):
        raise state.refuse(
            "S065",
            f"'{buffer.name}', which passes from stage {stages[first]} to {stages[second]}, is kept for later "
            f"iterations of a loop around '{loop.var.name}'",
            at=loop,
            hint="pipeline the loop across which it is kept",
        )
    for block in state.tree.accessors(buffer):
        if any(block.iters[n].kind != IterVar.SPATIAL for n in uses(block, loop)):
            raise state.refuse("S015", f"'{loop.var.name}' carries the reduction of block '{block.name}'", at=block)


def check_pipelined(state: State, carried: frozenset[Var]) -> None:
    """Refuse (S066) what has changed the statements of a pipelined loop, or how its iterations run."""
    now = pipelined_loops(state.tree)
    for variable, before in state.pipelined.items():
        loop = state.tree.loops.get(variable)
        if loop is not None and STAGES not in loop.annotations:
            continue  # the annotation was taken away
        if (
            loop is None
            or now[variable] != before
            or loop.kind != "serial"
            or variable in state.carried - carried
            or _in_lanes(state.tree, loop)
        ):
            raise state.refuse(
                "S066",
                f"this would change the statements of the pipelined loop '{variable.name}', or their iterations",
                at=loop,
                hint="call pipeline last",
            )
    for variable in now:
        _check_own(state, state.tree.loops[variable])
    state.pipelined = now


def _check_own(state: State, loop: For) -> None:
    """Refuse what has given others a part in what passes between the stages of ``loop`` (a copy of the loop, say)."""
    stages = loop.annotations[STAGES]
    touched = [_touched(state.tree, state.tree.blocks_under(s)) for s in statements_of(loop)]
    for first, second in combinations(range(len(touched)), 2):
        for buffer in touched[first] if stages[first] != stages[second] else ():
            if buffer not in touched[second] or not (touched[first][buffer] or touched[second][buffer]):
                continue
            earlier = _kept_around(state, buffer, loop)
            if earlier or any(not state.tree.is_under(b, loop) for b in state.tree.accessors(buffer)):
                others = "later iterations of a loop around it" if earlier else "others"
                raise state.refuse(
                    "S066",
                    f"'{buffer.name}' passes between stages of the pipelined loop '{loop.var.name}', and {others} "
                    "would use it too",
                    at=loop,
                    hint="call pipeline last",
                )


def _kept_around(state: State, buffer: Buffer, loop: For) -> bool:
    """Whether a buffer stays alive from one iteration to the next of a loop around ``loop``."""
    across = state.tree.loops.get(state.kept.get(buffer.name, loop.var), loop)
    return across is not loop and state.tree.is_under(loop, across)


def _in_lanes(tree: Tree, loop: For) -> bool:
    return any(isinstance(a, For) and a.kind == "vectorized" for a in tree.ancestors(loop))


def pipelined_loops(tree: Tree) -> dict[Var, tuple[frozenset[str], ...]]:
    """The pipelined loops of a program, and the blocks in each of their statements."""
    return {v: blocks_of(tree, loop) for v, loop in tree.loops.items() if STAGES in loop.annotations}


def blocks_of(tree: Tree, loop: For) -> tuple[frozenset[str], ...]:
    """The names of the blocks in each statement of a loop's body."""
    return tuple(frozenset(b.name for b in tree.blocks_under(s)) for s in statements_of(loop))
