"""Which trial of a kernel counts: the best, the baseline, and the schedule that compilations use.

All of them compare trials with one number of threads, by their steady times (:mod:`weft.tune.database.drift`). Of
several trials of one schedule the last counts: the best of many noisy times is better than it should be, so tuners
measure the best schedules again. Trials compare with those under the same conditions: on the same open sizes, and with
warm or with cold caches. Those on the most sizes decide, because they say most of what the kernel will meet, and of
several such conditions the latest, because that is what the user asked for last.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from weft.tune.database.columns import VERDICT_COLUMNS, sound
from weft.tune.database.rows import ModelVerdict

RULE: Final = "4"
"""Changes when this module would choose otherwise from the same trials: part of the database's version."""

FASTEST: Final = """SELECT * FROM trials t WHERE workload = :workload AND outcome = 'ok' AND threads = :threads
        AND sizes = :sizes AND cold = :cold {}
    AND NOT EXISTS (SELECT 1 FROM trials later WHERE later.workload = t.workload AND later.outcome = 'ok'
        AND later.threads = t.threads AND later.sizes = t.sizes AND later.cold = t.cold
        AND later.id > t.id AND later.trace = t.trace)
    ORDER BY steady, id"""
"""The trials that count, the fastest first: of the default schedule all, of others the last."""


def thread_counts(connection: sqlite3.Connection, workload: int) -> list[int]:
    """The numbers of threads with which some trial succeeded, in ascending order."""
    query = "SELECT DISTINCT threads FROM trials WHERE workload = ? AND outcome = 'ok' ORDER BY threads"
    return [row["threads"] for row in connection.execute(query, (workload,))]


def thread_count(connection: sqlite3.Connection, workload: int, wanted: int | None) -> int | None:
    """The number of threads whose trials count: the one nearest to ``wanted`` (the lower of two), the largest if that
    is None. Only numbers for which some trial succeeded; None if there is none."""
    return nearest_count(thread_counts(connection, workload), wanted)


def nearest_count(counts: Sequence[int], wanted: int | None) -> int | None:
    """The number of threads that is nearest to ``wanted`` (the lower of two), the largest if that is None; None if
    there is none."""
    if wanted is None or not counts:
        return max(counts, default=None)
    return min(counts, key=lambda n: (abs(n - wanted), n))


class Conditions(NamedTuple):
    """Under which trials were measured: on which open sizes (empty for a kernel without any), and whether with cold
    caches."""

    sizes: str = ""
    cold: int = 0


def deciding(connection: sqlite3.Connection, workload: int, threads: int) -> Conditions:
    """The conditions whose trials count: on the most sizes that were measured together, the latest of several."""
    query = "SELECT sizes, cold, max(id) AS last FROM trials WHERE workload = ? AND threads = ? AND outcome = 'ok' "
    rows = connection.execute(f"{query} GROUP BY sizes, cold", (workload, threads)).fetchall()
    last = max(rows, key=lambda r: (r["sizes"].count("["), r["last"]), default=None)
    return Conditions() if last is None else conditions_of(last)


def conditions_of(trial: sqlite3.Row) -> Conditions:
    """Those of a trial."""
    return Conditions(trial["sizes"], trial["cold"])


def best(
    connection: sqlite3.Connection, workload: int, threads: int, traced: bool = False, graph: str = ""
) -> sqlite3.Row | None:
    """The fastest trial that is not refused in the model with this ``graph``; ``traced``: of those with a schedule of
    their own."""
    refused = refused_traces(connection, workload, graph)
    query = FASTEST.format("AND trace IS NOT NULL" if traced else "")
    values = {"workload": workload, "threads": threads, **deciding(connection, workload, threads)._asdict()}
    rows: Iterator[sqlite3.Row] = connection.execute(query, values)
    found = next((row for row in rows if row["trace"] not in refused), None)
    return None if found is None else sound(found)


def baseline(
    connection: sqlite3.Connection,
    workload: int,
    threads: int,
    run: str | None = None,
    conditions: Conditions | None = None,
) -> sqlite3.Row | None:
    """The fastest trial of the default schedule under ``conditions`` (None: those that decide); of ``run``, if that has
    one."""
    same = conditions or deciding(connection, workload, threads)
    values = {"workload": workload, "threads": threads, "run": run, **same._asdict()}
    there = connection.execute(FASTEST.format("AND trace IS NULL AND run = :run"), values).fetchone()
    found: sqlite3.Row | None = there or connection.execute(FASTEST.format("AND trace IS NULL"), values).fetchone()
    return None if found is None else sound(found)


def improvement(connection: sqlite3.Connection, workload: int, threads: int, graph: str = "") -> sqlite3.Row | None:
    """The fastest trial with a schedule of its own, if it is faster than the default schedule (on the same scale, where
    that is known). Without a baseline, the fastest."""
    found = best(connection, workload, threads, traced=True, graph=graph)
    if found is None:
        return None
    default = default_steady(connection, found)
    return found if default is None or found["steady"] < default else None


def improvements(connection: sqlite3.Connection, workload: int, threads: int, graph: str = "") -> list[sqlite3.Row]:
    """What :func:`improvement` gives, and what it would give next if each was refused."""
    refused = refused_traces(connection, workload, graph)
    values = {"workload": workload, "threads": threads, **deciding(connection, workload, threads)._asdict()}
    found: list[sqlite3.Row] = []
    for row in connection.execute(FASTEST.format("AND trace IS NOT NULL"), values).fetchall():
        if row["trace"] in refused:
            continue
        default = default_steady(connection, sound(row))
        if default is not None and row["steady"] >= default:
            break
        found.append(row)
    return found


def default_steady(connection: sqlite3.Connection, trial: sqlite3.Row) -> float | None:
    """The steady time of the default schedule that a trial is compared with; None where it was never measured."""
    if trial["default_steady"] is not None:
        return float(trial["default_steady"])
    row = baseline(connection, trial["workload"], trial["threads"], trial["run"], conditions_of(trial))
    return None if row is None else float(row["steady"])


def refused_traces(connection: sqlite3.Connection, workload: int, graph: str = "") -> frozenset[str]:
    """The schedules that are refused in the model with this ``graph``: by its own verdict where it has one, else (and
    for an unknown model, whose graph is empty) by that of any model. Of several verdicts of one model on one schedule,
    the last one counts."""
    rows = connection.execute(
        "SELECT t.trace, v.* FROM verdicts v JOIN trials t ON t.id = v.trial WHERE t.workload = ? AND t.trace NOT NULL "
        "ORDER BY v.created, v.trial",
        (workload,),
    )
    last = {(row["trace"], row["graph"] or f" {row['model']}"): bool(row["accepted"]) for row in rows}
    own = {trace for trace, model in last if model == graph}
    return frozenset(
        trace for (trace, model), accepted in last.items() if not accepted and (model == graph or trace not in own)
    )


def judges(connection: sqlite3.Connection, graph: str) -> bool:
    """Whether the model with this ``graph`` has verdicts of its own."""
    return connection.execute("SELECT 1 FROM verdicts WHERE graph = ? LIMIT 1", (graph,)).fetchone() is not None


def verdicts(connection: sqlite3.Connection, trial: int) -> tuple[ModelVerdict, ...]:
    """The verdicts on a trial, by model."""
    rows = connection.execute("SELECT * FROM verdicts WHERE trial = ? ORDER BY model, graph", (trial,))
    found = (sound(row, VERDICT_COLUMNS) for row in rows.fetchall())
    return tuple(ModelVerdict(r["model"], bool(r["accepted"]), r["reason"], r["created"], r["graph"]) for r in found)


def never_pruned(connection: sqlite3.Connection, workload: int, threads: int) -> set[int]:
    """The numbers of the trials on which the answers depend: the best ones, their baselines, and all of the schedules
    that have a verdict."""
    judged = connection.execute(
        "SELECT * FROM trials WHERE workload = ? AND outcome = 'ok' AND trace IN (SELECT t.trace FROM verdicts v "
        "JOIN trials t ON t.id = v.trial WHERE t.workload = ?) OR id IN (SELECT trial FROM verdicts)",
        (workload, workload),
    ).fetchall()
    rows = [best(connection, workload, threads), best(connection, workload, threads, traced=True), *judged]
    runs = dict.fromkeys((row["run"], conditions_of(row)) for row in rows if row is not None)
    rows += [baseline(connection, workload, threads, *run) for run in runs]
    rows.append(baseline(connection, workload, threads))
    return {row["id"] for row in rows if row is not None}
