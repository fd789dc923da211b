"""Work inside of a loop that the loop does not change: dear instructions whose operands are the same in every turn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from weft.static_cost.ir import IrInstruction, IrLoop
from weft.static_cost.moved import base_of
from weft.static_cost.trips import Trips

_DEAR: Final = frozenset({"fdiv", "frem", "sdiv", "udiv", "srem", "urem"})
_FUNCTION = re.compile(r"call .*@(llvm\.sqrt|llvm\.exp|llvm\.log|llvm\.pow|[a-z]+f?)[.(]")
_IMPURE = re.compile(r"@(weft_|mem|llvm\.(prefetch|lifetime|assume|mem)|.*\.(par|work))")
_POINTER = re.compile(r"ptr (%(?:\"[^\"]*\"|[-\w.$]+))")


def repeated(trips: Trips) -> Iterator[tuple[IrLoop, IrInstruction, float]]:
    """Divisions and calls of functions that give the same in every turn of the innermost loop around them, and how
    often they run in vain."""
    blocks = trips.function.blocks
    for loop in trips.loops:
        inner = [b for b in blocks if b in loop.blocks and _innermost(b, trips) is loop]
        written = {base_of(p[-1], trips)[0] for b in loop.blocks for e in blocks[b].instructions
                   if e.opcode == "store" and (p := _POINTER.findall(e.text))}  # fmt: skip
        calls = any(e.opcode == "call" and _IMPURE.search(e.text) for b in loop.blocks for e in blocks[b].instructions)
        same: set[str] = set()
        turns = trips.turns(loop)
        for name in inner:
            for e in blocks[name].instructions:
                if _is_same(e, loop, same, trips) and (e.opcode != "load" or not (calls or _base(e, trips) in written)):
                    same.add(e.name)
                    if turns > 1 and trips.frequency[name] and _is_dear(e):
                        yield loop, e, trips.frequency[name] * (1 - 1 / turns)


def _innermost(block: str, trips: Trips) -> IrLoop | None:
    return min(trips.around[block], key=lambda v: len(v.blocks), default=None)


def _base(e: IrInstruction, trips: Trips) -> str:
    return base_of(e.operands[-1], trips)[0] if e.operands else ""


def _is_same(e: IrInstruction, loop: IrLoop, same: set[str], trips: Trips) -> bool:
    if not e.name or e.opcode in ("phi", "alloca") or (e.opcode == "call" and not _is_dear(e)):
        return False
    defined = trips.function.defined
    return all(o in same or o not in defined or defined[o][1] not in loop.blocks for o in e.operands)


def _is_dear(e: IrInstruction) -> bool:
    return e.opcode in _DEAR or (e.opcode == "call" and not _IMPURE.search(e.text) and bool(_FUNCTION.search(e.text)))
