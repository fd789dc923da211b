"""Measuring beside the default schedule alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from weft.schedule.dispatch import Dispatch
from weft.schedule.trace import Trace
from weft.tune.measure.runner import Runner, Workload
from weft.tune.record import TrialRecord


class BesideDefault:
    """A runner whose candidates are measured in turns with the default schedule, and not with the best so far.

    A search wants to know whether a candidate is better than the best. There each lucky measurement becomes the one
    that all later ones are compared with, and after hundreds of trials on a busy machine the errors have multiplied.
    The corpus wants all times on one scale: they are those that the candidates would take where the default schedule
    takes as long as when its kernel was opened.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._default: TrialRecord | None = None

    def open(self, workload: Workload) -> TrialRecord:
        """See :class:`~weft.tune.measure.runner.Runner`."""
        self._default = self._runner.open(workload)
        return self._default

    def resume(self, workload: Workload) -> None:
        """See :class:`~weft.tune.measure.runner.Runner`. The kernel is the one that was opened last."""
        self._runner.resume(workload)

    def measure(self, traces: Sequence[Trace | Dispatch], best: TrialRecord) -> Iterator[TrialRecord]:
        """A record for each schedule, without a relative time; what it is asked to be measured beside is ignored."""
        assert self._default is not None, "open comes before measure"
        for record in self._runner.measure(traces, self._default):
            yield _on_scale(record, self._default)

    def close(self) -> None:
        """See :class:`~weft.tune.measure.runner.Runner`."""
        self._runner.close()


def _on_scale(record: TrialRecord, default: TrialRecord) -> TrialRecord:
    """The record with its times as they would have been when the default schedule was measured."""
    if not (record.ok and record.relative and record.seconds and default.seconds):
        return replace(record, relative=None)
    factor = record.relative * default.seconds / record.seconds
    samples = tuple(factor * s for s in record.samples)
    return replace(record, seconds=factor * record.seconds, samples=samples, relative=None)
