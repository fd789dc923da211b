"""Look-ups and changes of single rows of a tuning database."""

from __future__ import annotations

import sqlite3
from typing import Any, TypeAlias

from weft.kernels.task import KernelTask
from weft.tune.database import choice
from weft.tune.database.rows import StoredKernel, StoredTrial, structure_of, trial_of
from weft.tune.record import Outcome

Kernel: TypeAlias = "KernelTask | StoredKernel"
"""What names a kernel: its task, whatever its schedule is, or what a database has of it."""


def kernel_number(connection: sqlite3.Connection, kernel: Kernel) -> int:
    """The number of a kernel; 0 if it is not there."""
    if isinstance(kernel, KernelTask):
        key = structure_of(kernel.program), str(kernel.target)
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


def best_of_run(connection: sqlite3.Connection, workload: int, run: str, threads: int) -> float | None:
    """The steady time of the best trial of a run so far; None without one."""
    query = "SELECT min(steady) FROM trials WHERE workload = ? AND run = ? AND threads = ?"
    (best,) = connection.execute(query, (workload, run, threads)).fetchone()
    return None if best is None else float(best)


def insert_trial(connection: sqlite3.Connection, workload: int, values: dict[str, Any]) -> int:
    """Add a trial of a kernel; its number."""
    names = ["workload", *values]
    query = f"INSERT INTO trials ({', '.join(names)}) VALUES ({', '.join(f':{n}' for n in names)})"
    return connection.execute(query, {"workload": workload, **values}).lastrowid or 0


def superfluous(
    connection: sqlite3.Connection, workload: int, threads: int, keep: int | None, failed: bool
) -> list[int]:
    """The trials that no answer depends on: those that failed if ``failed``, and all but the ``keep`` fastest."""
    kept = choice.never_pruned(connection, workload, threads)
    query = "SELECT id, outcome FROM trials WHERE workload = ? AND threads = ? ORDER BY steady, id"
    rows = connection.execute(query, (workload, threads)).fetchall()
    ok = [row["id"] for row in rows if row["outcome"] == Outcome.OK.value]
    gone = ok[keep:] if keep is not None else []
    gone += [row["id"] for row in rows if row["outcome"] != Outcome.OK.value] if failed else []
    return [number for number in gone if number not in kept]
