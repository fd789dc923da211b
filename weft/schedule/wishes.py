"""Declarations of the classic notation, in any order.

Each declaration is applied at once. Where it is refused, where it would drop loops that were declared for a stage
before the stage was placed, where it would move other stages with the loops at which they are, or where it makes a
stage after others were placed or got loops, all declarations are applied anew in the order in which they do not disturb
each other:

1. those that make stages (``cache_read``, ``cache_write``, ``rfactor`` …), each after the splits whose loops it names;
2. ``compute_inline``;
3. stage by stage, consumers before producers: first where the stage is computed, then whether its values are kept
   across iterations, then its loops, in their order;
4. what is prefetched in these loops.

If a declaration is refused in that order as well, the schedule is unchanged and the first refusal is raised. So it is
if a declaration would drop others. A ``compute_at`` that becomes legal once the stages in between are inlined or placed
waits for these declarations, and what needs a stage inside a loop (``rolling_buffer`` …) waits for ``compute_at``.

References that were returned before stay valid: :meth:`Wishes.current` finds the loop that a reference stands for now.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from weft.schedule.primitives.registry import PRIMITIVES
from weft.schedule.refs import LoopRef
from weft.schedule.schedule import Schedule
from weft.support.errors import ScheduleError

MAKING: Final = ("cache_read", "cache_write", "rfactor", "pad_einsum", "transform_layout", "set_scope")
"""Declarations that make stages, or change buffers that other stages use."""
PLACING: Final = ("compute_at", "compute_root")
_LOOPS: Final = (
    *("split", "tile", "fuse", "normalize", "reorder"),
    *("parallel", "vectorize", "unroll", "bind", "pragma", "prefetch"),
)
_KEEPING: Final = ("rolling_buffer",)
"""Declarations about a stage that is placed, which come before its loops."""
_FETCHING: Final = ("prefetch",)
"""Declarations about all stages in a loop."""
_INSIDE: Final = (*_KEEPING, "set_store_predicate", "double_buffer")
"""Declarations that are refused (S025) until the stage is inside a loop."""


class Renamed(Protocol):
    """A result that names a block."""

    name: str
    output: int


@dataclass(frozen=True)
class Hooks:
    """What the schedule does for its declarations."""

    save: Callable[[], Callable[[], None]]
    """Returns a function that restores the present state."""
    restart: Callable[[], None]
    """Returns to the state without declarations."""
    place: Callable[[Any], int | None]
    """The position of the block of a stage; None if there is no such block any more."""
    becomes_legal: Callable[[Wish], bool]
    """Whether a refused ``compute_at`` is legal once the stages between are inlined, or placed in the same loop."""
    may_be_placed: Callable[[Any], bool]
    """Whether a stage is computed in no loop of another stage yet, but could be."""


@dataclass(eq=False)
class Wish:
    """One declaration: a method of a stage or of the schedule."""

    method: str
    stage: Hashable
    """The stage that it is about; None for those of the whole schedule."""
    arguments: tuple[Any, ...]
    run: Callable[[], Any]
    result: Any = None
    """What the caller got."""

    @property
    def parent(self) -> Hashable:
        """The stage at one of whose loops it places its own; None for others."""
        return getattr(self.arguments[0], "identity", None) if self.method == "compute_at" and self.arguments else None

    def loops(self) -> Iterator[LoopRef]:
        """The loops among its arguments."""
        return (a for a in _flat(self.arguments) if isinstance(a, LoopRef))


def _flat(value: Any) -> list[Any]:
    return [x for v in value for x in _flat(v)] if isinstance(value, (list, tuple)) else [value]


class Wishes:
    """The declarations of a schedule so far."""

    def __init__(self, schedule: Schedule, hooks: Hooks) -> None:
        self._schedule, self._hooks = schedule, hooks
        self._log: list[Wish] = []
        self._waiting: dict[Wish, ScheduleError] = {}
        self._running = False
        self._alias: dict[LoopRef, LoopRef] = {}
        self._applied = 0
        self._refused: tuple[Wish, ScheduleError] | None = None
        """The declaration that was refused when all were applied anew, and the refusal."""

    def current(self, loop: LoopRef) -> LoopRef:
        """The loop that ``loop``, which a declaration returned, stands for now."""
        return self._alias.get(loop, loop)

    @property
    def stages(self) -> set[Hashable]:
        """The stages about which something was declared."""
        return {w.stage for w in self._log}

    @property
    def keys(self) -> Iterator[Any]:
        """The keys of stages that declarations made, in their order."""
        return (key for w in self._log for key in _keys(w.result) if key.name)

    @property
    def waiting(self) -> list[Hashable]:
        """The stages of declarations that wait for others."""
        return [w.stage for w in self._waiting]

    def settle(self) -> None:
        """Raise the refusal of a declaration that still waits for others."""
        for refusal in self._waiting.values():
            raise refusal

    def declare(self, wish: Wish) -> Any:
        """Apply ``wish`` now or in another order; returns its result."""
        if self._running:
            return wish.run()
        mixed = self._applied != self._changes()  # primitives were applied without declarations
        restore = self._saved()
        self._running = True
        try:
            disturbs = not mixed and self._disturbs(wish)
            if not (disturbs and self._resolved([*self._applied_log(), wish])):
                if disturbs and wish.method == "compute_at" and self._refused and self._refused[0] is not wish:
                    restore()
                    raise self._refused[1]
                self._apply(wish, restore, mixed)
            self._log.append(wish)
            count = None
            while count != len(self._waiting):  # one that is applied may be what another one waits for
                count = len(self._waiting)
                for waiting in [w for w in self._waiting if w is not wish]:
                    self._retry(waiting, wish)
        finally:
            self._running = False
        if not mixed:
            self._applied = self._changes()
        return wish.result

    def _apply(self, wish: Wish, restore: Callable[[], None], mixed: bool) -> None:
        restore()
        try:
            wish.result = wish.run()
        except ScheduleError as refusal:
            restore()
            if mixed or wish.method == "compute_root":
                raise
            if self._resolved([*self._applied_log(), wish]):
                return
            restore()
            if self._may_wait(wish, refusal):
                self._waiting[wish] = refusal
                return
            raise

    def _may_wait(self, wish: Wish, refusal: ScheduleError) -> bool:
        """Whether later declarations may make ``wish`` legal."""
        if wish.method in _INSIDE:
            return refusal.code == "S025" and self._hooks.may_be_placed(wish.stage)
        return refusal.code == "S022" and wish.stage is not None and self._hooks.becomes_legal(wish)

    def _applied_log(self) -> list[Wish]:
        """The declarations that do not wait."""
        return [w for w in self._log if w not in self._waiting]

    def _retry(self, waiting: Wish, newest: Wish) -> None:
        """Apply the declaration that waits, if ``newest`` made it legal, or forget it, if ``newest`` withdraws it."""
        withdrawn = newest.stage == waiting.stage and newest.method in ("compute_root", "compute_inline")
        if withdrawn or self._hooks.place(waiting.stage) is None:
            self._log.remove(waiting)
            del self._waiting[waiting]
            return
        restore = self._saved()
        if not self._resolved([w for w in self._log if w is waiting or w not in self._waiting]):
            restore()
            try:
                waiting.run()
            except ScheduleError as refusal:
                if waiting.method in _INSIDE:  # the stage may be inside a loop now, and refused for another reason
                    self._waiting[waiting] = refusal
                return restore()
        del self._waiting[waiting]

    def _disturbs(self, wish: Wish) -> bool:
        """Whether ``wish``, applied to the loops as they are, would drop declarations, or would not let them be about
        the stages that they name."""
        if wish.method in MAKING and wish.method != "set_scope":
            needed = self._makers(wish)
            return any(w.method in (*_LOOPS, *PLACING) and w not in needed for w in self._log)
        applied = self._applied_log()
        own = [w.method for w in applied if w.stage == wish.stage]
        if wish.method == "compute_root":
            return "compute_at" in own
        if wish.method not in ("compute_at", "reorder", "tile"):
            return False
        inside = any(w.parent == wish.stage for w in applied)  # stages at its loops
        return inside or (wish.method == "compute_at" and any(method in _LOOPS for method in own))

    def _makers(self, wish: Wish) -> set[Wish]:
        """The declarations that made the loops that ``wish`` names, and so on."""
        makers = _makers(self._log)
        found: set[Wish] = set()
        pending = list(wish.loops())
        while pending:
            for maker in makers.get(pending.pop(), ()):
                if maker not in found:
                    found.add(maker)
                    pending += maker.loops()
        return found

    def _changes(self) -> int:
        return sum(not PRIMITIVES[i.name].looks_up for i in self._schedule.trace.instructions)

    def _saved(self) -> Callable[[], None]:
        restore, alias = self._hooks.save(), dict(self._alias)
        names = [(key, key.name, key.output) for w in self._log for key in _keys(w.result)]

        def back() -> None:
            restore()
            self._alias = dict(alias)
            for key, name, output in names:
                key.name, key.output = name, output

        return back

    def _resolved(self, wishes: Sequence[Wish]) -> bool:
        """Apply ``wishes`` anew in their order. False if one of them is refused; the state is then undefined."""
        self._hooks.restart()
        self._alias, self._refused = {}, None
        for key in list(self.keys):
            key.name = ""  # until its stage is made again
        newest = wishes[-1]
        applied = newest.method == "compute_root"  # where a stage is computed if nothing else is declared
        for wish in self._in_order(wishes):
            try:
                made = wish.run()
            except ScheduleError as refusal:
                self._refused = wish, refusal
                return False
            applied = applied or wish is newest
            self._link(wish, made)
        return applied

    def _link(self, wish: Wish, made: Any) -> None:
        """Let what the caller got stand for ``made``."""
        if wish.result is None:
            wish.result = made
            return
        for old, new in zip(_flat(wish.result), _flat(made), strict=True):
            if isinstance(old, LoopRef):
                self._alias[old] = new
            elif hasattr(old, "output"):
                old.name, old.output = new.name, new.output

    def _in_order(self, wishes: Sequence[Wish]) -> Iterator[Wish]:
        makers = _makers(wishes)
        declared = {w: n for n, w in enumerate(wishes)}
        done: set[Wish] = set()

        def after_makers(wish: Wish) -> Iterator[Wish]:
            for maker in (m for loop in wish.loops() for m in makers.get(loop, ())):
                if maker not in done and declared[maker] < declared[wish]:
                    yield from after_makers(maker)
            if wish not in done:
                done.add(wish)
                yield wish

        for wish in (w for w in wishes if w.method in MAKING):
            yield from after_makers(wish)
        for wish in (w for w in wishes if w.method == "compute_inline"):
            done.add(wish)
            yield wish
        rest = [w for w in wishes if w not in done]
        places = {w.stage: self._hooks.place(w.stage) for w in rest}
        ordered = sorted((p, n) for n, p in enumerate(places.values()) if p is not None)
        stages = list(places)
        for _, n in reversed(ordered):
            own = [w for w in rest if w.stage is stages[n] or w.stage == stages[n]]
            placing = [w for w in own if w.method in PLACING][-1:]
            yield from (w for w in placing if w.method == "compute_at")
            yield from (w for w in own if w.method in _KEEPING)
            yield from (w for w in own if w.method not in (*PLACING, *_KEEPING, *_FETCHING))
        placed = [w for w in rest if places[w.stage] is not None]
        yield from (w for w in placed if w.method in _FETCHING)


def _makers(wishes: Sequence[Wish]) -> dict[LoopRef, list[Wish]]:
    """The declarations that returned each loop: the one that made it, then those that were given it, such as ``fuse``
    of one loop."""
    found: dict[LoopRef, list[Wish]] = {}
    for wish in wishes:
        for ref in _flat(wish.result):
            if isinstance(ref, LoopRef):
                found.setdefault(ref, []).append(wish)
    return found


def _keys(value: Any) -> list[Renamed]:
    return [x for x in _flat(value) if hasattr(x, "output") and hasattr(x, "name")]
