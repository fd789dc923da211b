"""Runners that measure by formula, and a memory without files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from synthetic import BASELINE, Speed

from weft.kernels.task import KernelTask
from weft.schedule.trace import Trace
from weft.support.errors import UserError
from weft.tune.measure.runner import Workload
from weft.tune.record import Outcome, TrialRecord
from weft.tune.space import Space


class FakeRunner:
    """Measures the points of one space for each kernel. A speed of 0 is a kernel that crashes.

    ``lucky``: factor of the first time of each schedule; the second one, and all later ones, are right.
    """

    def __init__(self) -> None:
        self.formulas: dict[str, tuple[Space, Speed, float]] = {}
        self.measured: list[Trace] = []
        self.opened: list[str] = []
        self.workload: Workload | None = None
        self.lucky: Callable[[Trace], float] = lambda trace: 1.0
        self.interrupted_after: int | None = None
        self.lost = False
        self.cold = False
        self.failing: set[str] = set()

    @property
    def tried(self) -> list[Trace]:
        """What was measured, each schedule once: what looks good is measured several times."""
        return list(dict.fromkeys(self.measured))

    def know(self, workload: Workload, space: Space, speed: Speed, baseline: float = BASELINE) -> None:
        self.formulas[workload.task.identity] = (space, speed, baseline)

    def open(self, workload: Workload) -> TrialRecord:
        self.workload = workload
        if workload.task.identity in self.failing:
            raise UserError("kernel cannot be measured: it fails", code="U040", hint="none")
        self.opened.append(workload.task.program.name)
        return TrialRecord(None, Outcome.OK, self.formulas[workload.task.identity][2], cold=self.cold)

    def resume(self, workload: Workload) -> None:
        self.workload = workload

    def measure(self, traces: Sequence[Trace], best: TrialRecord) -> Iterator[TrialRecord]:
        for trace in traces:
            if self.interrupted_after is not None and len(self.measured) >= self.interrupted_after:
                raise KeyboardInterrupt
            record = self._record(trace, best)
            self.measured.append(trace)
            yield record

    def _record(self, trace: Trace, best: TrialRecord) -> TrialRecord:
        assert self.workload is not None
        space, speed, baseline = self.formulas[self.workload.task.identity]
        point = space.point(trace)
        assert point is not None
        assert space.trace(point) == trace
        if self.lost:
            return TrialRecord(trace, Outcome.LOST, message="the link broke")
        fast = speed(point)
        if fast <= 0:
            return TrialRecord(trace, Outcome.CRASHED, message="it crashed")
        seconds = baseline / fast
        if trace not in self.measured:
            seconds *= self.lucky(trace)
        return TrialRecord(trace, Outcome.OK, seconds, (seconds,), seconds / (best.seconds or seconds))

    def close(self) -> None:
        pass


class Remembered:
    """A memory of kernels by identity; ``near`` are the schedules that it calls similar."""

    def __init__(self, near: Sequence[Trace] = ()) -> None:
        self.rows: list[tuple[str, TrialRecord, str, TrialRecord | None]] = []
        self.near = near

    def add(
        self, task: KernelTask, records: Iterable[TrialRecord], *, run: str = "", seed: int | None = None,
        best: TrialRecord | None = None,
    ) -> Any:  # fmt: skip
        self.rows += [(task.identity, r, run, best) for r in records]

    def known(self, task: KernelTask, threads: int) -> Sequence[TrialRecord]:
        return [replace(r, relative=None) for i, r, _, _ in self.rows if i == task.identity and r.threads == threads]

    def similar(self, task: KernelTask, threads: int) -> Sequence[Trace]:
        return self.near
