"""The state that schedule rules share: the schedule, queries about its blocks, and steps that several rules use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace

from weft.cost.caches import CACHE_LINE_BYTES, exceeds_last_cache
from weft.expr.iter_var import IterVar
from weft.expr.linear import ONE
from weft.expr.nodes import Const, Expr, Load, Select, Var
from weft.expr.visit import collect, free_vars, post_order
from weft.schedule.primitives.sampling import locations
from weft.schedule.refs import BlockRef, LoopRef, Stay
from weft.schedule.rules.common.access import View, static_extent
from weft.schedule.rules.common.menus import VECTORS_AT_A_TIME, near
from weft.schedule.rules.common.work import bytes_of, pieces_of, worth_parallel
from weft.schedule.schedule import Schedule
from weft.target import Target
from weft.tir.nodes import Block, Buffer, For
from weft.tir.visit import blocks as blocks_below

MASKED_BITS = 512
"""Vectors so wide have masks for elements of all types: a rest takes as long as one vector."""
FEW_STEPS = 3
"""A loop of fewer iterations of several vectors has one vector in each, unless vectors cover it exactly: the rest that
is no whole iteration would take as long as all others."""


@dataclass
class Context:
    """A schedule under construction for a target."""

    schedule: Schedule
    target: Target
    done: set[str] = field(default_factory=set)
    """Names of blocks that a rule has already placed."""
    moved: set[str] = field(default_factory=set)
    """Names of blocks that were placed in loops of others by :meth:`compute_at`."""
    separate: set[str] = field(default_factory=set)
    """Names of blocks that must be computed completely before their readers."""
    finishing: set[str] | None = None
    """Names of blocks that finish the sums of a tile, in registers, before functions of these are computed. None: there
    are none, all are inlined into what computes the function."""
    nested: bool = False
    """Whether the code being placed is already inside a parallel loop."""
    flipped: frozenset[str] = frozenset()
    """Decisions that are taken otherwise (:meth:`decide`): a search also tries schedules of other structure."""
    asked: dict[str, None] = field(default_factory=dict)
    """The decisions that were asked for."""
    _views: dict[Block, View] = field(default_factory=dict)

    def saved(self) -> Context:
        """A copy of the state, which :meth:`restore` accepts."""
        return replace(
            self,
            schedule=self.schedule.copy(),
            done=set(self.done),
            moved=set(self.moved),
            separate=set(self.separate),
            finishing=None if self.finishing is None else set(self.finishing),
            asked=dict(self.asked),
        )

    def restore(self, saved: Context) -> None:
        for f in fields(self):
            setattr(self, f.name, getattr(saved, f.name))

    def note(self, block: BlockRef, text: str) -> None:
        """Record why the code of ``block`` is not the best possible, for users who inspect the schedule."""
        self.schedule.note(f"{block.name}: {text}")

    def block(self, ref: BlockRef) -> Block:
        return self.schedule.state.block(ref)

    def loop(self, ref: LoopRef) -> For:
        return self.schedule.state.loop(ref)

    def view(self, ref: BlockRef) -> View:
        block = self.block(ref)
        if block not in self._views:
            self._views[block] = View(block)
        return self._views[block]

    def is_output(self, ref: BlockRef) -> bool:
        """Whether the block writes a parameter of the program."""
        params = set(self.schedule.program.params)
        return any(w.buffer in params for w in self.block(ref).writes)

    def is_injective(self, ref: BlockRef) -> bool:
        """Whether the block is one store of a value computed from single elements, without a reduction or an inner
        loop."""
        view = self.view(ref)
        return view.is_simple and len(view.spatial) == len(view.block.iters) and view.block.init is None

    def is_reduction(self, ref: BlockRef) -> bool:
        view = self.view(ref)
        return (
            bool(view.reduce)
            and view.block.init is not None
            and len(view.reduce) + len(view.spatial) == len(view.block.iters)
        )

    def lanes(self, view: View) -> int:
        """Number of vector lanes for the widest type of the block. 16-bit floats count as 32 bits, in which they are
        computed, unless the block only moves them. Numbers of rows that are looked up do not count: they are the same
        in all lanes."""
        bits = [32 if s.value.dtype.is_float and not _moves_halves(s.value) else 8 for s in view.stores]
        bits += [s.buffer.dtype.bits for s in view.stores]
        bits += [a.buffer.dtype.bits for a in view.loads_in_lanes]
        return self.target.cpu.lanes(max(bits, default=32))

    def extent(self, ref: LoopRef) -> int | None:
        found = self.loop(ref).extent
        return int(found.value) if isinstance(found, Const) else None

    def own_loops(self, ref: BlockRef) -> dict[IterVar, LoopRef]:
        """The loops around this block only, each by the iteration variable that it iterates. Without those of one
        iteration that :meth:`compute_at` left."""
        block = self.block(ref)
        loops = self.schedule.state.tree.loops_around(block)
        alone = [n for n, x in enumerate(loops) if sum(1 for _ in blocks_below(x)) == 1]
        # Counted from the innermost loop, so that a trace stays valid if it decides another place for the block.
        if ref.name in self.moved:
            alone = [n for n in alone if loops[n].extent is not ONE]
        own = [self.schedule.get_loop(ref, n - len(loops)) for n in alone]
        by_var = {loop.var: loop for loop in own}
        found: dict[IterVar, LoopRef] = {}
        for axis, value in zip(block.iters, block.values, strict=True):
            drivers = [by_var[v] for v in free_vars(value) if v in by_var]
            if drivers:
                found[axis] = max(drivers, key=own.index)
        return found

    def finish_stage(self, ref: BlockRef) -> None:
        """Vectorize an operand stage that was just placed."""
        loops = list(self.own_loops(ref).values())
        lanes = self.lanes(self.view(ref))
        if loops and lanes > 1:
            self.vectorize(loops[-1], lanes)
        self.done.add(ref.name)

    def stream_large(self, ref: BlockRef, in_order: int) -> bool:
        """Write a result that :meth:`exceeds_caches` with stores that bypass the caches. Its lines are then not read
        before they are written. Returns whether it does so."""
        if not self.decide(f"write {ref.name} past the caches", self.exceeds_caches(ref, in_order)):
            return False
        self.schedule.stream(ref)
        return True

    def exceeds_caches(self, ref: BlockRef, in_order: int) -> bool:
        """Whether the caches cannot hold a result and what it is computed from: its beginning would be evicted before
        the end is written. The innermost ``in_order`` axes must cover whole cache lines, because writing part of a line
        past the caches costs more than reading the line first."""
        cpu, view = self.target.cpu, self.view(ref)
        width, elements = view.output.buffer.dtype.nbytes, 1
        for n, axis in enumerate(reversed(view.block.iters)):
            if n == in_order and elements * width % CACHE_LINE_BYTES:
                return False
            elements *= static_extent(axis) or 0
        moved = bytes_of(view, elements)
        return bool(elements) and exceeds_last_cache(moved, cpu.l2, cpu.l3, cpu.cores) and self.is_output(ref)

    # -- decisions: each default is recorded as a sampling instruction, for which search may decide otherwise -------

    def choose(self, candidates: Iterable[int], default: int) -> int:
        """``default``, recorded as a draw from ``candidates``."""
        menu = sorted({*candidates, default})
        if len(menu) == 1:
            return default
        drawn: int = self.schedule.sample_choice(menu, decision=menu.index(default))
        return drawn

    def decide(self, what: str, default: bool) -> bool:
        """``default``, or the opposite if ``what`` is among the decisions that are flipped. Unlike other decisions, it
        changes which instructions the schedule consists of, so it is not recorded in the trace."""
        self.asked[what] = None
        return default != (what in self.flipped)

    def order(self, loops: Sequence[LoopRef]) -> list[LoopRef]:
        """``loops`` in their present order, recorded as a draw from all orders. The results are used to reorder the
        loops."""
        return list(self.schedule.sample_order(loops, range(len(loops))) if len(loops) > 1 else loops)

    def place(self, block: BlockRef, loop: LoopRef, others: Sequence[LoopRef]) -> None:
        """Compute ``block`` at ``loop``, recorded as a draw from ``loop`` and ``others``, loops around and inside it
        whose order no later step changes. Where a trace places its readers elsewhere, it follows them."""
        given = {x.var: x for x in (*others, loop)}  # these references, and no others to the same loops: a trace knows
        candidates = [given[x.var] for x in locations(self.schedule.state, block) if x.var in given]  # them as drawn
        if len(candidates) > 1 and loop in candidates:
            drawn = self.schedule.sample_location(block, candidates, candidates.index(loop))
            self.compute_at(block, drawn)
        else:
            self.compute_at(block, loop)

    def compute_at(self, block: BlockRef, loop: LoopRef | Stay) -> None:
        """Compute ``block`` at ``loop``. Each variable of the block keeps a loop, those of one iteration outside of the
        others: whatever a trace decides about tiles and places, a loop counted from the innermost one is that of the
        same variable."""
        s = self.schedule
        s.compute_at(block, loop, preserve_unit_loops=True)
        self.moved.add(block.name)
        count = len(self.block(block).iters)
        extents = [x.extent for x in s.state.tree.loops_around(self.block(block))[-count:]]
        single = [n for n, extent in enumerate(extents) if extent is ONE]
        if single != list(range(len(single))):
            rest = [n for n in range(count) if n not in single]
            s.reorder(*(s.get_loop(block, n - count) for n in (*single, *rest)))

    # -- moves -----------------------------------------------------------------------------------------------

    def fuse(self, loops: Sequence[LoopRef]) -> LoopRef:
        """Fuse several directly nested loops into one."""
        return loops[0] if len(loops) == 1 else self.schedule.fuse(*loops)

    def parallelize(self, loop: LoopRef, work: float) -> None:
        """Run ``loop`` in parallel if that is faster. ``work`` is the number of scalar operations of all iterations."""
        extent = self.extent(loop)
        if self.nested or extent in (0, 1) or (extent is not None and not worth_parallel(work, self.target)):
            return
        self.schedule.parallel(loop)
        if extent is not None:
            grain = max(1, extent // (2 * pieces_of(work, self.target)))
            self.schedule.annotate(loop, "grain", self.choose(near(grain, extent), grain))

    def sum_in_lanes(
        self, block: BlockRef, reduce: Sequence[LoopRef], vector: LoopRef, tile: Sequence[LoopRef] = ()
    ) -> None:
        """Make the iterations of ``vector``, the innermost loop of ``block``, lanes that each have a result of their
        own. ``reduce`` are its loops of a reduction; their start is a vector too. ``tile`` are loops around the vector,
        inside of the reduction: all their vectors are computed at a time."""
        if reduce:
            init = self.schedule.decompose_reduction(block, reduce[0])
            for loop in self.schedule.get_loops(init)[-1 - len(tile) : -1]:
                self.schedule.unroll(loop)
            self.schedule.vectorize(self.schedule.get_loop(init, -1))
            self.done.add(init.name)
        for loop in tile:
            self.schedule.unroll(loop)
        self.schedule.vectorize(vector)

    def vectorize(self, loop: LoopRef, lanes: int, unroll: int = 1) -> None:
        """Run ``loop`` in vectors of ``lanes`` elements; if the loop is long enough, ``unroll`` vectors per
        iteration."""
        s, extent = self.schedule, self.extent(loop)
        if extent is not None and extent <= lanes:
            if extent > 1:
                s.vectorize(loop)
            return
        if unroll > 1 and extent is not None and extent >= lanes * unroll:
            masks = self.target.cpu.vector_bits >= MASKED_BITS
            is_whole = masks or extent % lanes == 0 or extent >= FEW_STEPS * lanes * unroll
            vectors = self.choose(VECTORS_AT_A_TIME, unroll if is_whole else 1)
            _, middle, inner = s.split(loop, factors=(None, vectors, self.choose(near(lanes, 2 * lanes, 2), lanes)))
            s.unroll(middle)
        else:
            _, inner = s.split(loop, factors=(None, self.choose(near(lanes, 2 * lanes, 2), lanes)))
        s.vectorize(inner)


def _moves_halves(value: Expr) -> bool:
    """Whether ``value`` is one of several 16-bit floats that are loaded, chosen by what is no float."""
    if not value.dtype.is_float or value.dtype.bits != 16:
        return False
    pending = [value]
    while pending:
        e = pending.pop()
        if isinstance(e, Select) and not any(c.dtype.is_float for c in post_order(e.condition)):
            pending += [e.then, e.otherwise]
        elif not isinstance(e, (Load, Const)):
            return False
    return True


def guarded_load(view: View) -> bool:
    """Whether the block loads under a condition (padding)."""
    return any(len(collect(e, Load)) > 0 for s in view.stores for e in collect(s.value, Select))


def reads_whole(view: View, buffer: Buffer, axes: Sequence[Var]) -> bool:
    """Whether ``buffer`` is read at exactly the indices ``axes``; index 0 is allowed in dimensions of size 1."""
    if len(axes) != len(buffer.shape):
        return False
    for access in view.loads:
        if access.buffer is not buffer:
            continue
        for index, axis, size in zip(access.indices, axes, buffer.shape, strict=True):
            unit = isinstance(size, Const) and size.value == 1
            if index is not axis and not (unit and isinstance(index, Const)):
                return False
    return True


Rule = Callable[[Context, BlockRef], bool]
"""Schedules a block and returns True, or returns False if the rule does not apply to it."""
