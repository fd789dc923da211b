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
    known: the score of the best times that ratio.
    """

    baseline: TrialRecord
    trials: list[Trial] = field(default_factory=list)
    by_point: dict[Point, Trial] = field(default_factory=dict)
    best_score: float = 1.0
    best: Trial | None = None
    """The best trial that is faster than the default schedule, if any."""

    def add(self, point: Point, record: TrialRecord) -> Trial:
        """Note a trial."""
        trial = Trial(point, record, self._score(record))
        self.trials.append(trial)
        self.by_point[point] = trial
        if record.ok and trial.score > self.best_score:
            self.best, self.best_score = trial, trial.score
        return trial

    def _score(self, record: TrialRecord) -> float:
        if record.ok and record.relative:
            return self.best_score / record.relative
        if record.seconds and self.baseline.seconds:  # also of those that were stopped early: slow, but not how slow
            return self.baseline.seconds / record.seconds
        return 0.0

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
