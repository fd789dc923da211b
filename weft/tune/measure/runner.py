"""What measures candidates: the protocol that tuners know, and what is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from weft.kernels.task import KernelTask
from weft.runtime import Artifact, Executable
from weft.schedule.dispatch import RecordedSchedule
from weft.support.errors import UserError
from weft.tune.record import TrialRecord
from weft.tune.turns import ModelRun


@dataclass(frozen=True, slots=True)
class Workload:
    """What is tuned: a kernel, the threads that run it, and the open sizes to measure it with (see
    :class:`~weft.tune.measure.bench.Bench`)."""

    task: KernelTask
    threads: int = 1
    sizes: tuple[tuple[int, ...], ...] = ()


class RunnerGone(UserError):
    """The machines that measure are gone: no candidate can be measured any more, of whatever kernel."""

    default_code = "U041"


class Runner(Protocol):
    """Builds and measures candidates, here or elsewhere. It never raises for a bad candidate: what went wrong is in its
    record. Where nothing can be measured any more, :meth:`open` and :meth:`measure` raise RunnerGone."""

    def open(self, workload: Workload) -> TrialRecord:
        """Begin with a kernel; the record of its default schedule. Raises UserError where it cannot be measured."""

    def resume(self, workload: Workload) -> None:
        """Go on with a kernel that was opened before."""

    def measure(self, traces: Sequence[RecordedSchedule], best: TrialRecord) -> Iterable[TrialRecord]:
        """One record for each schedule, in their order and as they come, measured in turns with ``best``."""

    def close(self) -> None:
        """End what the runner has started."""


@runtime_checkable
class RunsModels(Protocol):
    """A runner that measures elsewhere, and runs whole models there."""

    def executable(self, artifact: Artifact, threads: int) -> ModelRun:
        """The model, loaded where candidates are measured; several can be at once."""


def model_of(runner: Runner, artifact: Artifact, threads: int) -> ModelRun:
    """A model, loaded where ``runner`` measures."""
    return runner.executable(artifact, threads) if isinstance(runner, RunsModels) else Executable(artifact, threads)
