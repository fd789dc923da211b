"""Which loops carry dependences from one iteration to the next.

Two facts keep the checks local. First, iteration variables say how the instances of *one* block depend on each other:
instances along a spatial variable are independent, instances along a reduce variable are combined, instances along an
ordered variable run in sequence. Second, between *different* blocks the engine keeps an invariant: when a block reads a
value, that value was written in the same iteration of every loop around both blocks. Programs made from tensor
expressions satisfy the invariant, because their blocks share no loops. Every primitive preserves it. For hand-written
programs, :func:`carried_loops` finds the loops for which the invariant cannot be proved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from weft.expr.iter_var import IterVar
from weft.expr.linear import Linear, Ranges, is_nonnegative, linear, mentions
from weft.expr.nodes import Binary, Const, Expr, Var
from weft.expr.visit import occurs
from weft.schedule.distinct import are_distinct
from weft.schedule.ranges import loop_range, moving
from weft.schedule.refs import LoopRef
from weft.schedule.rewrite import bound_region, box_of, is_true, uses
from weft.schedule.state import State
from weft.schedule.tree import Tree
from weft.support.errors import ScheduleError
from weft.tir.nodes import Block, Buffer, For, LoopKind, Program, Region


def carried_loops(program: Program) -> frozenset[Var]:
    """Loops around several blocks, where one block may read in one iteration what another block wrote in an earlier
    one."""
    tree = Tree(program)
    found: set[Var] = set()
    for loop in tree.loops.values():
        blocks = tree.blocks_under(loop.body)
        if not all(flows_within(tree, loop, w, r) for w, r in pairs_of(blocks)):
            found.add(loop.var)
    return frozenset(found)


def partial_blocks(program: Program) -> frozenset[str]:
    """Blocks for which it is not proved that each instance runs exactly once. The proof requires that each iteration
    variable is a mixed-radix number over loops of its own and takes every value of its domain."""
    tree = Tree(program)
    return frozenset(b.name for b in tree.blocks.values() if not _is_complete(b, tree.loops_around(b)))


def _is_complete(block: Block, loops: Sequence[For]) -> bool:
    pending: dict[Expr, tuple[Linear, Linear]] = {loop.var: loop_range(loop) for loop in loops}
    for it, value in zip(block.iters, block.values, strict=True):
        form, low = linear(value), linear(it.start)
        reach, steps = Linear({}), []
        for term, factor in form.terms.items():
            if term not in pending:
                return False
            first, last = pending.pop(term)
            form = form + (first - Linear({term: 1})).scaled(factor)
            if not _is_zero(last - first):
                steps.append((factor, last - first))
        for factor, width in sorted(steps, key=lambda step: step[0]):
            gap = reach.plus(1 - factor)
            if not (gap.is_constant and gap.constant == 0):
                return False
            reach = reach + width.scaled(factor)
        apart = form - low
        if not (apart.is_constant and apart.constant == 0):
            return False
        if not is_nonnegative(reach - linear(it.extent).plus(-1), {}):
            return False
    return not pending


def _is_zero(width: Linear) -> bool:
    return width.is_constant and width.constant == 0


def pairs_of(blocks: list[Block]) -> Iterable[tuple[Block, Block]]:
    """Each block that writes, paired with each other block that reads or writes the same buffer."""
    for writer in blocks:
        buffers = {r.buffer for r in writer.writes}
        for other in blocks:
            if other is not writer and any(r.buffer in buffers for r in (*other.reads, *other.writes)):
                yield writer, other


def flows_within(tree: Tree, loop: For, writer: Block, other: Block) -> bool:
    """Whether ``other`` accesses only elements that ``writer`` wrote earlier in the same iteration of ``loop``."""
    if tree.position[writer] > tree.position[other]:
        return all(_sets_anew(other, loop, r.buffer) for r in writer.writes)  # see the reverse pair
    ranges = _ranges(tree, writer) | _ranges(tree, other)
    for region in writer.writes:
        written = box_of(writer, region, _inside(tree, loop, writer), ranges)
        if not is_true(writer.where) or not is_dense(tree, loop, writer, region):
            return False
        for touched in (*other.reads, *other.writes):
            if touched.buffer is not region.buffer:
                continue
            for have, need in zip(written, box_of(other, touched, _inside(tree, loop, other), ranges), strict=True):
                if have is None or need is None:
                    return False
                after = is_nonnegative(need[0] - have[0], ranges)
                before = is_nonnegative(have[0] + have[1] - need[0] - need[1], ranges)
                if not (after and before):
                    return False
    return True


def stays_apart(tree: Tree, loop: For, writer: Block, other: Block) -> bool:
    """Whether each iteration of ``loop`` has elements of its own, such as a strip of columns, of all that ``writer``
    writes: in that iteration it writes no others, and ``other`` accesses no others."""
    ranges = _ranges(tree, writer) | _ranges(tree, other)
    touched = [(writer, r) for r in writer.writes] + [(other, r) for r in (*other.reads, *other.writes)]
    for buffer in {r.buffer for r in writer.writes}:
        boxes = [box_of(b, r, _inside(tree, loop, b), ranges) for b, r in touched if r.buffer is buffer]
        if not any(_moves_past(loop, [box[n] for box in boxes]) for n in range(len(buffer.shape))):
            return False
    return True


def _moves_past(loop: For, intervals: Sequence[tuple[Linear, Linear] | None]) -> bool:
    """Whether the intervals, all taken together, of one iteration of ``loop`` end before those of the next one begin.
    An interval is its first value and its number of values minus one."""
    if None in intervals or not intervals:
        return False
    known = [x for x in intervals if x is not None]
    first = known[0][0]
    step = first.terms.get(loop.var, 0)
    if step <= 0 or any(occurs(loop.var, term) for term in first.terms if term is not loop.var):
        return False
    starts = [low - first for low, _ in known]
    ends = [start + width for start, (_, width) in zip(starts, known, strict=True)]
    if not all(x.is_constant for x in (*starts, *ends)):
        return False
    return max(x.constant for x in ends) - min(x.constant for x in starts) < step


def _sets_anew(block: Block, loop: For, buffer: Buffer) -> bool:
    """Whether ``block`` reads nothing of ``buffer`` that it did not write earlier in the same iteration of ``loop``."""
    read = [r.ranges for r in block.reads if r.buffer is buffer]
    if not read:
        return True
    starts = block.init is not None and all(block.iters[n].kind == IterVar.SPATIAL for n in uses(block, loop))
    return starts and {*read} <= {w.ranges for w in block.writes if w.buffer is buffer}


def _ranges(tree: Tree, block: Block) -> dict[Var, tuple[Linear, Linear]]:
    return dict(moving(tree.all_loops_around(block)))


def _inside(tree: Tree, loop: For | None, block: Block) -> Ranges:
    """Ranges of the loops between ``loop`` and ``block``; if ``loop`` is None, of all loops in the scope."""
    around = tree.loops_around(block)
    if loop is None:
        return moving(around)
    return moving(around[around.index(loop) + 1 :]) if loop in around else {}


def is_dense(tree: Tree, loop: For | None, block: Block, region: Region) -> bool:
    """Whether the block writes every element of its bounding box in one iteration of ``loop`` (None: of its scope). The
    block's condition is ignored. Each index must be a mixed-radix number over loops of its own. Regions of several
    elements must be written as a whole."""
    inside = _inside(tree, loop, block)
    used: set[Var] = set()
    filled = _fills_region(tree, block, region)
    for start, extent in bound_region(block, region):
        if not (filled or _is_one(extent)):
            return False
        form = linear(start)
        steps: list[tuple[int, int]] = []
        unknown: list[int] = []
        for term, factor in form.terms.items():
            inner = [v for v in inside if occurs(v, term)]
            if not inner:
                continue
            if inner != [term] or inner[0] in used or factor < 0:
                return False
            used.add(inner[0])
            width = inside[inner[0]][1] - inside[inner[0]][0]
            if not width.is_constant:
                unknown.append(factor)
            elif width.constant:
                steps.append((factor, width.constant))
        if unknown and (unknown != [1] or steps):
            return False
        reach = int(extent) - 1 if isinstance(extent, Const) else 0
        for factor, width_of in sorted(steps):
            if factor > reach + 1:
                return False
            reach += factor * width_of
    return True


def _fills_region(tree: Tree, block: Block, region: Region) -> bool:
    """Whether one instance of the block certainly writes all of ``region``: an instruction, or complete inner
    blocks."""
    if "tensorized" in block.annotations:
        return True
    inner = tree.writers(region.buffer, block)
    return bool(inner) and all(
        is_true(b.where) and is_dense(tree, None, b, r) for b in inner for r in b.writes if r.buffer is region.buffer
    )


def runs_once(state: State, block: Block, loops: Sequence[For]) -> bool:
    """Whether every spatial instance of ``block`` runs at most once while ``loops`` run. Reduce variables are ignored.

    Only a block that was moved into the loops of another block may run an instance again.
    """
    return block.name not in state.partial or _runs_once(block, loops) or _tried(block, loops)


def _tried(block: Block, loops: Sequence[For]) -> bool:
    """The same, found by trying all iterations of the loops that do not belong to the reduction alone."""
    spatial = [v for it, v in zip(block.iters, block.values, strict=True) if it.kind == IterVar.SPATIAL]
    reduced = [v for it, v in zip(block.iters, block.values, strict=True) if it.kind != IterVar.SPATIAL]
    own = [x for x in loops if not any(occurs(x.var, v) for v in reduced) or any(occurs(x.var, v) for v in spatial)]
    return are_distinct(spatial, own)


def _runs_once(block: Block, loops: Sequence[For]) -> bool:
    """The same, where variables are sums of loops."""
    pending: dict[Expr, tuple[Linear, Linear]] = {loop.var: loop_range(loop) for loop in loops}
    for it, value in zip(block.iters, block.values, strict=True):
        steps: list[tuple[int, int | None]] = []  # None: width unknown
        terms = linear(value).terms
        if any(term not in pending and mentions(term, pending) for term in terms):
            return False  # before any is taken away: i - i // 2 is not distinct where i is
        for term, factor in terms.items():
            if term not in pending:
                continue
            low, high = pending.pop(term)
            width = high - low
            if not _is_zero(width):
                steps.append((abs(factor), width.constant if width.is_constant else None))
        reach: int | None = 0
        steps.sort(key=lambda step: step[0])  # of equal factors one is refused anyway
        for factor, width_of in steps if it.kind == IterVar.SPATIAL else ():
            if reach is None or factor <= reach:
                return False
            reach = None if width_of is None else reach + factor * width_of
    return all((high - low).is_constant and (high - low).constant <= 0 for low, high in pending.values())


def check_independent(state: State, loop: For, *, reduce_allowed: bool, kind: LoopKind = "serial") -> None:
    """Refuse unless the iterations of ``loop`` may run in any order.

    ``reduce_allowed``: iterations may combine into an accumulator (reordering). ``kind``: how the iterations will run.
    If they run at the same time, a buffer element that several iterations write must not be used outside the loop
    (parallel iterations would race). A single iteration runs in every order.
    """
    if isinstance(loop.extent, Const) and loop.extent.value <= 1:
        return
    if loop.var in state.carried:
        raise state.refuse(
            "S015",
            f"iterations of '{loop.var.name}' may depend on earlier ones through the buffers of its blocks",
            at=loop,
            hint="compute the producer inside the iteration that reads it",
        )
    for block in state.tree.blocks_under(loop.body):
        bound = uses(block, loop)
        for n in bound:
            role = block.iters[n].kind
            if role == IterVar.REDUCE and not reduce_allowed:
                raise state.refuse(
                    "S016",
                    f"'{loop.var.name}' carries the reduction of block '{block.name}'",
                    at=loop,
                    hint="use rfactor to make its partial results independent, or choose a spatial loop",
                )
            if role not in (IterVar.REDUCE, IterVar.SPATIAL, IterVar.THREAD):
                raise state.refuse(
                    "S015", f"the instances of block '{block.name}' along '{loop.var.name}' must run in order", at=loop
                )
        if kind in CONCURRENT and repeats(state, loop, block):
            reason = _shared(state, loop, block, kind)
            if reason is not None:
                raise _refusal(state, loop, block, reason)


def steps_kept_in_order(state: State, before: Sequence[For], after: Sequence[For]) -> list[For]:
    """The ordered loops of a nest around one block, if the block still runs its steps in order after the loops are
    reordered from ``before`` to ``after``; else an empty list. This is proved if each step reads earlier results only
    at its own values of the other loops' variables."""
    blocks = state.tree.blocks_under(before[-1].body)
    if len(blocks) != 1:
        return []
    (block,) = blocks
    if block.name in state.partial:
        return []
    ordered = [x for x in before if [block.iters[n].kind for n in uses(block, x)] == [IterVar.ORDERED]]
    columns = {block.iters[n] for x in before if x not in ordered for n in uses(block, x)}
    if ordered != [x for x in after if x in ordered] or any(it.kind != IterVar.SPATIAL for it in columns):
        return []
    return ordered if all(_stays_in_column(block, it.var) for it in columns) else []


def _stays_in_column(block: Block, var: Var) -> bool:
    """Whether each buffer that the block writes has a dimension that every access of the block indexes by exactly
    ``var``."""
    for written in block.writes:
        at = [n for n, (start, _) in enumerate(written.ranges) if start is var]
        same = [r for r in (*block.reads, *block.writes) if r.buffer is written.buffer]
        if not any(all(r.ranges[n][0] is var and _is_one(r.ranges[n][1]) for r in same) for n in at):
            return False
    return True


def _is_one(extent: Expr) -> bool:
    return isinstance(extent, Const) and extent.value == 1


CONCURRENT: Final = ("parallel", "vectorized", "thread", "virtual")


def repeats(state: State, loop: For, block: Block) -> bool:
    """Whether several iterations of ``loop`` may run the same instances of ``block``."""
    if isinstance(loop.extent, Const) and loop.extent.value <= 1:
        return False
    around = state.tree.loops_around(block)
    return not (uses(block, loop) and runs_once(state, block, around[around.index(loop) :]))


def has_repeated(state: State) -> bool:
    """Whether a block that may run its instances again is inside a loop whose iterations run at the same time."""
    return any(
        loop.kind in CONCURRENT
        for name in state.partial
        if name in state.tree.blocks
        for loop in state.tree.loops_around(state.tree.blocks[name])
    )


def check_repeated_private(state: State, before: State) -> None:
    """Refuse if concurrent iterations now write the same elements of a shared buffer, and did not do so in ``before``.

    Marking a loop as concurrent already checks this. A later primitive may move a reader out of the loop, so it is
    checked again.
    """
    found = _repeated_shared(state)
    known = {(block.name, loop.var) for loop, block, _ in _repeated_shared(before)} if found else set()
    for loop, block, reason in found:
        if (block.name, loop.var) not in known:
            raise _refusal(state, loop, block, reason)


def check_copied(state: State, loop: For) -> None:
    """Refuse to copy ``loop`` if concurrent iterations inside it have a private buffer: both copies would use that
    buffer, so lowering could not allocate it inside either copy."""
    for block in state.tree.blocks_under(loop.body):
        around = state.tree.loops_around(block) if block.name in state.partial else []
        for each in around[around.index(loop) :] if around else ():
            if each.kind in CONCURRENT and not _shared(state, each, block, each.kind) and repeats(state, each, block):
                reason = f"'{block.writes[0].buffer.name}', which both parts would use"
                raise _refusal(state, each, block, reason)


def _repeated_shared(state: State) -> list[tuple[For, Block, str]]:
    found: list[tuple[For, Block, str]] = []
    for name in sorted(state.partial):
        block = state.tree.blocks.get(name)
        for loop in state.tree.loops_around(block) if block is not None else ():
            assert block is not None
            reason = _shared(state, loop, block, loop.kind) if loop.kind in CONCURRENT else None
            if reason is not None and repeats(state, loop, block):  # this takes long: it may try all iterations
                found.append((loop, block, reason))
    return found


def _shared(state: State, loop: For, block: Block, kind: LoopKind) -> str | None:
    """Why the iterations of ``loop`` cannot each have a private copy of what ``block`` writes; None if they can.

    The lanes of a vector write the same values to the same place, which is harmless inside the loop. Threads need a
    private buffer each. Lowering allocates it inside the loop, unless the buffer must outlive an iteration of a loop
    around it.
    """
    for region in block.writes:
        buffer = region.buffer
        if buffer in state.program.params or any(
            not state.tree.is_under(b, loop) for b in state.tree.accessors(buffer)
        ):
            return f"'{buffer.name}', which is used outside the loop"
        for around in state.tree.all_loops_around(loop) if kind == "parallel" else ():
            if around.kind == "vectorized":
                return f"'{buffer.name}', which the lanes of '{around.var.name}' share"
            if buffer.name in state.kept and around.var in state.carried:
                return f"'{buffer.name}', which is kept across '{around.var.name}'"
    return None


def _refusal(state: State, loop: For, block: Block, reason: str) -> ScheduleError:
    return state.refuse(
        "S018",
        f"every iteration of '{loop.var.name}' writes the same part of {reason}",
        at=loop,
        hint=f"move block '{block.name}' out of the loop",
    )


def check_lanes_apart(state: State, loop: For, block: Block) -> None:
    """Refuse if lanes of ``loop`` write different values to the same place of a shared buffer. That happens if the
    buffer lacks the dimension along which the lanes differ, or stores that dimension modulo a number."""
    around = state.tree.loops_around(block)
    sliding = any(x.var in state.carried for x in around[around.index(loop) + 1 :])
    spatial = [block.iters[n].var for n in uses(block, loop) if block.iters[n].kind == IterVar.SPATIAL]
    for region in block.writes:
        if region.buffer.name in state.kept and not sliding:
            continue  # the window of one iteration fits
        for variable in spatial:
            only: dict[Var, object] = {variable: None}
            starts = [start for start, _ in region.ranges if mentions(start, only)]
            if all(isinstance(e, Binary) and e.op == "floormod" and e.a is variable for e in starts):
                raise state.refuse(
                    "S018",
                    f"lanes of '{loop.var.name}' write different values to the same part of '{region.buffer.name}'",
                    at=block,
                    hint="vectorize another loop, or fold less",
                )


def inherit_carried(state: State, old: Iterable[Var], new: Iterable[LoopRef]) -> None:
    """If an old loop carries dependences, mark the new loops that replace it as carrying them too."""
    if any(v in state.carried for v in old):
        state.carried = state.carried | {r.var for r in new}
