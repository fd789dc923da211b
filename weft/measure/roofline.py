"""Roofline: each kernel's time compared with the least possible time (S. Williams et al., "Roofline", CACM 2009).

A kernel needs at least the time of its operations at the measured peak. The peak is that of the fastest instructions
for its operands: kernels that read bfloat16 or bytes may use dot products or matrix tiles. It also needs at least the
time of its bytes at the measured bandwidth. Constants come from the memory level that holds the whole model, because
the whole model is read between two uses. Other operands come from the level that holds the kernel's working set.
Operations are those of the chosen algorithm (for example Winograd); bytes are those that any schedule must move.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.runtime.executable import Executable
from weft.runtime.profile import Profile, shorten
from weft.runtime.program import CallKernel, ExecutableProgram
from weft.runtime.sizes import evaluate
from weft.support.arguments import WHOLE, checked, instance
from weft.support.errors import InputError
from weft.support.words import counted


@dataclass(frozen=True, slots=True)
class Level:
    """A memory level: its capacity in bytes for all threads together (0: unlimited), and its bandwidth in GB/s."""

    name: str
    holds: int
    gigabytes: float


@dataclass(frozen=True, slots=True)
class Peaks:
    """Peak rates of a machine with ``threads`` threads: GFLOP/s in float32, and its memory levels, the nearest first.

    ``dots`` are the rates of products of narrower numbers accumulated in 32 bits, by the dtype of the operands: 10⁹
    operations per second; a multiplication and an addition count as two."""

    threads: int
    gflops: float
    levels: tuple[Level, ...]
    dots: Mapping[str, float] = field(default_factory=dict)

    def arithmetic(self, dtypes: Iterable[str] = ()) -> float:
        """The highest rate, in 10⁹ operations per second, of a kernel with operands of these dtypes."""
        return max(self.gflops, *(self.dots.get(d, 0.0) for d in dtypes), 0.0)

    def level(self, nbytes: int) -> Level:
        """The nearest level that holds ``nbytes``."""
        return next((v for v in self.levels if v.holds >= nbytes), self.levels[-1])


@dataclass(frozen=True, slots=True)
class Bound:
    """The least milliseconds of one kernel call; ``level`` is the farthest memory level that it needs."""

    instruction: int
    kernel: str
    label: str
    flops: int
    bytes: int
    compute_ms: float
    memory_ms: float
    level: str

    @property
    def ms(self) -> float:
        """The least time, in milliseconds, that the binding limit allows."""
        return max(self.compute_ms, self.memory_ms)

    @property
    def limit(self) -> str:
        """The binding limit: ``compute``, or the name of a memory level."""
        return "compute" if self.compute_ms >= self.memory_ms else self.level


def bounds(program: ExecutableProgram, symbols: Mapping[str, int], peaks: Peaks) -> tuple[Bound, ...]:
    """The bound for one execution of each kernel call whose work is known for the values of ``symbols``."""
    sizes = [evaluate(b.nbytes, symbols) or 0 for b in program.buffers]
    constants = {b.index: n for b, n in zip(program.buffers, sizes, strict=True) if b.kind == "constant"}
    outside = sum(n for b, n in zip(program.buffers, sizes, strict=True) if b.kind in ("input", "output"))
    far = peaks.level(sum(constants.values()) + outside + (evaluate(program.arena_bytes, symbols) or 0))
    found = []
    for i, call in enumerate(program.instructions):
        if not isinstance(call, CallKernel):
            continue
        flops, nbytes = evaluate(call.flops, symbols), evaluate(call.bytes, symbols)
        if flops is None or nbytes is None:
            continue
        weights = sum(sizes[b] for b in set(call.buffers) if program.buffers[b].kind == "constant")
        streamed = min(nbytes, weights)
        near = peaks.level(nbytes - streamed)
        memory_ms = streamed / far.gigabytes / 1e6 + (nbytes - streamed) / near.gigabytes / 1e6
        level = far.name if streamed / far.gigabytes >= (nbytes - streamed) / near.gigabytes else near.name
        name = program.kernels[call.kernel].name
        rate = peaks.arithmetic(_dtypes(program, call))
        found.append(Bound(i, name, call.label, flops, nbytes, flops / rate / 1e6, memory_ms, level))
    return tuple(found)


def _dtypes(program: ExecutableProgram, call: CallKernel) -> set[str]:
    """Dtypes of a kernel's operands: of all buffers except the last one, its result. A workspace is not counted: it is
    bytes in the arena."""
    buffers = [program.buffers[b] for b in call.buffers]
    return {str(b.dtype) for b in [b for b in buffers if b.kind != "arena" or b.dtype != "uint8"][:-1]}


@dataclass(frozen=True, slots=True)
class KernelRoof:
    """The ``calls`` calls of one kernel in one run; ``label`` names the nodes of the first call.

    ``ms`` is the measured time, ``bound_ms`` the least possible time, ``limit`` its reason (see :class:`Bound`).
    """

    kernel: str
    label: str
    calls: int
    flops: int
    bytes: int
    ms: float
    bound_ms: float
    limit: str

    @property
    def lost_ms(self) -> float:
        """Milliseconds per run above the bound."""
        return self.ms - self.bound_ms

    @property
    def gflops(self) -> float:
        """Achieved rate of operations, in 10⁹ per second."""
        return self.flops / self.ms / 1e6 if self.ms else 0.0

    @property
    def gigabytes(self) -> float:
        """Achieved bandwidth, in 10⁹ bytes per second."""
        return self.bytes / self.ms / 1e6 if self.ms else 0.0

    @property
    def share(self) -> float:
        """Bound over measured time: 1 is as fast as the machine allows."""
        return self.bound_ms / self.ms if self.ms else 1.0


@dataclass(frozen=True, slots=True)
class Roofline:
    """Kernels in the order of lost time, the worst first."""

    kernels: tuple[KernelRoof, ...]
    run_ms: float
    peaks: Peaks

    @property
    def kernel_ms(self) -> float:
        """Milliseconds per run in all kernels."""
        return sum(k.ms for k in self.kernels)

    @property
    def bound_ms(self) -> float:
        """The least possible milliseconds per run of all kernels."""
        return sum(k.bound_ms for k in self.kernels)

    @property
    def flops(self) -> int:
        """Operations per run of all kernels."""
        return sum(k.flops for k in self.kernels)

    def rows(self, count: int | None = None) -> list[tuple[str, ...]]:
        """Cells under :data:`COLUMNS` for the ``count`` worst kernels, and a last row with the sum of all kernels."""
        whole = self.kernel_ms or 1.0
        made = [
            (shorten(re.sub(r"_[0-9a-f]{10}$", "", k.kernel), 40), shorten(k.label, 24), str(k.calls), f"{k.ms:.3f}",
             f"{100 * k.ms / whole:.1f}%", f"{k.gflops:.1f}", f"{k.gigabytes:.1f}", f"{100 * k.share:.0f}%", k.limit,
             f"{k.lost_ms:.3f}")
            for k in self.kernels[:count]
        ]  # fmt: skip
        moved = sum(k.bytes for k in self.kernels)
        last = (f"{self.kernel_ms:.3f}", "100%", f"{self.flops / whole / 1e6:.1f}", f"{moved / whole / 1e6:.1f}",
                f"{100 * self.bound_ms / whole:.0f}%", "", f"{self.kernel_ms - self.bound_ms:.3f}")  # fmt: skip
        every = f"all {counted(len(self.kernels), 'kernel')}"
        return [*made, (every, "", str(sum(k.calls for k in self.kernels)), *last)]

    def table(self, count: int | None = None) -> str:
        """An aligned table of the ``count`` worst kernels, or of all."""
        cells = [COLUMNS, *self.rows(count)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(COLUMNS))]
        left = (0, 1, COLUMNS.index("limit"))
        return "\n".join(
            "  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
            for row in cells
        )

    def __str__(self) -> str:
        memory = ", ".join(f"{v.name} {v.gigabytes:.0f}" for v in self.peaks.levels)
        threads = "1 thread" if self.peaks.threads == 1 else f"{self.peaks.threads} threads"
        dots = "".join(f", {rate:.0f} in {dtype}" for dtype, rate in self.peaks.dots.items())
        return (
            f"{self.run_ms:.3f} ms a run, {self.kernel_ms:.3f} ms in kernels, which could take {self.bound_ms:.3f} ms\n"
            f"measured limits of {threads}: {self.peaks.gflops:.0f} GFLOP/s{dots}; GB/s: {memory}\n\n{self.table()}"
        )

    __repr__ = __str__


COLUMNS = ("kernel", "for", "calls", "ms", "share", "GFLOP/s", "GB/s", "of roofline", "limit", "lost ms")


def beside_bounds(profile: Profile, found: Sequence[Bound], peaks: Peaks) -> Roofline:
    """Measured times and bounds; kernels whose work is unknown are left out."""
    by_instruction = {b.instruction: b for b in found}
    groups: dict[str, list[tuple[int, float, Bound]]] = {}
    for k in profile.kernels:
        bound = by_instruction.get(k.instruction)
        if bound is not None:
            groups.setdefault(k.kernel, []).append((k.calls, k.median_ms, bound))
    made = []
    for name, parts in groups.items():
        worst = max(parts, key=lambda p: p[0] * p[2].ms)[2]
        label = worst.label if len(parts) == 1 else f"{parts[0][2].label} and {len(parts) - 1} more"
        made.append(
            KernelRoof(
                kernel=name,
                label=label,
                calls=sum(n for n, _, _ in parts),
                flops=sum(n * b.flops for n, _, b in parts),
                bytes=sum(n * b.bytes for n, _, b in parts),
                ms=sum(ms for _, ms, _ in parts),
                bound_ms=sum(n * b.ms for n, _, b in parts),
                limit=worst.limit,
            )
        )
    return Roofline(tuple(sorted(made, key=lambda k: -k.lost_ms)), profile.run_ms, peaks)


_PEAKS = instance("weft.measure.roofline.Peaks", Peaks)


@checked("I029", InputError, exe=instance("an executable", Executable), peaks=_PEAKS)
def kernel_bounds(exe: Executable, *inputs: Any, peaks: Peaks) -> tuple[Bound, ...]:
    """The least time of each kernel call for such inputs under ``peaks``; the model is not run."""
    return bounds(exe.artifact.program, exe.sizes(*inputs), peaks)


@checked("I029", InputError, exe=instance("an executable", Executable), peaks=_PEAKS, runs=WHOLE)
def roofline(exe: Executable, *inputs: Any, peaks: Peaks, runs: int = 10) -> Roofline:
    """The profile of ``runs`` runs compared with ``peaks``; the kernel that loses most time is first.

    ``peaks`` come from :func:`weft.measure.peaks.measure_peaks`.
    """
    return beside_bounds(exe.profile(*inputs, runs=runs), kernel_bounds(exe, *inputs, peaks=peaks), peaks)
