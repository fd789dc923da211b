"""Checks where the tensors of a program lie: nothing that is still to be read is written over.

The check knows the instructions alone and not how memory was planned. Walking backwards through them, over every jump,
it finds what is still to be read at each of them. Symbolic sizes are taken as the first of ``ASSUMED_SIZES`` for which
no tensor has a negative size; where there is none, as programs refuse small inputs in many ways, nothing is checked.
Invariants:

* what an instruction writes overlaps nothing that it or a later instruction reads, except for an operand that a kernel
  may write its result over, whose memory the result takes exactly;
* what an instruction writes lies within the arena of its space, for kernels at multiples of the alignment; what one
  kernel writes overlaps nowhere;
* a program without jumps reads nothing before it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from operator import or_
from typing import Any

from weft.expr.nodes import ExprLike
from weft.graph.passes.memory import MemoryPlan, estimate
from weft.lowering.control_parts import Goto, Label, Place, ends_stretch
from weft.runtime.program import CallKernel, Check, CheckRange, Copy, SetSize
from weft.support.errors import InternalError

ASSUMED_SIZES = (16, 100, 1000, 1 << 14)
ALIGN = 64

Exchanges = Mapping[int, Sequence[tuple[Place, Place]]]


def verify_memory(
    items: Sequence[Any],
    places: Sequence[Place],
    offsets: Mapping[Place, ExprLike],
    plan: MemoryPlan,
    written: Mapping[int, int],
    exchanges: Exchanges,
) -> None:
    """Raise InternalError (W013) where a run of ``items``, one function, would write over what it still needs.

    ``offsets`` are those of the places with memory of their own; ``written`` says how many of the buffers of a kernel
    call, the last ones, the kernel writes, ``exchanges`` what it may write over what.
    """
    fixed = [p for p in places if _is_fixed(p)]
    for assumed in ASSUMED_SIZES:
        if all(estimate(p.nbytes, assumed) >= 0 for p in fixed):
            _Check(items, places, offsets, plan, written, exchanges, assumed).run()
            return


class _Check:
    def __init__(
        self,
        items: Sequence[Any],
        places: Sequence[Place],
        offsets: Mapping[Place, ExprLike],
        plan: MemoryPlan,
        written: Mapping[int, int],
        exchanges: Exchanges,
        assumed: int,
    ) -> None:
        self.items, self.places, self.written, self.exchanges = items, places, written, exchanges
        self.assumed = assumed
        self.arenas = [estimate(n, assumed) for n in (plan.arena_bytes, *plan.spaces)]
        self.bits: dict[Place, int] = {}
        self.areas: dict[Place, tuple[object, int, int]] = {}
        self.below: dict[Place, list[Place]] = {}
        """The stretches of each place that something is written to."""
        for at in range(len(items)):
            for p in self._writes(at):
                if p not in self.bits and _is_fixed(p):
                    self.bits[p] = 1 << len(self.bits)
                    self.areas[p] = self._area(p, offsets)
                    for whole in _wholes(p):
                        self.below.setdefault(whole, []).append(p)
        self.overlaps = self._overlaps()

    def run(self) -> None:
        live = self._live()
        for at, item in enumerate(self.items):
            targets = [p for p in self._writes(at) if p in self.bits]
            for i, p in enumerate(targets):
                self._bounds(item, p)
                if any(self.bits[q] & self.overlaps[p] for q in targets[:i]):
                    self._fail(item, "writes two results to the same memory")
                if (live[at + 1] | self._reads(at, p)) & self.overlaps[p] & ~self._related(p):
                    self._fail(item, "writes over what is still to be read")
        jumps = any(isinstance(i, Goto) for i in self.items)
        if live[0] and not jumps:
            self._fail(self.items[0], "begins a program that reads what is not computed yet")

    # -- what items do -------------------------------------------------------------------------------------------------

    def _writes(self, at: int) -> list[Place]:
        item = self.items[at]
        if isinstance(item, CallKernel):
            return [self.places[n] for n in item.buffers[len(item.buffers) - self.written[at] :]]
        return [self.places[item.target]] if isinstance(item, Copy) else []

    def _reads(self, at: int, target: Place | None = None) -> int:
        """What an item reads; what it may write over where it makes ``target`` left out."""
        item = self.items[at]
        numbers: Sequence[int] = ()
        if isinstance(item, CallKernel):
            numbers = item.buffers[: len(item.buffers) - self.written[at]]
        elif isinstance(item, (CheckRange, SetSize)):
            numbers = () if item.buffer is None else (item.buffer,)
        elif isinstance(item, Copy):
            numbers = (item.source,)
        found = 0
        for n in numbers:
            p = self.places[n]
            if target is None or not self._may_take(at, p, target):
                found |= self._related(p)
        return found

    def _may_take(self, at: int, operand: Place, target: Place) -> bool:
        pairs = self.exchanges.get(at, ())
        same = self.areas.get(operand) == self.areas.get(target)
        return same and any(a is operand and b is target for a, b in pairs)

    def _related(self, p: Place) -> int:
        """The bits of a place, of what is in it, and of what it is in."""
        found = self.bits.get(p, 0)
        for q in (*self.below.get(p, ()), *_wholes(p)):
            found |= self.bits.get(q, 0)
        return found

    # -- what is still to be read --------------------------------------------------------------------------------------

    def _live(self) -> list[int]:
        """What is still to be read before each item; nothing after the last."""
        targets = {item: at for at, item in enumerate(self.items) if isinstance(item, Label)}
        gains = [self._reads(at) for at in range(len(self.items))]
        keeps = [~self._killed(at) for at in range(len(self.items))]
        live = [0] * (len(self.items) + 1)
        changed = True
        while changed:
            changed = False
            for at in range(len(self.items) - 1, -1, -1):
                item, after = self.items[at], live[at + 1]
                if isinstance(item, Goto):
                    there = live[targets[item.label]] if item.label in targets else 0
                    after = there if item.condition is None else after | there
                elif ends_stretch(item) or (isinstance(item, Check) and item.condition == (0,)):
                    after = 0
                now = (after & keeps[at]) | gains[at]
                changed |= now != live[at] and isinstance(item, Label)
                live[at] = now
        return live

    def _killed(self, at: int) -> int:
        """What holds something new after an item, whatever it held before."""
        item = self.items[at]
        if isinstance(item, Label):
            made = [self.places[n] for n in item.places]
        elif isinstance(item, Copy) and item.target_offset != (0,):
            made = []
        else:
            made = self._writes(at)
        found = 0
        for p in made:
            found |= self._related(p)
        return found

    # -- where places lie ----------------------------------------------------------------------------------------------

    def _area(self, p: Place, offsets: Mapping[Place, ExprLike]) -> tuple[object, int, int]:
        start = estimate(offsets.get(p.memory, 0), self.assumed) + p.offset
        owner = (p.root.kind, p.space) if p.root.kind == "arena" else p.root
        return owner, start, start + estimate(p.nbytes, self.assumed)

    def _bounds(self, item: Any, p: Place) -> None:
        _, low, high = self.areas[p]
        if p.parent is not None and p.offset + high - low > estimate(p.root.nbytes, self.assumed):
            self._fail(item, "computes a part that sticks out")
        if p.root.kind == "arena" and (low < 0 or high > self.arenas[p.space]):
            self._fail(item, "works outside the arena")
        if isinstance(item, CallKernel) and low % ALIGN:
            self._fail(item, "works at an odd place")

    def _overlaps(self) -> dict[Place, int]:
        """The bits of all places whose memory overlaps with each place's."""
        owners: dict[object, list[Place]] = {}
        for p, (owner, low, high) in self.areas.items():
            if low < high:
                owners.setdefault(owner, []).append(p)
        found = dict.fromkeys(self.areas, 0)
        for members in owners.values():
            starts = sorted(members, key=lambda p: self.areas[p][1])
            ends = sorted(members, key=lambda p: -self.areas[p][2])
            begun = list(accumulate((self.bits[p] for p in starts), or_, initial=0))
            open_ = list(accumulate((self.bits[p] for p in ends), or_, initial=0))
            count = 0
            for p in sorted(members, key=lambda p: self.areas[p][2]):
                while count < len(starts) and self.areas[starts[count]][1] < self.areas[p][2]:
                    count += 1
                found[p] = begun[count]
            count = 0
            for p in sorted(members, key=lambda p: -self.areas[p][1]):
                while count < len(ends) and self.areas[ends[count]][2] > self.areas[p][1]:
                    count += 1
                found[p] &= open_[count]
        return found

    def _fail(self, item: Any, what: str) -> None:
        name = (item.label or f"kernel {item.kernel}") if isinstance(item, CallKernel) else type(item).__name__
        raise InternalError(f"the memory plan is wrong: {name} {what}", code="W013")


def _wholes(p: Place) -> Iterator[Place]:
    """The places that a stretch is part of."""
    while p.parent is not None:
        p = p.parent
        yield p


def _is_fixed(p: Place) -> bool:
    """Whether a place lies where the plan says."""
    return p.root.kind == "output" or (p.root.kind == "arena" and not p.root.late)
