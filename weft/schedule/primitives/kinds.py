"""Primitives that set how a loop runs: parallel, vectorize, unroll, bind, virtual threads; and annotations."""

from __future__ import annotations

from typing import Any, Final

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const
from weft.schedule.dependence import check_independent, check_lanes_apart
from weft.schedule.primitives.reduction import decompose_reduction
from weft.schedule.primitives.rfactor import combination_in_any_order
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import uses
from weft.schedule.state import State
from weft.schedule.tree import with_block, with_loop
from weft.support.words import did_you_mean
from weft.tir.nodes import Block, For, LoopKind

ROWS_TOGETHER: Final = "rows_together"
"""Annotation of a parallel loop: how many iterations to interleave if they turn out to be short at run time."""
THREAD_AXES: Final = (
    *(f"blockIdx.{d}" for d in "xyz"),
    *(f"threadIdx.{d}" for d in "xyz"),
)


def parallel(state: State, loop: LoopRef) -> None:
    """Run the iterations on the threads of the pool.   ``for i`` → ``parallel for i``"""
    found = _serial(state, loop)
    check_independent(state, found, reduce_allowed=False, kind="parallel")
    _set_kind(state, found, "parallel")


def vectorize(state: State, loop: LoopRef, reassociate: bool = False) -> None:
    """Turn the iterations into the lanes of vectors.   ``for i in 8`` → ``vectorized for i in 8``

    ``reassociate`` allows reduction loops. Their lanes are combined as a tree, which changes the order of the terms;
    their init is decomposed first.
    """
    found = _serial(state, loop)
    _constant(state, found, "vectorized")
    check_independent(state, found, reduce_allowed=reassociate, kind="vectorized")
    for block in state.tree.blocks_under(found.body):
        check_lanes_apart(state, found, block)
    before = state.program
    try:
        for block in _reductions(state, found) if reassociate else ():
            if block.init is not None:
                _init_before(state, block)
        _set_kind(state, state.loop(loop), "vectorized")
    except Exception:  # undo decompositions, which have already changed the program
        state.restore(before)
        raise


def unroll(state: State, loop: LoopRef, limit: int | None = None) -> None:
    """Repeat the body for every iteration, in order.   ``for i in 4`` → ``unrolled for i in 4``

    A loop with more than ``limit`` iterations, or with an unknown number, is not changed. None means no limit.
    """
    found = _serial(state, loop)
    if limit is not None:
        state.unroll_limits[found.var] = limit
        if not (isinstance(found.extent, Const) and found.extent.value <= limit):
            return
    _constant(state, found, "unrolled")
    _set_kind(state, found, "unrolled")


def bind(state: State, loop: LoopRef, thread: str, reassociate: bool = False) -> None:
    """Map the iterations to the indices of a GPU thread axis.   ``for i`` → ``thread for i (threadIdx.x)``

    A loop inside a loop of the same axis is shared by its threads: each runs its iteration, and all wait before and
    after. It must have as many iterations and must not depend on the outer loop (S019).

    ::

        thread x (threadIdx.x): for k:              thread x (threadIdx.x): for k:
          for y in 8: S[y] = A[k, y]           →      thread y in 8 (threadIdx.x): S[y] = A[k, y]
          C[x] += S[0] + … + S[7]                     C[x] += S[0] + … + S[7]

    The threads of a block (``threadIdx``) may share a reduction. Its init is decomposed first. As for ``rfactor``, a
    result that depends on the order is refused (S054) without ``reassociate``.
    """
    if thread not in THREAD_AXES:
        raise state.refuse(
            "S004",
            f"unknown thread axis '{thread}'",
            hint=did_you_mean(thread, THREAD_AXES, "one of " + ", ".join(THREAD_AXES)),
        )
    found = _serial(state, loop)
    check_independent(state, found, reduce_allowed=thread.startswith("threadIdx"), kind="thread")
    before = state.program
    try:
        for block in _reductions(state, found):
            _share_reduction(state, block, found, reassociate)
        _set_kind(state, state.loop(loop), "thread", thread)
    except Exception:  # undo decompositions, which have already changed the program
        state.restore(before)
        raise


def _reductions(state: State, loop: For) -> list[Block]:
    """The blocks that reduce over ``loop``."""
    below = state.tree.blocks_under(loop.body)
    return [b for b in below if any(b.iters[n].kind == IterVar.REDUCE for n in uses(b, loop))]


def _share_reduction(state: State, block: Block, loop: For, reassociate: bool) -> None:
    """Check that threads may share the reduction of ``block``, and let its init run before them."""
    if block.init is None:
        raise state.refuse(
            "S016",
            f"'{loop.var.name}' carries the reduction of block '{block.name}', which was decomposed",
            at=loop,
            hint="bind the loop before decompose_reduction",
        )
    combination_in_any_order(state, block, reassociate)
    _init_before(state, block)


def _init_before(state: State, block: Block) -> None:
    """Let the init of a reduction run before all of its loops."""
    around = state.tree.loops_around(state.block(block.name))
    reducing = next(x for x in around if any(block.iters[n].kind == IterVar.REDUCE for n in uses(block, x)))
    decompose_reduction(state, BlockRef(block.name), LoopRef(reducing.var))


def virtual_thread(state: State, loop: LoopRef, name: str) -> None:
    """Turn the iterations into interleaved virtual threads.   ``for i in 2`` → ``virtual for i in 2 (vthread)``

    Lowering repeats each statement for all threads before the next statement. A buffer that the threads write
    differently and that is used in the loop only has a copy for each of them.
    """
    found = _serial(state, loop)
    _constant(state, found, "virtual")
    check_independent(state, found, reduce_allowed=False, kind="virtual")
    _set_kind(state, found, "virtual", name)


def _serial(state: State, ref: LoopRef) -> For:
    loop = state.loop(ref)
    if loop.kind != "serial":
        raise state.refuse(
            "S011", f"loop '{ref.name}' is {loop.kind} already", at=loop, hint="each loop is marked once"
        )
    return loop


def _constant(state: State, loop: For, kind: str) -> None:
    if not isinstance(loop.extent, Const):
        raise state.refuse(
            "S017",
            f"the extent {loop.extent} of '{loop.var.name}' is not constant, so it cannot be {kind}",
            at=loop,
            hint="split it by a constant factor first",
        )


def _set_kind(state: State, loop: For, kind: LoopKind, thread: str = "") -> None:
    state.commit(state.tree.replace({loop: with_loop(loop, kind=kind, thread=thread)}))


def annotate(state: State, target: BlockRef | LoopRef, key: str, value: Any) -> None:
    """Attach ``key = value`` to a loop or block, for lowering and back ends."""
    _annotate(state, target, lambda a: a.replace(**{key: value}))


def unannotate(state: State, target: BlockRef | LoopRef, key: str) -> None:
    """Remove an annotation. Refuses (S090) if it does not exist."""
    found = state.loop(target) if isinstance(target, LoopRef) else state.block(target)
    if key not in found.annotations:
        raise state.refuse("S090", f"'{target.name}' has no annotation '{key}'", at=found)
    _annotate(state, target, lambda a: a.without(key))


def _annotate(state: State, target: BlockRef | LoopRef, change: Any) -> None:
    if isinstance(target, LoopRef):
        loop = state.loop(target)
        state.commit(state.tree.replace({loop: with_loop(loop, annotations=change(loop.annotations))}))
    else:
        block = state.block(target)
        state.commit(state.tree.replace({block: with_block(block, annotations=change(block.annotations))}))
