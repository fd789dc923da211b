"""Measures candidates on this machine, in a worker process that is pinned to cores.

Processes beside it build them: on cores that the kernel leaves free, while others are measured. Where it leaves none,
all cores build the candidates of a batch, and then they are measured: nothing computes beside a measurement.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Final, Self

from weft.schedule.dispatch import RecordedSchedule
from weft.support.cores import usable_cores
from weft.support.errors import UserError
from weft.tune.measure.builder import Built
from weft.tune.measure.building import Builders
from weft.tune.measure.codes import ScheduleCodes
from weft.tune.measure.process_bench import ProcessBench
from weft.tune.measure.runner import Runner, Workload
from weft.tune.measure.timing import Limits, evicted_bytes
from weft.tune.record import TrialRecord

MOST_BUILDERS: Final = 4
"""Processes that build for one that measures. Building a kernel takes about as long as measuring it."""


class LocalRunner:
    """A :class:`~weft.tune.measure.runner.Runner` on this machine. Use it in a ``with`` statement.

    ``pinned``: the process that measures has cores of its own. ``builders`` processes build: by default as many as
    cores are left, or else as there are cores, at most four. With none, the process that measures builds.
    """

    def __init__(self, limits: Limits | None = None, pinned: bool = True, builders: int | None = None) -> None:
        self.bench = ProcessBench(limits, pinned)
        """Where candidates are measured."""
        self._wanted = builders
        self._codes: ScheduleCodes | None = None
        self._count = 0
        """Of the builders of :attr:`_codes`."""
        self._workload: Workload | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, workload: Workload) -> TrialRecord:
        """Begin with a kernel. Raises UserError U040 where its default schedule cannot be measured."""
        self._workload = workload
        return self.bench.open(workload)

    def resume(self, workload: Workload) -> None:
        """Go on with a kernel that was opened before: its default schedule is not measured again."""
        self._workload = workload
        self.bench.resume(workload)

    def measure(self, traces: Sequence[RecordedSchedule], best: TrialRecord) -> Iterator[TrialRecord]:
        """Measure schedules one after another: each when its record is asked for."""
        building = self._begun(traces)
        try:
            if self._workload is not None and usable_cores() <= self._workload.threads:
                wait(building)
            for at, trace in enumerate(traces):
                yield self._record(trace, building[at].result() if building else None, best)
        finally:
            for future in building:
                future.cancel()

    def close(self) -> None:
        """End the processes; a later :meth:`measure` starts others."""
        self.bench.close()
        if self._codes is not None:
            self._codes.close()

    def _begun(self, traces: Sequence[RecordedSchedule]) -> list[Future[Built]]:
        """The code of each schedule, which is being built; nothing where the process that measures builds."""
        assert self._workload is not None, "open comes before measure"
        count = self._builders(self._workload.threads)
        if self._codes is not None and count != self._count:
            self._codes.close()
            self._codes = None
        if count == 0:
            return []
        if self._codes is None:
            self._codes, self._count = ScheduleCodes(partial(Builders, count, self.bench.limits.build)), count
        return [self._codes.build(self._workload.task, trace, self.bench.patience) for trace in traces]

    def _builders(self, threads: int) -> int:
        if self._wanted is not None:
            return self._wanted
        cores = usable_cores()
        return min(MOST_BUILDERS, cores - threads if cores > threads else cores)

    def _record(self, trace: RecordedSchedule, made: Built | None, best: TrialRecord) -> TrialRecord:
        assert self._workload is not None
        if isinstance(made, tuple):
            return TrialRecord(trace, made[0], threads=self._workload.threads, message=made[1])
        return self.bench.trial(trace, best, made)


@contextlib.contextmanager
def measuring(runner: Runner | None, flush_caches: bool) -> Iterator[Runner]:
    """The caller's runner, or one of this machine that ends with the ``with`` statement. Raises UserError U023 where
    the caller's runner is to flush caches."""
    if runner is None:
        with LocalRunner(Limits(evict=evicted_bytes())) if flush_caches else LocalRunner() as made:
            yield made
        return
    if flush_caches:
        raise UserError(
            "a runner that is given decides itself whether caches are flushed",
            code="U023",
            hint="make it with Limits(evict=evicted_bytes()) of weft.tune.measure.timing",
        )
    yield runner
