"""The search for the schedule of one kernel, in steps, so that a task scheduler can choose whose turn it is.

Everything that was measured before, here or in another run, is in the database: a search begins with what is known of
the kernel and with the best schedules of similar ones, and a search that was ended goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final, Protocol

from weft.kernels.task import KernelTask
from weft.schedule.dispatch import RecordedSchedule
from weft.schedule.trace import Trace
from weft.support.errors import ScheduleError
from weft.tune.measure.runner import Runner, Workload
from weft.tune.record import Outcome, TrialRecord
from weft.tune.search.history import History, Trial
from weft.tune.search.strategy import Guide, Strategy
from weft.tune.space import Point, Space

BATCH: Final = 8
"""Candidates that are measured between two updates of the guide."""
CONFIRMED: Final = 3
"""The best candidates that are measured again at the end: the best of many noisy times is better than it should be."""
SETTLED: Final = 2
"""Candidates of a batch that are measured again because they look faster than the best."""
GAIN: Final = 0.99
"""A schedule replaces the default one if it takes at most so much of its time."""


class Memory(Protocol):
    """What is known from before, and keeps what is found: the tuning database implements it."""

    def add(
        self,
        task: KernelTask,
        records: Iterable[TrialRecord],
        *,
        run: str = "",
        seed: int | None = None,
        best: TrialRecord | None = None,
    ) -> Any:
        """Keep trials of a kernel, in their order. ``best`` is what the runner measured them beside."""

    def known(self, task: KernelTask, threads: int) -> Sequence[TrialRecord]:
        """All trials of a kernel with so many threads, in their order. Their relative times are those to the default
        schedule, where these are known."""

    def similar(self, task: KernelTask, threads: int) -> Sequence[Trace]:
        """The best schedules of kernels like it, the most similar first."""


@dataclass
class Progress:
    """How a search went: the best score after each trial, and where its time went, in seconds."""

    best: list[float] = field(default_factory=list)
    search: float = 0.0
    measure: float = 0.0


class Tuner(Protocol):
    """The search for the schedule of one kernel, as the task scheduler and reports know it."""

    workload: Workload
    space: Space

    @property
    def is_open(self) -> bool:
        """Whether :meth:`open` was called."""

    @property
    def exhausted(self) -> bool:
        """Whether there are no points any more."""

    @property
    def progress(self) -> Progress:
        """How the search went."""

    @property
    def history(self) -> History:
        """All trials so far."""

    @property
    def best(self) -> TrialRecord:
        """The record of the best schedule so far, which may be the default one."""

    @property
    def speedup(self) -> float:
        """How many times as fast as the default schedule the best one is; 1 if none is faster."""

    def open(self) -> TrialRecord:
        """Begin, or go on after another kernel had the runner; the record of the default schedule."""

    def step(self, count: int = BATCH) -> list[Trial]:
        """Measure up to ``count`` more candidates."""

    def confirm(self) -> list[TrialRecord]:
        """Measure the best once more; the records of those that are faster than the default schedule, the fastest
        first."""


class KernelTuner:
    """Searches the schedules of one kernel.

    ``strategy`` is a class of :data:`weft.tune.search.STRATEGIES`; ``guide`` predicts for it. ``has_default``: the
    default point of the first sketch is the default schedule, which the baseline measures.
    """

    def __init__(
        self,
        workload: Workload,
        space: Space,
        runner: Runner,
        strategy: type[Strategy],
        *,
        guide: Guide | None = None,
        memory: Memory | None = None,
        seed: int = 0,
        run: str = "",
        has_default: bool = True,
    ) -> None:
        self.workload, self.space, self.progress = workload, space, Progress()
        self._runner, self._strategy, self._guide = runner, strategy, guide
        self._memory, self._seed, self._run, self._has_default = memory, seed, run, has_default
        self._history: History | None = None
        self._search: Strategy | None = None
        self._waiting: list[Point] = []
        self._untold: list[Trial] = []
        """Trials of earlier runs that the strategy and the guide learn from when the kernel's turn comes: to describe
        them takes time, and many kernels have no turn."""
        self.exhausted = False
        """Whether the strategy has no points any more."""

    @property
    def is_open(self) -> bool:
        """Whether :meth:`open` was called."""
        return self._history is not None

    @property
    def history(self) -> History:
        """All trials so far; :meth:`open` comes first."""
        assert self._history is not None, "open comes first"
        return self._history

    @property
    def best(self) -> TrialRecord:
        """The record of the best schedule so far, which may be the default one."""
        return self.history.best_record

    @property
    def speedup(self) -> float:
        """How many times as fast as the default schedule the best one is; 1 if none is faster."""
        return self.history.best_score

    def open(self) -> TrialRecord:
        """Begin, or go on after another kernel had the runner; the record of the default schedule. Raises UserError
        where the kernel cannot be measured."""
        if self._history is not None:
            self._runner.resume(self.workload)
            return self._history.baseline
        baseline = replace(self._runner.open(self.workload), sizes=self.workload.sizes)
        self._history = History(baseline)
        if self._has_default:
            self._history.by_point[self.space.default()] = Trial(self.space.default(), baseline, 1.0)
        self._search = self._strategy(self.space, self._history, Random(self._seed), self._guide)
        self._remember(baseline)
        return baseline

    def step(self, count: int = BATCH) -> list[Trial]:
        """Measure up to ``count`` more candidates."""
        assert self._search is not None, "open comes first"
        begin = time.perf_counter()
        known, self._untold = self._untold, []
        if known:
            self._told(known)
        points = self._next(count)
        built = [(p, self._trace(p)) for p in points]
        between = time.perf_counter()
        records = iter(self._runner.measure([t for _, t in built if isinstance(t, Trace)], self.best))
        found: list[TrialRecord] = []
        try:
            for _, t in built:
                found.append(next(records) if isinstance(t, Trace) else t)
        except BaseException:  # what was measured before an interruption is kept
            self._told(self._noted(points[: len(found)], found))
            raise
        trials = self._noted(points, found)
        try:
            trials = self._settled(trials)
        finally:
            measured = time.perf_counter()
            self._told(trials)
        self.exhausted = not points
        self.progress.measure += measured - between
        self.progress.search += between - begin + time.perf_counter() - measured
        return trials

    def _settled(self, trials: list[Trial]) -> list[Trial]:
        """The trials, after those that look faster than the best were measured again, beside the default schedule."""
        history = self.history
        again = [t for t in history.unsettled if t.record.trace is not None][:SETTLED]
        if not again:
            return trials
        changed: dict[Point, Trial] = {}
        records: list[TrialRecord] = []
        try:
            measured = self._runner.measure([t.record.trace for t in again if t.record.trace], history.baseline)
            for t, r in zip(again, measured, strict=True):
                if r.outcome is not Outcome.LOST:
                    records.append(replace(r, sketch=t.record.sketch, **self._conditions))
                    changed[t.point] = history.settle(t, records[-1])
        finally:
            self._keep_confirmed(records)
        found = [changed.get(t.point, t) for t in trials]
        self._curve(found)
        return found

    def _curve(self, trials: Sequence[Trial]) -> None:
        """Note the best score after each of the last trials."""
        del self.progress.best[len(self.progress.best) - len(trials) :]
        best = self.progress.best[-1] if self.progress.best else 1.0
        for t in trials:
            best = max(best, t.score) if t.score <= self.history.best_score else best
            self.progress.best.append(best)
        if trials:
            self.progress.best[-1] = self.history.best_score

    def confirm(self) -> list[TrialRecord]:
        """Measure the best candidates once more, beside the default schedule; the records of those that are certainly
        faster, the fastest first."""
        history = self.history
        again = [t.record.trace for t in history.top(CONFIRMED) if t.score > 1 and t.record.trace is not None]
        names = {t.record.trace: t.record.sketch for t in history.trials}
        records: list[TrialRecord] = []
        try:
            for r in self._runner.measure(again, history.baseline):
                records.append(replace(r, sketch=names.get(r.trace, ""), **self._conditions))
        finally:  # what was measured before an interruption is kept
            self._keep_confirmed([r for r in records if r.outcome is not Outcome.LOST])
        faster = [r for r in records if r.ok and r.relative is not None and r.relative <= GAIN]
        return sorted(faster, key=lambda r: r.relative or 1.0)

    @property
    def _conditions(self) -> dict[str, Any]:
        """Under which all trials of this search are measured; only times under the same ones compare."""
        return {"sizes": self.workload.sizes, "cold": self.history.baseline.cold}

    def _keep_confirmed(self, records: Sequence[TrialRecord]) -> None:
        if self._memory is not None and records:
            run, default = f"{self._run} confirmed", self.history.baseline
            self._memory.add(self.workload.task, records, run=run, seed=self._seed, best=default)

    def _next(self, count: int) -> list[Point]:
        assert self._search is not None
        given, self._waiting = self._waiting[:count], self._waiting[count:]
        given = [p for p in given if not self.history.tried(p)]
        return given if given else self._search.ask(count)

    def _trace(self, point: Point) -> Trace | TrialRecord:
        try:
            return self.space.trace(point)
        except ScheduleError as error:
            return TrialRecord(None, Outcome.REFUSED, threads=self.workload.threads, message=str(error).splitlines()[0])

    def _noted(self, points: Sequence[Point], records: Sequence[TrialRecord]) -> list[Trial]:
        trials, best = [], self.best
        names, conditions = [self.space.sketches[p.sketch].name for p in points], self._conditions
        records = [replace(r, sketch=n, **conditions) for n, r in zip(names, records, strict=True)]
        for p, r in zip(points, records, strict=True):
            trials.append(self.history.add(p, r))
            self.progress.best.append(self.history.best_score)
        if self._memory is not None:
            kept = [r for r in records if r.trace is not None and r.outcome is not Outcome.LOST]
            self._memory.add(self.workload.task, kept, run=self._run, seed=self._seed, best=best)
        return trials

    def _told(self, trials: Sequence[Trial]) -> None:
        assert self._search is not None
        self._search.tell(trials)
        if self._guide is not None:
            self._guide.learn([t for t in trials if t.record.outcome is not Outcome.LOST])

    def _remember(self, baseline: TrialRecord) -> None:
        """Take in what the database knows: trials of this kernel as if they were measured now, and the best points of
        similar kernels as the first candidates."""
        if self._memory is None:
            return
        task, threads = self.workload.task, self.workload.threads
        known = list(self._memory.known(task, threads))
        self._memory.add(task, [baseline], run=self._run, seed=self._seed)
        same = [r for r in known if (r.sizes, r.cold) == (baseline.sizes, baseline.cold)]
        last = {r.trace: r for r in same if isinstance(r.trace, Trace)}  # the best are measured several times
        trials = []
        for trace, record in last.items():
            point = self.space.point(trace) if isinstance(trace, Trace) else None
            if point is not None and self._exactly(point, trace) and not self.history.tried(point):
                trials.append(self.history.recall(point, replace(record, message="")))
        self._untold = trials
        best = [t.point for t in self.history.top(1) if t.score > 1]
        near = (self.space.point(t) for t in self._memory.similar(task, threads))
        self._waiting = [p for p in dict.fromkeys([*self._waiting, *near]) if p is not None and p not in best]

    def suggest(self, traces: Iterable[Trace]) -> None:
        """Try these schedules next, where the space has them."""
        points = (self.space.point(t) for t in traces)
        self._waiting = list(dict.fromkeys((*self._waiting, *(p for p in points if p is not None))))

    def _exactly(self, point: Point, trace: RecordedSchedule | None) -> bool:
        found = self._trace(point)
        return isinstance(found, Trace) and trace is not None and found.to_json() == trace.to_json()
