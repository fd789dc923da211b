"""The bench on which the schedules of one kernel are checked and timed in a session with a board.

The reference are the results of the default schedule on the same board, which are compared with those of this machine
when a kernel is opened there first. Times are those that the board states, so they
are believed only if they are possible; a board that states others is at fault, and nothing is known of the schedule.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weft.kernels.machine_code import MachineCode
from weft.rpc.errors import LinkError, RemoteError
from weft.rpc.kernel import RemoteKernel
from weft.rpc.memory import RemoteBlock
from weft.rpc.session import Session
from weft.schedule.dispatch import RecordedSchedule
from weft.support.errors import UserError
from weft.support.memory import ALIGN
from weft.tune.draft.estimate import DraftMachine
from weft.tune.draft.nests import nests_of
from weft.tune.measure.bench import MAX_KEPT, NO_NUMBER, PATTERN, are_numbers, differing, timed_record
from weft.tune.measure.inputs import inputs_of, shape_of
from weft.tune.measure.reference import CaseResults, disagreement
from weft.tune.measure.runner import Workload
from weft.tune.measure.timing import Limits, Run
from weft.tune.record import Outcome, TrialRecord

ROUND_PARTS: Final = 10
"""Measurements of one round, each the mean of a part of its calls."""
PART_SECONDS: Final = 1e-5
"""A measurement takes so long at least: clocks of boards may have steps of 0.1 microseconds."""
LEAST_SECONDS: Final = 1e-9
"""No call takes less."""
FASTER_THAN_PEAK: Final = 64.0
"""A time in which the machine's cores would have to do so many times what they can is not possible. Narrow types have
several times the lanes, and rates of machines that are not known are low guesses."""
MOST_SPREAD: Final = 20.0
"""Rounds of one kernel that differ by such a factor, between their quartiles, measure nothing."""
STOPPED: Final = "N013"
"""A kernel was stopped at the time limit of a request."""
_OUTCOMES: Final = {
    "N010": Outcome.FAILED,
    "N011": Outcome.FAILED,
    "N012": Outcome.WRONG,
    STOPPED: Outcome.TIMEOUT,
    "N016": Outcome.FAILED,
}
"""What errors of a request mean, after which the session goes on."""
_BLAMED: Final = frozenset({"N001", "N005", "N006", "N007", "N009"})
"""Errors that are the fault of a board or of the way to it."""


class BoardFault(RemoteError):
    """A board states what cannot be."""

    default_code = "N009"


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a trial gave no time: the outcome, the reason, what the board did wrong (empty: nothing), and whether the
    session is over."""

    outcome: Outcome
    message: str
    blame: str = ""
    over: bool = False


@dataclass(frozen=True)
class _Case:
    sizes: tuple[int, ...]
    inputs: list[RemoteBlock]
    results: list[RemoteBlock]
    unwritten: list[RemoteBlock]
    """What results are before they are written."""
    shapes: list[tuple[int, ...]]
    least: float
    wanted: list[NDArray[Any]]


class WrongBoard(BoardFault):
    """A board computes something else than this machine."""


class RemoteBench:
    """A workload in a session; ``default`` is the code of its default schedule. Raises RemoteError where that cannot be
    loaded or run, and WrongBoard where its results are not those of ``reference`` (None: they are not compared).

    ``baseline`` is the record of the default schedule, measured alone.
    """

    def __init__(
        self,
        session: Session,
        workload: Workload,
        default: MachineCode,
        limits: Limits,
        reference: Sequence[CaseResults] | None = None,
    ) -> None:
        self._session, self._limits = session, limits
        self._program, self._threads = workload.task.program, workload.threads
        self._kept: dict[str, RemoteKernel] = {}
        self._began = 0.0
        self._in_candidate = False
        sizes = [tuple(s) for s in workload.sizes] or [(64,) * len(self._program.sizes)]
        least = least_seconds(workload)
        kernel = self._loaded(None, default)
        self._cases: list[_Case] = []
        of_cases: Sequence[CaseResults | None] = reference or [None] * len(sizes)
        for s, known in zip(sizes, of_cases, strict=True):
            self._cases.append(self._case(kernel, s, least, known))
        self.baseline = self._checked(timed_record(None, self._runs(kernel), None, None, limits, self._threads))
        self.best_seconds: dict[str, float] = {"": self.baseline.seconds or 0.0}
        """About the seconds of schedules on this board, by their text; empty: the default one."""

    def trial(
        self, trace: RecordedSchedule, made: MachineCode, best: RecordedSchedule | None, best_made: MachineCode
    ) -> TrialRecord | Failed:
        """Check a schedule and time it beside another one."""
        try:
            with self._code_of_candidate():
                kernel = self._loaded(trace, made)
                wrong = self._wrong(kernel)
            if wrong:
                return Failed(Outcome.WRONG, wrong)
            beside = self._loaded(best, best_made)
            record = timed_record(
                trace,
                [self._candidates(run) for run in self._runs(kernel)],
                self._runs(beside),
                self._seconds_of(best, beside),
                self._limits,
                self._threads,
            )
            record = self._checked(record)
        except RemoteError as error:
            return self._failed(error)
        if record.ok and record.seconds:
            self.best_seconds[trace.to_json()] = record.seconds
        return record

    # ---- kernels and their memory -----------------------------------------------------------------------------------

    def _loaded(self, trace: RecordedSchedule | None, made: MachineCode) -> RemoteKernel:
        key = "" if trace is None else trace.to_json()
        if key not in self._kept:
            while len(self._kept) >= MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = self._session.kernel(made)
        self._kept[key] = found = self._kept.pop(key)  # the most recent one is last
        return found

    def _case(self, default: RemoteKernel, sizes: tuple[int, ...], least: float, known: CaseResults | None) -> _Case:
        """A case with the results of the default schedule; positive inputs where others give no numbers, or where they
        are ``known`` to give none."""
        program = self._program
        values = dict(zip(program.sizes, sizes, strict=True))
        outputs = program.params[len(program.params) - program.outputs :]
        shapes = [shape_of(b, values) for b in outputs]
        results, unwritten = [], []
        for shape, buffer in zip(shapes, outputs, strict=True):
            nbytes = math.prod(shape) * buffer.dtype.nbytes
            results.append(self._session.block(nbytes, ALIGN))
            unwritten.append(self._session.block(nbytes, ALIGN))
            unwritten[-1].fill(PATTERN)
            unwritten[-1].write(bytes([NO_NUMBER if buffer.dtype.is_float else PATTERN]) * nbytes)
        found: list[NDArray[Any]] = []
        for positive in (False, True) if known is None else (known.positive,):
            inputs = [self._uploaded(a) for a in inputs_of(program, values, positive=positive)]
            case = _Case(sizes, inputs, results, unwritten, shapes, least, [])
            self._run_checked(default, case)
            found, intact = self._results(case)
            if not intact:
                raise UserError("its default schedule writes outside of its results", code="U040")
            if are_numbers(found):
                break
        wrong = disagreement(found, known.wanted) if known is not None else ""
        if wrong:
            raise WrongBoard(
                f"'{self._session.machine.name}' computes the default schedule of '{program.name}' wrongly: {wrong}",
                hint="either the board is at fault, or its target is not what it is",
            )
        case.wanted.extend(found)
        return case

    def _uploaded(self, array: NDArray[Any]) -> RemoteBlock:
        block = self._session.block(array.nbytes)
        block.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.nbytes else b"")
        return block

    def _run_checked(self, kernel: RemoteKernel, case: _Case) -> None:
        for block, unwritten in zip(case.results, case.unwritten, strict=True):
            block.copy_from(unwritten)
        kernel.run(*case.inputs, *case.results, sizes=case.sizes, threads=self._threads)

    def _results(self, case: _Case) -> tuple[list[NDArray[Any]], bool]:
        """The results, and whether the memory around them is unchanged."""
        outputs = self._program.params[-len(case.results) :]
        found, intact = [], True
        for block, buffer, shape in zip(case.results, outputs, case.shapes, strict=True):
            whole = block.whole()
            before, after = whole[:ALIGN], whole[ALIGN + block.nbytes :]
            intact = intact and bool((before == PATTERN).all() and (after == PATTERN).all())
            found.append(whole[ALIGN : ALIGN + block.nbytes].view(buffer.dtype.numpy).reshape(shape))
        return found, intact

    def _wrong(self, kernel: RemoteKernel) -> str:
        """What is wrong with the results of a kernel; empty if nothing is."""
        for case in self._cases:
            self._run_checked(kernel, case)
            found, intact = self._results(case)
            wrong = differing(found, case.wanted) if intact else "it writes outside of its results"
            if wrong:
                return wrong
        return ""

    # ---- times ------------------------------------------------------------------------------------------------------

    def _runs(self, kernel: RemoteKernel) -> list[Run]:
        return [self._bound(kernel, case) for case in self._cases]

    def _bound(self, kernel: RemoteKernel, case: _Case) -> Run:
        buffers, known = (*case.inputs, *case.results), 0.0

        def run(count: int) -> list[float]:
            nonlocal known
            repeat = min(count, ROUND_PARTS)
            least = max(PART_SECONDS, known * count / repeat) if count > 1 else PART_SECONDS
            times = kernel.time(
                *buffers, sizes=case.sizes, threads=self._threads, repeat=repeat, min_seconds=least,
                evict=self._limits.evict,
            )  # fmt: skip
            for seconds in times:
                if not math.isfinite(seconds) or seconds < case.least:
                    raise BoardFault(f"it states that a call takes {seconds:.3g} seconds, which cannot be")
            known = times[-1]
            return list(times)

        return run

    def _candidates(self, run: Run) -> Run:
        def noted(count: int) -> list[float]:
            with self._code_of_candidate():
                return run(count)

        return noted

    @contextmanager
    def _code_of_candidate(self) -> Iterator[None]:
        """Code of the candidate runs, and may be at fault."""
        self._in_candidate, self._began = True, time.monotonic()
        yield  # after an error it stays noted, for _failed
        self._in_candidate = False

    def _seconds_of(self, trace: RecordedSchedule | None, kernel: RemoteKernel) -> float:
        """About the seconds of a schedule on this board."""
        key = "" if trace is None else trace.to_json()
        if key not in self.best_seconds:
            self.best_seconds[key] = sum(run(1)[0] for run in self._runs(kernel))
        return self.best_seconds[key]

    def _checked(self, record: TrialRecord) -> TrialRecord:
        if len(record.samples) >= 4 and len(self._cases) == 1:
            ordered = sorted(record.samples)
            low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
            if high > MOST_SPREAD * low:
                raise BoardFault(f"its times are not repeatable: {low:.3g} to {high:.3g} seconds for the same call")
        return record

    def _failed(self, error: RemoteError) -> Failed:
        in_candidate, self._in_candidate = self._in_candidate, False
        said = error.message
        if isinstance(error, BoardFault):
            return Failed(Outcome.LOST, said, blame=said, over=True)
        if not isinstance(error, LinkError):
            outcome = _OUTCOMES.get(error.code, Outcome.LOST) if in_candidate else Outcome.LOST
            blame = blame_of(error) if outcome is Outcome.LOST else ""
            return Failed(outcome, said, blame, over=outcome is Outcome.LOST)
        if in_candidate and error.code == "N014":
            return Failed(Outcome.CRASHED, said, over=True)
        limit = min(self._limits.run, self._session.machine.request_seconds or math.inf)
        took_long = time.monotonic() - self._began >= 0.9 * limit
        blame = blame_of(error)
        if in_candidate and took_long and error.code in ("N007", "N015"):
            return Failed(Outcome.TIMEOUT, said, blame, over=True)
        return Failed(Outcome.LOST, said, blame, over=True)


def least_seconds(workload: Workload) -> float:
    """Seconds below which a call of the kernel is not possible. Open sizes count as 1."""
    program, target = workload.task.program, workload.task.target
    if program.sizes:
        return LEAST_SECONDS
    nests = nests_of(program)
    numbers = nests.numbers
    operations = sum(
        nest.operations * math.prod(float(numbers[loop.extent]) for loop in nest.loops) for nest in nests.structure
    )
    machine = DraftMachine.of(target, workload.threads)
    peak = machine.lanes * machine.per_cycle * machine.hertz * max(1, workload.threads)
    return max(LEAST_SECONDS, operations / peak / FASTER_THAN_PEAK)


def blame_of(error: UserError | None) -> str:
    """What an error says that is the fault of a board, or of the way to it; empty for any other."""
    return error.message if isinstance(error, RemoteError) and error.code in _BLAMED else ""
