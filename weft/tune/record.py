"""One trial of a tuner: a schedule of a kernel, and what building and running it gave."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from weft.schedule.dispatch import RecordedSchedule


class Outcome(StrEnum):
    """How a trial ended. Only ``OK`` gives a time that counts; the others say why there is none."""

    OK = "ok"
    REFUSED = "refused"
    """A primitive refused a step of the schedule: the point is not a schedule of this program."""
    FAILED = "failed"
    """The compiler could not build the kernel."""
    CRASHED = "crashed"
    """The process that measured ended."""
    TIMEOUT = "timeout"
    """Building or running took longer than the limit."""
    WRONG = "wrong"
    """The kernel computed other numbers than the reference."""
    SLOW = "slow"
    """Stopped early, because the first run took several times as long as the best schedule so far."""
    LOST = "lost"
    """The remote machine or the link to it failed; nothing is known of the schedule."""


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial. ``trace`` is None for the default schedule.

    ``seconds`` is the median time of one call, with ``threads`` threads, and ``samples`` the times that it is the
    median of. ``relative`` is the time relative to that of the best schedule so far, whose runs alternated with these,
    so that a machine that gets slower meanwhile does not count. ``sketch`` names the part of the search space. A
    ``SLOW`` trial has the time of its first run in ``seconds``.

    ``sizes`` are the assignments of open sizes that it was measured on, each in the order of the program's sizes;
    ``seconds`` is their sum then, and ``relatives`` are the relative times for each of them, where they are known.
    ``cold``: the kernel found none of its data in the caches (:attr:`weft.tune.measure.timing.Limits.evict`).
    """

    trace: RecordedSchedule | None
    outcome: Outcome
    seconds: float | None = None
    samples: tuple[float, ...] = ()
    relative: float | None = None
    threads: int = 1
    sketch: str = ""
    message: str = ""
    sizes: tuple[tuple[int, ...], ...] = ()
    relatives: tuple[float, ...] = ()
    cold: bool = False

    @property
    def ok(self) -> bool:
        """Whether the time counts."""
        return self.outcome is Outcome.OK
