"""Bytes that the accesses of loops bring into each cache, from the strides of their addresses.

An access inside of loops touches a set of cache lines. The largest set of inner loops whose lines all fit into a cache
brings each of its lines in once; whatever is outside of it brings them in again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from weft.cost.caches import CACHE_LINE_BYTES
from weft.static_cost.ir import IrInstruction, IrLoop
from weft.static_cost.trips import Trips, type_bytes

_LOAD = re.compile(r"= load (?:volatile )?(\[.+?\]|<[^>]+>|\w+), ptr (%(?:\"[^\"]*\"|[-\w.$]+))")
_STORE = re.compile(r"^store (?:volatile )?(<[^>]+>|\w+) .*, ptr (%(?:\"[^\"]*\"|[-\w.$]+))")
MIN_TURNS_TO_REPEAT: Final = 4
MAX_SAMPLED_TURNS: Final = 1024
"""Most turns of a loop whose addresses are computed one by one."""


@dataclass(frozen=True, slots=True)
class LoopAccess:
    """Loads or stores inside of loops that differ in their ``offsets`` only. ``strides``: bytes from one turn to the
    next of each loop around them, the innermost loop first; None where they are not known. ``base``: the buffer;
    ``times``: how often they run; ``local``: whether the buffer lies on the stack."""

    base: str
    stores: bool
    width: int
    offsets: tuple[int, ...]
    strides: tuple[int | None, ...]
    turns: tuple[int, ...]
    loop: str
    times: float
    local: bool
    repeats: tuple[float, float] = (1.0, 0.0)
    """Of the lines of the innermost loop, if its strides vary: the share that is new, and the turns until one is met
    again."""


def accesses(trips: Trips) -> list[LoopAccess]:
    """All accesses of a function that have an address of their own, those of one address once."""
    found: dict[tuple[object, ...], list[tuple[LoopAccess, int]]] = {}
    for name, block in trips.function.blocks.items():
        around = sorted(trips.around[name], key=lambda v: len(v.blocks))
        if not around or not trips.frequency[name]:
            continue
        for e in block.instructions:
            if (access := _access(e, name, around, trips)) is not None:
                key = access.base, access.stores, access.width, access.strides, access.loop
                found.setdefault(key, []).append((access, trips.value(_pointer(e)) or 0))
    return [replace(same[0][0], offsets=tuple(sorted({at for _, at in same}))) for same in found.values()]


def _pointer(e: IrInstruction) -> str:
    match = _LOAD.search(e.text) or _STORE.match(e.text)
    return match[2] if match else ""


def _access(e: IrInstruction, block: str, around: Sequence[IrLoop], trips: Trips) -> LoopAccess | None:
    match = _LOAD.search(e.text) if e.opcode == "load" else _STORE.match(e.text) if e.opcode == "store" else None
    if match is None:
        return None
    strides = tuple(_stride(match[2], v, trips) for v in around)
    turns = tuple(trips.turns(v) for v in around)
    base, local = base_of(match[2], trips)
    loop = around[0].header
    times, nbytes = trips.frequency[block], type_bytes(match[1])
    repeats = _repeats(match[2], around[0], trips)
    return LoopAccess(base, e.opcode == "store", nbytes, (), strides, turns, loop, times, local, repeats)


def _stride(pointer: str, loop: IrLoop, trips: Trips) -> int | None:
    middle = trips.turns(loop) // 2
    here, there = (trips.value(pointer, {loop.header: n}) for n in (middle, middle + 1))
    return None if here is None or there is None else there - here


def _repeats(pointer: str, loop: IrLoop, trips: Trips) -> tuple[float, float]:
    """Loops whose variable stands for several axes jump back: a remainder of it comes again."""
    turns = trips.turns(loop)
    first, second, middle, late = (
        trips.value(pointer, {loop.header: n}) for n in (0, 1, turns // 2, max(1, turns - 2))
    )
    if turns < MIN_TURNS_TO_REPEAT or first is None or second is None or middle is None or late is None:
        return 1.0, 0.0
    step = second - first
    if middle == first + step * (turns // 2) and late == first + step * (turns - 2):
        return 1.0, 0.0
    met: dict[int, int] = {}
    apart = again = 0
    sample = min(turns, MAX_SAMPLED_TURNS)
    for n in range(sample):
        line = (trips.value(pointer, {loop.header: n}) or 0) // CACHE_LINE_BYTES
        if line in met:
            apart, again = apart + n - met[line], again + 1
        met[line] = n
    return len(met) / sample, apart / max(1, again)


def base_of(pointer: str, trips: Trips) -> tuple[str, bool]:
    """The parameter or allocation that an address belongs to, and whether it is an allocation on the stack."""
    for _ in range(64):
        if pointer not in trips.function.defined:
            return pointer, False
        e = trips.function.defined[pointer][0]
        if e.opcode == "alloca":
            return pointer, True
        nexts = [o for o in e.operands if o != pointer]
        if e.opcode not in ("getelementptr", "phi", "select") or not nexts:
            return pointer, False
        if e.opcode == "phi":
            outside = [o for o in nexts if o not in trips.function.defined or trips.function.defined[o][1] != e.name]
            nexts = outside or nexts
        pointer = nexts[0]
    return pointer, False


def lines(access: LoopAccess, level: int) -> float:
    """The bytes of the cache lines that the ``level`` innermost loops touch."""
    apart = 1.0
    spans = _merged([(at, at + access.width) for at in access.offsets])
    pairs = list(zip(access.strides[:level], access.turns, strict=False))
    for stride, turns in sorted((abs(s), n) for s, n in pairs if s):
        longest = max(b - a for a, b in spans)
        if stride < longest + CACHE_LINE_BYTES:
            spans = _merged([(a, b + stride * (turns - 1)) for a, b in spans])
        else:
            apart *= turns
    apart *= math.prod(n for s, n in pairs if s is None)
    return apart * sum(-(-(b - a) // CACHE_LINE_BYTES) for a, b in spans) * CACHE_LINE_BYTES


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of bytes, those joined that lie in neighbouring lines."""
    found: list[tuple[int, int]] = []
    for a, b in sorted(spans):
        if found and a - found[-1][1] < CACHE_LINE_BYTES:
            found[-1] = found[-1][0], max(b, found[-1][1])
        else:
            found.append((a, b))
    return found


def moved(found: Sequence[LoopAccess], capacity: int) -> float:
    """Bytes that come into a cache of ``capacity`` bytes from beyond it. What several inner loops read of one buffer
    comes once, if one turn of the loops around them fits."""
    loops: dict[str, list[LoopAccess]] = {}
    for access in found:
        if not access.local:
            loops.setdefault(access.loop, []).append(access)
    outer = sum(lines(a, len(a.turns) - 1) for together in loops.values() for a in together)
    nested = all(len(a.turns) > 1 for together in loops.values() for a in together)
    by_base: dict[tuple[str, bool], list[float]] = {}
    for together in loops.values():
        own: dict[tuple[str, bool], float] = {}
        for access in together:
            key = access.base, access.stores
            own[key] = own.get(key, 0.0) + _bytes(access, together, capacity)
        for key, nbytes in own.items():
            by_base.setdefault(key, []).append(nbytes)
    once = nested and outer <= capacity
    return sum(max(v) if once else sum(v) for v in by_base.values())


def _bytes(access: LoopAccess, together: Sequence[LoopAccess], capacity: int) -> float:
    depth = len(access.turns)
    level = max((n for n in range(depth + 1) if sum(lines(a, n) for a in together) <= capacity), default=0)
    level = min(depth, level + 1)  # what one turn brought in is still there for the next one
    inside = math.prod(access.turns[:level])
    share, distance = access.repeats
    stays = distance * sum(lines(a, 0) for a in together) <= capacity
    return lines(access, level) * access.times / max(1, inside) * (share if stays else 1.0)
