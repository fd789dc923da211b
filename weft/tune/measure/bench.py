"""The bench on which the schedules of one kernel are built, checked and timed, in this process.

The results of the default schedule are the reference, on inputs that the bench makes. A kernel that crashes or hangs
takes this process with it, so a tuner has a bench in a process of its own (:mod:`weft.tune.measure.worker`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weft.kernels.machine_code import MachineCode, machine_code
from weft.kernels.task import KernelTask
from weft.runtime import _native
from weft.runtime.sizes import evaluate
from weft.schedule.dispatch import RecordedSchedule
from weft.support.differences import difference
from weft.support.errors import ProgramError, ScheduleError, UserError, WeftError
from weft.support.memory import ALIGN, aligned_bytes
from weft.tir.nodes import Buffer, Program
from weft.tune.measure.inputs import inputs_of, shape_of
from weft.tune.measure.timing import Compared, Limits, Run, compared
from weft.tune.record import Outcome, TrialRecord

PATTERN: Final = 0xA5
"""Bytes of results that were not written yet, and of the memory around them that nobody may write."""
NO_NUMBER: Final = 0xFF
"""Bytes of floats that were not written yet: they are NaN. The other pattern is a float near zero."""
TOLERANCE: Final = 1e-3
NARROW_TOLERANCE: Final = 3e-2
"""The largest difference that counts as rounding, relative to the largest magnitude: of float32 and float64, and of
narrower floats."""
MAX_KEPT: Final = 4
"""Built kernels that are kept, so that the best one need not be built again for every candidate."""


class Guarded:
    """Aligned memory with guards before and after it."""

    def __init__(self, nbytes: int, unwritten: int = PATTERN) -> None:
        self._unwritten = unwritten
        self._whole = aligned_bytes(nbytes + 2 * ALIGN)
        self.bytes = self._whole[ALIGN : ALIGN + nbytes]
        self.clear()

    def clear(self) -> None:
        """Fill it with the pattern of what was not written, and the guards with :data:`PATTERN`."""
        self._whole[...] = PATTERN
        self.bytes[...] = self._unwritten

    @property
    def intact(self) -> bool:
        """Whether the guards are unchanged."""
        before, after = self._whole[:ALIGN], self._whole[ALIGN + self.bytes.size :]
        return bool((before == PATTERN).all() and (after == PATTERN).all())


@dataclass(frozen=True)
class BenchCase:
    """One assignment of the open sizes: inputs, memory for results, and what the results should be. ``positive``: see
    :func:`~weft.tune.measure.inputs.inputs_of`."""

    sizes: tuple[int, ...]
    positive: bool
    inputs: list[NDArray[Any]]
    results: list[Guarded]
    shapes: list[tuple[int, ...]]
    wanted: list[NDArray[Any]]


class Loaded:
    """A built kernel that can be called on the cases of a bench."""

    def __init__(self, made: MachineCode, threads: int) -> None:
        self._native = _native.Code(made.code.data)
        self._entry, self._threads, self._bytes = made.code.entry, threads, made.workspace

    def workspace(self, case: BenchCase) -> Guarded | None:
        """Memory of the size that the kernel needs for a case, if it needs any."""
        if self._bytes == (0,):
            return None
        return Guarded(evaluate(self._bytes, {f"s{i}": n for i, n in enumerate(case.sizes)}) or 0, NO_NUMBER)

    def bound(self, case: BenchCase, workspace: Guarded | None = None, evict: int = 0) -> Run:
        """The kernel on a case, as a function of the number of runs, before each of which ``evict`` bytes of other
        memory are read and written. Raises ProgramError if a run fails."""
        workspace = workspace or self.workspace(case)
        buffers: list[Any] = [*case.inputs, *(r.bytes for r in case.results)]
        if workspace is not None:
            buffers.append(workspace.bytes)

        def run(count: int) -> list[float]:
            status, times = self._native.call(self._entry, buffers, list(case.sizes), self._threads, count, evict)
            if status:
                raise ProgramError(f"the kernel returned {status}", code="V918")
            return [t * 1e-9 for t in times]

        return run


class Bench:
    """``task`` with the schedules that are tried for it, with ``threads`` threads.

    ``sizes`` are assignments of the program's open sizes, in their order; every candidate is measured on all of them,
    and its time is the sum. Without them, open programs are measured with every size 64. Raises UserError U040 for
    other sizes than those, and what building the default schedule raises.
    """

    def __init__(
        self, task: KernelTask, threads: int = 1, sizes: Sequence[Sequence[int]] = (), limits: Limits | None = None
    ) -> None:
        self.task, self.threads, self.limits = task, threads, limits or Limits()
        self._kept: dict[str, Loaded] = {}
        default = self.loaded(None)
        names = [v.name for v in task.program.sizes]
        given = [tuple(s) for s in sizes] or [(64,) * len(names)]
        for s in given:
            if len(s) != len(names) or min(s, default=0) < 0:
                raise UserError(
                    f"{s} are no sizes for kernel '{task.program.name}'",
                    code="U040",
                    hint=f"its open sizes are: {', '.join(names) or 'none'}",
                )
        self.cases = [made_case(task.program, s, default) for s in given]

    def loaded(self, trace: RecordedSchedule | None, made: MachineCode | None = None) -> Loaded:
        """The kernel with a schedule (None: the default one), ready to be called; ``made`` is its code, if that is
        built. Raises what building it raises."""
        key = "" if trace is None else trace.to_json()
        if key not in self._kept:
            while len(self._kept) >= MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = Loaded(made or machine_code(self._scheduled(trace)), self.threads)
        self._kept[key] = found = self._kept.pop(key)  # the most recent one is last
        return found

    def _scheduled(self, trace: RecordedSchedule | None) -> KernelTask:
        known = {i.name: i for i in (*self.task.maker.intrinsics, *self.task.intrinsics)}
        return self.task if trace is None else self.task.with_trace(trace, known.values())

    def baseline(self) -> TrialRecord:
        """The default schedule, measured alone."""
        return self.trial(None, None, None)

    def trial(
        self,
        trace: RecordedSchedule | None,
        best: RecordedSchedule | None,
        best_seconds: float | None,
        made: MachineCode | None = None,
    ) -> TrialRecord:
        """Check and time a schedule beside the best one so far (None: the default schedule), whose time is about
        ``best_seconds`` (None: there is no best yet). Its code is ``made``, or else it is built here. What goes wrong
        is in the record."""

        def ended(outcome: Outcome, message: str = "") -> TrialRecord:
            return TrialRecord(trace, outcome, threads=self.threads, message=message)

        try:
            loaded = self.loaded(trace, made)
        except ScheduleError as error:
            return ended(Outcome.REFUSED, first_line(error))
        except (WeftError, ValueError, MemoryError) as error:
            return ended(Outcome.FAILED, first_line(error))
        try:
            wrong = self._wrong(loaded)
            if wrong:
                return ended(Outcome.WRONG, wrong)
            return self._timed(loaded, trace, best, best_seconds)
        except (ProgramError, MemoryError) as error:
            return ended(Outcome.WRONG, first_line(error))

    def _wrong(self, loaded: Loaded) -> str:
        """What is wrong with the results of a kernel; empty if nothing is."""
        for case in self.cases:
            for r in case.results:
                r.clear()
            workspace = loaded.workspace(case)
            loaded.bound(case, workspace)(1)
            if not all(r.intact for r in case.results):
                return "it writes outside of its results"
            if workspace is not None and not workspace.intact:
                return "it writes outside of its workspace"
            wrong = differing(results_of(self.task.program, case), case.wanted)
            if wrong:
                return wrong
        return ""

    def _timed(
        self, loaded: Loaded, trace: RecordedSchedule | None, best: RecordedSchedule | None, best_seconds: float | None
    ) -> TrialRecord:
        beside = None if best_seconds is None else self._beside(best)
        evict = self.limits.evict
        runs = [loaded.bound(case, evict=evict) for case in self.cases]
        others = None if beside is None else [beside.bound(case, evict=evict) for case in self.cases]
        return timed_record(trace, runs, others, best_seconds, self.limits, self.threads)

    def _beside(self, best: RecordedSchedule | None) -> Loaded | None:
        """The best schedule; None where it cannot be built any more, as it comes from another version of Weft."""
        try:
            return self.loaded(best)
        except (WeftError, ValueError, MemoryError):
            return None


def made_case(program: Program, sizes: tuple[int, ...], default: Loaded) -> BenchCase:
    """A case with the results of the default schedule; positive inputs where others give no numbers."""
    values = dict(zip(program.sizes, sizes, strict=True))
    outputs = program.params[len(program.params) - program.outputs :]
    shapes = [shape_of(b, values) for b in outputs]
    for positive in (False, True):
        inputs = [_aligned(a) for a in inputs_of(program, values, positive=positive)]
        results = [_result(s, b) for s, b in zip(shapes, outputs, strict=True)]
        case = BenchCase(sizes, positive, inputs, results, shapes, [])
        default.bound(case)(1)
        found = results_of(program, case)
        if are_numbers(found):
            break
    case.wanted.extend(a.copy() for a in found)
    return case


def results_of(program: Program, case: BenchCase) -> list[NDArray[Any]]:
    """What a kernel has written in a case, in place."""
    outputs = program.params[-len(case.results) :]
    return [r.bytes.view(b.dtype.numpy).reshape(s) for r, b, s in zip(case.results, outputs, case.shapes, strict=True)]


def are_numbers(found: Sequence[NDArray[Any]]) -> bool:
    """Whether no float is infinite or NaN."""
    return all(np.isfinite(a.astype(np.float64)).all() for a in found if a.dtype.kind not in "biu")


def differing(found: Sequence[NDArray[Any]], wanted: Sequence[NDArray[Any]]) -> str:
    """How results differ from those of the default schedule by more than rounding; empty if they do not."""
    for got, expected in zip(found, wanted, strict=True):
        error = difference([got], [expected])
        if error > (TOLERANCE if expected.dtype.itemsize >= 4 else NARROW_TOLERANCE):
            return f"its results differ from those of the default schedule by {error:.2g} of the largest"
    return ""


def timed_record(
    trace: RecordedSchedule | None,
    runs: Sequence[Run],
    others: Sequence[Run] | None,
    best_seconds: float | None,
    limits: Limits,
    threads: int,
) -> TrialRecord:
    """Time a schedule on all cases beside the best one (``others``), whose time is about ``best_seconds``."""
    found, cold = list[Compared](), limits.evict > 0
    for at, run in enumerate(runs):
        made = compared(run, None if others is None else others[at], best_seconds if len(runs) == 1 else None, limits)
        found.append(made)
        if made.slow:
            return TrialRecord(trace, Outcome.SLOW, made.seconds, made.samples, threads=threads, cold=cold)
    seconds = sum(f.seconds for f in found)
    ratios = tuple(f.relative for f in found if f.relative is not None)
    relative = statistics.geometric_mean(ratios) if ratios else None
    samples = found[0].samples if len(found) == 1 else tuple(f.seconds for f in found)
    return TrialRecord(trace, Outcome.OK, seconds, samples, relative, threads, relatives=ratios, cold=cold)


def _result(shape: Sequence[int], buffer: Buffer) -> Guarded:
    return Guarded(math.prod(shape) * buffer.dtype.nbytes, NO_NUMBER if buffer.dtype.is_float else PATTERN)


def _aligned(array: NDArray[Any]) -> NDArray[np.uint8]:
    made = aligned_bytes(array.nbytes)
    made[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return made


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
