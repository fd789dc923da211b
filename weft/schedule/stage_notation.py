"""The classic notation on the same engine: ``s[C].split(axis, factor=8)``.

A :class:`ClassicSchedule` looks up blocks and axes through a :class:`BlockOrigin`. The code that made the program from
tensor expressions provides it; this module does not depend on tensor expressions.

    s = ClassicSchedule(Schedule(program), origin)
    yo, xo, yi, xi = s[C].tile(C.op.axis[0], C.op.axis[1], 8, 8)
    s[B].compute_at(s[C], xo)
    s[C].vectorize(xi)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from weft.expr.iter_var import BoundedAxis, IterVar
from weft.expr.linear import ZERO
from weft.expr.nodes import Expr, Var
from weft.schedule.index_map import IndexMap
from weft.schedule.legal_later import is_movable, legal_later
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import uses
from weft.schedule.schedule import Factor, Schedule
from weft.schedule.stage_axes import Label, StageAxes
from weft.schedule.stage_group import Group
from weft.schedule.stage_keys import BlockOrigin, StageKey, axis_name, keys_of, listed, loop_and_value
from weft.schedule.vectors import vector_notes
from weft.schedule.wishes import Hooks, Wish, Wishes
from weft.support.errors import ScheduleError
from weft.support.html import TextInNotebooks
from weft.tir.nodes import Program

_Of = TypeVar("_Of", "ClassicSchedule", "Stage")
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def _declared(method: Callable[Concatenate[_Of, _Given], _Made]) -> Callable[Concatenate[_Of, _Given], _Made]:
    """A method that declares something: it is applied at once if that is possible, else in another order."""

    @wraps(method)
    def declare(self: _Of, *args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        owner, stage = (self.owner, self.identity) if isinstance(self, Stage) else (self, None)
        given = (*args, *kwargs.values())
        wish = Wish(method.__name__, stage, given, lambda: method(self, *args, **kwargs))
        return cast(_Made, owner.wishes.declare(wish))

    return cast(Callable[Concatenate[_Of, _Given], _Made], declare)


class ClassicSchedule(TextInNotebooks):
    """Stages by tensor. ``schedule`` is the engine underneath; both notations can be mixed."""

    def __init__(self, schedule: Schedule, origin: BlockOrigin) -> None:
        self.schedule = schedule
        self._origin = origin
        self._moved: dict[StageKey | str, str] = {}
        """For a stage that another block computes now: after ``cache_write`` the block that copies to the tensor, after
        ``tensorize`` the block of the instruction."""
        self.attached: dict[BlockRef, LoopRef] = {}
        """The loop at which each stage is computed, for stages that were moved into a loop of another stage."""
        self.axes = StageAxes(schedule)
        for name in schedule.state.tree.blocks:
            self._remember(BlockRef(name))
        self.thread_axes: dict[Var, str] = {}
        """The variables of thread axes that loops were bound to, each with the name of its axis."""
        self._initial = schedule.copy()
        self.wishes = Wishes(
            schedule,
            Hooks(self._save, self._restart, self._place_in_program, self._becomes_legal, self._may_be_placed),
        )

    @property
    def program(self) -> Program:
        """The loops as scheduled so far. Raises the refusal of a declaration that waits for others in vain."""
        self.wishes.settle()
        return self.schedule.program

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the schedule as it stands: those of the block notation, and vectors of far elements."""
        self.wishes.settle()
        return (*self.schedule.notes, *dict.fromkeys(vector_notes(self.schedule.state)))

    def __repr__(self) -> str:
        return repr(self.schedule)

    def iters_of(self, key: StageKey) -> Sequence[IterVar]:
        """The iteration variables of the block that computes ``key``; :attr:`axes` records them."""
        if not isinstance(key, StageKey):
            raise ScheduleError(f"{key!r} is no stage that a primitive made", code="S004", hint="s[tensor].op.axis")
        stage = self._identity(key)
        if key.name not in self.schedule.state.tree.blocks and stage in self._moved:  # tensorized
            return self.axes.handed_variables(stage)
        return self.axes.hand_variables(stage, self.schedule.state.block(self._block_of(stage)))

    def _save(self) -> Callable[[], None]:
        """A function that restores the present state."""
        kept, moved, attached, axes = self.schedule.copy(), dict(self._moved), dict(self.attached), self.axes.save()

        def back() -> None:
            self.schedule.__dict__.update(kept.copy().__dict__)
            self._moved, self.attached = dict(moved), dict(attached)
            axes()

        return back

    def _restart(self) -> None:
        """Return to the state without declarations."""
        self.schedule.__dict__.update(self._initial.copy().__dict__)
        self._moved, self.attached = {}, {}
        self.axes.forget()
        for name in self.schedule.state.tree.blocks:
            self._remember(BlockRef(name))

    def _block_of(self, stage: StageKey | str) -> BlockRef:
        """The block that computes a stage now."""
        whole = stage.whole if isinstance(stage, StageKey) else stage
        return BlockRef(self._moved.get(whole, stage if isinstance(stage, str) else stage.name))

    def _place_in_program(self, stage: Any) -> int | None:
        """The position of the block of ``stage``; None if there is no such block."""
        tree = self.schedule.state.tree
        found = tree.blocks.get(self._block_of(stage).name) if stage is not None else None
        return None if found is None else tree.position[found]

    def _may_be_placed(self, stage: Any) -> bool:
        """Whether ``stage`` is computed in no loop of another stage yet, but could be."""
        block = self._block_of(stage)
        return block not in self.attached and is_movable(self.schedule, self._save, block)

    def _becomes_legal(self, wish: Wish) -> bool:
        """Whether a refused ``compute_at`` is legal once the stages between are inlined, or placed in the same loop."""
        loop = wish.arguments[0].loop(wish.arguments[1])
        return legal_later(self.schedule, self._save, self._block_of(cast(Any, wish.stage)), loop, wish.run)

    def _remember(self, block: BlockRef) -> None:
        """Note which loop runs over which variable of ``block``, which just got these loops."""
        self.axes.remember(block, self._loops_of(block))

    def _loops_of(self, block: BlockRef) -> list[LoopRef]:
        """The stage's own loops, outermost first: those inside the loop at which it is computed."""
        around = [LoopRef(x.var) for x in self.schedule.state.tree.loops_around(self.schedule.state.block(block))]
        at = self.attached.get(block)
        while at is not None and at not in around:  # use the innermost loop that replaced it
            gone = self.schedule.state.forward.get(at)
            at = next((r for r in reversed(gone.replaced_by) if isinstance(r, LoopRef)), None) if gone else None
        return around if at is None else around[around.index(at) + 1 :]

    def __getitem__(self, key: Any) -> Stage:
        origin = self._identity(key)
        axes = () if isinstance(key, StageKey) else self._origin.axes(key)
        return Stage(self, origin, axes, key)

    def _identity(self, key: Any) -> StageKey | str:
        """The key that represents the stage of ``key``. All outputs of an operation, the operation itself, and all
        keys of one block share one key."""
        if isinstance(key, StageKey):
            return self._stage_of(self._block_of(key).name, key.whole)
        try:
            return self._origin.block_name(key)
        except KeyError:
            raise ScheduleError(
                f"'{key}' is not computed by this program", code="S002", hint="placeholders have no stage"
            ) from None

    def _stage_of(self, block: str, key: StageKey) -> StageKey | str:
        """What represents the stage that ``block`` computes, of which ``key`` is a key."""
        for stage, name in self._moved.items():
            if name == block:
                return stage
        known = (k.whole for k in self.wishes.keys if k.name == block and k.whole not in self._moved)
        original = block in self._initial.state.tree.blocks and block not in self._moved
        return next(known, block if original else key)

    @_declared
    def cache_read(self, key: Any, scope: str, readers: Any) -> StageKey:
        """A copy of ``key`` (a computed tensor or an input) for the stages of ``readers``, one or several."""
        blocks = [self[r].block for r in listed(readers)]
        if not blocks:
            raise ScheduleError("cache_read: nobody reads the copy", code="S004", hint="give the tensors that do")
        wanted = self.buffer_name(key)
        regions = self.schedule.state.block(blocks[0]).reads
        position = next((n for n, r in enumerate(regions) if r.buffer.name == wanted), -1)
        made = self.schedule.cache_read(blocks[0], position, scope, blocks[1:], preserve_unit_loops=True)
        self._remember(made)
        return StageKey(self, made.name)

    @_declared
    def cache_write(self, key: Any, scope: str) -> Any:
        """Compute ``key`` in another scope: the returned stage computes, ``s[key]`` copies to the output.

        For a list of all the tensors that an operation computes, a list of such stages (which are one block).
        """
        keys = listed(key)
        computing = self[keys[0]].block if keys else None
        if computing is None or any(self[k].block != computing for k in keys):
            raise ScheduleError(
                "cache_write: the tensors must be results of one computation",
                code="S004",
                hint="cache those of different stages one after another",
            )
        results = [r.buffer.name for r in self.schedule.state.block(computing).writes]
        positions = [results.index(self.buffer_name(k)) for k in keys]
        if len(set(positions)) != len(results):
            raise ScheduleError(
                f"cache_write: '{computing.name}' computes {', '.join(results)} together",
                code="S004",
                hint="give a list of all of them",
            )
        first, *others = positions
        copying = self.schedule.cache_write(computing, first, scope, others, preserve_unit_loops=True)
        self._remember(copying)
        self._moved[self._identity(keys[0])] = copying.name
        made = keys_of(self, computing.name, positions)
        return made if isinstance(key, (list, tuple)) else made[0]

    @_declared
    def rfactor(self, key: Any, axis: Any, factor_axis: int = 0, reassociate: bool = False) -> Any:
        """Factor the reduction of ``key`` over ``axis``; the returned stage computes the partial results.

        A list of stages (which are one block) for a reduction of several values at once.
        """
        stage = self[key]
        block, loop, undo = stage.block, stage.loop(axis), self._save()
        partial = self.schedule.rfactor(loop, factor_axis, reassociate, share_loops=True)
        try:
            self._place(partial, None)
        except ScheduleError:  # partial results of a step of a recurrence stay in the loop over the steps
            undo()
            partial = self.schedule.rfactor(loop, factor_axis, reassociate, share_loops=False)
            if block in self.attached:
                self.attached[partial] = self.attached[block]
            self._remember(partial)
        self._remember(block)
        made = keys_of(self, partial.name, range(len(self.schedule.state.block(partial).writes)))
        return made if len(made) > 1 else made[0]

    def _renamed(
        self, stage: StageKey | str, old: BlockRef, new: BlockRef, loops: Mapping[Label, LoopRef | None]
    ) -> None:
        """Note that ``new`` computes a stage in the place of ``old``; ``loops`` are those of its variables."""
        self._moved[stage] = new.name
        if old in self.attached:
            self.attached[new] = self.attached.pop(old)
        self.axes.renamed(new, loops)

    def _place(self, block: BlockRef, loop: LoopRef | None) -> None:
        """Compute a block at ``loop``, or at the root."""
        if loop is None:
            self.schedule.compute_root(block, preserve_unit_loops=True)
            self.attached.pop(block, None)
        else:
            self.schedule.compute_at(block, loop, preserve_unit_loops=True)
            self.attached[block] = loop
        self._remember(block)

    def create_group(self, outputs: Any, inputs: Any = (), include_inputs: bool = False) -> Group:
        """The stages between ``inputs`` and ``outputs``, to be placed together."""
        last, first = listed(outputs), listed(inputs)
        ends = {self[k].block.name for k in first if self._computes(k)}
        found: dict[str, None] = {}
        pending = [self[k].block.name for k in last]
        while pending:
            name = pending.pop()
            if name in found or (name in ends and not include_inputs):
                continue
            found[name] = None
            if name not in ends:
                pending += [b.name for b in self.schedule.get_producers(name)]
        order = [n for n in self.schedule.state.tree.blocks if n in found]
        return Group([self[StageKey(self, n)] for n in order])

    def buffer_name(self, key: Any) -> str:
        """The name of the buffer that holds ``key``."""
        if isinstance(key, StageKey):
            computing = key.name if key.name in self.schedule.state.tree.blocks else self._block_of(key)
            return self.schedule.state.block(computing).writes[key.output].buffer.name
        try:
            return self._origin.buffer_name(key)
        except KeyError:
            raise ScheduleError(
                f"'{key}' is no tensor of this program", code="S002", hint="give a placeholder or a computed tensor"
            ) from None

    def _computes(self, key: Any) -> bool:
        try:
            self[key]
        except ScheduleError:
            return False
        return True


class Stage:
    """One block in the classic notation. Axes are the tensor's own, or loops that earlier calls returned."""

    def __init__(self, owner: ClassicSchedule, identity: StageKey | str, axes: Sequence[Any], key: Any = None) -> None:
        self.owner, self.identity, self._axes, self._key = owner, identity, axes, key

    def __repr__(self) -> str:
        state = self.owner.schedule.state
        loops = state.tree.loops_around(state.block(self.block))
        return f"<Stage {self.block.name}: {', '.join(loop.var.name for loop in loops) or 'no loops'}>"

    @property
    def block(self) -> BlockRef:
        """The block that computes the stage."""
        return self.owner._block_of(self.identity)

    @property
    def op(self) -> Any:
        """What the stage computes, with its axes: ``s[C].op.axis``."""
        return self._key.op if hasattr(self._key, "op") else self._key

    @property
    def axis(self) -> list[LoopRef]:
        """The stage's own loops, outermost first: those inside the loop at which it is computed."""
        self.owner.schedule.get_loops(self.block)  # so that a trace knows them
        found = self.owner._loops_of(self.block)
        self.owner.axes.hand(self.identity, self.block, found)
        return found

    @property
    def leaf_iter_vars(self) -> list[LoopRef]:
        """Another name of :attr:`axis`."""
        return self.axis

    def loop(self, axis: Any) -> LoopRef:
        """The present loop over ``axis``. Refuses if there is none, or if it was split or fused."""
        if isinstance(axis, LoopRef):
            return self._present(axis)
        label, name, axes = self._label(axis), axis_name(axis), self.owner.axes
        block = self.owner.schedule.state.block(self.block)
        own, known = self.axis, axes.loop(self.block, label)
        if known is not None:
            return known
        labels = axes.labels(block)
        found = [x for x in own if label in labels and labels.index(label) in self._driven(x)]
        if label not in labels and not (label is not None and axes.transformed(block)):
            raise ScheduleError(f"'{name}' is not an axis of '{block.name}'", code="S002")
        if len(found) != 1 or len(self._driven(found[0])) != 1:
            gone = label in labels and not found
            what = "has one value here, and no loop" if gone else "was split or fused"
            raise ScheduleError(
                f"axis '{name}' of '{block.name}' {what}",
                code="S003",
                hint="use the loops that split and fuse returned, or stage.axis",
            )
        return found[0]

    def _label(self, axis: Any) -> Label | None:
        """How the variable of ``axis`` is known among those of the stage; None if the stage has no such axis."""
        block = self.owner.schedule.state.block(self.block)
        axis = axis.plain if isinstance(axis, BoundedAxis) else axis
        for it, label in zip(block.iters, self.owner.axes.labels(block), strict=True):
            if it is axis:
                return label
        position = next((n for n, a in enumerate(self._axes) if a is axis), None)
        if position is not None or not isinstance(axis, IterVar):
            return position
        known = self.owner.axes.known(axis, self.identity)
        return known[1] if known is not None and known[0] == self.identity else None

    def _present(self, loop: LoopRef) -> LoopRef:
        """The loop that ``loop`` stands for after declarations were applied anew, or after its variable got another
        loop."""
        found, axes = self.owner.wishes.current(loop), self.owner.axes
        given = None if axes.is_around(found, self.block) else axes.known(loop, self.identity)
        if given is not None:
            block = self.owner._block_of(cast(Any, given[0]))
            own = axes.loop(block, given[1])
            if own is not None or found.var not in self.owner.schedule.state.tree.loops:
                self.owner.schedule.get_loops(block)  # so that a trace knows it; refuses blocks that are no more
            found = own or found
        return found

    def _driven(self, loop: LoopRef) -> list[int]:
        state = self.owner.schedule.state
        return uses(state.block(self.block), state.loop(loop))

    @_declared
    def split(self, axis: Any, factor: Factor = None, nparts: Factor = None) -> tuple[LoopRef, LoopRef]:
        """Split a loop into an outer and an inner one: ``factor`` iterations inside, or ``nparts`` outside. Both may be
        expressions of sizes."""
        outer, inner = self.owner.schedule.split(self.loop(axis), factor=factor, nparts=nparts)
        return outer, inner

    @_declared
    def tile(
        self, y: Any, x: Any, y_factor: int | Expr, x_factor: int | Expr
    ) -> tuple[LoopRef, LoopRef, LoopRef, LoopRef]:
        """Split both loops and reorder to: outer y, outer x, inner y, inner x."""
        return self.owner.schedule.tile(self.loop(y), self.loop(x), y_factor, x_factor)

    @_declared
    def fuse(self, *axes: Any) -> LoopRef:
        """Fuse directly nested loops into one loop. Of no axes, as a tensor of rank 0 has, a loop of one iteration."""
        if not axes:
            return self.owner.schedule.add_unit_loop(self.block)
        return self.owner.schedule.fuse(*map(self.loop, axes))

    @_declared
    def normalize(self, axis: Any) -> LoopRef:
        """Let a loop start at 0, and return it."""
        loop = self.loop(axis)
        self.owner.schedule.normalize(loop)
        return loop

    @_declared
    def reorder(self, *axes: Any) -> None:
        """Put the loops into this order, the first outermost."""
        self.owner.schedule.reorder(*map(self.loop, axes))

    @_declared
    def parallel(self, axis: Any) -> None:
        """Distribute the iterations over threads."""
        self.owner.schedule.parallel(self.loop(axis))

    @_declared
    def vectorize(self, axis: Any, reassociate: bool = False) -> None:
        """Run the iterations as lanes of vectors. ``reassociate`` allows a sum to be added in another order."""
        self.owner.schedule.vectorize(self.loop(axis), reassociate)

    @_declared
    def unroll(self, axis: Any) -> None:
        """Repeat the body for each iteration."""
        self.owner.schedule.unroll(self.loop(axis))

    @_declared
    def bind(self, axis: Any, thread: str | IterVar, reassociate: bool = False) -> None:
        """Bind to a GPU thread axis, by name or as the classic ``thread_axis("threadIdx.x")``. ``reassociate`` allows
        the threads of a block to share a sum of floats."""
        loop, name = self.loop(axis), cast(Any, thread)
        if isinstance(thread, IterVar):
            name = thread.thread
            self._check_threads(loop, thread)
            self.owner.thread_axes[thread.var] = name
        if isinstance(name, str) and name.startswith("vthread"):
            self.owner.schedule.virtual_thread(loop, name)
        else:
            self.owner.schedule.bind(loop, name, reassociate)

    def _check_threads(self, loop: LoopRef, thread: IterVar) -> None:
        """Refuse a thread axis whose extent differs from the loop's; extent 0 matches any loop."""
        extent = self.owner.schedule.state.loop(loop).extent
        if thread.extent is not ZERO and extent is not thread.extent:
            raise ScheduleError(
                f"bind: '{thread.thread}' has {thread.extent} threads but '{loop.name}' {extent} iterations",
                code="S004",
                hint=f"split it, or use te.thread_axis({thread.thread!r}), which takes any length",
            )

    @_declared
    def compute_at(self, parent: Stage, axis: Any) -> None:
        """Compute the stage inside the loop ``axis`` of ``parent``; each iteration computes what it reads."""
        self.owner._place(self.block, _stage(parent).loop(axis))

    @_declared
    def compute_inline(self) -> None:
        """Compute each element where it is read; nothing is stored."""
        self.owner.schedule.compute_inline(self.block)

    @_declared
    def compute_root(self) -> None:
        """Compute the whole stage before its first reader; this undoes ``compute_at``."""
        undo = self.owner._save() if self.block not in self.owner.attached else None
        self.owner._place(self.block, None)
        if undo is not None:  # it is complete already, and keeps its loops
            undo()

    @_declared
    def set_scope(self, scope: str) -> None:
        """Store the result of the stage in the memory space ``scope``."""
        self.owner.schedule.set_scope(self.block, 0, scope)

    @_declared
    def pragma(self, axis: Any, key: str, value: Any = True) -> None:
        """Annotate the loop with ``pragma_<key>``."""
        self.owner.schedule.annotate(self.loop(axis), f"pragma_{key}", value)

    @_declared
    def double_buffer(self) -> None:
        """Keep two copies of the stage's result and alternate between them."""
        self.owner.schedule.double_buffer(self.block)

    @_declared
    def storage_align(self, axis: Any, factor: int, offset: int = 0) -> None:
        """Make the stride of one dimension of the stage's result ``offset`` modulo ``factor``: the dimension that
        ``axis``, an axis of the stage, indexes, or a position."""
        dimension = axis if isinstance(axis, int) else self._dimension(axis)
        self.owner.schedule.storage_align(self.block, 0, dimension, factor, offset)

    def _dimension(self, axis: Any) -> int:
        """The dimension of the stage's result that is indexed by ``axis``."""
        block = self.owner.schedule.state.block(self.block)
        if isinstance(axis, LoopRef):
            driven = self._driven(self._present(axis))
            position = driven[0] if len(driven) == 1 else None
        else:
            labels, label = self.owner.axes.labels(block), self._label(axis)
            position = labels.index(label) if label in labels else None
        starts = [start for start, _ in block.writes[0].ranges]
        if position is None or block.iters[position].var not in starts:
            raise ScheduleError(
                f"storage_align: {axis_name(axis)} is not an axis of what '{block.name}' writes",
                code="S004",
                hint="give one of stage.op.axis, or the position of a dimension",
            )
        return starts.index(block.iters[position].var)

    @_declared
    def prefetch(self, buffer: Any, axis: Any, distance: int = 1, within: Any = None, unit: str = "iterations") -> None:
        """Prefetch what is read of ``buffer`` so many iterations (or ``"bytes"`` of whole ones) of ``axis`` later."""
        inner = None if within is None else self.loop(within)
        self.owner.schedule.prefetch(self.loop(axis), self.owner.buffer_name(buffer), distance, inner, unit)

    @_declared
    def stream(self) -> None:
        """Write the stage's result with stores that bypass the caches."""
        self.owner.schedule.stream(self.block)

    @_declared
    def rolling_buffer(self) -> None:
        """Keep values across iterations of the loop, in a buffer that holds only those still needed. Each value is then
        computed once. The stage must be computed in a loop of its consumers."""
        at = self.owner.attached.get(self.block)
        if at is None:
            raise ScheduleError(
                f"rolling_buffer: '{self.block.name}' is not computed in a loop",
                code="S025",
                hint="use compute_at first",
            )
        self.owner.schedule.store_at(self.block, at)
        axis, factor = self.owner.schedule.window(self.block)
        self.owner.schedule.fold_storage(self.block, axis, factor)

    @_declared
    def set_store_predicate(self, condition: Any) -> None:
        """Compute only where ``condition`` holds. For example, ``loop.var == 0`` for a loop whose iterations repeat the
        stage. Threads that share the reduction of the stage store its result once: for their axis this says nothing
        new."""
        loop = loop_and_value(condition)
        if loop is not None and self._shares_reduction(self.owner.thread_axes.get(loop[0])):
            return
        if loop is None:
            raise ScheduleError(
                "set_store_predicate: the condition must be that a loop is at a value", code="S004", hint="tx.var == 0"
            )
        self.owner.schedule.run_once(self.block, self.loop(LoopRef(loop[0])), loop[1])

    def _shares_reduction(self, axis: str | None) -> bool:
        """Whether threads of ``axis`` share the reduction of the stage."""
        state = self.owner.schedule.state
        block = state.block(self.block)
        return any(
            loop.thread == axis and any(block.iters[n].kind == IterVar.REDUCE for n in uses(block, loop))
            for loop in state.tree.loops_around(block)
        )

    @_declared
    def transform_layout(self, index_map: Any, pad: float | None = None) -> None:
        """Store what the stage computes in another layout."""
        owner, before = self.owner, self.owner.schedule.state.block(self.block)
        buffer = before.writes[0].buffer
        given = IndexMap.of(index_map, len(buffer.shape))
        owner.schedule.transform_layout(self.block, buffer.name, given, pad)
        if owner.schedule.state.block(self.block).iters != before.iters:
            owner.axes.laid_out(before, given)
            owner._remember(self.block)

    @_declared
    def pad_einsum(self, padding: Sequence[int]) -> list[StageKey]:
        """Round up the extents of the stage's axes to multiples of ``padding``; returns the stages that pad the
        operands and crop the result."""
        return [StageKey(self.owner, b.name) for b in self.owner.schedule.pad_einsum(self.block, padding)]

    @_declared
    def tensorize(self, axis: Any, intrinsic: Any) -> BlockRef:
        """Replace the loops from ``axis`` inwards by an instruction."""
        block, owner = self.block, self.owner
        if isinstance(self.identity, StageKey) and self.identity.name == block.name:
            owner.iters_of(self.identity)
        labels = owner.axes.labels(owner.schedule.state.block(block))
        loops = {label: owner.axes.loop(block, label) for label in labels}
        made = owner.schedule.tensorize(self.loop(axis), intrinsic)
        owner._renamed(self.identity, block, made, loops)
        return made


def _stage(given: Any) -> Stage:
    if not isinstance(given, Stage):
        raise ScheduleError(
            f"compute_at: {type(given).__name__} is not a stage", code="S004", hint="s[P].compute_at(s[C], axis)"
        )
    return given
