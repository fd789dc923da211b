"""How long each place of a function is needed, once its instructions stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.lowering.control_parts import Place, ends_stretch, touched
from weft.runtime.program import Free


class Lifetimes:
    """The instructions of one function, with labels, and its places; ``ranges`` are the items of loops and branches,
    from the first to the last. ``all_places`` are those of the whole program, by number.
    """

    def __init__(self, all_places: Sequence[Place]) -> None:
        self.all_places = all_places
        self.places: list[Place] = []
        self.items: list[Any] = []
        self.ranges: list[tuple[int, int]] = []

    def measure(self) -> None:
        """How long each place is needed: beyond a loop's end what it needs again, beyond an if what came before it."""
        for at, item in enumerate(self.items):
            for number in touched(item):
                place = self.all_places[number]
                place.first = at if place.first < 0 else place.first
                place.last = at
        for begin, end in sorted(self.ranges, key=lambda r: r[1] - r[0]):
            for place in self.places:
                if begin <= place.last < end and place.first <= begin:
                    place.last = end

    def free_late(self) -> None:
        """Free what was allocated on the way after its last use."""
        ends: dict[int, list[Place]] = {}
        for place in self.places:
            if place.late and place.kind in ("arena", "object") and place.last >= 0:
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
