"""One bench of a Ray cluster: an actor, which is started again when it is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from weft.kernels.machine_code import MachineCode
from weft.schedule.dispatch import RecordedSchedule
from weft.support.errors import UserError
from weft.support.fingerprint import compiler_fingerprint
from weft.tune.measure.bench import first_line
from weft.tune.measure.process_bench import MOST_STARTS, START_SECONDS
from weft.tune.measure.ray_cluster import BenchActor, RayCluster
from weft.tune.measure.runner import Workload
from weft.tune.measure.timing import Limits
from weft.tune.measure.worker import decoded
from weft.tune.record import Outcome, TrialRecord

GRACE_SECONDS: Final = 10.0
"""For an answer to come, besides the time limits of what is asked for."""


class ActorLost(Exception):
    """An actor gives no answer any more; the message says why."""


class NodeUnfit(Exception):
    """The node of an actor cannot run the code, or has another version of Weft; the message says why."""


@dataclass(frozen=True)
class OpenedOnCluster:
    """The kernel that is measured now; ``seconds`` of its default schedule on the bench that opened it first."""

    workload: Workload
    seconds: float | None = None


class RayBench:
    """One actor of the cluster. ``fails`` counts the trials that it lost in a row."""

    def __init__(self, cluster: RayCluster, limits: Limits, threads: int) -> None:
        self._ray, self._limits = cluster.ray, limits
        make: Any = cluster.ray.remote(num_cpus=threads, max_restarts=0)(BenchActor)
        self._start: Callable[[], Any] = lambda: make.remote(asdict(limits))
        self._actor: Any = None
        self._opened: Workload | None = None
        self._baseline: TrialRecord | None = None
        self.name = "a node"
        self.fails = 0
        self.reason = ""
        """Why the last trial was lost."""

    def open(self, workload: Workload) -> TrialRecord:
        """Begin with a kernel: its default schedule. Raises UserError U040 where it cannot be measured, NodeUnfit,
        ActorLost."""
        if self._opened is workload and self._baseline is not None:
            return self._baseline
        self._opened = None
        if self._actor is None:
            self._actor = self._start()
            self.name, fingerprint = self._asked(self._actor.about.remote(), START_SECONDS)
            if fingerprint != compiler_fingerprint():
                raise NodeUnfit(f"{self.name} has another version of Weft")
        text = replace(workload.task, trace=None).to_text()
        limit = START_SECONDS + self._limits.build + self._limits.run
        answer = self._asked(self._actor.open.remote(text, workload.threads, workload.sizes), limit)
        if "unfit" in answer:
            raise NodeUnfit(f"{answer['unfit']} ({self.name})")
        if "error" in answer:
            raise UserError(f"{answer['error']} (on {self.name})", code="U040")
        self._opened, self._baseline = workload, replace(decoded(answer, None), message=f"on {self.name}")
        return self._baseline

    def trial(
        self, opened: OpenedOnCluster, trace: RecordedSchedule, made: MachineCode, best: TrialRecord
    ) -> TrialRecord:
        """Measure a schedule beside the best. What goes wrong is in the record. Raises NodeUnfit."""
        threads = opened.workload.threads
        try:
            factor = self._factor(opened)
            text = None if best.trace is None else best.trace.to_json()
            seconds = None if best.seconds is None else best.seconds / factor
            limit = START_SECONDS + self._limits.build + self._limits.run
            asked = self._actor.trial.remote(trace.to_json(), made.to_bytes(), text, seconds)
            record = decoded(self._asked(asked, limit), trace)
        except (ActorLost, UserError) as error:
            self.fails += 1
            self.reason = error.message if isinstance(error, UserError) else str(error)
            return TrialRecord(trace, Outcome.LOST, threads=threads, message=self.reason)
        self.fails = 0
        message = record.message or f"on {self.name}"
        if record.seconds is None:
            return replace(record, message=message)
        samples = tuple(factor * s for s in record.samples)
        return replace(record, seconds=factor * record.seconds, samples=samples, message=message)

    @property
    def is_gone(self) -> bool:
        """Whether it failed so often that it is not asked any more."""
        return self.fails >= MOST_STARTS

    def retire(self, why: str) -> None:
        """Ask it for nothing any more."""
        self.fails, self.reason = MOST_STARTS, why
        self.close()

    def close(self) -> None:
        """End the actor."""
        actor, self._actor, self._opened = self._actor, None, None
        if actor is not None and self._ray.is_initialized():
            self._ray.kill(actor)

    def _factor(self, opened: OpenedOnCluster) -> float:
        """How many times as long the first bench takes as this one."""
        mine = self.open(opened.workload).seconds
        return opened.seconds / mine if opened.seconds and mine else 1.0

    def _asked(self, asked: Any, seconds: float) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(asked, timeout=seconds + GRACE_SECONDS)
        except errors.GetTimeoutError:
            self.close()
            raise ActorLost(f"{self.name} gives no answer within {seconds + GRACE_SECONDS:g} seconds") from None
        except errors.RayTaskError as error:  # a mistake: of that process nothing is known any more
            self.close()
            raise ActorLost(f"on {self.name}: {first_line(error.cause)}") from None
        except (errors.RayError, OSError):
            self.close()
            raise ActorLost(f"the process on {self.name} ended") from None
        except BaseException:  # interrupted
            self.close()
            raise
