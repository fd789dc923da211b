"""A runner for tests of tuners: it replays schedules but runs nothing, and its times depend on the schedule alone."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from weft.schedule.schedule import Schedule
from weft.schedule.trace import Trace
from weft.support.errors import ScheduleError
from weft.tune.measure.runner import Workload
from weft.tune.record import Outcome, TrialRecord

DEFAULT_SECONDS = 1e-3


def invented(trace: Trace) -> float:
    """Between half of the default schedule's time and one and a half of it."""
    return DEFAULT_SECONDS * (0.5 + zlib.crc32(trace.to_json().encode()) / 2**32)


class InventingRunner:
    """A :class:`weft.tune.measure.runner.Runner`. ``outcome`` says how a schedule fares; ``stop_after``: Ctrl-C arrives
    after so many schedules."""

    def __init__(
        self, outcome: Callable[[Trace], Outcome] = lambda trace: Outcome.OK, stop_after: int | None = None
    ) -> None:
        self._outcome, self._stop_after = outcome, stop_after
        self.measured: list[Trace] = []
        self.opened: list[Workload] = []
        self.closed = False

    def open(self, workload: Workload) -> TrialRecord:
        self.opened.append(workload)
        return TrialRecord(None, Outcome.OK, DEFAULT_SECONDS, (DEFAULT_SECONDS,), threads=workload.threads)

    def resume(self, workload: Workload) -> None:
        self.opened.append(workload)

    def measure(self, traces: Sequence[Trace], best: TrialRecord) -> list[TrialRecord]:
        return [self._record(trace, best) for trace in traces]

    def _record(self, trace: Trace, best: TrialRecord) -> TrialRecord:
        if self._stop_after is not None and len(self.measured) >= self._stop_after:
            raise KeyboardInterrupt
        self.measured.append(trace)
        threads, outcome = self.opened[-1].threads, self._outcome(trace)
        try:
            Schedule(self.opened[-1].task.program).replay(trace)
        except ScheduleError:
            outcome = Outcome.REFUSED
        if outcome is not Outcome.OK:
            return TrialRecord(trace, outcome, threads=threads, message=f"it is {outcome} <here>")
        seconds = invented(trace)
        assert best.seconds is not None
        return TrialRecord(trace, outcome, seconds, (seconds,), seconds / best.seconds, threads)

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> InventingRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
