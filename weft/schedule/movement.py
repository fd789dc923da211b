"""Moving a block under a loop: which instances the loop needs, and the nest that runs exactly those.

Shared by ``compute_at``, ``reverse_compute_at``, ``cache_read`` and ``cache_write``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Sequence

from weft.expr.folds import all_of, conjuncts
from weft.expr.iter_var import IterVar
from weft.expr.linear import NO_RANGES, ZERO, Linear, Ranges, is_nonnegative, linear, maximum_of, mentions, pieces_of
from weft.expr.nodes import Binary, Const, Expr, Var
from weft.expr.simplify import simplify
from weft.schedule.ranges import index_var, loop_range, moving
from weft.schedule.refs import LoopRef
from weft.schedule.rewrite import box_of, hull, simplify_where, uses, within
from weft.schedule.state import State
from weft.tir.nodes import Block, Buffer, For, Region, Stmt
from weft.tir.threads import starts_threads
from weft.tir.visit import walk

Interval = tuple[Linear, Linear]
"""Its first value, and its number of values minus one."""


def check_movable(state: State, block: Block) -> None:
    """Refuse unless the block's instances may run any number of times, and anywhere after their producers and before
    their consumers."""
    for it in block.iters:
        if it.kind not in (IterVar.SPATIAL, IterVar.REDUCE):
            raise state.refuse("S020", f"'{it.var.name}' of block '{block.name}' is {it.kind}", at=block)
    if not block.iters and any(r.ranges for r in block.writes):
        raise state.refuse("S020", f"block '{block.name}' is opaque: it has no iteration variables", at=block)
    if block.name in state.conditional and not guards_domain(block, state.ranges(block)):
        raise state.refuse("S020", f"block '{block.name}' runs only where a condition of its own holds", at=block)
    for region in block.writes:
        others = [w for w in state.tree.accessors(region.buffer) if w is not block and _writes(w, region.buffer)]
        if [w for w in others if not state.tree.is_under(w, block)]:
            raise state.refuse(
                "S020",
                f"'{region.buffer.name}' is written by block '{others[0].name}' too",
                at=block,
                hint="move the block before decompose_reduction or partition",
            )
        if any(r.buffer is region.buffer for r in block.reads):
            raise state.refuse("S020", f"block '{block.name}' updates '{region.buffer.name}' in place", at=block)


def guards_domain(block: Block, ranges: Ranges = NO_RANGES) -> bool:
    """Whether the block's condition only requires that its variables stay within their domain. ``ranges`` are those of
    the loops around it."""
    return all(is_domain_bound(block, part, ranges) for part in conjuncts(block.where))


def is_domain_bound(block: Block, condition: Expr, ranges: Ranges = NO_RANGES) -> bool:
    """Whether ``condition`` holds whenever the block's variables are within their domain."""
    margin = margin_of(condition)
    if margin is None:
        return False
    for it, value in zip(block.iters, block.values, strict=True):
        start, (at, divisor) = linear(it.start), _without_quotient(linear(value))
        start, end = start.scaled(divisor), (start + linear(it.extent)).scaled(divisor)
        if isinstance(value, Binary) and value.op == "floordiv" and it.start is ZERO and _is_of_extents(block, value.b):
            at, end = linear(value.a), linear(simplify(it.extent * value.b))  # a // c < n where a < n c
        for bound in (end.plus(-1) - at, at - start):
            apart = margin - bound
            if apart.constant >= 0 if apart.is_constant else bool(ranges) and is_nonnegative(apart, ranges):
                return True
    return False


def _is_of_extents(block: Block, divisor: Expr) -> bool:
    """Whether ``divisor`` is a product of extents of the block, and so positive wherever there is an instance."""
    factors, extents = [divisor], {linear(it.extent).key for it in block.iters}
    while factors:
        factor = factors.pop()
        if isinstance(factor, Binary) and factor.op == "mul":
            factors += (factor.a, factor.b)
        elif isinstance(factor, Const):
            if factor.value <= 0:
                return False
        elif linear(factor).key not in extents:
            return False
    return True


def _without_quotient(form: Linear) -> tuple[Linear, int]:
    """Remove the quotient that the outermost of several fused loops causes: (a, c) where ``form`` is a // c."""
    for atom, factor in form.terms.items():
        if factor == 1 and isinstance(atom, Binary) and atom.op == "floordiv" and isinstance(atom.b, Const):
            divisor = int(atom.b.value)
            if divisor > 0:
                return (form - Linear({atom: 1})).scaled(divisor) + linear(atom.a), divisor
    return form, 1


def margin_of(condition: Expr) -> Linear | None:
    """The form that is nonnegative exactly where the comparison holds."""
    if not isinstance(condition, Binary) or condition.op not in ("lt", "le", "gt", "ge"):
        return None
    less = condition.op in ("lt", "le")
    low, high = (condition.a, condition.b) if less else (condition.b, condition.a)
    return (linear(high) - linear(low)).plus(-(condition.op in ("lt", "gt")))


def _writes(block: Block, buffer: Buffer) -> bool:
    return any(r.buffer is buffer for r in block.writes)


def required_region(
    state: State,
    buffer: Buffer,
    blocks: Sequence[Block],
    loop: For | None,
    *,
    written: bool = False,
    together: Sequence[For] = (),
) -> list[Interval | None]:
    """The part of ``buffer`` that ``blocks`` read (or write) in one iteration of ``loop``; None: a whole dimension.

    ``together`` are loops of threads around ``loop``: the part is that of all threads.
    """
    found: list[Interval | None] | None = None
    for block in blocks:
        around = state.tree.loops_around(block)
        inside = around if loop is None else [*together, *around[around.index(loop) + 1 :]]
        ranges = state.ranges(block)
        for region in block.writes if written else block.reads:
            if region.buffer is buffer:
                box: list[Interval | None] = list(box_of(block, region, moving(inside), ranges))
                joined = box if found is None else [hull(a, b, ranges) for a, b in zip(found, box, strict=True)]
                found = joined
    return found if found is not None else [None] * len(buffer.shape)


def needed_instances(
    block: Block, region: Region, needed: Sequence[Interval | None], ranges: Ranges
) -> dict[Var, Interval]:
    """The values of the block's iteration variables that write the ``needed`` intervals. For a variable that is not in
    the result, all values are needed.

    Understands write indices that are a variable, a variable plus a constant, or a quotient of a variable.
    """
    spatial = {it.var for it in block.iters if it.kind == IterVar.SPATIAL}
    found: dict[Var, Interval] = {}
    for (start, _), interval in zip(region.ranges, needed, strict=True):
        if interval is None:
            continue
        form = linear(start)
        if len(form.terms) != 1:
            continue
        (term, factor), low, width = next(iter(form.terms.items())), interval[0].plus(-form.constant), interval[1]
        piece = pieces_of(term)
        if factor != 1 or piece is None or piece.modulus is not None or piece.var not in spatial:
            continue
        made = (low.scaled(piece.divisor), width.scaled(piece.divisor).plus(piece.divisor - 1))
        if piece.var not in found or _narrower(made, found[piece.var]):
            found[piece.var] = made
    return found


def _narrower(a: Interval, b: Interval) -> bool:
    apart = b[1] - a[1]
    return apart.is_constant and apart.constant > 0


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """A nest around a rebound block, and the new loops."""

    stmt: Stmt
    loops: tuple[LoopRef, ...]


def threads_together(state: State, target: For | None, scopes: Iterable[str]) -> list[For]:
    """The loops of threads, ``target`` or around it, whose threads use memory of these scopes together."""
    if target is None or "shared" not in scopes:
        return []
    return [x for x in (*state.tree.loops_around(target), target) if starts_threads(x)]


def outer_guards(state: State, blocks: Sequence[Block], target: For | None, together: Sequence[For] = ()) -> list[Expr]:
    """The conditions that all of ``blocks`` share and that use only the variables of ``target`` and the loops outside
    it: the guards of uneven splits.

    Where such a condition fails, none of ``blocks`` runs, so a block that is moved there must not run either. This is
    not so if it works for other threads: conditions on loops in ``together`` do not count."""
    if target is None or not blocks:
        return []
    inside: dict[Var, object] = {x.var: None for x in together}
    around = [*state.tree.loops_around(target), target]
    for block in blocks:
        inside.update((x.var, None) for x in state.tree.loops_around(block) if x not in around)
    shared = set(conjuncts(blocks[0].where)).intersection(*(conjuncts(b.where) for b in blocks[1:]))
    return [c for c in conjuncts(blocks[0].where) if c in shared and not mentions(c, inside)]


def place_block(
    block: Block,
    instances: dict[Var, Interval],
    ranges: Ranges,
    guards: Sequence[Expr] = (),
    *,
    preserve_unit_loops: bool = False,
) -> Placed:
    """A nest of serial loops that runs ``block`` for ``instances``; variables without an interval take all their
    values.

    Guards exclude instances outside the block's domain. A variable that needs only one value gets no loop, or with
    ``preserve_unit_loops`` a loop of one iteration.
    """
    loops: list[For] = []
    values: list[Expr] = []
    conditions: list[Expr] = list(guards)
    known = dict(ranges)
    for it in block.iters:
        low, width = instances.get(it.var, (linear(it.start), linear(it.extent).plus(-1)))
        full = linear(it.extent).plus(-1)
        if it.var in instances and (width - full).is_constant and (width - full).constant >= 0:
            low, width = linear(it.start), full
        if any(mentions(term, known) for term in width.terms):
            greatest = maximum_of(width, known)
            width = full if greatest is None else Linear({}, greatest)
            low = linear(it.start) if greatest is None else low
        if not preserve_unit_loops and width.is_constant and width.constant == 0:
            value = low.expr()
        else:
            loop = For(index_var(it.var.name), Const(0), width.plus(1).expr(), block)
            loops.append(loop)
            known[loop.var] = loop_range(loop)
            value = (low + Linear({loop.var: 1})).expr()
        values.append(value)
        if it.var in instances:
            conditions += within(value, it.start, it.extent, known)
    stmt: Stmt = dataclasses.replace(block, values=tuple(values), where=simplify_where(all_of(*conditions), known))
    for loop in reversed(loops):
        stmt = dataclasses.replace(loop, body=stmt)
    return Placed(stmt, tuple(LoopRef(loop.var) for loop in loops))


def emptied_loops(state: State, block: Block, keep: Iterable[Stmt] = ()) -> list[LoopRef]:
    """Loops that contain only ``block`` and are therefore removed with it."""
    found: list[LoopRef] = []
    kept = set(keep)
    below: Stmt = block
    for above in state.tree.ancestors(block):
        if not isinstance(above, For) or above in kept or above.body is not below:
            break
        found.append(LoopRef(above.var))
        below = above
    return found


def removed_root(state: State, block: Block) -> Stmt:
    """The outermost statement that contains only ``block``."""
    gone = {r.var for r in emptied_loops(state, block)}
    outermost: Stmt = block
    for above in state.tree.ancestors(block):
        if isinstance(above, For) and above.var in gone:
            outermost = above
        else:
            break
    return outermost


def check_covered(state: State, scope: Block | None, placed: Placed, target: For | None) -> None:
    """Refuse unless everything that ``placed`` reads was written earlier in the same iteration. ``placed`` stands in
    ``target`` (None: directly in ``scope``). Buffers that the placed block writes itself are ignored."""
    tree = state.tree
    nest = [s for s in walk(placed.stmt) if isinstance(s, For)]
    moved = next(s for s in walk(placed.stmt) if isinstance(s, Block))
    around = [] if target is None else [*tree.loops_around(target), target]
    inside = moving(nest)
    known = inside if target is None else {**state.ranges(target.body), **inside}
    for region in moved.reads:
        for writer in tree.writers(region.buffer, scope):
            if writer.name == moved.name:
                continue
            shared = [loop for loop in tree.loops_around(writer) if loop in around]
            if not shared and writer.name not in state.partial:
                continue
            if any(_is_earlier(state, (moved, nest), region, writer, loop, around, known) for loop in shared):
                continue
            read = box_of(moved, region, {**moving(around[len(shared) :]), **inside}, known)
            wrote = required_region(state, region.buffer, [writer], shared[-1], written=True) if shared else []
            pairs = zip(wrote, read, strict=True) if shared else [(None, None)]
            if any(have is None or need is None or not contains(have, need, known) for have, need in pairs):
                raise state.refuse(
                    "S024",
                    f"'{moved.name}' may read more of '{region.buffer.name}' than '{writer.name}' has computed there",
                    at=writer,
                    hint="use compute_at on the producer afterwards, or choose an outer loop",
                )


def reads_earlier_steps(state: State, block: Block, region: Region, writer: Block, kept: Container[Var]) -> bool:
    """Whether ``block`` reads through ``region`` only what earlier iterations of a loop around both, one of ``kept``,
    have written: the state of a recurrence. Then the order of the two within an iteration does not matter."""
    around = state.tree.loops_around(block)
    shared = [loop for loop in state.tree.loops_around(writer) if loop in around and loop.var in kept]
    return any(_is_earlier(state, (block, []), region, writer, loop, around, state.ranges(block)) for loop in shared)


def _is_earlier(
    state: State,
    reader: tuple[Block, Sequence[For]],
    region: Region,
    writer: Block,
    loop: For,
    around: Sequence[For],
    known: Ranges,
) -> bool:
    """Whether in each iteration of ``loop`` the reader, a block and its own loops in ``around``, reads only elements
    in front of those that ``writer`` writes, along a dimension that ``loop`` alone drives."""
    ordered = [n for n in uses(writer, loop) if writer.iters[n].kind == IterVar.ORDERED]
    if loop.kind != "serial" or len(ordered) != 1 or writer.values[ordered[0]] is not loop.var:
        return False
    step = writer.iters[ordered[0]].var
    inner = moving([*around[around.index(loop) + 1 :], *reader[1]])
    boxes = box_of(reader[0], region, inner, known)
    for written in writer.writes:
        if written.buffer is region.buffer:
            at = [n for n, (start, _) in enumerate(written.ranges) if start is step]
            ends = [box[0] + box[1] for n in at if (box := boxes[n]) is not None]
            if not any(is_nonnegative((linear(loop.var) - end).plus(-1), known) for end in ends):
                return False
    return True


def contains(have: Interval, need: Interval, ranges: Ranges) -> bool:
    """Whether it is certain that interval ``have`` contains interval ``need``."""
    below = need[0] - have[0]
    above = (have[0] + have[1]) - (need[0] + need[1])
    return is_nonnegative(below, ranges) and is_nonnegative(above, ranges)
