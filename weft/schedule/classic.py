"""The classic notation on the same engine: ``s[C].split(axis, factor=8)``.

A :class:`ClassicSchedule` looks blocks and axes up through an :class:`Origin`, which whoever made the program from
tensor expressions provides; this module knows nothing of tensor expressions itself.

    s = create_schedule(program, origin)
    yo, xo, yi, xi = s[C].tile(C.op.axis[0], C.op.axis[1], 8, 8)
    s[B].compute_at(s[C], xo)
    s[C].vectorize(xi)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from weft.expr.nodes import IterVar
from weft.schedule.refs import BlockRef, LoopRef
from weft.schedule.rewrite import uses
from weft.schedule.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.tir.nodes import Program


class Origin(Protocol):
    """Where blocks come from. ``key`` is whatever users index a schedule with: a tensor, an operation."""

    def block_name(self, key: Any) -> str:
        """The block that computes ``key``; raises KeyError for what is not computed."""
        ...

    def axes(self, key: Any) -> Sequence[Any]:
        """The axes of ``key``, spatial and then reduce, in the order of the block's iteration variables."""
        ...


def create_schedule(program: Program, origin: Origin, seed: int = 0) -> ClassicSchedule:
    """A schedule of ``program`` in the classic notation."""
    return ClassicSchedule(Schedule(program, seed), origin)


class StageKey:
    """A stage that a primitive made, to index the schedule with (as the classic ``cache_read`` returns a tensor)."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"StageKey({self.name})"


class ClassicSchedule:
    """Stages by tensor. ``schedule`` is the engine underneath; both notations can be mixed."""

    def __init__(self, schedule: Schedule, origin: Origin) -> None:
        self.schedule = schedule
        self._origin = origin
        self._moved: dict[Any, str] = {}
        self.attached: dict[BlockRef, LoopRef] = {}
        """For stages computed in a loop of another: that loop."""

    @property
    def program(self) -> Program:
        return self.schedule.program

    def __getitem__(self, key: Any) -> Stage:
        name = self._moved.get(key) or (key.name if isinstance(key, StageKey) else None)
        axes: Sequence[Any] = ()
        if not isinstance(key, StageKey):
            try:
                name, axes = name or self._origin.block_name(key), self._origin.axes(key)
            except KeyError:
                raise ScheduleError(
                    f"'{key}' is not computed by this program", code="S002", hint="placeholders have no stage"
                ) from None
        assert name is not None
        return Stage(self, BlockRef(name), axes)

    def cache_read(self, key: Any, scope: str, readers: Sequence[Any]) -> StageKey:
        """A copy of ``key`` (a computed tensor or an input, by its buffer's name) for one reader."""
        if len(readers) != 1:
            raise ScheduleError("cache_read: give one reader", code="S004", hint="make a copy for each reader")
        reader = self[readers[0]].block
        wanted = getattr(key, "name", key)
        regions = self.schedule.state.block(reader).reads
        position = next((n for n, r in enumerate(regions) if r.buffer.name == wanted), -1)
        return StageKey(self.schedule.cache_read(reader, position, scope).name)

    def cache_write(self, key: Any, scope: str) -> StageKey:
        """Compute ``key`` in another scope: the returned stage computes, ``s[key]`` copies to the output."""
        computing = self[key].block
        copying = self.schedule.cache_write(computing, 0, scope)
        self._moved[key] = copying.name
        return StageKey(computing.name)

    def rfactor(self, key: Any, axis: Any, factor_axis: int = 0, reassociate: bool = False) -> StageKey:
        """Factor the reduction of ``key`` over ``axis``; the returned stage computes the partial results."""
        stage = self[key]
        return StageKey(self.schedule.rfactor(stage.loop(axis), factor_axis, reassociate).name)


class Stage:
    """One block in the classic notation. Axes are the tensor's own, or loops that earlier calls returned."""

    def __init__(self, owner: ClassicSchedule, block: BlockRef, axes: Sequence[Any]) -> None:
        self.owner, self.block, self._axes = owner, block, axes

    @property
    def axis(self) -> list[LoopRef]:
        """The stage's own loops, outermost first: those inside the loop at which it is computed."""
        around = list(self.owner.schedule.get_loops(self.block))
        at = self.owner.attached.get(self.block)
        while at is not None and at not in around:  # split or fused since: what replaced it, innermost
            gone = self.owner.schedule.state.forward.get(at)
            at = next((r for r in reversed(gone.replaced_by) if isinstance(r, LoopRef)), None) if gone else None
        return around if at is None else around[around.index(at) + 1 :]

    @property
    def leaf_iter_vars(self) -> list[LoopRef]:
        """Another name of :attr:`axis`."""
        return self.axis

    def loop(self, axis: Any) -> LoopRef:
        """The loop that runs over ``axis`` now. Refuses where there is none, or where it was split or fused."""
        if isinstance(axis, LoopRef):
            return axis
        position = next((n for n, a in enumerate(self._axes) if a is axis), None)
        block = self.owner.schedule.state.block(self.block)
        name = getattr(getattr(axis, "var", axis), "name", str(axis))
        if position is None or position >= len(block.iters):
            raise ScheduleError(f"'{name}' is not an axis of '{self.block.name}'", code="S002")
        found = [x for x in self.axis if position in self._driven(x)]
        if len(found) != 1 or len(self._driven(found[0])) != 1:
            what = "has one value here, and no loop" if not found else "was split or fused"
            raise ScheduleError(
                f"axis '{name}' of '{self.block.name}' {what}",
                code="S003",
                hint="use the loops that split and fuse returned, or stage.axis",
            )
        return found[0]

    def _driven(self, loop: LoopRef) -> list[int]:
        state = self.owner.schedule.state
        return uses(state.block(self.block), state.loop(loop))

    def split(self, axis: Any, factor: int | None = None, nparts: int | None = None) -> tuple[LoopRef, LoopRef]:
        outer, inner = self.owner.schedule.split(self.loop(axis), factor=factor, nparts=nparts)
        return outer, inner

    def tile(self, y: Any, x: Any, y_factor: int, x_factor: int) -> tuple[LoopRef, LoopRef, LoopRef, LoopRef]:
        return self.owner.schedule.tile(self.loop(y), self.loop(x), y_factor, x_factor)

    def fuse(self, *axes: Any) -> LoopRef:
        return self.owner.schedule.fuse(*map(self.loop, axes))

    def reorder(self, *axes: Any) -> None:
        self.owner.schedule.reorder(*map(self.loop, axes))

    def parallel(self, axis: Any) -> None:
        self.owner.schedule.parallel(self.loop(axis))

    def vectorize(self, axis: Any) -> None:
        self.owner.schedule.vectorize(self.loop(axis))

    def unroll(self, axis: Any) -> None:
        self.owner.schedule.unroll(self.loop(axis))

    def bind(self, axis: Any, thread: str | IterVar) -> None:
        """Bind to a GPU thread axis, by name or as the classic ``thread_axis("threadIdx.x")``."""
        name = thread.thread if isinstance(thread, IterVar) else thread
        if name.startswith("vthread"):
            self.owner.schedule.virtual_thread(self.loop(axis), name)
        else:
            self.owner.schedule.bind(self.loop(axis), name)

    def compute_at(self, parent: Stage, axis: Any) -> None:
        loop = parent.loop(axis)
        self.owner.schedule.compute_at(self.block, loop)
        self.owner.attached[self.block] = loop

    def compute_inline(self) -> None:
        self.owner.schedule.compute_inline(self.block)

    def compute_root(self) -> None:
        self.owner.schedule.compute_root(self.block)
        self.owner.attached.pop(self.block, None)

    def set_scope(self, scope: str) -> None:
        self.owner.schedule.set_scope(self.block, 0, scope)

    def pragma(self, axis: Any, key: str, value: Any = True) -> None:
        """Annotate the loop with ``pragma_<key>``."""
        self.owner.schedule.annotate(self.loop(axis), f"pragma_{key}", value)

    def double_buffer(self) -> None:
        self.owner.schedule.double_buffer(self.block)

    def storage_align(self, dimension: int, factor: int, offset: int = 0) -> None:
        """Align the stride of a dimension of what the stage writes."""
        self.owner.schedule.storage_align(self.block, 0, dimension, factor, offset)

    def prefetch(self, buffer: Any, axis: Any, distance: int = 1) -> None:
        self.owner.schedule.prefetch(self.loop(axis), getattr(buffer, "name", buffer), distance)
