"""The time of loop nests, estimated for many vectors of numbers at once.

For each block: its arithmetic in whole vectors, the loads of its innermost loops that the registers do not hold, the
latency of sums that wait for one another, and the bytes that move into each cache. A level of the nest whose working
set fits into a cache moves its data once for each turn of the loops outside; what lies outside a loop on which no
index depends is moved again in every turn. Arithmetic and traffic overlap, so the largest counts, and a share of the
rest. Everything is in seconds; the model orders candidates, it does not predict their times exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.target import Target
from weft.tune.draft.nests import Nest, NestAccess, Structure, Term

Array = NDArray[np.float64]
Order = NDArray[np.int64]

OVERLAPPED: Final = 0.25
"""Share of what is not the largest that is not hidden."""
LOOP_CYCLES: Final = 1.0
"""A turn of a loop that is not unrolled."""
SPILL_CYCLES: Final = 0.5
"""A load and a store of a sum that does not fit into the registers, with each step."""
FORWARD_CYCLES: Final = 4.0
"""From the store of such a sum to its next load. It is stored once more at the end of each turn of a loop."""
GATHER_CYCLES: Final = 1.0
"""One lane of a vector whose elements are not contiguous."""
RESIDENT_SHARE: Final = 0.1
"""Share of the data that fit into a cache as a whole that come into it again in a run."""
LINE_BYTES: Final = 64
UNROLLED: Final = frozenset({"vectorized", "unrolled"})
"""Kinds of loops of which no code is left, if they are innermost."""
MAX_UNROLLED: Final = 512
"""Instructions of an unrolled body above which the decoder's cache does not hold it."""
DECODE_FACTOR: Final = 1.3


@dataclass(frozen=True, slots=True)
class DraftMachine:
    """What the estimate depends on. Bytes of caches are those that one core can use."""

    lanes: int
    registers: int
    threads: int
    hertz: float
    per_cycle: float
    latency: float
    loads: float
    caches: tuple[tuple[float, float], ...]
    """Bytes of each cache, and bytes per cycle into it from the next one."""
    fork_cycles: float

    @classmethod
    def of(cls, target: Target, threads: int) -> DraftMachine:
        """The machine of a CPU target."""
        cpu, rates = target.cpu, target.cpu.rates
        lanes = max(1, cpu.vector_bits // 32)
        hertz = rates.peak_products / (lanes * rates.multiply_adds_per_cycle)
        from_l2 = cpu.vector_bits / 8 / max(rates.near_vector_cycles, 0.01) / 4
        l3 = max(cpu.l3, cpu.l2, 1) / max(1, threads)
        caches = (
            (float(cpu.l1 or 1 << 15), from_l2),
            (float(cpu.l2 or 1 << 18), rates.far_bytes / hertz),
            (l3, rates.streamed_bytes / hertz / (1 if threads == 1 else threads**0.5)),
        )
        return cls(
            lanes,
            max(1, cpu.vector_registers),
            threads,
            hertz,
            rates.multiply_adds_per_cycle,
            rates.multiply_add_latency_cycles,
            rates.loads_per_cycle,
            caches,
            rates.fork_cycles,
        )


def estimate(
    structure: Structure, numbers: Array, machine: DraftMachine, orders: Sequence[Order | None] | None = None
) -> Array:
    """Seconds for each row of ``numbers``: vectors that belong to the structure. ``orders`` are those of the loops of
    each nest, for each row the loop of the structure at each place (None: as in the structure)."""
    total = np.zeros(len(numbers))
    for block in estimated_nests(structure, numbers, machine, orders):
        total += block.seconds()
    return total


def estimated_nests(
    structure: Structure, numbers: Array, machine: DraftMachine, orders: Sequence[Order | None] | None = None
) -> list[EstimatedNest]:
    """The nests of a structure, each for all rows of ``numbers``; see :func:`estimate`."""
    return [EstimatedNest(n, numbers, machine, orders[i] if orders else None) for i, n in enumerate(structure)]


class Body(NamedTuple):
    """The innermost body of a nest, for all rows: its ``cycles``; the ``vectors`` that it computes, and how much of a
    register each fills; cycles of ``arithmetic``; vectors that are loaded and stored; ``sums`` that are kept, and those
    of them for which there is no register."""

    cycles: Array
    vectors: Array
    filled: Array
    arithmetic: Array
    loads: Array
    stores: Array
    sums: Array
    spilled: Array


class EstimatedNest:
    """One nest, for all rows."""

    def __init__(self, nest: Nest, numbers: Array, machine: DraftMachine, order: Order | None) -> None:
        self.nest, self.n, self.machine = nest, numbers, machine
        depth = len(nest.loops)
        extents = np.maximum(numbers[:, [loop.extent for loop in nest.loops]], 1.0)
        steps = np.zeros((len(nest.axes), len(numbers), depth))
        for axis, (terms, _) in enumerate(nest.axes):
            for at, place in terms:
                steps[axis, :, at] = numbers[:, place]
        if order is not None:
            extents = np.take_along_axis(extents, order, axis=1)
            steps = np.take_along_axis(steps, np.broadcast_to(order, steps.shape), axis=2)
        self.extents, self.steps = extents, steps
        """Turns of the loop at each place; how far a turn moves each axis."""
        self.outside = np.concatenate([np.ones((len(numbers), 1)), np.cumprod(extents, axis=1)], axis=1)
        """Turns of all loops outside of each place."""
        self.inner = self._innermost()
        self.touched = self._touched()
        """For each place, and behind the last one, the bytes that the loops from there on touch."""

    def _innermost(self) -> int:
        """The first of the loops that are unrolled or vectorized to the end: what they cover is one body of code."""
        at = len(self.nest.loops)
        while at and self.nest.loops[at - 1].kind in UNROLLED:
            at -= 1
        return at

    @cached_property
    def serial(self) -> list[int]:
        """The loops of one thread outside of the innermost body. One that is unrolled around another loop is little
        different from a loop."""
        return [i for i in range(self.inner) if self.nest.loops[i].kind in ("serial", "unrolled")]

    def product(self, loops: Sequence[int]) -> Array:
        """Turns of several loops together."""
        found: Array = np.prod(self.extents[:, list(loops)], axis=1)
        return found

    def seconds(self) -> Array:
        """The time of the block on all threads."""
        parts = self.parts
        most = np.maximum.reduce(parts)
        hidden = sum(parts) - most
        seconds: Array = (most + OVERLAPPED * hidden) / self.busy_threads() / self.machine.hertz + self._fork()
        return seconds

    @cached_property
    def parts(self) -> list[Array]:
        """Cycles of one thread: those of the instructions, and those in which the data come into each cache."""
        m = self.machine
        body, turns = self.body.cycles, self.outside[:, self.inner]
        steps = np.zeros(len(self.n))
        for i in self.serial:
            steps = steps + self.outside[:, i + 1] * LOOP_CYCLES / 4
        return [turns * np.maximum(body, LOOP_CYCLES) + steps, *(self._moved(size) / rate for size, rate in m.caches)]

    def busy_threads(self) -> Array:
        """How many threads' worth of work is done at once: pieces that do not divide evenly leave some idle."""
        parallel = [i for i, loop in enumerate(self.nest.loops) if loop.kind == "parallel"]
        pieces = self.product(parallel)
        rounds = np.ceil(pieces / self.machine.threads)
        return np.maximum(1.0, pieces / rounds)

    def _fork(self) -> Array:
        parallel = [i for i, loop in enumerate(self.nest.loops) if loop.kind == "parallel"]
        if not parallel or self.machine.threads == 1:
            return np.zeros(len(self.n))
        return self.outside[:, parallel[0]] * self.machine.fork_cycles / self.machine.hertz

    # -- the innermost body -------------------------------------------------------------------------------------

    @cached_property
    def body(self) -> Body:
        """What one run of the innermost body does."""
        m, loops = self.machine, self.nest.loops
        inside = range(self.inner, len(loops))
        instances = self.product(inside)
        vector = next((i for i in reversed(inside) if loops[i].kind == "vectorized"), None)
        lanes = np.maximum(1.0, m.lanes * 32 / self.nest.bits)
        wide = np.ones(len(self.n)) if vector is None else self.extents[:, vector]
        vectors = instances / wide * np.ceil(wide / lanes)
        arithmetic = vectors * max(self.nest.operations, 0.25) / m.per_cycle
        loads, stores, sums = np.zeros(len(self.n)), np.zeros(len(self.n)), np.zeros(len(self.n))
        most = np.zeros(len(self.n))
        for access in self.nest.accesses:
            count = self._vectors_of(access, inside, vector, lanes)
            if access.write:
                stores = stores + (0.0 if access.scope == "register" else count)
                sums = sums + (count if access.scope == "register" or self.nest.reduces else 0.0)
            elif access.scope != "register":
                loads, most = loads + count, np.maximum(most, count)
        cycles, spilled = np.maximum.reduce([arithmetic, loads / m.loads, stores]), np.zeros(len(self.n))
        if self.nest.reduces:
            steps = np.maximum(vectors / np.maximum(sums, 1.0), 1.0)
            # One operand goes through a register, those that each of its vectors meets stay in theirs.
            spilled = np.maximum(0.0, sums + np.ceil((loads - most) / steps) + 1 - m.registers)
            forwards = np.where(spilled > 0, FORWARD_CYCLES * (steps + 1), 0.0)
            # Every sum waits for the step before.
            cycles = np.maximum(cycles + spilled * steps * SPILL_CYCLES, m.latency * steps + forwards)
        large = vectors * (1 + self.nest.operations) > MAX_UNROLLED
        decoded: Array = cycles * np.where(large, DECODE_FACTOR, 1.0)
        return Body(decoded, vectors, wide / lanes, arithmetic, loads, stores, sums, spilled)

    def _vectors_of(self, access: NestAccess, inside: Sequence[int], vector: int | None, lanes: Array) -> Array:
        """Loads or stores of an access in one body: elements that several instances share count once."""
        if vector is None:
            return self._elements(access, inside)
        others = [i for i in inside if i != vector]
        moved = self._step(access, vector)
        rows = self._elements(access, others)
        wide = self.extents[:, vector]
        contiguous, scattered = np.ceil(wide / lanes), wide * GATHER_CYCLES
        return rows * np.where(moved == 0, 1.0, np.where(moved == 1, contiguous, scattered))

    def _step(self, access: NestAccess, loop: int) -> Array:
        """How many elements a step of a loop moves an access: 0, 1, or more."""
        total = np.zeros(len(self.n))
        inner = np.ones(len(self.n))
        for shape, term in reversed(list(zip(access.shape, access.terms, strict=True))):
            step = np.zeros(len(self.n))
            for axis, place in zip(term.axes, term.coefficients, strict=True):
                step = step + self.n[:, place] * self.steps[axis, :, loop]
            if term.over >= 0:
                step = np.floor(step / np.maximum(self.n[:, term.over], 1.0))
            if term.opaque:
                step = step * 2.0
            total = total + step * inner
            inner = inner * self.n[:, shape]
        return total

    def _elements(self, access: NestAccess, loops: Sequence[int]) -> Array:
        """Different elements that an access touches while ``loops`` run."""
        made = np.ones(len(self.n))
        for shape, term in zip(access.shape, access.terms, strict=True):
            first_to_last, different = np.ones(len(self.n)), np.ones(len(self.n))
            for axis, place in zip(term.axes, term.coefficients, strict=True):
                own = self._covered(axis, loops)
                first_to_last = first_to_last + self.n[:, place] * (own - 1)
                different = different * np.minimum(own, self._turns(axis, loops))
            made = made * self._positions(term, self.n[:, shape], np.minimum(first_to_last, different))
        return made

    def _positions(self, term: Term, size: Array, covered: Array) -> Array:
        """Positions of a dimension that are touched, where the sum in its index takes so many values. The last axis of
        all arrays are the rows."""
        if term.over >= 0:
            covered = np.ceil(covered / np.maximum(self.n[:, term.over], 1.0))
        if term.within >= 0:
            covered = np.minimum(covered, self.n[:, term.within])
        if term.opaque and term.axes:
            covered = np.where(covered > 1, size, covered)
        return np.minimum(covered, np.maximum(size, 1.0))

    def _covered(self, axis: int, loops: Sequence[int]) -> Array:
        """Positions of an axis from the first to the last while ``loops`` run."""
        if not loops:
            return np.ones(len(self.n))
        at = slice(loops[0], loops[-1] + 1) if isinstance(loops, range) else list(loops)
        moved = (self.steps[axis][:, at] * (self.extents[:, at] - 1)).sum(axis=1)
        found: Array = np.minimum(1 + moved, self.n[:, self.nest.axes[axis][1]])
        return found

    def _turns(self, axis: int, loops: Sequence[int]) -> Array:
        """Turns of those of ``loops`` that move an axis."""
        at = list(loops)
        found: Array = np.where(self.steps[axis][:, at] > 0, self.extents[:, at], 1.0).prod(axis=1)
        return found

    # -- caches -------------------------------------------------------------------------------------------------

    def _moved(self, capacity: float) -> Array:
        """Bytes that come into a cache of so many bytes. If what one turn of a loop touches fits, the next turn finds
        what it shares with this one, so that the whole loop moves what it touches once; the outermost such loop counts.
        Data that fit as a whole are there already."""
        depth, touched = len(self.nest.loops), self.touched
        moved = touched[depth] * self.outside[:, depth]
        fits = np.ones(len(self.n), bool)
        for level in range(depth, 0, -1):
            fits &= touched[level] <= capacity
            moved = np.where(fits, touched[level - 1] * self.outside[:, level - 1], moved)
        found: Array = np.where(fits & (touched[0] <= capacity), RESIDENT_SHARE * touched[0], moved)
        return found

    def _touched(self) -> Array:
        """For the loops from each place on, and for none of them, and for each row: bytes of whole cache lines that the
        block touches while they run."""
        moved = self.steps * (self.extents - 1)
        inner = np.zeros((len(self.nest.axes), len(self.n), len(self.nest.loops) + 1))
        np.cumsum(moved[:, :, ::-1], axis=2, out=inner[:, :, 1:])
        extents = self.n[:, [extent for _, extent in self.nest.axes]].T
        beyond = np.minimum(inner.transpose(0, 2, 1)[:, ::-1], extents[:, None] - 1)
        """For each axis and place, by how much its last position is beyond its first one."""
        total: Array = np.zeros(beyond.shape[1:])
        for access in self.nest.accesses:
            if access.scope == "register" or not access.terms:
                continue
            positions = []
            for shape, term in zip(access.shape, access.terms, strict=True):
                covered = np.ones(total.shape)
                for axis, place in zip(term.axes, term.coefficients, strict=True):
                    covered += self.n[:, place] * beyond[axis]
                positions.append(self._positions(term, self.n[:, shape], covered))
            *outer, last = positions
            touched = np.ceil(last * access.nbytes / LINE_BYTES) * LINE_BYTES
            for others in outer:
                touched = touched * others
            total += touched
        return total
