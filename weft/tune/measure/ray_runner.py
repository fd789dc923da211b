"""Measures candidates on a Ray cluster: builders and benches are spread over its nodes.

Every bench is an actor that reserves as many processors as the kernel has threads; what is left builds. All benches
measure beside the same best schedule, each on its own, so a candidate's time relative to that counts, and its seconds
are stated as the first bench would. A bench that is lost costs the trial that it had.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, Self

from weft.runtime import Artifact
from weft.schedule.dispatch import RecordedSchedule
from weft.support.errors import UserError
from weft.tune.measure.builder import Built
from weft.tune.measure.building import ENDED
from weft.tune.measure.codes import ScheduleCodes
from weft.tune.measure.ray_bench import ActorLost, NodeUnfit, OpenedOnCluster, RayBench
from weft.tune.measure.ray_builder import RayBuilder
from weft.tune.measure.ray_cluster import RayCluster
from weft.tune.measure.ray_models import ClusterModel, RayModels
from weft.tune.measure.runner import RunnerGone, Workload
from weft.tune.measure.timing import Limits
from weft.tune.record import Outcome, TrialRecord

MAX_BENCHES: Final = 64
MAX_BUILDERS: Final = 256


class RayRunner:
    """A :class:`~weft.tune.measure.runner.Runner` on the Ray cluster at ``address`` (see
    :class:`~weft.tune.measure.ray_cluster.RayCluster`, which says what is raised). Use it in a ``with`` statement.

    ``benches`` measure at once; by default as many as leave a processor for building beside each. The nodes should be
    machines of one kind, and Weft is installed on all of them.
    """

    def __init__(self, address: str, benches: int | None = None, limits: Limits | None = None) -> None:
        if benches is not None and not 1 <= benches <= MAX_BENCHES:
            raise UserError(f"{benches} benches are not possible", code="U042", hint=f"1 to {MAX_BENCHES} benches")
        self.limits = limits or Limits()
        self._cluster, self._wanted = RayCluster(address), benches
        self._parts: _Parts | None = None
        self._models: RayModels | None = None
        self._opened: OpenedOnCluster | None = None
        self._seconds: dict[Workload, float] = {}
        """Of default schedules on the bench that measured them first."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, workload: Workload) -> TrialRecord:
        """Begin with a kernel. Raises UserError U040 where its default schedule cannot be measured, RunnerGone (U041)
        where no bench answers."""
        if workload.task.maker.origin:
            raise UserError(
                f"a plugin makes the code of '{workload.task.program.name}', which measuring processes do not know",
                code="U040",
                hint="kernels of Weft's own targets can be tuned",
            )
        found = self._parts_for(workload).baseline(workload)
        self._seconds[workload] = found.seconds or 0.0
        self._opened = OpenedOnCluster(workload, found.seconds)
        return found

    def resume(self, workload: Workload) -> None:
        """Go on with a kernel that was opened before."""
        self._opened = OpenedOnCluster(workload, self._seconds.get(workload))

    def measure(self, traces: Sequence[RecordedSchedule], best: TrialRecord) -> Iterator[TrialRecord]:
        """Measure schedules, several at once. Raises RunnerGone (U041) where all benches are gone."""
        assert self._opened is not None, "open comes before measure"
        parts = self._parts_for(self._opened.workload)
        parts.check()
        yield from parts.measured(self._opened, traces, best)

    def close(self) -> None:
        """End what was started on the cluster, and the connection."""
        self._end()
        self._cluster.close()

    def executable(self, artifact: Artifact, threads: int) -> ClusterModel:
        """A model on a node; the models since the last :meth:`measure` are on the same one. Raises RunnerGone (U041)
        where no node can run it."""
        if self._models is None or self._models.threads != threads:
            self._end()
            self._models = RayModels(self._cluster, threads)
        return self._models.load(artifact)

    def _end(self) -> None:
        """End what was started on the cluster: benches and models take turns there."""
        for part in (self._parts, self._models):
            if part is not None:
                part.close()
        self._parts = self._models = None

    def _parts_for(self, workload: Workload) -> _Parts:
        if self._parts is None or self._parts.threads != workload.threads:
            self._end()
            self._parts = _Parts(self._cluster, self.limits, workload.threads, self._wanted)
        return self._parts


class _Parts:
    """The benches and builders for kernels of one number of threads."""

    def __init__(self, cluster: RayCluster, limits: Limits, threads: int, wanted: int | None) -> None:
        nodes = cluster.cpus()
        room = sum(cpus // threads for cpus in nodes)
        if room == 0:
            raise UserError(
                f"no node of the Ray cluster has {threads} processors",
                code="U062",
                hint=f"--threads {max(nodes, default=0) or 1}, or another cluster",
            )
        self.threads, total = threads, sum(nodes)
        count = min(room, MAX_BENCHES, wanted or max(1, total // (threads + 1)))
        left = total - count * threads
        self._benches = [RayBench(cluster, limits, threads) for _ in range(count)]
        self._idle, self._changed, self._alive = list(self._benches), threading.Condition(), count
        self._gone = ""
        builders = max(1, min(left, MAX_BUILDERS))
        self._codes = ScheduleCodes(lambda: RayBuilder(cluster, builders, limits.build, cpus=min(1, left)))
        self._pool = ThreadPoolExecutor(count, "measuring on a cluster")

    def check(self) -> None:
        """Raise RunnerGone where no bench is left."""
        if self._alive == 0:
            raise RunnerGone(
                f"no node of the Ray cluster measures any more: {self._gone}",
                code="U041",
                hint="what was measured is in the database; the same command goes on from there",
            )

    def baseline(self, workload: Workload) -> TrialRecord:
        """The default schedule of a kernel. Raises UserError U040 where it cannot be measured, RunnerGone."""
        while True:
            bench = self._take()
            if bench is None:
                self.check()
            assert bench is not None
            try:
                found = bench.open(workload)
                bench.fails = 0
                return found
            except ActorLost as lost:
                bench.fails, bench.reason = bench.fails + 1, str(lost)
            except NodeUnfit as unfit:
                bench.retire(str(unfit))
            finally:
                self._give(bench)

    def measured(
        self, opened: OpenedOnCluster, traces: Sequence[RecordedSchedule], best: TrialRecord
    ) -> Iterator[TrialRecord]:
        """A record of each schedule, in their order and as they come."""
        building = [self._codes.build(opened.workload.task, trace) for trace in traces]
        records = [Future[TrialRecord]() for _ in traces]
        for trace, code, record in zip(traces, building, records, strict=True):
            code.add_done_callback(partial(self._built, opened, trace, best, record))
        try:
            for record in records:
                yield record.result()
        finally:
            for made in building:
                made.cancel()
            for record in records:
                record.cancel()

    def close(self) -> None:
        """End the actors and the builders."""
        with self._changed:
            self._alive, self._gone = 0, "the search was ended"
            self._changed.notify_all()
        self._codes.close()
        for bench in self._benches:
            bench.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _built(
        self, opened: OpenedOnCluster, trace: RecordedSchedule, best: TrialRecord, record: Future[TrialRecord],
        code: Future[Built],
    ) -> None:  # fmt: skip
        """Have a schedule measured that was built."""
        made = ENDED if code.cancelled() else code.result()
        if isinstance(made, tuple):
            if record.set_running_or_notify_cancel():
                record.set_result(TrialRecord(trace, made[0], threads=self.threads, message=made[1]))
            return

        def measure() -> None:
            if record.set_running_or_notify_cancel():
                record.set_result(self._trial(opened, trace, made, best))

        try:
            self._pool.submit(measure)
        except RuntimeError:  # it was closed, and nobody waits
            record.cancel()

    def _trial(self, opened: OpenedOnCluster, trace: RecordedSchedule, made: Built, best: TrialRecord) -> TrialRecord:
        assert not isinstance(made, tuple)
        bench = self._take()
        if bench is None:
            return TrialRecord(trace, Outcome.LOST, threads=self.threads, message=self._gone)
        try:
            return bench.trial(opened, trace, made, best)
        except NodeUnfit as unfit:
            bench.retire(str(unfit))
        except Exception as error:  # a mistake here must not leave the search without an answer
            bench.fails, bench.reason = bench.fails + 1, f"{type(error).__name__}: {error}"
            return TrialRecord(trace, Outcome.LOST, threads=self.threads, message=bench.reason)
        finally:
            self._give(bench)
        return self._trial(opened, trace, made, best)  # on another node

    def _take(self) -> RayBench | None:
        """A bench that does nothing; None where all are gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._idle or self._alive == 0)
            return self._idle.pop() if self._alive else None

    def _give(self, bench: RayBench) -> None:
        """Give a bench back; it is gone if it failed too often."""
        with self._changed:
            if not bench.is_gone:
                self._idle.append(bench)
            elif self._alive:
                self._alive -= 1
                self._gone = bench.reason
            self._changed.notify_all()
