"""Checks a memory plan by walking through it: nothing that is still to be read is written over.

Invariants of a plan, with symbolic sizes taken as ``assumed``:

* every call runs after those whose results it reads;
* results, operands and the workspace of a call lie in the arena, at multiples of the alignment where a kernel writes;
* what a call writes overlaps no tensor that it or a later call reads, except for an operand whose place it takes
  exactly, where the call may work in place and nothing reads the operand later;
* the results and the workspace of one call overlap nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from weft.expr.nodes import product
from weft.graph.nodes import Call, Constant, Function, GraphExpr, Tuple, Var
from weft.graph.passes.aliases import Aliases, Key, place
from weft.graph.passes.memory import MemoryPlan, estimate
from weft.graph.types import TensorType, TupleType
from weft.graph.visit import children
from weft.support.errors import InternalError

InPlace = Callable[[Call], Iterable[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class _Area:
    """Bytes of the arena (``owner`` None), or of the memory of a result of the function."""

    owner: Key | None
    low: int
    high: int

    def overlaps(self, other: _Area) -> bool:
        return self.owner == other.owner and self.low < other.high and other.low < self.high


def verify_plan(
    function: Function, plan: MemoryPlan, *, in_place: InPlace | None = None, align: int = 64, assumed: int = 16
) -> None:
    """Raise InternalError (W013) where the plan would let a run write over what it still needs."""
    _Walk(function, plan, in_place, align, assumed).run()


class _Walk:
    def __init__(
        self, function: Function, plan: MemoryPlan, in_place: InPlace | None, align: int, assumed: int
    ) -> None:
        self.plan, self.in_place, self.align, self.assumed = plan, in_place, align, assumed
        self.reads = {e: list(_reads(e, plan.aliases)) for e in plan.order}
        self.last: dict[Key, int] = {}
        for step, e in enumerate(plan.order):
            self.last.update((k, step) for k in self.reads[e])
        end = len(plan.order)
        self.last.update((k, end) for k in _tensors_in(function.body, plan.aliases))
        self.arena = self._bytes(plan.arena_bytes)
        self.live: dict[Key, _Area] = {}

    def run(self) -> None:
        for step, e in enumerate(self.plan.order):
            for key in self.reads[e]:
                if key not in self.live:
                    self._fail(e, "reads what is not computed yet")
            written = [self._area(e, i, t) for i, t in enumerate(_types(e))]
            slot = self.plan.workspaces.get(e)
            space = [self._slot(e, self._bytes(slot.offset), self._bytes(slot.nbytes))] if slot is not None else []
            self._apart(e, step, [*written, *space])
            self.live = {k: a for k, a in self.live.items() if self.last[k] > step}
            for i, area in enumerate(written):
                if self.last.get((e, i), -1) > step:
                    self.live[e, i] = area

    def _apart(self, e: Call, step: int, areas: list[_Area]) -> None:
        """Nothing that is read at this step or later lies where ``e`` writes."""
        taken = self._may_take(e)
        for i, area in enumerate(areas):
            if any(area.overlaps(other) for other in areas[:i]):
                self._fail(e, "writes two results to the same memory")
            for key, held in self.live.items():
                if held.overlaps(area) and not (held == area and self.last[key] == step and (key, i) in taken):
                    self._fail(e, "writes over what is still to be read")

    def _may_take(self, e: Call) -> set[tuple[Key, int]]:
        """Tensors that ``e`` may overwrite with one of its results: read by one operand only."""
        if self.in_place is None:
            return set()
        keys = [place(a).key for a in e.args]
        return {(keys[a], i) for a, i in self.in_place(e) if keys.count(keys[a]) == 1}

    def _area(self, e: Call, output: int, t: TensorType) -> _Area:
        root = self.plan.aliases.root((e, output))
        nbytes = self._bytes(product(t.shape) * t.dtype.nbytes)
        if root.offset % self.align:
            self._fail(e, "computes a part that is not aligned")
        slot = self.plan.slots.get(root.key)
        if slot is None:
            return _Area(root.key, root.offset, root.offset + nbytes)
        if root.offset + nbytes > self._bytes(slot.nbytes):
            self._fail(e, "computes a part that sticks out")
        return self._slot(e, self._bytes(slot.offset) + root.offset, nbytes)

    def _slot(self, e: Call, low: int, nbytes: int) -> _Area:
        if low < 0 or low % self.align or low + nbytes > self.arena:
            self._fail(e, "works outside the arena, or at an odd place in it")
        return _Area(None, low, low + nbytes)

    def _bytes(self, value: object) -> int:
        return estimate(value, self.assumed)  # type: ignore[arg-type]  # sizes

    def _fail(self, e: Call, what: str) -> None:
        name = "+".join(e.origin.names) or type(e.target).__name__
        raise InternalError(f"the memory plan is wrong: {name} {what}", code="W013")


def _reads(e: Call, aliases: Aliases) -> Iterator[Key]:
    for a in children(e):
        if not isinstance(a, Function):
            yield from _tensors_in(a, aliases)


def _tensors_in(value: GraphExpr, aliases: Aliases) -> Iterator[Key]:
    """The tensors that kernels compute for ``value``."""
    if isinstance(value, Tuple):
        for f in value.fields:
            yield from _tensors_in(f, aliases)
        return
    for key in aliases.made(place(value).key):
        if not isinstance(key[0], (Var, Constant)):
            yield key


def _types(e: Call) -> list[TensorType]:
    parts = e.type.fields if isinstance(e.type, TupleType) else (e.type,)
    return [t for t in parts if isinstance(t, TensorType)]
