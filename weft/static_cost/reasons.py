"""Why a kernel costs more than it must, in words, from the block of machine code that takes most of its time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from weft.static_cost.invariant import repeated
from weft.static_cost.kernel import BlockCost, CostMachine, FunctionCost, KernelCost
from weft.static_cost.machine import MachineBlock
from weft.static_cost.moved import LoopAccess, lines
from weft.support.words import counted

MIN_SPILLS: Final = 4
"""Fewest spills of a block that are worth a word."""
MIN_OVERHEAD: Final = 3.0
"""Instructions for each one that computes or moves data, from which on the rest is named."""
MIN_WAIT_SHARE: Final = 0.2
MIN_MOVED_FACTOR: Final = 1.5
HELPERS: Final = ("weft_", "mem")


def reasons(cost: KernelCost, machine: CostMachine, size: int) -> list[str]:
    """What makes the kernel dear, the most important first; ``size``: bytes that it must move."""
    found: list[str] = []
    pairs = [(b, f) for f in cost.functions for b in f.blocks]
    if not pairs:
        return ["no code of its own"]
    block, function = max(pairs, key=lambda p: p[0].units)
    if cost.memory > cost.instructions:
        found += _memory(cost, size)
    waits = sum(sum(f.waits.values()) for f in cost.functions)
    if waits > MIN_WAIT_SHARE * cost.instructions:
        found.append("each addition of the innermost loop waits for the one before")
    for f in cost.functions:
        again = sorted({e.opcode for _, e, times in repeated(f.trips) if times > 1})
        if again:
            found.append(f"work that does not change inside the loop: {', '.join(again)}")
    found += _block(block, function, machine)
    return found or ["several loops share the time"]


def _memory(cost: KernelCost, size: int) -> Iterator[str]:
    factor = max(cost.moved) / max(1, size)
    if factor > MIN_MOVED_FACTOR:
        yield f"moves {factor:.1f} times the bytes that it must"
    far = [a for f in cost.functions for a in f.accesses if not a.local and any((s or 0) >= 64 for s in a.strides[:1])]
    if far:
        worst = max(far, key=lambda a: lines(a, len(a.turns)) * a.times)
        if worst.width < 64:
            yield f"{_access(worst)} {worst.strides[0]} bytes apart"


def _access(a: LoopAccess) -> str:
    return f"{'writes' if a.stores else 'reads'} {counted(a.width, 'byte')}"


def _block(b: BlockCost, f: FunctionCost, machine: CostMachine) -> Iterator[str]:
    code = b.code
    where = _where(b, f)
    if calls := [c for c in code.calls if not c.startswith(HELPERS) and ".work" not in c and ".par" not in c]:
        yield f"calls {', '.join(sorted(set(calls)))} for single numbers{where}"
    gathers = sum(code.gathers.values())
    if gathers or code.lanes:
        parts = [counted(gathers, "gather")] if gathers else []
        parts += [counted(code.lanes, "single-lane move")] if code.lanes else []
        yield f"{' and '.join(parts)}{where}"
    if divisions := sum(code.divisions.values()):
        kind = "scalar division" if max(code.divisions) <= 64 else "division"
        yield f"{counted(divisions, kind)}{where}"
    yield from _width(code, where, machine, b, f)
    if code.spills >= MIN_SPILLS:
        yield f"{counted(code.spills, 'spill')}{where}"
    work = sum(code.arithmetic.values()) + sum(code.loads.values()) + sum(code.stores.values())
    if code.shuffles > sum(code.arithmetic.values()) and code.shuffles > sum(code.loads.values()):
        yield f"{counted(code.shuffles, 'shuffle')} for {counted(work, 'other instruction')}{where}"
    if code.instructions > MIN_OVERHEAD * max(1, work):
        yield f"{counted(code.instructions, 'instruction')} for {work} that compute or move{where}"


def _width(code: MachineBlock, where: str, machine: CostMachine, b: BlockCost, f: FunctionCost) -> Iterator[str]:
    counts = code.arithmetic or code.loads + code.stores
    if not counts:
        return
    bits = counts.most_common(1)[0][0]
    kind = "arithmetic" if code.arithmetic else "moves"
    if bits <= 64:
        apart = [a for a in f.accesses if a.loop == b.loop and not a.local and a.strides and a.width <= 8]
        stride = max((abs(a.strides[0] or 0) for a in apart), default=0)
        yield f"scalar {kind}{where}" + (f", stride {counted(stride, 'byte')}" if stride else "")
    elif bits < machine.vector_bits:
        yield f"{kind} on {bits} of {machine.vector_bits} bits{where}"


def _where(b: BlockCost, f: FunctionCost) -> str:
    loop = next((v for v in f.trips.loops if v.header == b.loop), None)
    if loop is None:
        return " outside of loops"
    inner = not any(v.blocks < loop.blocks for v in f.trips.loops)
    return f" in {'the innermost' if inner else 'a'} loop of {counted(f.trips.turns(loop), 'turn')}"
