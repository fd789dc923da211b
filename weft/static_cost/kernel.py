"""The static cost of one kernel: instructions of the emitted code, as often as they run, and the bytes that they move.

The unit of time is one multiply-add of a whole vector at the peak of the machine; the costs of other instructions
relative to it are those of recent x86-64 cores, where one unit is one cycle of a core with one such instruction per
cycle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from weft.cost import Rates
from weft.cost.assumed import EXTENT
from weft.static_cost.ir import IrFunction, IrLoop, functions
from weft.static_cost.machine import MachineBlock, machine_functions
from weft.static_cost.moved import LoopAccess, accesses, moved
from weft.static_cost.trips import Trips

NARROW_SHARE: Final = 0.5
"""An instruction on half of a vector or less, relative to a whole one."""
STORE_UNITS: Final = 2.0
"""A store of a whole vector: cores load two vectors in the time of one store."""
INSTRUCTIONS_PER_UNIT: Final = 4.0
DIVISION_UNITS: Final = 10.0
"""A division or square root of a whole vector."""
SCALAR_DIVISION_UNITS: Final = 4.0
LANE_UNITS: Final = 1.0
"""One lane of a gather or scatter."""
LATENCY_UNITS: Final = 4.0
"""Until the result of an addition or multiply-add can be used."""
CALL_UNITS: Final = 40.0
"""A function of the C library, for one number."""
TILE_UNITS: Final = 16.0
"""One product of matrix tiles."""
LANE_BITS: Final = 32
_HELPERS: Final = ("weft_", "mem")
_FORK = re.compile(r'call .*@weft_parallel_for\(ptr [^@]*@"?([\w.$-]+)"?, i64 [^,]*?(%[-\w."$]+|\d+),')
_CALLED = re.compile(r'call .*@"?([\w.$-]+)"?\(')
_FLOAT_STEP: Final = frozenset({"fadd", "fsub", "fdiv"})


@dataclass(frozen=True, slots=True)
class BlockCost:
    """A block of machine code, how often it runs, the loop around it (header in the IR) and its units in all."""

    code: MachineBlock
    times: float
    loop: str
    units: float


@dataclass(frozen=True, slots=True)
class FunctionCost:
    """One function of a kernel, analysed."""

    trips: Trips
    times: float
    blocks: tuple[BlockCost, ...]
    accesses: tuple[LoopAccess, ...]
    waits: Mapping[str, float]
    """Units that loops, by header, wait for the result of the turn before."""


@dataclass(frozen=True, slots=True)
class KernelCost:
    """Units of a kernel's instructions and of its memory traffic. ``moved``: bytes into the first- and second-level
    cache."""

    functions: tuple[FunctionCost, ...]
    instructions: float
    memory: float
    moved: tuple[float, float]

    @property
    def units(self) -> float:
        """What takes longer: instructions and memory overlap."""
        return max(self.instructions, self.memory)


@dataclass(frozen=True, slots=True)
class CostMachine:
    """What costs depend on: bits of a vector, rates, bytes of the caches that one core can use."""

    vector_bits: int
    rates: Rates
    l1: int
    l2: int
    l3: int

    @property
    def unit_seconds(self) -> float:
        """The time of one multiply-add of a whole vector."""
        return self.vector_bits / LANE_BITS / self.rates.peak_products

    @property
    def load_units(self) -> float:
        """The time of a load of a whole vector from the first-level cache."""
        return self.rates.multiply_adds_per_cycle / self.rates.loads_per_cycle

    def memory_units(self, near: float, far: float, size: float) -> float:
        """The time of moving ``near`` bytes into the first-level cache and ``far`` into the second-level one, if all
        data together are ``size`` bytes."""
        rates = self.rates
        rate = rates.far_bytes if size <= self.l3 else min(rates.streamed_bytes, rates.far_bytes)
        from_l2 = near * 8 / self.vector_bits * rates.near_vector_cycles * rates.multiply_adds_per_cycle
        return from_l2 if size <= self.l2 else max(from_l2, far / rate / self.unit_seconds)


def kernel_cost(ir: str, assembly: str, machine: CostMachine, size: float) -> KernelCost:
    """The cost of the code of a kernel: optimized IR, and the assembly that was made of it with comments. ``size``:
    bytes of its operands."""
    made = {f.name: f for f in functions(ir)}
    code = dict(machine_functions(assembly))
    times, given = _called(made)
    found = []
    for name, f in made.items():
        if times.get(name, 0.0) > 0 and name in code:
            found.append(_function(Trips(f, given.get(name, {})), code[name], times[name], machine))
    instructions = sum(b.units for f in found for b in f.blocks) + sum(sum(f.waits.values()) for f in found)
    near, far = (sum(f.times * moved(f.accesses, c) for f in found) for c in (machine.l1, machine.l2))
    return KernelCost(tuple(found), instructions, machine.memory_units(near, far, size), (near, far))


def _called(made: Mapping[str, IrFunction]) -> tuple[dict[str, float], dict[str, dict[str, int]]]:
    """How often each function runs, and the values of its parameters: a loop of threads counts as one run of all its
    turns. The functions that are called stand before their callers."""
    times = dict.fromkeys(made, 0.0)
    given: dict[str, dict[str, int]] = {}
    last = next(reversed(list(made)), "")
    if last:
        times[last] = 1.0
    for name in reversed(list(made)):
        if not times[name]:
            continue
        trips = Trips(made[name], given.get(name, {}))
        for block in made[name].blocks.values():
            for e in block.instructions:
                if fork := _FORK.search(e.text):
                    turns = trips.value(fork[2])
                    # The function that is called for a chunk may divide it again: then its calls tell what a part is.
                    for callee in (fork[1], f"{fork[1]}.work"):
                        if callee in made and (callee == fork[1] or not made[fork[1]].loops()):
                            times[callee] += times[name] * trips.frequency[block.name] * (callee == fork[1])
                            given[callee] = {"%begin": 0, "%end": EXTENT if turns is None else turns}
                elif (call := _CALLED.search(e.text)) and call[1] in made and call[1] != name:
                    times[call[1]] += times[name] * trips.frequency[block.name]
                    if call[1] not in given:
                        given[call[1]] = _arguments(e.text, made[call[1]], trips)
    return times, given


def _arguments(text: str, callee: IrFunction, trips: Trips) -> dict[str, int]:
    inside = text[text.index("(") + 1 :].rsplit(")", 1)[0].split(", ")
    known = ((n, trips.value(a.split()[-1])) for n, a in zip(callee.params, inside, strict=False) if a.startswith("i"))
    return {n: v for n, v in known if v is not None}


def _function(trips: Trips, code: Sequence[MachineBlock], times: float, machine: CostMachine) -> FunctionCost:
    labels = {b.label: b.ir for b in code if b.label}
    blocks, throughput = [], dict[str, float]()
    for block in code:
        header = labels.get(block.loop, "")
        here = block.ir if block.ir in trips.frequency else header
        often = trips.frequency.get(here, 1.0 if not header else 0.0)
        units = block_units(block, machine)
        blocks.append(BlockCost(block, often * times, header, often * times * units))
        throughput[header] = throughput.get(header, 0.0) + often * units
    waits = {}
    for loop in trips.loops:
        chain = LATENCY_UNITS * _chain(loop, trips)
        wait = trips.frequency[loop.header] * chain - throughput.get(loop.header, 0.0)
        if chain and wait > 0 and not any(v.blocks < loop.blocks for v in trips.loops):
            waits[loop.header] = wait * times
    return FunctionCost(trips, times, tuple(blocks), tuple(accesses(trips)), waits)


def block_units(block: MachineBlock, machine: CostMachine) -> float:
    """The time of one run of a block: what takes longest of arithmetic, loads, stores and the number of
    instructions; divisions, gathers and calls come on top."""

    def wide(counts: Mapping[int, int]) -> float:
        return sum(n * max(NARROW_SHARE, min(1.0, bits / machine.vector_bits)) for bits, n in counts.items())

    whole = machine.vector_bits
    slow = sum(n * (DIVISION_UNITS * bits / whole if bits > 128 else SCALAR_DIVISION_UNITS) for bits, n in
               block.divisions.items())  # fmt: skip
    slow += LANE_UNITS * sum(n * max(1, bits // LANE_BITS) for bits, n in block.gathers.items())
    slow += CALL_UNITS * sum(not c.startswith(_HELPERS) and ".par" not in c and ".work" not in c for c in block.calls)
    arithmetic = wide(block.arithmetic) + block.shuffles + TILE_UNITS * block.tiles
    loads, stores = machine.load_units * wide(block.loads), STORE_UNITS * wide(block.stores)
    return slow + max(arithmetic, loads, stores, block.instructions / INSTRUCTIONS_PER_UNIT)


def _chain(loop: IrLoop, trips: Trips) -> int:
    """Floating-point operations that each need the one before, from one turn of a loop to the next."""
    block = trips.function.blocks[loop.header]
    longest = 0
    for e in block.instructions:
        if e.opcode != "phi":
            break
        if not re.search(r"phi (<\d+ x )?(float|double|half)", e.text):
            continue
        back = next((v for v, b in _incoming(e.text) if b in loop.blocks), "")
        longest = max(longest, _steps(back, e.name, loop, trips, {}) or 0)
    return longest


def _incoming(text: str) -> list[tuple[str, str]]:
    return re.findall(r'\[ ([^,\[\]]+?), (%(?:"[^"]*"|[-\w.$]+)) \]', text)


def _steps(name: str, goal: str, loop: IrLoop, trips: Trips, memo: dict[str, int | None]) -> int | None:
    """The most operations on a way from ``goal`` to ``name``; None without a way."""
    if name == goal:
        return 0
    if name not in memo:
        memo[name] = None
        made = trips.function.defined.get(name)
        if made is not None and made[1] in loop.blocks:
            e = made[0]
            ways = [n for o in e.operands if (n := _steps(o, goal, loop, trips, memo)) is not None]
            # a multiplication becomes part of a multiply-add
            costs = e.opcode in _FLOAT_STEP or "llvm.fma" in e.text or "llvm.max" in e.text or "llvm.min" in e.text
            memo[name] = max(ways) + (costs) if ways else None
    return memo[name]
