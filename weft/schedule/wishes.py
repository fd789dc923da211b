"""Declarations of the classic notation, in any order.

Each declaration is applied at once. Where it is refused, or where it would drop loops that were declared for a stage
before the stage was placed, all declarations are applied anew in the order in which they do not disturb each other:

1. those that make stages (``cache_read``, ``cache_write``, ``rfactor`` …), each after the splits whose loops it names;
2. ``compute_inline``;
3. stage by stage, consumers before producers: first where the stage is computed, then its loops, in their order.

If a declaration is refused in that order as well, the schedule is unchanged and the first refusal is raised. A
``compute_at`` that becomes legal once the stages in between are inlined or placed waits for these declarations.

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
_LOOPS: Final = ("split", "tile", "fuse", "normalize", "reorder", "parallel", "vectorize", "unroll", "bind", "pragma")


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

    def current(self, loop: LoopRef) -> LoopRef:
        """The loop that ``loop``, which a declaration returned, stands for now."""
        return self._alias.get(loop, loop)

    @property
    def stages(self) -> set[Hashable]:
        """The stages about which something was declared."""
        return {w.stage for w in self._log}

    @property
    def waiting(self) -> list[Hashable]:
        """The stages whose placement waits for other declarations."""
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
            if mixed or not (self._drops_loops(wish) and self._resolved([*self._applied_log(), wish])):
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
            if refusal.code == "S022" and wish.stage is not None and self._hooks.becomes_legal(wish):
                self._waiting[wish] = refusal
                return
            raise

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
            except ScheduleError:
                return restore()
        del self._waiting[waiting]

    def _drops_loops(self, wish: Wish) -> bool:
        return wish.method == "compute_at" and any(w.stage == wish.stage and w.method in _LOOPS for w in self._log)

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
        self._alias = {}
        newest = wishes[-1]
        applied = False
        try:
            for wish in self._in_order(wishes):
                made = wish.run()
                applied = applied or wish is newest
                self._link(wish, made)
        except ScheduleError:
            return False
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
        makers = {ref: w for w in wishes for ref in _flat(w.result) if isinstance(ref, LoopRef)}
        done: set[Wish] = set()

        def after_makers(wish: Wish) -> Iterator[Wish]:
            for loop in wish.loops():
                if loop in makers and makers[loop] not in done:
                    yield from after_makers(makers[loop])
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
            yield from (w for w in own if w.method not in PLACING)


def _keys(value: Any) -> list[Renamed]:
    return [x for x in _flat(value) if hasattr(x, "output") and hasattr(x, "name")]
