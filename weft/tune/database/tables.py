"""Look-ups and changes of single rows of a tuning database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from weft.kernels.task import KernelTask
from weft.tune.database import choice
from weft.tune.database.drift import beside_record, best_of_run, default_of_run
from weft.tune.database.rows import StoredKernel, StoredTrial, machine_of, row_of, structure_of, trial_of
from weft.tune.record import TrialRecord

Kernel: TypeAlias = "KernelTask | StoredKernel"
"""What names a kernel: its task, whatever its schedule is, or what a database has of it."""


def kernel_number(connection: sqlite3.Connection, kernel: Kernel) -> int:
    """The number of a kernel; 0 if it is not there."""
    if isinstance(kernel, KernelTask):
        key = structure_of(kernel.program), machine_of(kernel)
    else:
        key = kernel.structure, kernel.target
    row = connection.execute("SELECT id FROM workloads WHERE structure = ? AND target = ?", key).fetchone()
    return row["id"] if row is not None else 0


def counted(connection: sqlite3.Connection, kernel: Kernel, threads: int | None) -> tuple[int, int | None]:
    """The number of a kernel (0: unknown), and the number of threads whose trials count."""
    number = kernel_number(connection, kernel)
    return number, choice.thread_count(connection, number, threads)


def trial_at(connection: sqlite3.Connection, row: sqlite3.Row | None) -> StoredTrial | None:
    """The trial of a row, with its verdicts."""
    return None if row is None else trial_of(row, choice.verdicts(connection, row["id"]))


def next_place(connection: sqlite3.Connection, workload: int, run: str) -> int:
    """The place of the next trial of a kernel in a run."""
    query = "SELECT max(place) FROM trials WHERE workload = ? AND run = ?"
    (last,) = connection.execute(query, (workload, run)).fetchone()
    return 0 if last is None else last + 1


def insert_records(
    connection: sqlite3.Connection,
    workload: int,
    records: Iterable[tuple[TrialRecord, Any]],
    origin: Mapping[str, Any],
    best: TrialRecord | None,
) -> list[int]:
    """Add records, each with its features, to a kernel; their numbers. ``origin`` says who made them when; ``best`` is
    that of :meth:`Database.add <weft.tune.database.database.Database.add>`."""
    beside = None if best is None else beside_record(connection, workload, best)
    run, numbers = origin["run"], list[int]()
    place = next_place(connection, workload, run)
    for record, features in records:
        if best is None:
            beside = best_of_run(connection, workload, run, record.threads)
        default = default_of_run(connection, workload, run, record.threads)
        values = row_of(record, beside, default, features, {**origin, "place": place + len(numbers)})
        numbers.append(_insert_trial(connection, {"workload": workload, **values}))
    return numbers


def _insert_trial(connection: sqlite3.Connection, values: dict[str, Any]) -> int:
    query = f"INSERT INTO trials ({', '.join(values)}) VALUES ({', '.join(f':{n}' for n in values)})"
    return connection.execute(query, values).lastrowid or 0


def superfluous(
    connection: sqlite3.Connection,
    workload: int,
    threads: int,
    conditions: choice.Conditions,
    keep: int | None,
    failed: bool,
) -> list[int]:
    """The trials under ``conditions`` that no answer depends on: those that failed if ``failed``, and all but the
    ``keep`` fastest."""
    kept = choice.never_pruned(connection, workload, threads)
    values = {"workload": workload, "threads": threads, **conditions._asdict()}
    same = "workload = :workload AND threads = :threads AND sizes = :sizes AND cold = :cold"
    gone = []
    if keep is not None:
        rows = connection.execute(f"SELECT id FROM trials WHERE {same} AND outcome = 'ok'", values)
        fastest = [row["id"] for row in connection.execute(choice.FASTEST.format(""), values)][:keep]
        gone = [row["id"] for row in rows if row["id"] not in fastest]
    if failed:
        query = f"SELECT id FROM trials WHERE {same} AND outcome != 'ok'"
        gone += [row["id"] for row in connection.execute(query, values)]
    return [number for number in gone if number not in kept]
