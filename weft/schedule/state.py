"""What primitives operate on: the program, its index, the names in use, and what replaced consumed references."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Sequence

from weft.expr.linear import Linear
from weft.expr.nodes import Expr, Var
from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.intrinsics import BUILTIN, builtin
from weft.schedule.place import place_of
from weft.schedule.ranges import iter_ranges, loop_range
from weft.schedule.refs import BlockRef, Consumed, LoopRef, Ref
from weft.schedule.rewrite import with_summaries
from weft.schedule.tree import Tree
from weft.support.errors import ScheduleError
from weft.support.words import did_you_mean
from weft.tir.nodes import Block, Buffer, For, Program, Stmt


class State:
    """The mutable state of a schedule. Each primitive reads ``tree`` and ends with one :meth:`commit`."""

    def __init__(self, program: Program, seed: int = 0) -> None:
        self.program = program
        self.forward: dict[Ref, Consumed] = {}
        self.random = random.Random(seed)
        self.running = ""
        self.carried: frozenset[Var] = frozenset()
        """Loops for which it is not proved that iterations are independent; see :mod:`weft.schedule.dependence`."""
        self.conditional: frozenset[str] = frozenset()
        """Blocks whose condition requires more than that their variables stay in their domain."""
        self.holes: frozenset[str] = frozenset()
        """Names of buffers with elements that no block writes (padding of a layout)."""
        self.partial: frozenset[str] = frozenset()
        """Blocks that were moved into loops of others and may run for only a part of their domain."""
        self.kept: dict[str, Var] = {}
        """Names of buffers that store only a window, each with the loop across whose iterations it is kept."""
        self.pipelined: dict[Var, tuple[frozenset[str], ...]] = {}
        """Loops whose statements overlap, each with the blocks of every statement."""
        self.unroll_limits: dict[Var, int] = {}
        """Loops to unroll if they have at most so many turns, whether they have or not."""
        self.fused: dict[Var, tuple[tuple[Var, Expr], ...]] = {}
        """Loops that were several: their variables and extents, outermost first."""
        self.threaded = False
        """Whether loops may be bound to threads."""
        self.intrinsics: dict[str, TensorIntrinsic] = {}
        self._tree: Tree | None = Tree(program)
        self.nested = any(self._tree.enclosing_block(b) for b in self._tree.blocks.values())
        """Whether there are blocks inside blocks. The regions of an outer block are recomputed from its inner
        blocks."""

    def copy(self) -> State:
        made = State(self.program)
        made.forward = dict(self.forward)
        made.carried, made.conditional = self.carried, self.conditional
        made.nested, made.threaded = self.nested, self.threaded
        made.intrinsics = dict(self.intrinsics)
        made.holes, made.partial, made.kept = self.holes, self.partial, dict(self.kept)
        made.pipelined, made.running = dict(self.pipelined), self.running
        made.unroll_limits, made.fused = dict(self.unroll_limits), dict(self.fused)
        made.random.setstate(self.random.getstate())
        made._tree = self._tree
        return made

    def adopt(self, other: State) -> None:
        """Take over the state of ``other``, which was copied from this one."""
        self.__dict__.update(other.__dict__)

    @property
    def tree(self) -> Tree:
        """The index of the current program."""
        if self._tree is None:
            self._tree = Tree(self.program)
        return self._tree

    # -- references -----------------------------------------------------------------------------------------

    def block(self, ref: BlockRef | str) -> Block:
        """The block that ``ref`` names."""
        name = ref.name if isinstance(ref, BlockRef) else ref
        if not isinstance(name, str):
            raise ScheduleError(f"expected a block, got {ref!r}", code="S004", hint="take it from get_block")
        found = self.tree.blocks.get(name)
        if found is not None:
            return found
        gone = self.forward.get(BlockRef(name))
        if gone is not None:
            raise ScheduleError(f"block '{name}' is no more: {gone.explain()}", code="S003")
        raise ScheduleError(
            f"{self.program.name} has no block '{name}'",
            code="S002",
            hint=did_you_mean(name, self.tree.blocks, "blocks: " + ", ".join(self.tree.blocks)),
        )

    def loop(self, ref: LoopRef) -> For:
        """The loop that ``ref`` names."""
        if not isinstance(ref, LoopRef):
            raise ScheduleError(f"expected a loop reference, got {ref!r}", code="S004", hint="take it from get_loops")
        found = self.tree.loops.get(ref.var)
        if found is not None:
            return found
        gone = self.forward.get(ref)
        if gone is not None:
            raise ScheduleError(f"loop '{ref.name}' is no more: {gone.explain()}", code="S003")
        raise ScheduleError(f"{self.program.name} has no loop '{ref.name}' of this reference", code="S002")

    # -- intrinsics -----------------------------------------------------------------------------------------

    def intrinsic(self, name: str) -> TensorIntrinsic:
        """The intrinsic called ``name``: declared to the schedule, or built in."""
        known = self.intrinsics.get(name) or builtin(name)
        if known is None:
            names = (*self.intrinsics, *BUILTIN)
            hint = did_you_mean(name, names, f"known: {', '.join(names)}; declare others")
            raise self.refuse("S082", f"unknown intrinsic '{name}'", hint=hint)
        return known

    def declare(self, intrinsic: TensorIntrinsic) -> None:
        """Add an intrinsic to the known ones, by its name. Refuses (S082) a name that another intrinsic has, because
        traces refer to intrinsics by name only."""
        known = self.intrinsics.get(intrinsic.name) or builtin(intrinsic.name)
        if known is not None and known is not intrinsic and not known.computes_like(intrinsic):
            raise ScheduleError(
                f"there is another intrinsic called '{intrinsic.name}'",
                code="S082",
                hint="traces find intrinsics by name: give each its own",
            )
        self.intrinsics[intrinsic.name] = intrinsic

    # -- names ----------------------------------------------------------------------------------------------

    def fresh_block(self, base: str) -> str:
        """A block name not in use and never used before in this schedule."""
        return _fresh(base, lambda n: n in self.tree.blocks or BlockRef(n) in self.forward)

    def fresh_buffer(self, base: str) -> str:
        """A buffer name not in use."""
        used = {b.name for b in (*self.program.params, *self.program.allocs)}
        return _fresh(base, used.__contains__)

    # -- bounds ---------------------------------------------------------------------------------------------

    def ranges(self, stmt: Stmt) -> dict[Var, tuple[Linear, Linear]]:
        """Least and greatest values of all loop and block variables around ``stmt``, outer first."""
        found: dict[Var, tuple[Linear, Linear]] = {}
        for above in reversed(list(self.tree.ancestors(stmt))):
            if isinstance(above, For):
                found[above.var] = loop_range(above)
            elif isinstance(above, Block):
                found.update(iter_ranges(above))
        return found

    # -- changes --------------------------------------------------------------------------------------------

    def commit(
        self,
        body: Stmt,
        *,
        new: Iterable[Buffer] = (),
        dropped: Iterable[Buffer] = (),
        swapped: Sequence[tuple[Buffer, Buffer]] = (),
        sizes: Sequence[Var] = (),
    ) -> None:
        """Replace the program's body by ``body``, with intermediate buffers added, dropped or replaced, and with new
        ``sizes``."""
        allocs = self.program.allocs
        gone, changes = set(dropped), dict(swapped)
        if gone or changes or new:
            allocs = (*(changes.get(b, b) for b in allocs if b not in gone), *new)
        if self.nested:
            body = with_summaries(body, self.tree.position)
        params = self.program.params
        if any(b in changes for b in params):
            params = tuple(changes.get(b, b) for b in params)
        known = (*self.program.sizes, *sizes)
        self.program = dataclasses.replace(self.program, body=body, allocs=allocs, params=params, sizes=known)
        self._tree = None

    def restore(self, program: Program) -> None:
        """Return to an earlier program, for a primitive that works in steps and refuses in the middle."""
        self.program, self._tree = program, None

    def consume(self, refs: Iterable[Ref], replaced_by: Iterable[Ref] = ()) -> None:
        """Mark ``refs`` as no longer valid, and record which references replace them."""
        entry = Consumed(self.running, tuple(replaced_by))
        for ref in refs:
            self.forward[ref] = entry

    def refuse(self, code: str, message: str, *, at: Stmt | None = None, hint: str | None = None) -> ScheduleError:
        """The error with which a primitive refuses. It points at the statement ``at``."""
        place = None if at is None else place_of(self.program, at)
        return ScheduleError(f"{self.running}: {message}", code=code, place=place, hint=hint)


def _fresh(base: str, used: object) -> str:
    taken = used
    assert callable(taken)
    if not taken(base):
        return base
    n = 1
    while taken(f"{base}_{n}"):
        n += 1
    return f"{base}_{n}"
