"""Verifies the memory plan of a program: no instruction overwrites a value that is still needed.

The check uses only the instructions and offsets, not the planner. A backward walk over the instructions, including all
jumps, computes the live places at each one. Symbolic sizes take several values: the first number of ``ASSUMED_SIZES``
for which no tensor has a negative size, for all of them, and those of :func:`assignments`, in which the sizes differ.
Assignments that give a tensor a negative size are left out, because programs may refuse small inputs. Invariants, for
each assignment:

* the output of an instruction overlaps no memory that this instruction or a later one reads. The exception is an
  operand that a kernel may overwrite with its result: the result then has exactly the memory of the operand;
* the output of an instruction is inside the arena of its space, and for kernels starts at a multiple of the alignment;
  the outputs of one kernel do not overlap;
* a program without jumps reads nothing before it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import or_
from random import Random
from typing import Any, TypeAlias

import numpy as np

from weft.expr.evaluate import evaluate_all
from weft.expr.nodes import Expr, ExprLike, Var
from weft.graph.dims import symbols
from weft.graph.passes.memory import MemoryPlan
from weft.lowering.control_parts import Goto, Label, Place, ends_stretch
from weft.runtime.program import CallKernel, Check, CheckRange, Copy, SetSize
from weft.support.errors import InternalError, UserError
from weft.support.memory import ALIGN

ASSUMED_SIZES = (16, 100, 1000, 1 << 14)
MAX_WORK = 3000
"""Most places times assignments; at least :data:`MIN_ASSIGNMENTS` are tried, however many places there are."""
MIN_ASSIGNMENTS = 4

Exchanges = Mapping[int, Sequence[tuple[Place, Place]]]
Sizes: TypeAlias = "Mapping[Expr, int]"
"""The values of sizes and offsets that are not plain numbers, for one assignment."""


def verify_memory(
    items: Sequence[Any],
    places: Sequence[Place],
    offsets: Mapping[Place, ExprLike],
    plan: MemoryPlan,
    written: Mapping[int, int],
    exchanges: Exchanges,
) -> None:
    """Raise InternalError (W013) if running ``items``, which is one function, would overwrite a value that is still
    needed.

    ``offsets`` gives the offsets of the places with memory of their own. ``written`` gives, per kernel call, how many
    of its last buffers the kernel writes. ``exchanges`` gives the operands that a kernel may overwrite with a result.
    """
    sizes = [p.nbytes for p in places if _is_fixed(p)]
    check = _Check(items, places, offsets, plan, written, exchanges)
    found = _samples((*sizes, *offsets.values(), plan.arena_bytes, *plan.spaces), max(1, len(sizes)))
    checked = False
    for equal, values in found:
        if not (equal and checked) and all(_number(n, values) >= 0 for n in sizes):
            check.run(values)
            checked = True


def assignments(count: int) -> list[tuple[int, ...]]:
    """Values for ``count`` symbolic sizes that differ from each other, besides 0 and 1 for all of them."""
    pick = Random(count)
    some = range(min(count, 8))
    made = [(1,) * count, (0,) * count]
    if count > 1:
        made[:0] = [tuple(5 + 9 * i for i in range(count)), tuple(5 + 9 * i for i in reversed(range(count)))]
        made += [tuple(pick.choice((0, 1, 2, 3, 5, 16, 17, 24, 64, 100)) for _ in range(count)) for _ in range(6)]
        made += [tuple(4096 if i == k else 3 for i in range(count)) for k in some]
        made += [tuple(0 if i == k else 33 for i in range(count)) for k in some]
    return made


def _samples(values: Iterable[ExprLike], places: int) -> Iterator[tuple[bool, Sizes]]:
    """What ``values`` are for several assignments to their symbols, each with whether it is of ASSUMED_SIZES."""
    unknown = [v for v in dict.fromkeys(values) if isinstance(v, Expr)]
    names = list(dict.fromkeys(s for v in unknown for s in symbols(v)))
    more = assignments(len(names))[: max(MIN_ASSIGNMENTS, MAX_WORK // places)] if names else []
    rows = [(n,) * len(names) for n in ASSUMED_SIZES[: None if names else 1]] + more
    table = np.array(rows, np.int64).reshape(len(rows), len(names))
    try:
        columns = evaluate_all(unknown, {s: table[:, i] for i, s in enumerate(names)})
        known = zip(*(np.broadcast_to(c, len(rows)).tolist() for c in columns), strict=True) if unknown else [()]
        found: list[Sizes | None] = [dict(zip(unknown, row, strict=True)) for row in known]
    except UserError:  # some size is divided by 0
        found = [_of(unknown, dict(zip(names, row, strict=True))) for row in rows]
    yield from ((i < len(ASSUMED_SIZES), made) for i, made in enumerate(found) if made is not None)


def _of(values: Sequence[Expr], given: Mapping[Var, int]) -> Sizes | None:
    """What ``values`` are for one assignment; None if a size is divided by 0."""
    try:
        return dict(zip(values, map(int, evaluate_all(values, given)), strict=True))
    except UserError:
        return None


def _number(value: ExprLike, sizes: Sizes) -> int:
    return sizes[value] if isinstance(value, Expr) else int(value)


class _Check:
    def __init__(
        self,
        items: Sequence[Any],
        places: Sequence[Place],
        offsets: Mapping[Place, ExprLike],
        plan: MemoryPlan,
        written: Mapping[int, int],
        exchanges: Exchanges,
    ) -> None:
        self.items, self.places, self.written, self.exchanges = items, places, written, exchanges
        self.offsets, self.plan = offsets, plan
        self.bits: dict[Place, int] = {}
        self.sizes: Sizes = {}
        self.areas: dict[Place, tuple[object, int, int]] = {}
        """The memory of each place for the current assignment: what it is in, its start and its end."""
        self.below: dict[Place, list[Place]] = {}
        """For each place, the stretches of it that an instruction writes."""
        for at in range(len(items)):
            for p in self._writes(at):
                if p not in self.bits and _is_fixed(p):
                    self.bits[p] = 1 << len(self.bits)
                    for whole in _wholes(p):
                        self.below.setdefault(whole, []).append(p)
        self.live = self._live()

    def run(self, sizes: Sizes) -> None:
        """Check the plan for one assignment."""
        live, self.sizes = self.live, sizes
        self.areas = {p: self._area(p) for p in self.bits}
        self.arenas = [self._value(n) for n in (self.plan.arena_bytes, *self.plan.spaces)]
        self.overlaps = self._overlaps()
        for at, item in enumerate(self.items):
            targets = [p for p in self._writes(at) if p in self.bits]
            for i, p in enumerate(targets):
                self._bounds(item, p)
                if any(self.bits[q] & self.overlaps[p] for q in targets[:i]):
                    self._fail(item, "writes two results to the same memory")
                if (live[at + 1] | self._reads(at, p)) & self.overlaps[p] & ~self._related(p):
                    self._fail(item, "overwrites data that is still to be read")
        jumps = any(isinstance(i, Goto) for i in self.items)
        if live[0] and not jumps:
            self._fail(self.items[0], "is in a program that reads data before it is written")

    # -- reads and writes of an item -----------------------------------------------------------------------------------

    def _writes(self, at: int) -> list[Place]:
        item = self.items[at]
        if isinstance(item, CallKernel):
            return [self.places[n] for n in item.buffers[len(item.buffers) - self.written[at] :]]
        return [self.places[item.target]] if isinstance(item, Copy) else []

    def _reads(self, at: int, target: Place | None = None) -> int:
        """The places that an item reads. With ``target``, operands that the item may overwrite with ``target`` are left
        out."""
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
            if not self._may_take(at, p, target):
                found |= self._related(p)
        return found

    def _may_take(self, at: int, operand: Place, target: Place | None) -> bool:
        """``operand`` may be a join that nothing writes as a whole, only its parts."""
        pairs = self.exchanges.get(at, ())
        if target is None or not any(a is operand and b is target for a, b in pairs):
            return False
        if not _is_fixed(operand):
            return False
        return self._area(operand) == self.areas.get(target)

    def _related(self, p: Place) -> int:
        """The bits of a place, of its stretches, and of the places that contain it."""
        found = self.bits.get(p, 0)
        for q in (*self.below.get(p, ()), *_wholes(p)):
            found |= self.bits.get(q, 0)
        return found

    # -- liveness ------------------------------------------------------------------------------------------------------

    def _live(self) -> list[int]:
        """The live places before each item; none are live after the last."""
        targets = {item: at for at, item in enumerate(self.items) if isinstance(item, Label)}
        gains = [self._reads(at) for at in range(len(self.items))]
        keeps = [~self._killed(at) for at in range(len(self.items))]
        live = [0] * (len(self.items) + 1)
        changed = True
        while changed:
            changed = False
            for at, item in reversed(list(enumerate(self.items))):
                after = live[at + 1]
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
        """The places whose earlier contents are dead after an item."""
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

    # -- memory of places ----------------------------------------------------------------------------------------------

    def _value(self, value: ExprLike) -> int:
        return _number(value, self.sizes)

    def _area(self, p: Place) -> tuple[object, int, int]:
        start = self._value(self.offsets.get(p.memory, 0)) + self._begin(p)
        owner = (p.root.kind, p.space) if p.root.kind == "arena" else p.root
        return owner, start, start + self._value(p.nbytes)

    def _begin(self, p: Place) -> int:
        return p.offset if p.rows is None else min(p.offset, self._value(p.root.nbytes))

    def _bounds(self, item: Any, p: Place) -> None:
        _, low, high = self.areas[p]
        if self._begin(p) + high - low > self._value(p.root.nbytes):
            self._fail(item, "writes past the end of its buffer")
        if p.rows is not None and p.start + p.rows.length > p.rows.pitch:
            self._fail(item, "writes past the end of a row")
        if p.root.kind == "arena" and (low < 0 or high > self.arenas[p.space]):
            self._fail(item, "writes outside the arena")
        if isinstance(item, CallKernel) and low % ALIGN:
            self._fail(item, "writes at an unaligned address")

    def _overlaps(self) -> dict[Place, int]:
        """For each place, the bits of all places whose memory overlaps its own."""
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
        for p in self.areas:
            for q in self.below.get(p.parent, ()) if p.rows is not None and p.parent is not None else ():
                if _beside(p, q):
                    found[p] &= ~self.bits[q]
        return found

    def _fail(self, item: Any, what: str) -> None:
        name = (item.label or f"kernel {item.kernel}") if isinstance(item, CallKernel) else type(item).__name__
        raise InternalError(f"the memory plan is wrong: {name} {what}", code="W013")


def _beside(p: Place, q: Place) -> bool:
    """Whether two places are different parts of the rows of the same place."""
    if p.rows is None or q.rows is None or p.parent is not q.parent or p.rows.pitch != q.rows.pitch:
        return False
    low, high = (p, q) if p.start < q.start else (q, p)
    assert low.rows is not None and high.rows is not None
    return low.start + low.rows.length <= high.start and high.start + high.rows.length <= high.rows.pitch


def _wholes(p: Place) -> Iterator[Place]:
    """The places that contain a stretch."""
    while p.parent is not None:
        p = p.parent
        yield p


def _is_fixed(p: Place) -> bool:
    """Whether the memory plan fixes the memory of a place."""
    return p.root.kind == "output" or (p.root.kind == "arena" and not p.root.late)
