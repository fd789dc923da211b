"""Candidates that are built and measured together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from weft.schedule.dispatch import RecordedSchedule
from weft.tune.measure.farm import Farm, TrialJob
from weft.tune.record import Outcome, TrialRecord


class Batch:
    """Candidates that are built and measured together, and their records as they come."""

    def __init__(self, farm: Farm, threads: int) -> None:
        self.farm, self._threads = farm, threads
        self.records: dict[int, TrialRecord] = {}
        """By the places of the candidates; ``farm.state.changed`` tells of them."""
        self._over = False
        """Whether nobody waits for records any more."""

    def add(self, at: int, job: TrialJob) -> None:
        """Have a candidate measured that was built."""
        with self.farm.state.changed:  # no job comes to the farm after the end of its batch: the kernel may be another
            if not self._over:
                self.farm.add(job)

    def end(self) -> None:
        """Drop what no board has begun, and what is not built yet."""
        with self.farm.state.changed:
            self._over = True
            self.farm.drop()

    def fail(self, at: int, trace: RecordedSchedule, why: tuple[Outcome, str]) -> None:
        """Note that a candidate is not measured, unless it has a record."""
        self._note(at, TrialRecord(trace, why[0], threads=self._threads, message=why[1]))

    def teller(self, at: int) -> Callable[[TrialRecord], None]:
        """Where a board tells the record of a candidate."""
        return partial(self._note, at)

    def _note(self, at: int, record: TrialRecord) -> None:
        with self.farm.state.changed:
            self.records.setdefault(at, record)
            self.farm.state.changed.notify_all()
