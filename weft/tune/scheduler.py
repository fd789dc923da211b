"""Which kernel of a model is tuned next: time goes where the model can gain most.

The gain that more trials of a kernel promise is its share of the model's time, times the smaller of two shares: what
lies between its time and the least time possible, and what its last trials gained. A kernel that was tried little is
hoped for more than one that was tried much. When all kernels together promise less than a thousandth of the model's
time, tuning has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from weft.support.errors import UserError
from weft.support.words import did_you_mean
from weft.tune.kernel_tuner import BATCH, Tuner
from weft.tune.measure.runner import RunnerGone

HOPE: Final = 0.3
"""Share of a kernel's time that its first trials are hoped to gain."""
HOPE_TRIALS: Final = 24
"""Trials after which the hope without any gain is a quarter of that."""
MIN_ROOM: Final = 0.03
"""Share of a kernel's time that may be gained at any rate: bounds are estimates too."""
MEMORY: Final = 3
"""Batches whose gains count."""
MIN_PROMISE: Final = 1e-3
"""Share of the model's time that the next batch of every kernel must promise for tuning to go on."""
POLICIES: Final = ("gain", "round-robin")


@dataclass(frozen=True, slots=True)
class Budget:
    """When tuning ends: after so many ``trials`` of all kernels together (those of earlier runs of the same search
    included), or ``seconds`` of this run; None: no limit."""

    trials: int | None = None
    seconds: float | None = None


@dataclass
class TaskState:
    """A kernel that is tuned. ``calls``: how often a run of the model calls it. ``bound``: the least seconds of one
    call that its arithmetic and memory allow; 0 if that is not known. ``earlier``: trials of the same search in
    earlier runs, which count as if they were made now."""

    name: str
    tuner: Tuner
    calls: int = 1
    bound: float = 0.0
    earlier: int = 0
    gains: list[float] = field(default_factory=list)
    baseline: float = 0.0
    failed: str = ""
    """Why the kernel cannot be tuned; empty if it can."""

    @property
    def seconds(self) -> float:
        """Seconds of one call with the best schedule so far."""
        return self.baseline / self.tuner.speedup if self.baseline else 0.0

    @property
    def trials(self) -> int:
        """Trials so far, earlier runs included."""
        return self.earlier + self.new_trials

    @property
    def new_trials(self) -> int:
        """Trials of this run."""
        return len(self.tuner.progress.best)

    @property
    def open(self) -> bool:
        """Whether the kernel can be tuned further."""
        return not self.failed and not self.tuner.exhausted

    @property
    def promise(self) -> float:
        """Seconds of a run of the model that the next batch may gain."""
        if not self.open or not self.baseline:
            return 0.0
        room = max(MIN_ROOM, 1.0 - self.bound / self.seconds)
        hoped = HOPE / (1.0 + self.trials / HOPE_TRIALS) ** 2
        recent = max(self.gains[-MEMORY:], default=0.0)
        return self.calls * self.seconds * min(room, max(hoped * BATCH / HOPE_TRIALS, recent))

    def step(self, count: int) -> None:
        """Measure ``count`` more candidates."""
        before = self.tuner.speedup
        self.tuner.step(count)
        self.gains.append(1.0 - before / self.tuner.speedup)


Observer = Callable[["TaskScheduler"], None]


def check_policy(policy: str) -> None:
    """Raise UserError U034 for a policy that does not exist."""
    if policy not in POLICIES:
        hint = did_you_mean(policy, POLICIES, f"policies: {', '.join(POLICIES)}")
        raise UserError(f"there is no policy '{policy}'", code="U034", hint=hint)


class TaskScheduler:
    """Tunes the kernels of a model until the budget is spent, or nothing is promised any more.

    ``policy``: ``gain``, or ``round-robin`` for comparison. ``observer`` is called after every batch.
    """

    def __init__(
        self, tasks: Sequence[TaskState], budget: Budget, policy: str = "gain", observer: Observer | None = None
    ) -> None:
        check_policy(policy)
        self.tasks, self.budget, self.policy = list(tasks), budget, policy
        self._observer = observer or (lambda scheduler: None)
        self._turn = 0
        self.started = time.monotonic()
        self.current: TaskState | None = None
        """The kernel whose turn it is."""
        self.ended = ""
        """Why tuning ended; empty while it runs."""
        self.curve: list[tuple[float, float]] = []
        """Seconds since the start, and the estimated seconds of a run of the model then."""

    @property
    def whole_curve(self) -> list[tuple[float, float]]:
        """The part of :attr:`curve` since every default schedule was measured."""
        return self.curve[len(self.tasks) - 1 :]

    @property
    def searched(self) -> float:
        """Seconds from the start to the last measurement."""
        return self.curve[-1][0] if self.curve else 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def trials(self) -> int:
        """Trials of all kernels together, earlier runs included."""
        return sum(t.trials for t in self.tasks)

    @property
    def total(self) -> float:
        """Estimated seconds of all kernels in a run of the model, with the best schedules so far."""
        return sum(t.calls * t.seconds for t in self.tasks)

    def run(self) -> None:
        """Measure every default schedule, then tune. KeyboardInterrupt ends it; all trials are in the database."""
        try:
            self.begin()
            while not self.ended:
                self._batch()
        except KeyboardInterrupt:
            self.ended = "interrupted"
            raise
        finally:
            self.current = None
            self._observer(self)

    def begin(self) -> None:
        """Measure every default schedule. Time counts from now on."""
        self.started = time.monotonic()
        for task in self.tasks:
            self._begin(task)

    def _begin(self, task: TaskState) -> None:
        self.current = task
        try:
            task.baseline = task.tuner.open().seconds or 0.0
        except RunnerGone:
            raise
        except UserError as error:
            task.failed = error.message
        self._observed()

    def _batch(self) -> None:
        left = None if self.budget.trials is None else self.budget.trials - self.trials
        if left is not None and left <= 0:
            self.ended = "all trials are spent"
            return
        if self.budget.seconds is not None and self.elapsed >= self.budget.seconds:
            self.ended = "the time is spent"
            return
        task = self._next()
        if task is None:
            return
        if task is not self.current:
            self.current = task
            task.tuner.open()
        task.step(BATCH if left is None else min(BATCH, left))
        self._observed()

    def _next(self) -> TaskState | None:
        """The kernel whose turn it is; None, and the reason in :attr:`ended`, if it is none's."""
        able = [t for t in self.tasks if t.open and t.baseline]
        if not able:
            self.ended = "every schedule was tried" if any(not t.failed for t in self.tasks) else "nothing can be tuned"
            return None
        if self.policy == "round-robin":
            self._turn += 1
            return able[self._turn % len(able)]
        best = max(able, key=lambda t: t.promise)
        if sum(t.promise for t in able) < MIN_PROMISE * self.total:
            self.ended = "more trials promise little"
            return None
        return best

    def _observed(self) -> None:
        self.curve.append((self.elapsed, self.total))
        self._observer(self)
