"""Boards that measure at once: a thread for each, which takes candidates, and gets another board when one is lost.

All boards measure beside the same best schedule, each on its own: what they tell of a candidate is its time relative to
that. Seconds are stated as the first board would, by the default schedule's times on both.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from weft.kernels.machine_code import MachineCode
from weft.rpc.backoff import Backoff
from weft.rpc.errors import LinkError
from weft.rpc.session import Session
from weft.schedule.dispatch import RecordedSchedule
from weft.support.errors import UserError
from weft.tune.measure.boards import BoardSource, HeldBoard, may_come
from weft.tune.measure.process_bench import MOST_STARTS
from weft.tune.measure.reference import Reference
from weft.tune.measure.remote_bench import Failed, RemoteBench, WrongBoard, blame_of
from weft.tune.measure.runner import Workload
from weft.tune.measure.timing import Limits
from weft.tune.record import Outcome, TrialRecord

TAKE_SECONDS: Final = 10.0
"""A thread looks so often whether it is needed while it waits for a board."""
_END_SECONDS: Final = 5.0
"""For a thread to give its board back."""


@dataclass(frozen=True)
class Opened:
    """The kernel that is measured now, with the code of its default schedule. ``seconds``: of its default schedule on
    the first board; None: not measured yet."""

    workload: Workload
    default: MachineCode
    reference: Reference
    seconds: float | None = None


@dataclass(frozen=True)
class TrialJob:
    """A candidate to be measured beside ``best``; without a candidate, only the default schedule is. ``tell`` gets the
    record, once."""

    tell: Callable[[TrialRecord], None]
    trace: RecordedSchedule | None = None
    made: MachineCode | None = None
    best: RecordedSchedule | None = None
    best_made: MachineCode | None = None


@dataclass
class FarmState:
    """What the threads of boards share; ``changed`` guards it."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    jobs: deque[TrialJob] = field(default_factory=deque)
    opened: Opened | None = None
    closed: bool = False
    ready: int = 0
    """Boards on which the kernel is open."""
    none_since: float = field(default_factory=time.monotonic)
    """When the last board was lost, if there is none."""
    reason: str = "nobody was asked for one yet"
    """Why there was no board when one was looked for last."""
    never: UserError | None = None
    """An error that another attempt would meet again."""
    refused: list[str] = field(default_factory=list)
    """Why boards could not run the default schedule of this kernel."""
    wrong: set[str] = field(default_factory=set)
    """Boards that computed it wrongly."""


class Farm:
    """``count`` threads with a board each. ``opened`` is the kernel; jobs of another one are dropped."""

    def __init__(self, boards: BoardSource, count: int, limits: Limits) -> None:
        self.state = FarmState()
        self._threads = [BoardThread(self.state, boards, limits, number) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def open(self, opened: Opened) -> None:
        """Measure this kernel from now on."""
        with self.state.changed:
            self.state.opened = opened
            self.state.jobs.clear()
            self.state.refused.clear()
            self.state.wrong.clear()

    def add(self, job: TrialJob) -> None:
        """Have a candidate measured."""
        with self.state.changed:
            self.state.jobs.append(job)
            self.state.changed.notify_all()

    def drop(self) -> None:
        """Forget the jobs that no board has begun."""
        with self.state.changed:
            self.state.jobs.clear()

    def close(self) -> None:
        """Give the boards back. A thread that waits for one gives it back when it comes."""
        with self.state.changed:
            self.state.closed = True
            self.state.changed.notify_all()
        for thread in self._threads:
            thread.interrupt()
        until = time.monotonic() + _END_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


class BoardThread(threading.Thread):
    """Has one board at a time."""

    def __init__(self, state: FarmState, boards: BoardSource, limits: Limits, number: int) -> None:
        super().__init__(name=f"tuning on board {number}", daemon=True)
        self._state, self._boards, self._limits = state, boards, limits
        self._board: HeldBoard | None = None
        self._session: Session | None = None
        self._bench: RemoteBench | None = None
        self._opened: Opened | None = None
        """The kernel of the bench."""
        self._compared: set[Workload] = set()
        """Kernels that the board is known to compute rightly."""
        self._backoff = Backoff()

    def run(self) -> None:
        state = self._state
        try:
            while True:
                with state.changed:
                    state.changed.wait_for(lambda: state.closed or (state.jobs and state.opened is not None))
                    if state.closed:
                        return
                    opened = state.opened
                assert opened is not None
                bench = self._ready(opened)
                if bench is not None:
                    self._one(opened, bench)
        finally:
            self._lose("")

    def interrupt(self) -> None:
        """End what the thread waits for on its board."""
        session = self._session
        if session is not None:
            session.abandon()

    # ---- a job ------------------------------------------------------------------------------------------------------

    def _one(self, opened: Opened, bench: RemoteBench) -> None:
        with self._state.changed:
            if self._state.opened is not opened or not self._state.jobs:
                return
            job = self._state.jobs.popleft()
        assert self._board is not None
        where = f"on {self._board.name}"
        if job.trace is None:
            job.tell(replace(bench.baseline, message=where))
            return
        assert job.made is not None and job.best_made is not None
        try:
            found = bench.trial(job.trace, job.made, job.best, job.best_made)
        except Exception as error:  # a mistake here must not leave the search without an answer
            found = Failed(Outcome.LOST, f"{type(error).__name__}: {error}", over=True)
        if isinstance(found, TrialRecord):
            self._backoff.reset()
            job.tell(replace(_rescaled(found, opened, bench), message=where))
            return
        threads = opened.workload.threads
        job.tell(TrialRecord(job.trace, found.outcome, threads=threads, message=f"{found.message} ({where})"))
        if found.over:
            self._after(found)

    def _after(self, failed: Failed) -> None:
        """The session is over. The board stays ours unless it is at fault."""
        if failed.blame:
            self._note(failed.message)
            self._lose(failed.blame)
            self._pause()
        else:
            self._end_session()

    # ---- a board ----------------------------------------------------------------------------------------------------

    def _ready(self, opened: Opened) -> RemoteBench | None:
        """The bench of a kernel on a board; None, after a pause, if there is no board now."""
        if self._bench is not None and self._opened is not None and self._is_open(opened):
            return self._bench
        try:
            self._forget_bench()
            if self._board is None:
                self._board = self._boards.take(TAKE_SECONDS)
            if self._session is None:
                self._session = self._board.connect(self._limits.run)
            if self._state.closed:
                return None
            known = None if opened.workload in self._compared else opened.reference.results()
            self._bench = RemoteBench(self._session, opened.workload, opened.default, self._limits, known)
            self._compared.add(opened.workload)
            self._opened = opened
            with self._state.changed:
                self._state.ready += 1
                self._state.never = None
            return self._bench
        except UserError as error:
            self._failed(error)
        except Exception as error:  # a mistake here must not leave the search without an answer
            self._failed(UserError(f"{type(error).__name__}: {error}", code="N009"))
        self._pause()
        return None

    def _is_open(self, opened: Opened) -> bool:
        mine = self._opened
        return mine is not None and mine.workload is opened.workload

    def _failed(self, error: UserError) -> None:
        """There is no board, or the kernel cannot be opened on it."""
        at_work, blame = self._session is not None, blame_of(error)
        is_link = isinstance(error, LinkError)
        with self._state.changed:
            if at_work and not blame and (not is_link or error.code in ("N014", "N015")):
                self._state.refused.append(error.message)
            elif isinstance(error, WrongBoard):
                self._note_wrong(error)
            elif not at_work and not may_come(error):
                self._state.never = error
            self._state.changed.notify_all()
        self._note(error.message)
        self._lose(blame)

    def _note_wrong(self, error: WrongBoard) -> None:
        """Of several boards each counts once: the others may be right. If they all are wrong, the code is."""
        name = self._board.name if self._board is not None else ""
        if self._boards.is_single or name not in self._state.wrong:
            self._state.refused.append(error.message)
        self._state.wrong.add(name)

    def _note(self, reason: str) -> None:
        with self._state.changed:
            self._state.reason = reason

    def _pause(self) -> None:
        with self._state.changed:
            self._state.changed.wait_for(lambda: self._state.closed, self._backoff.pause())

    def _lose(self, blame: str) -> None:
        """Give the board back."""
        board, self._board = self._board, None
        self._compared.clear()
        self._end_session()
        if board is not None:
            board.give_back(blame)

    def _end_session(self) -> None:
        self._forget_bench()
        session, self._session = self._session, None
        if session is not None:
            session.abandon()

    def _forget_bench(self) -> None:
        if self._bench is None:
            return
        self._bench = self._opened = None
        with self._state.changed:
            self._state.ready -= 1
            self._state.none_since = time.monotonic()


def _rescaled(record: TrialRecord, opened: Opened, bench: RemoteBench) -> TrialRecord:
    """A record with the times that the first board would have taken."""
    if not opened.seconds or not bench.baseline.seconds or record.seconds is None:
        return record
    factor = opened.seconds / bench.baseline.seconds
    return replace(record, seconds=record.seconds * factor, samples=tuple(s * factor for s in record.samples))


def lost(trace: RecordedSchedule, threads: int, why: str) -> TrialRecord:
    """The record of a candidate that no board has measured."""
    return TrialRecord(trace, Outcome.LOST, threads=threads, message=why)


def is_unmeasurable(state: FarmState) -> bool:
    """Whether boards have tried the default schedule often enough."""
    return len(state.refused) >= MOST_STARTS
