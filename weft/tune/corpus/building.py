"""Measures the corpus: passes over all kernels, until the time is over.

Each pass measures a few more schedules of every kernel, so that the corpus has all kinds whenever it ends. All that is
measured is in the database at once; kernels that have fewest trials there come first when it goes on.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from weft.kernels.task import KernelTask
from weft.support.errors import UserError, WeftError
from weft.support.progress import Reporter
from weft.tune.corpus.beside import BesideDefault
from weft.tune.corpus.kernels import CorpusKernel
from weft.tune.corpus.sampling import CorpusSampling
from weft.tune.corpus.stored import KeepsFeatures
from weft.tune.database import Database
from weft.tune.kernel_tuner import KernelTuner
from weft.tune.measure.runner import Runner, RunnerGone
from weft.tune.sketches import space_of
from weft.tune.space import Space

PASS_TRIALS: Final = 24
"""Schedules of a kernel that a pass measures."""
MAX_TRIALS: Final = 256
"""Schedules of a kernel, in all passes: more of them tell little about other kernels."""
MIN_POINTS: Final = 4
"""A kernel with fewer schedules tells nothing about how to choose."""
MAX_SECONDS: Final = 0.03
"""A kernel that takes longer costs more than it tells."""
RUN_PREFIX: Final = "corpus: "
"""What the runs of the corpus are called in the database, before the family of the kernel. A number after it tells
passes apart, as each has measured the default schedule anew."""


@dataclass
class Built:
    """How the building of a corpus went: trials of this run, kernels that were measured, those that were left out with
    the reason, and whether it was interrupted."""

    trials: int = 0
    kernels: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def family_of(run: str) -> str | None:
    """The family of the kernel whose trial has this run; None for a trial of another tuner."""
    return run.removeprefix(RUN_PREFIX).partition(" #")[0] if run.startswith(RUN_PREFIX) else None


def build(
    kernels: Sequence[CorpusKernel], runner: Runner, database: Database, seconds: float, seed: int, shown: Reporter
) -> Built:
    """Measure for so many ``seconds``, or until all kernels have :data:`MAX_TRIALS`. Ctrl-C ends it earlier."""
    built, end = Built(), _Clock(seconds, shown)
    counts = {k.workload.task.identity: _trials(database, k.workload.task) for k in kernels}
    live, opened = [k for k in kernels if counts[k.workload.task.identity] < MAX_TRIALS], set[str]()
    try:
        while live and not end.reached:
            live.sort(key=lambda k: counts[k.workload.task.identity])  # stable: in the order of the table
            fewest = counts[live[0].workload.task.identity]
            for kernel in [k for k in live if counts[k.workload.task.identity] < fewest + PASS_TRIALS]:
                if end.reached:
                    break
                identity = kernel.workload.task.identity
                shown.describe(f"{kernel.family}: {kernel.name}")
                made = _measure(kernel, runner, database, seed + counts[identity], end, built)
                counts[identity] += made
                built.trials += made
                opened.add(identity)
                if not made or counts[identity] >= MAX_TRIALS:
                    live.remove(kernel)
    except KeyboardInterrupt:
        built.interrupted = True
    built.kernels = len(opened) - len(built.left_out)
    return built


class _Clock:
    """When to end; tells the bar how far it is."""

    def __init__(self, seconds: float, shown: Reporter) -> None:
        self._begin, self._seconds, self._shown, self._told = time.monotonic(), seconds, shown, 0

    @property
    def reached(self) -> bool:
        """Whether the time is over."""
        past = time.monotonic() - self._begin
        self._shown.advance(int(min(past, self._seconds)) - self._told)
        self._told = int(min(past, self._seconds))
        return past >= self._seconds


def _measure(kernel: CorpusKernel, runner: Runner, database: Database, seed: int, end: _Clock, built: Built) -> int:
    """Measure a pass of one kernel; the number of trials, 0 if there is nothing to measure."""
    try:
        space = space_of(kernel.workload.task)
        if space.size < MIN_POINTS:
            raise UserError(f"it has {space.size} schedules")
        return _passed(kernel, space, runner, database, seed, end)
    except RunnerGone:
        raise
    except WeftError as error:
        built.left_out[kernel.name] = error.message
        return 0


def _passed(kernel: CorpusKernel, space: Space, runner: Runner, database: Database, seed: int, end: _Clock) -> int:
    tuner = KernelTuner(
        kernel.workload, space, BesideDefault(runner), CorpusSampling,
        memory=KeepsFeatures(database), seed=seed, run=f"{RUN_PREFIX}{kernel.family} #{secrets.token_hex(4)}",
    )  # fmt: skip
    baseline = tuner.open()
    if (baseline.seconds or 0.0) > MAX_SECONDS:
        raise UserError(f"a call takes {baseline.seconds:.3f} s")
    made = 0
    while made < PASS_TRIALS and not tuner.exhausted and not end.reached:
        made += len(tuner.step(min(8, PASS_TRIALS - made)))
    return made


def _trials(database: Database, task: KernelTask) -> int:
    """Trials of the corpus that a kernel has in the database."""
    return sum(family_of(t.run) is not None and t.trace_text is not None for t in database.trials(task))
