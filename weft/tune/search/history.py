"""What a search knows: the points that it tried, and how each ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.tune.record import TrialRecord
from weft.tune.space import Point


@dataclass(frozen=True, slots=True)
class Trial:
    """A point and its record. ``score`` is the speed relative to the default schedule: 1 is as fast, 2 twice as fast,
    0 a failure."""

    point: Point
    record: TrialRecord
    score: float


@dataclass
class History:
    """The trials of one kernel, in order. ``baseline`` is the record of the default schedule.

    Times drift on a busy machine, so scores come from the times relative to the best of their moment where they are
    known: the score of the best times that ratio. A trial that looks better than the best becomes the best when it is
    measured again, beside the default schedule (:meth:`settle`): the luckiest of many noisy times is better than it
    should be, and if the next ones were compared with it, such errors would multiply.
    """

    baseline: TrialRecord
    trials: list[Trial] = field(default_factory=list)
    by_point: dict[Point, Trial] = field(default_factory=dict)
    best_score: float = 1.0
    best: Trial | None = None
    """The best trial that is faster than the default schedule, if any."""

    def add(self, point: Point, record: TrialRecord) -> Trial:
        """Note a trial, which ran beside the best; one without a relative time stands for itself."""
        trial = self._noted(Trial(point, record, self._score(record)))
        if record.relative is None:
            self._compare(trial)
        return trial

    def recall(self, point: Point, record: TrialRecord) -> Trial:
        """Note a trial of an earlier run, whose relative time is that to the default schedule."""
        trial = self._noted(Trial(point, record, self._beside_default(record)))
        self._compare(trial)
        return trial

    @property
    def unsettled(self) -> list[Trial]:
        """The trials that look better than the best one, the fastest first."""
        return sorted((t for t in self.trials if self._looks_better(t)), key=lambda t: -t.score)

    def settle(self, trial: Trial, record: TrialRecord) -> Trial:
        """Take what measuring a trial again beside the default schedule gave, instead of what was noted."""
        settled = Trial(trial.point, record, self._beside_default(record))
        at = next(i for i, t in enumerate(self.trials) if t is trial)
        self.trials[at] = settled
        self.by_point[trial.point] = settled
        self._compare(settled)
        return settled

    def _noted(self, trial: Trial) -> Trial:
        self.trials.append(trial)
        self.by_point[trial.point] = trial
        return trial

    def _compare(self, trial: Trial) -> None:
        if self._looks_better(trial):
            self.best, self.best_score = trial, trial.score

    def _looks_better(self, trial: Trial) -> bool:
        return trial.record.ok and trial.score > self.best_score

    def _beside_default(self, record: TrialRecord) -> float:
        if record.ok and record.relative:
            return 1.0 / record.relative
        return self._by_seconds(record)

    def _by_seconds(self, record: TrialRecord) -> float:
        if record.seconds and self.baseline.seconds:  # also of those that were stopped early: slow, but not how slow
            return self.baseline.seconds / record.seconds
        return 0.0

    def _score(self, record: TrialRecord) -> float:
        if record.ok and record.relative:
            return self.best_score / record.relative
        return self._by_seconds(record)

    @property
    def best_record(self) -> TrialRecord:
        """The record of the best schedule so far: what the next candidates are measured beside."""
        return self.baseline if self.best is None else self.best.record

    def tried(self, point: Point) -> bool:
        """Whether the point has a trial."""
        return point in self.by_point

    def top(self, count: int) -> list[Trial]:
        """The best trials that gave a time, the best first."""
        ended = [t for t in self.trials if t.score > 0]
        return sorted(ended, key=lambda t: -t.score)[:count]
