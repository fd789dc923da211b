"""Primitives that restructure loops: split, fuse, reorder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

from weft.expr.folds import product
from weft.expr.iter_var import IterVar
from weft.expr.linear import NO_RANGES, ONE, ZERO, is_nonnegative, linear, mentions, minimum_of, simplify_index
from weft.expr.nodes import Const, Expr, Load, Var, maximum
from weft.expr.visit import post_order
from weft.schedule.dependence import check_independent, inherit_carried, runs_once, steps_kept_in_order
from weft.schedule.ranges import index_var, loop_range
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import rebind, uses
from weft.schedule.state import State
from weft.schedule.tree import nest, with_loop
from weft.support.dtypes import INDEX
from weft.tir.nodes import Block, For, Stmt


def split(state: State, loop: LoopRef, factors: Sequence[int | Expr | None]) -> tuple[LoopRef, ...]:
    """Split a loop into nested loops. If the factors do not divide the extent, a condition guards the tail.

    ::

        for i in n: B(i)   →   for i_0 in ceil(n/f): for i_1 in f: B(i_0*f + i_1) where i_0*f + i_1 < n

    At most one factor is None; it is inferred. Factors are whole numbers, or expressions of sizes, such as ``m // 2``
    or a new size, which the function then takes as an argument; where such a factor is less than 1, the loop is split
    by 1. Refuses factors that do not cover the extent for all sizes (S010).
    """
    old = _plain(state, loop, "split")
    extents, sizes = _split_extents(state, old, factors)
    loops = [For(index_var(f"{old.var.name}_{n}"), ZERO, extent, old.body) for n, extent in enumerate(extents)]
    position: Expr = loops[0].var
    for made in loops[1:]:
        position = position * made.extent + made.var
    value = simplify_index(old.start + position)
    ranges = {**state.ranges(old), **{made.var: loop_range(made) for made in loops}}
    covered = linear(product(extents))
    exact = (covered - linear(old.extent)).is_constant and (covered - linear(old.extent)).constant == 0
    guard = [] if exact else [value < simplify_index(old.start + old.extent)]
    body = rebind(old.body, {old.var: value}, ranges, guard)
    refs = tuple(LoopRef(made.var) for made in loops)
    state.commit(state.tree.replace({old: nest(loops, body)}), sizes=sizes)
    state.consume([loop], refs)
    inherit_carried(state, [old.var], refs)
    return refs


def _plain(state: State, ref: LoopRef, purpose: str) -> For:
    """The loop, which must be serial and without annotations."""
    loop = state.loop(ref)
    if loop.kind != "serial" or loop.annotations:
        what = f"is {loop.kind}" if loop.kind != "serial" else "has annotations"
        raise state.refuse(
            "S011", f"loop '{ref.name}' {what}", at=loop, hint=f"{purpose} first, then mark the resulting loops"
        )
    return loop


def _split_extents(state: State, loop: For, factors: Sequence[int | Expr | None]) -> tuple[list[Expr], list[Var]]:
    """The extents of the loops, and the sizes that the program does not have yet."""
    open_at = [n for n, f in enumerate(factors) if f is None]
    if not factors or len(open_at) > 1 or any(isinstance(f, int) and f < 1 for f in factors):
        raise state.refuse(
            "S004", f"factors {tuple(factors)} must be positive with at most one None", at=loop, hint="e.g. (None, 8)"
        )
    new: dict[Var, None] = {}
    extents = [None if f is None else _factor(state, loop, f, new) for f in factors]
    given = simplify_index(product([e for e in extents if e is not None]))
    if open_at:
        rest = simplify_index((loop.extent + (given - 1)) // given)
        return [rest if e is None else e for e in extents], list(new)
    if not is_nonnegative(linear(given) - linear(loop.extent), NO_RANGES):
        raise state.refuse(
            "S010",
            f"factors {tuple(factors)} give {given} iterations but '{loop.var.name}' has {linear(loop.extent).expr()}",
            at=loop,
            hint="leave one factor None to infer it",
        )
    return [e for e in extents if e is not None], list(new)


def _factor(state: State, loop: For, factor: int | Expr, new: dict[Var, None]) -> Expr:
    """A factor as an extent of at least 1. Sizes that the program does not have are added to ``new``."""
    if isinstance(factor, int):
        return Const(factor, INDEX)
    own = {*state.tree.loops, *(it.var for b in state.tree.blocks.values() for it in b.iters)}
    for e in post_order(factor):
        if e.dtype != INDEX or isinstance(e, Load) or e in own:
            raise state.refuse(
                "S004",
                f"the factor '{factor}' contains '{e}', which is not a size",
                at=loop,
                hint="factors are whole numbers and expressions of sizes (te.var)",
            )
        if isinstance(e, Var) and e not in state.program.sizes:
            new[e] = None
    made = linear(factor)
    least = minimum_of(made, NO_RANGES)
    return simplify_index(factor if least is not None and least >= 1 else maximum(factor, 1))


def fuse(state: State, loops: Sequence[LoopRef]) -> LoopRef:
    """Merge directly nested loops into one.

    ::

        for i in n: for j in m: B(i, j)   →   for i_j in n*m: B(i_j // m, i_j % m)

    Without loops, as in ``fuse(*get_loops(block))`` for a result of rank 0, it puts a loop of one iteration around the
    only block that is in no loop.
    """
    if not loops:
        return _unit_loop(state)
    old = [_plain(state, ref, "fuse") for ref in loops]
    for outer, inner in pairwise(old):
        if outer.body is not inner:
            raise state.refuse(
                "S012",
                f"'{inner.var.name}' is not directly inside '{outer.var.name}'",
                at=inner,
                hint="reorder the loops next to each other",
            )
        above: dict[Var, object] = {o.var: None for o in old}
        if mentions(inner.extent, above) or mentions(inner.start, above):
            raise state.refuse("S012", f"the range of '{inner.var.name}' depends on an outer loop", at=inner)
    if len(old) == 1:
        return loops[0]
    extent = simplify_index(product([loop.extent for loop in old]))
    made = For(index_var("_".join(loop.var.name for loop in old)), ZERO, extent, old[0].body)
    ranges = {**state.ranges(old[0]), made.var: loop_range(made)}
    values: dict[Var, Expr] = {}
    inner_size: Expr = Const(1, INDEX)
    for n, loop in reversed(list(enumerate(old))):
        part = made.var // inner_size
        if n:
            part = part % loop.extent
        values[loop.var] = simplify_index(loop.start + part, ranges)
        inner_size = simplify_index(inner_size * loop.extent)
    body = rebind(old[-1].body, values, ranges)
    ref = LoopRef(made.var)
    state.commit(state.tree.replace({old[0]: with_loop(made, body=body)}))
    state.consume(loops, [ref])
    parts = (state.fused.get(loop.var, ((loop.var, loop.extent),)) for loop in old)
    state.fused[made.var] = tuple(chain.from_iterable(parts))
    inherit_carried(state, [loop.var for loop in old], [ref])
    return ref


def _unit_loop(state: State) -> LoopRef:
    alone = [b for b in state.tree.blocks.values() if not _is_below(state, b)]
    if len(alone) != 1:
        what = "no block is" if not alone else f"{len(alone)} blocks are"
        raise state.refuse(
            "S004", f"of no loops, where {what} in no loop", hint="add_unit_loop(block) puts a loop around a block"
        )
    return add_unit_loop(state, BlockRef(alone[0].name))


def _is_below(state: State, block: Block) -> bool:
    """Whether a loop or another block is around ``block``."""
    return any(isinstance(above, (For, Block)) for above in state.tree.ancestors(block))


def add_unit_loop(state: State, target: BlockRef | LoopRef) -> LoopRef:
    """Put a loop of one iteration around a block or a loop.   ``B`` → ``for u in 1: B``

    It is a place for ``compute_at``, and it may be fused with other loops.
    """
    found = state.loop(target) if isinstance(target, LoopRef) else state.block(target)
    made = For(index_var("u"), ZERO, ONE, found)
    state.commit(state.tree.replace({found: made}))
    return LoopRef(made.var)


def normalize(state: State, loop: LoopRef) -> None:
    """Let a loop start at 0. It stays the same loop, of the same kind.

    ::

        for i in 2..n: B(i)   →   for i in n - 2: B(i + 2)
    """
    old = state.loop(loop)
    if old.start is ZERO:
        return
    made = with_loop(old, start=ZERO)
    ranges = {**state.ranges(old), old.var: loop_range(made)}
    body = rebind(old.body, {old.var: simplify_index(old.var + old.start)}, ranges)
    state.commit(state.tree.replace({old: with_loop(made, body=body)}))


def reorder(state: State, loops: Sequence[LoopRef]) -> None:
    """Change the order of some loops of a nest; the other loops keep their places.

    ::

        for i: for j: for k: B   →   for j: for i: for k: B        (reorder(j, i))

    The iterations must be independent or combine into a reduction (S015), and no range may depend on a loop that moves
    inside (S014). Steps of a recurrence may run column by column if each column depends only on itself.
    """
    wanted = [state.loop(ref) for ref in loops]
    if len(set(wanted)) != len(wanted):
        raise state.refuse("S004", "a loop is named twice")
    if len(wanted) < 2:
        return
    chain = _chain(state, wanted)
    moved = iter(wanted)
    order = [next(moved) if loop in wanted else loop for loop in chain]
    if order == chain:
        return
    first = next(n for n, (a, b) in enumerate(zip(chain, order, strict=True)) if a is not b)
    last = max(n for n, (a, b) in enumerate(zip(chain, order, strict=True)) if a is not b)
    in_order = steps_kept_in_order(state, chain, order)
    for loop in order[first : last + 1]:
        if loop not in in_order:
            check_independent(state, loop, reduce_allowed=True)
    for block in state.tree.blocks_under(chain[-1].body):
        reduces = any(it.kind == IterVar.REDUCE for it in block.iters)
        around = state.tree.loops_around(block)
        mixed = next((x for x in order[first : last + 1] if block.init is not None and _is_mixed(block, x)), None)
        if mixed is not None:
            raise state.refuse(
                "S056",
                f"'{mixed.var.name}' drives spatial and reduce variables of '{block.name}', whose init must come first",
                at=mixed,
                hint="decompose the reduction first",
            )
        if reduces and not runs_once(state, block, around[around.index(chain[first]) :]):
            raise state.refuse(
                "S055", f"block '{block.name}' may run some instances again inside these loops", at=chain[first]
            )
    for n, loop in enumerate(order):
        inner: dict[Var, object] = {later.var: None for later in order[n + 1 :]}
        if mentions(loop.extent, inner) or mentions(loop.start, inner):
            raise state.refuse("S014", f"the range of '{loop.var.name}' depends on a loop that moves inside", at=loop)
    state.commit(state.tree.replace({chain[0]: nest(order, chain[-1].body)}))


def _is_mixed(block: Block, loop: For) -> bool:
    """Whether spatial and reduce variables both depend on the loop (the result of fusing their loops)."""
    return len({block.iters[n].kind for n in uses(block, loop)}) > 1


def _chain(state: State, wanted: Sequence[For]) -> list[For]:
    """The nest from the outermost to the innermost of ``wanted``."""
    depth = {loop: len(list(state.tree.ancestors(loop))) for loop in wanted}
    outer, inner = min(wanted, key=depth.__getitem__), max(wanted, key=depth.__getitem__)
    chain: list[For] = []
    stmt: Stmt = outer
    while isinstance(stmt, For):
        chain.append(stmt)
        if stmt is inner:
            break
        stmt = stmt.body
    missing = next((loop for loop in wanted if loop not in chain), None)
    if missing is not None:
        raise state.refuse(
            "S013",
            f"'{missing.var.name}' is not in one nest with '{outer.var.name}': other statements stand in between",
            at=missing,
            hint="reorder before computing other blocks at these loops",
        )
    return chain
