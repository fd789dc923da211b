"""Lifetimes of the places of a function, measured after its instructions are emitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from weft.graph.passes.memory import aligned
from weft.lowering.control_parts import Place, ends_stretch, touched
from weft.runtime.program import Free


class Lifetimes:
    """The instructions of one function, with labels, and its places.

    ``ranges`` are the loops and branches, each as its first and last item. ``all_places`` are the places of the whole
    program, by number. ``written`` gives how many of the buffers of a kernel call are written, by the index of the call
    among the items. ``exchanges`` gives, by the same index, operands and the results that may overwrite them.
    """

    def __init__(self, all_places: Sequence[Place]) -> None:
        self.all_places = all_places
        self.places: list[Place] = []
        self.items: list[Any] = []
        self.ranges: list[tuple[int, int]] = []
        self.written: dict[int, int] = {}
        self.exchanges: dict[int, list[tuple[Place, Place]]] = {}

    def measure(self) -> None:
        """Measure how long each place is needed. A place that is needed both before and inside a loop or branch is
        needed until the end of the loop or branch."""
        for at, item in enumerate(self.items):
            for number in touched(item):
                place: Place | None = self.all_places[number]
                while place is not None:
                    place.first = at if place.first < 0 else place.first
                    place.last, place = at, place.parent
        inside = _innermost(self.ranges, len(self.items))
        for place in self.places:
            around = inside[place.last] if place.first >= 0 else None
            while around is not None and place.first <= around.begin:
                place.last, around = around.end, around.parent

    def exchange(self) -> None:
        """Let results use the memory of operands that are no longer needed."""
        ends: dict[Place, int] = {}
        for at, pairs in self.exchanges.items():
            item = self.items[at]
            roots = [self.all_places[n].root for n in item.buffers]
            taken: set[Place] = set()
            for operand, result in pairs:
                memory = operand.memory
                fits = (
                    all(p.kind == "arena" and not p.late and p.parent is None for p in (operand, result))
                    and operand.space == result.space
                    and operand.last == at == ends.get(memory, operand.last)
                    and result.first == at
                    and aligned(memory.nbytes) == aligned(result.nbytes)
                )
                if fits and roots.count(operand) == 1 and memory not in taken and result.takes is None:
                    result.takes = memory
                    taken.add(memory)
                    ends[memory] = result.last

    def stretches_of_memory(self, space: int) -> list[tuple[Place, int, int]]:
        """The places that need memory of their own in the arena of a space, each with the first and last step at which
        it is needed. Steps number the items that access memory."""
        held = [p for p in self.places if p.kind == "arena" and not p.late and p.first >= 0 and p.parent is None]
        last: dict[Place, int] = {}
        for p in held:
            last[p.memory] = max(last.get(p.memory, p.last), p.last)
        steps = list(accumulate(int(bool(touched(item))) for item in self.items))  # the item itself counts
        return [(p, steps[p.first], steps[last[p]]) for p in held if p.takes is None and p.space == space]

    def free_late(self) -> None:
        """Free each buffer that was allocated at run time after its last use."""
        ends: dict[int, list[Place]] = {}
        for place in self.places:
            if place.late and place.kind in ("arena", "object"):
                ends.setdefault(place.last, []).append(place)
        out: list[Any] = []
        moved: list[int] = []
        for at, item in enumerate(self.items):
            moved.append(len(out))
            out.append(item)
            if not ends_stretch(item):
                out.extend(Free(p.number) for p in ends.get(at, ()))
        for place in self.places:
            if place.first >= 0:
                place.first, place.last = moved[place.first], moved[place.last]
        self.items = out


@dataclass(frozen=True, slots=True)
class _Range:
    """A loop or branch, and the one around it."""

    begin: int
    end: int
    parent: _Range | None


def _innermost(ranges: Sequence[tuple[int, int]], count: int) -> list[_Range | None]:
    """For each of ``count`` items the innermost of the ranges in which it is not the last item. Ranges are one inside
    of the other, or apart."""
    found: list[_Range | None] = []
    waiting = sorted(ranges, key=lambda r: (-r[0], r[1]))
    at: _Range | None = None
    for i in range(count):
        while at is not None and at.end <= i:
            at = at.parent
        while waiting and waiting[-1][0] == i:
            begin, end = waiting.pop()
            if end > i:
                at = _Range(begin, end, at)
        found.append(at)
    return found
