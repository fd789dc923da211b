"""Times without the drift of the machine: those of trials that ran beside others are told by them.

A trial that ran beside another schedule is known relative to it. Its *steady* time is that ratio times the steady time
of the other, which leads back to a trial that stands for itself, often that of the default schedule at the beginning
of a run. So the steady times of a run are those of a machine that stays as it was then. Each trial also notes the
steady time of the default schedule on the same scale.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from weft.tune.database.columns import sound
from weft.tune.record import TrialRecord


class Beside(NamedTuple):
    """The steady time of the schedule that a trial ran beside, and that of the default one on its scale, in seconds."""

    steady: float
    default: float | None


def best_of_run(connection: sqlite3.Connection, workload: int, run: str, threads: int) -> Beside | None:
    """The best of a run so far; None without one, or where no trial of the run stands for itself: then it is not known
    what its trials ran beside."""
    row = connection.execute(
        "SELECT *, min(relative IS NOT NULL) OVER () AS none_apart FROM trials "
        "WHERE workload = ? AND outcome = 'ok' AND run = ? AND threads = ? ORDER BY steady, id LIMIT 1",
        (workload, run, threads),
    ).fetchone()
    return None if row is None or sound(row)["none_apart"] else Beside(row["steady"], row["default_steady"])


def beside_record(connection: sqlite3.Connection, workload: int, record: TrialRecord) -> Beside | None:
    """The times of a schedule that was measured before: as they are stored, or as the record has them."""
    trace = None if record.trace is None else record.trace.to_json()
    row = connection.execute(
        "SELECT * FROM trials WHERE workload = ? AND outcome = 'ok' AND threads = ? "
        "AND trace IS ? AND seconds = ? ORDER BY id DESC LIMIT 1",
        (workload, record.threads, trace, record.seconds),
    ).fetchone()
    if row is not None:
        sound(row)
        return Beside(row["steady"], row["default_steady"])
    seconds = record.seconds
    return None if seconds is None else Beside(seconds, seconds if record.trace is None else None)


def default_of_run(connection: sqlite3.Connection, workload: int, run: str, threads: int) -> float | None:
    """The steady time of the default schedule in a run; None where it was not measured."""
    row = connection.execute(
        "SELECT * FROM trials WHERE workload = ? AND outcome = 'ok' AND run = ? AND threads = ? "
        "AND trace IS NULL ORDER BY steady LIMIT 1",
        (workload, run, threads),
    ).fetchone()
    return None if row is None else float(sound(row)["steady"])


def steady_times(
    record: TrialRecord, beside: Beside | None, default: float | None
) -> tuple[float | None, float | None]:
    """The steady time of a trial and that of the default schedule on its scale; None where they are not known.
    ``default`` is that of its run."""
    if not record.ok or record.seconds is None:
        return None, None
    steady = float(record.seconds)
    if beside is not None and record.relative is not None:
        steady, default = float(beside.steady * record.relative), beside.default
    return steady, steady if record.trace is None else default
