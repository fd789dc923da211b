"""Which trial of a kernel counts: the best, the baseline, and the schedule that compilations use.

All of them compare trials with one number of threads. Times of one run are compared without the drift of the machine
(:attr:`StoredTrial.steady <weft.tune.database.rows.StoredTrial.steady>`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from weft.tune.database.rows import ModelVerdict

RULE: Final = "1"
"""Changes when this module would choose otherwise from the same trials: part of the database's version."""

_FASTEST: Final = (
    "SELECT * FROM trials WHERE workload = :workload AND outcome = 'ok' AND threads = :threads {} ORDER BY steady, id"
)


def thread_counts(connection: sqlite3.Connection, workload: int) -> list[int]:
    """The numbers of threads with which some trial succeeded, in ascending order."""
    query = "SELECT DISTINCT threads FROM trials WHERE workload = ? AND outcome = 'ok' ORDER BY threads"
    return [row["threads"] for row in connection.execute(query, (workload,))]


def thread_count(connection: sqlite3.Connection, workload: int, wanted: int | None) -> int | None:
    """The number of threads whose trials count: the one nearest to ``wanted`` (the lower of two), the largest if that
    is None. Only numbers for which some trial succeeded; None if there is none."""
    counts = thread_counts(connection, workload)
    if wanted is None or not counts:
        return max(counts, default=None)
    return min(counts, key=lambda n: (abs(n - wanted), n))


def best(connection: sqlite3.Connection, workload: int, threads: int, traced: bool = False) -> sqlite3.Row | None:
    """The fastest trial that no model refused; ``traced``: of those with a schedule of their own."""
    refused = refused_traces(connection, workload)
    query = _FASTEST.format("AND trace IS NOT NULL" if traced else "")
    rows: Iterator[sqlite3.Row] = connection.execute(query, {"workload": workload, "threads": threads})
    return next((row for row in rows if row["trace"] not in refused), None)


def baseline(connection: sqlite3.Connection, workload: int, threads: int, run: str | None = None) -> sqlite3.Row | None:
    """The fastest trial of the default schedule; of ``run``, if that has one."""
    values = {"workload": workload, "threads": threads, "run": run}
    there = connection.execute(_FASTEST.format("AND trace IS NULL AND run = :run"), values).fetchone()
    found: sqlite3.Row | None = there or connection.execute(_FASTEST.format("AND trace IS NULL"), values).fetchone()
    return found


def improvement(connection: sqlite3.Connection, workload: int, threads: int) -> sqlite3.Row | None:
    """The fastest trial with a schedule of its own, if it is faster than the default schedule was in the same run (in
    any, where that run did not measure it). Without a baseline, the fastest."""
    found = best(connection, workload, threads, traced=True)
    if found is None:
        return None
    default = baseline(connection, workload, threads, found["run"])
    return found if default is None or found["steady"] < default["steady"] else None


def refused_traces(connection: sqlite3.Connection, workload: int) -> frozenset[str]:
    """The schedules that some model refused. Of several verdicts of one model on one schedule, the last one counts."""
    rows = connection.execute(
        "SELECT t.trace, v.* FROM verdicts v JOIN trials t ON t.id = v.trial WHERE t.workload = ? AND t.trace NOT NULL "
        "ORDER BY v.created, v.trial",
        (workload,),
    )
    last = {(row["trace"], row["model"]): bool(row["accepted"]) for row in rows}
    return frozenset(trace for (trace, _), accepted in last.items() if not accepted)


def verdicts(connection: sqlite3.Connection, trial: int) -> tuple[ModelVerdict, ...]:
    """The verdicts on a trial, by model."""
    rows = connection.execute("SELECT * FROM verdicts WHERE trial = ? ORDER BY model", (trial,))
    return tuple(ModelVerdict(r["model"], bool(r["accepted"]), r["reason"], r["created"]) for r in rows)


def never_pruned(connection: sqlite3.Connection, workload: int, threads: int) -> set[int]:
    """The numbers of the trials on which the answers depend: the best ones, their baselines, all with a verdict."""
    rows = [best(connection, workload, threads), best(connection, workload, threads, traced=True)]
    rows += [baseline(connection, workload, threads, row["run"]) for row in rows if row is not None]
    rows.append(baseline(connection, workload, threads))
    judged = connection.execute(
        "SELECT DISTINCT v.trial FROM verdicts v JOIN trials t ON t.id = v.trial WHERE t.workload = ?", (workload,)
    )
    return {row["id"] for row in rows if row is not None} | {row["trial"] for row in judged}
