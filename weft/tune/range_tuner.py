"""The search for the schedules of a kernel with open sizes: a few kernels, and a dispatch between them.

A few of the sizes are searched, each as a kernel of its own; what is good for one is tried for the others. Then the
best schedules of each are measured on all sizes, and their times give a dispatch (:mod:`weft.tune.by_size`):

    sizes 1 2 4 … 512 ─▸ search at 1, 8, 64, 512 ─▸ the best of each on all sizes ─▸ dispatch ─▸ measured again
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from weft.schedule.dispatch import RecordedSchedule
from weft.schedule.trace import Trace
from weft.tune.by_size import anchors_of, dispatch_of
from weft.tune.kernel_tuner import BATCH, GAIN, KernelTuner, Memory, Progress
from weft.tune.measure.runner import Runner, Workload
from weft.tune.record import Outcome, TrialRecord
from weft.tune.search.history import History, Trial
from weft.tune.space import Space

MAX_ANCHORS: Final = 4
"""Sizes that are searched; the others are only measured."""
TRIED_EVERYWHERE: Final = 3
"""Schedules of each search that are measured on all sizes."""
VERSIONS: Final = (1, 2, 4)
"""The dispatches that are measured have at most so many versions: fewer are less code."""
MAX_SLOWER: Final = 1.05
"""A dispatch takes on no size more than so many times as long as the default schedule."""


class RangeTuner:
    """Searches the schedules of one kernel with open sizes, those of ``workload``. It works as a
    :class:`~weft.tune.kernel_tuner.KernelTuner` does.

    ``tuner`` makes the tuner of some of the sizes, for a run of the given name.
    """

    def __init__(
        self,
        workload: Workload,
        space: Space,
        runner: Runner,
        tuner: Callable[[Workload, str], KernelTuner],
        *,
        memory: Memory | None = None,
        seed: int = 0,
        run: str = "",
    ) -> None:
        self.workload, self.space = workload, space
        self._runner, self._memory, self._seed, self._run = runner, memory, seed, run
        anchors = anchors_of(workload.sizes, MAX_ANCHORS)
        self.tuners = [tuner(replace(workload, sizes=(a,)), f"{run} at {_text(a)}") for a in anchors]
        self._opened: list[KernelTuner] = []
        self._curve: list[float] = []
        self._measured = 0.0
        self._baseline: TrialRecord | None = None
        self._found: TrialRecord | None = None

    @property
    def is_open(self) -> bool:
        """Whether :meth:`open` was called."""
        return self._baseline is not None

    @property
    def history(self) -> History:
        """The trials of all searches so far, each compared with the default schedule on its own sizes; :meth:`open`
        comes first."""
        assert self._baseline is not None, "open comes first"
        made = History(self._baseline)
        for tuner in self._opened:
            made.trials += tuner.history.trials
        made.best_score = self.speedup
        return made

    @property
    def progress(self) -> Progress:
        """How the searches went together."""
        search = sum(t.progress.search for t in self._opened)
        return Progress(self._curve, search, self._measured + sum(t.progress.measure for t in self._opened))

    @property
    def best(self) -> TrialRecord:
        """The dispatch, once it was found and measured; until then, the default schedule."""
        assert self._baseline is not None, "open comes first"
        return self._found or self._baseline

    @property
    def speedup(self) -> float:
        """How many times as fast as the default schedule the best ones are, as the geometric mean over the sizes that
        are searched."""
        return statistics.geometric_mean([t.speedup if t in self._opened else 1.0 for t in self.tuners])

    @property
    def exhausted(self) -> bool:
        """Whether no search has points any more."""
        return all(t.exhausted for t in self.tuners)

    def open(self) -> TrialRecord:
        """Begin, or go on after another kernel had the runner; the record of the default schedule on all sizes. Raises
        UserError where the kernel cannot be measured."""
        if self._baseline is None:
            self._baseline = replace(self._runner.open(self.workload), sizes=self.workload.sizes)
            known = () if self._memory is None else self._memory.known(self.workload.task, self.workload.threads)
            searched = {record.sizes for record in known if record.cold == self._baseline.cold}
            self._keep([self._baseline], self._run)
            for tuner in self.tuners:
                if tuner.workload.sizes in searched:  # trials of earlier runs, from which this one goes on
                    self._begin(tuner)
        return self._baseline

    def step(self, count: int = BATCH) -> list[Trial]:
        """Measure up to ``count`` more candidates, on the size that had the fewest."""
        able = [t for t in self.tuners if not t.exhausted]
        if not able:
            return []
        tuner = min(able, key=lambda t: len(t.progress.best))
        before = tuner.speedup if tuner in self._opened else 1.0
        self._begin(tuner)
        trials = tuner.step(count)
        self._curve += [self.speedup] * len(trials)
        trace = tuner.best.trace
        if tuner.speedup > before and isinstance(trace, Trace):
            for other in self.tuners:
                if other is not tuner:
                    other.suggest([trace])
        return trials

    def confirm(self) -> list[TrialRecord]:
        """Measure the best candidates on all sizes, and the dispatches that follow from that; the records of those that
        are certainly faster than the default schedule and on no size slower, the fastest first."""
        self.open()
        sizes, named = self.workload.sizes, dict[RecordedSchedule, str]()
        for tuner in self._opened:
            top = (t.record for t in tuner.history.top(TRIED_EVERYWHERE) if t.score > 1)
            named.update((r.trace, r.sketch) for r in top if r.trace is not None)
        if not named:
            return []
        times: dict[Trace, Sequence[float]] = {}
        for record in self._everywhere(list(named), named):
            if isinstance(record.trace, Trace):
                whole = record.ok and len(record.relatives) == len(sizes)
                times[record.trace] = record.relatives if whole else (math.inf,) * len(sizes)
        made = dict.fromkeys(d for v in VERSIONS if (d := dispatch_of(sizes, times, v)) is not None)
        records = self._everywhere(list(made), dict.fromkeys(made, "by size"))
        good = sorted((r for r in records if r.ok and _gains(r)), key=lambda r: r.relative or 1.0)
        if good:
            self._found = good[0]
        return good

    def _begin(self, tuner: KernelTuner) -> None:
        tuner.open()
        if tuner not in self._opened:
            self._opened.append(tuner)

    def _everywhere(
        self, schedules: Sequence[RecordedSchedule], names: dict[RecordedSchedule, str]
    ) -> list[TrialRecord]:
        """Records of schedules on all sizes, beside the default one."""
        baseline, records = self.open(), list[TrialRecord]()
        begin = time.perf_counter()
        self._runner.resume(self.workload)
        try:
            for r in self._runner.measure(schedules, baseline):
                name = "" if r.trace is None else names.get(r.trace, "")
                records.append(replace(r, sketch=name, sizes=self.workload.sizes))
        finally:  # what was measured before an interruption is kept
            self._keep([r for r in records if r.outcome is not Outcome.LOST], f"{self._run} confirmed", baseline)
        self._measured += time.perf_counter() - begin
        return records

    def _keep(self, records: Iterable[TrialRecord], run: str, beside: TrialRecord | None = None) -> None:
        found = list(records)
        if self._memory is not None and found:
            self._memory.add(self.workload.task, found, run=run, seed=self._seed, best=beside)


def _gains(record: TrialRecord) -> bool:
    """Whether a dispatch replaces the default schedule."""
    faster = record.relative is not None and record.relative <= GAIN
    return faster and max(record.relatives, default=1.0) <= MAX_SLOWER


def _text(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))
